"""Charts as SVG elements."""
