"""Reminders inside the trainers that people use: one file each, which needs the extra of its name."""

import warnings
from typing import Any

from selfreminder.reminder.reminder import Reminder


def load_unless_empty(reminder: Reminder, state: dict[str, Any]) -> None:
    """Go on from a checkpoint's reminder; one that has nothing yet does not take away what is remembered by now."""
    now = reminder.memory
    reminder.load_state_dict(state)
    if len(now) and not len(reminder.memory):
        reminder.memory = now
        warnings.warn("this checkpoint remembers nothing yet: what is remembered by now stays", stacklevel=2)
