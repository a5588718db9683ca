"""Reminders inside the trainers that people use: one file each, which needs the extra of its name."""

import warnings
from typing import Any

from torch import nn

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import Size
from selfreminder.reminder import Reminder


class RemembersAtEnd:
    """What callbacks have in common that are told at the start what to remember when training ends."""

    def __init__(
        self,
        reminder: Reminder,
        data: Any = None,
        *,
        per_class: int | None = None,
        per_task: int | None = None,
        budget: str | int | None = None,
        select: str = "random",
    ) -> None:
        """
        Args:
            reminder: what is remembered. While that is nothing, training is as without it.
            data: what to remember of when training ends: see the class. Without it nothing is; call
                `reminder.remember` when you like.
            per_class, per_task, budget, select: how much of `data`, and which, as in `Reminder.remember`.
        """
        if data is None and (per_class or per_task or budget):
            raise SelfReminderError("per_class, per_task and budget say how much of data to keep: pass data=… too")
        self.reminder = reminder
        self.data = data
        self.size = None if data is None else Size(per_class, per_task, budget)
        self.select = select

    def remember(self, model: nn.Module, data: Any) -> None:
        """Remember some of the data, if there is any."""
        if self.size is not None:
            self.reminder.remember(model, data, **vars(self.size), select=self.select)


def size_if_given(per_class: int | None, per_task: int | None, budget: str | int | None) -> Size | None:
    """How much to keep; None where nobody said."""
    given = per_class, per_task, budget
    return None if given == (None, None, None) else Size(*given)


def load_unless_empty(reminder: Reminder, state: dict[str, Any]) -> None:
    """Go on from a checkpoint's reminder; one that has nothing yet does not take away what is remembered by now."""
    now = reminder.memory
    reminder.load_state_dict(state)
    if len(now) and not len(reminder.memory):
        reminder.memory = now
        warnings.warn("this checkpoint remembers nothing yet: what is remembered by now stays", stacklevel=2)
