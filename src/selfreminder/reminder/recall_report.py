"""How well a model still does what it did on the items that it remembers."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from selfreminder.memory.memory import Memory
from selfreminder.reminder.losses import ItemLoss
from selfreminder.reminder.model_call import ModelCall, find_device

WEAK, STRONG = 0.9, 0.99
"""below the one agreement too much was forgotten; above the other there is room to learn more"""
_BEHIND = 0.1
"""by how much the new may be less accurate than the old was before something must be wrong"""


@dataclass(frozen=True)
class TaskReport:
    """How well one task is remembered."""

    task: int
    items: int
    agreement: float
    """share of items whose prediction is what it was"""
    drift: float
    """mean |Δz| of a logit"""
    penalty: float
    """mean of the loss an item, without λ"""
    accuracy: float | None
    """share of items predicted right, where labels are known"""
    accuracy_then: float | None
    """the same, when they were recorded"""

    @property
    def is_finite(self) -> bool:
        """Whether logits, kept and now, are numbers that can be compared."""
        return math.isfinite(self.drift) and math.isfinite(self.penalty)

    @property
    def words(self) -> str:
        """The same in words."""
        if not self.is_finite:
            return "not finite"
        if self.agreement < WEAK:
            return "forgets: too weak"
        return "remembers" if self.agreement < 1 else "remembers all"


@dataclass(frozen=True)
class Report:
    """What `Reminder.report` says: a row for each task, and whether λ suits. Print it.

    >>> Report((), strength=0.1, over_tasks="sum").advice
    'Nothing is remembered yet.'
    """

    tasks: tuple[TaskReport, ...]
    strength: float
    over_tasks: str
    new_accuracy: float | None = None
    """on what is learned now, if that was given"""

    @property
    def penalty(self) -> float:
        """λ · Σ_t mean_j, over all that is remembered: compare it with your loss."""
        total = self.strength * sum(row.penalty for row in self.tasks)
        return total / len(self.tasks) if self.over_tasks == "mean" and self.tasks else total

    @property
    def verdict(self) -> str:
        """ "too weak", "too strong", "about right", "not finite", or "empty"."""
        if not self.tasks:
            return "empty"
        if not all(row.is_finite for row in self.tasks):
            return "not finite"
        if min(row.agreement for row in self.tasks) < WEAK:
            return "too weak"
        then = [row.accuracy_then for row in self.tasks if row.accuracy_then is not None]
        stiff = all(row.agreement >= STRONG for row in self.tasks)
        if stiff and then and self.new_accuracy is not None and self.new_accuracy < sum(then) / len(then) - _BEHIND:
            return "too strong"
        return "about right"

    @property
    def advice(self) -> str:
        """What to do about it, in a sentence."""
        forgotten = [str(row.task) for row in self.tasks if row.agreement < WEAK]
        if self.verdict == "not finite":
            lost = [str(row.task) for row in self.tasks if not row.is_finite]
            return (
                f"Not finite: of task {', '.join(lost)} logits are infinite or NaN, those kept or those that the model "
                "gives now. Go back to a model that is finite, lower the step size, and remember the task anew."
            )
        if self.verdict == "too weak":
            return (
                f"Too weak: of task {', '.join(forgotten)} more than {1 - WEAK:.0%} of the predictions changed. "
                f"Raise the strength (now {self.strength:.3g}), say threefold, or remember more items."
            )
        if self.verdict == "too strong":
            return (
                f"Too strong: nothing old changed, and the new is at {self.new_accuracy:.3f} only. "
                f"Lower the strength (now {self.strength:.3g}), say to a third."
            )
        if self.verdict == "empty":
            return "Nothing is remembered yet."
        if self.new_accuracy is None:
            return "About right, as far as the old goes; report(model, new=(inputs, labels)) looks at the new too."
        return "About right."

    def __str__(self) -> str:
        lines = ["task  items  agreement  accuracy (then)  mean |Δz|  penalty"]
        for row in self.tasks:
            now, then = ("-" if value is None else f"{value:.3f}" for value in (row.accuracy, row.accuracy_then))
            lines.append(
                f"{row.task:>4}  {row.items:>5}  {row.agreement:>9.3f}  {f'{now} ({then})':>15}  "
                f"{row.drift:>9.4f}  {row.penalty:>7.4g}  {row.words}"
            )
        new = [] if self.new_accuracy is None else [f"accuracy on the new: {self.new_accuracy:.3f}"]
        return "\n".join([*lines, *new, f"penalty with strength {self.strength:.3g}: {self.penalty:.4g}", self.advice])


def report_tasks(memory: Memory, call: ModelCall, loss: ItemLoss, model: nn.Module) -> Iterator[TaskReport]:
    """Compare the logits that a model gives now with those kept, task by task."""
    for task in memory.counts:
        ours = memory.take(memory.tasks == task).to(find_device(model))
        kept, width = ours.draw(len(ours)), int(ours.widths.max())
        outputs = call.compute_logits(model, kept.inputs, task)
        now = F.pad(call.match_width(outputs, width), (0, kept.logits.shape[1] - width))  # other tasks' may be wider
        mask = torch.ones_like(now, dtype=torch.bool) if kept.mask is None else kept.mask
        before = kept.logits.masked_fill(~mask, float("-inf")).argmax(1)
        after = outputs.argmax(1)  # out of all classes that the model has now, which may be more than it had
        labelled = kept.labels >= 0
        known = bool(labelled.any())
        right, right_then = ((each == kept.labels)[labelled].float().mean().item() for each in (after, before))
        yield TaskReport(
            task=task,
            items=len(kept),
            agreement=(before == after).float().mean().item(),
            drift=(now - kept.logits)[mask].abs().mean().item(),
            penalty=loss(now, kept).mean().item(),
            accuracy=right if known else None,
            accuracy_then=right_then if known else None,
        )
