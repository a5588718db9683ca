"""The reproduction of the paper: its figures as runs, its claims judged, one page."""
