"""A memory to look at: as a page of pictures, or as files."""
