"""What several methods are made of, none of which is a method itself."""
