"""Strengths and step sizes chosen on validation data."""
