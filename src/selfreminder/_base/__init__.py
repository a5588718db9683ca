"""What everything else stands on: errors, seeds, sizes, files written whole, eval mode."""
