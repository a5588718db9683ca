"""The documentation's site, made of docs/, results/ and what the code says of itself: `python -m scripts.site`."""
