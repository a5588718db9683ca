"""The reminder: a memory and a penalty for anybody's own training loop. Read `reminder.py` first."""

from selfreminder.reminder.model_call import ModelCall
from selfreminder.reminder.recall_report import Report, TaskReport
from selfreminder.reminder.reminder import Reminder

__all__ = ["ModelCall", "Reminder", "Report", "TaskReport"]
