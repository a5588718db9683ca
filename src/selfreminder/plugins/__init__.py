"""Reminders inside the trainers that people use: one file each, which needs the extra of its name."""
