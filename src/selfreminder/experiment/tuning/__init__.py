"""Strengths and step sizes chosen on validation data: candidates, trials of them, and the table of what was chosen."""
