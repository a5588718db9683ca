"""HTML as trees of elements, and the blocks that pages are made of."""
