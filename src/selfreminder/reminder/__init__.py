"""The reminder: a memory and a penalty for anybody's own training loop. Read `reminder.py` first."""

from selfreminder.reminder.recall_report import Report, TaskReport
from selfreminder.reminder.reminder import Reminder

__all__ = ["Reminder", "Report", "TaskReport"]
