"""How well a model still does what it did, judged by witnesses: remembered items that no penalty holds."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder.memory.memory import Memory
from selfreminder.memory.sampling import MemoryBatch
from selfreminder.reminder.drop import Drop, denies
from selfreminder.reminder.losses import ItemLoss
from selfreminder.reminder.model_call import ModelCall, find_device

ALLOWED = 0.05
"""how much accuracy on the old may be lost where nobody says, before it is called forgetting"""
LOST = 0.1
"""a loss of so much, of the old or the new, is never about right"""


@dataclass(frozen=True)
class TaskReport:
    """How well one task is remembered."""

    task: int
    items: int
    witnesses: int
    """items among these that no penalty holds"""
    agreement: float
    """share of predictions that are what they were: of witnesses, where there are any"""
    drop: Drop
    """of accuracy, or of agreement where labels are not known; of witnesses, where there are any"""
    drift: float
    """mean |Δz| of a logit"""
    penalty: float
    """mean of the loss of an item that is held, without λ"""
    accuracy: float | None
    """share of items predicted right, where labels are known"""
    accuracy_then: float | None
    """the same, when they were recorded"""
    confidence_then: float
    """mean probability of what was predicted then"""
    classes: dict[int, tuple[int, float, float]]
    """of each class: items, share that was right then, share that is right now"""

    @property
    def is_finite(self) -> bool:
        """Whether logits, kept and now, are numbers that can be compared."""
        return math.isfinite(self.drift) and math.isfinite(self.penalty)

    @property
    def is_recorded_wrong(self) -> bool:
        """Whether labels deny what the model was sure of when the items were recorded."""
        return denies(self.accuracy_then, self.confidence_then, self.items)

    def in_words(self, allowed: float) -> str:
        """The same in words."""
        if not self.is_finite:
            return "not finite"
        if self.is_recorded_wrong:
            return "recorded wrong"
        if self.drop.low > allowed:
            return "forgets"
        if self.drop.mean > allowed:
            return "may forget"
        return "too few to tell" if self.drop.high >= max(LOST, allowed) else "remembers"


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
    old: Drop | None = None
    """on old data that was given, instead of witnesses"""
    allowed: float = ALLOWED
    """how much may be lost"""
    strengths: tuple[float, ...] = ()
    """with a tolerance: λ as it was, once every few steps"""
    weights_of_new: tuple[float, ...] = ()
    """with a tolerance: what the new weighed then, at most 1"""

    @property
    def penalty(self) -> float:
        """λ · Σ_t mean_j, over all that is held: compare it with your loss."""
        total = self.strength * sum(row.penalty for row in self.tasks)
        return total / len(self.tasks) if self.over_tasks == "mean" and self.tasks else total

    @property
    def is_optimistic(self) -> bool:
        """Whether it is judged by the very items that the penalty holds, for want of others."""
        return self.old is None and any(row.items and not row.witnesses for row in self.tasks)

    @property
    def drop(self) -> Drop:
        """How much of the old is lost, over all tasks."""
        if self.old is not None:
            return self.old
        n = sum(row.drop.items for row in self.tasks)
        net = round(sum(row.drop.mean * row.drop.items for row in self.tasks))
        changed = round(sum((1 - row.agreement) * row.drop.items for row in self.tasks))
        lost = max((changed + net + 1) // 2, net, 0)
        return Drop.of(lost, lost - net, n)

    @property
    def accuracy_then(self) -> float | None:
        """Over all items that have a label, when they were recorded."""
        known = [(row.accuracy_then, row.items) for row in self.tasks if row.accuracy_then is not None]
        return sum(right * n for right, n in known) / sum(n for _, n in known) if known else None

    @property
    def verdict(self) -> str:
        """What is so, in the words of docs/own-training.md: "forgets", "may forget", "about right", …"""
        if not self.tasks:
            return "empty"
        then, now = self._best_then, self.new_accuracy
        behind = then is not None and now is not None and now < then - LOST
        held = sum((row.accuracy or 0.0) * row.items for row in self.tasks) / sum(row.items for row in self.tasks)
        lost_all = behind and then is not None and now is not None and max(held, now) < then / 2
        if not all(row.is_finite for row in self.tasks) or lost_all:
            return "diverged"
        if any(row.is_recorded_wrong for row in self.tasks):
            return "recorded wrong"
        if self._forgotten or self.drop.low > self.allowed:
            return "forgets"
        if behind:
            return "learns nothing"
        if self.drop.mean > self.allowed:
            return "may forget"
        return "too few to tell" if self.drop.high >= max(LOST, self.allowed) else "about right"

    @property
    def _best_then(self) -> float | None:
        """What the new is measured by. With a tolerance a task that gave way is none: the best is."""
        known = [row.accuracy_then for row in self.tasks if row.accuracy_then is not None]
        return max(known) if known and self.weights_of_new else self.accuracy_then

    @property
    def _forgotten(self) -> list[int]:
        """Tasks of which too much was lost for sure."""
        return [row.task for row in self.tasks if row.drop.low > self.allowed] if self.old is None else []

    @property
    def advice(self) -> str:
        """What to do about it, in a sentence."""
        strength, weights = f"{self.strength:.3g}", self.weights_of_new
        stronger = "Lower max_drop" if weights else f"Raise the strength (now {strength}), say threefold"
        new = None if self.new_accuracy is None else f"{self.new_accuracy:.3f}"
        match self.verdict:
            case "empty":
                return "Nothing is remembered yet."
            case "diverged":
                lost = [str(row.task) for row in self.tasks if not row.is_finite]
                what = (
                    f"logits of task {', '.join(lost)} are not finite" if lost else f"old and new ({new}) are both lost"
                )
                return f"Diverged: {what}. Go back to a model that was well, and lower the step size."
            case "recorded wrong":
                wrong = [str(row.task) for row in self.tasks if row.is_recorded_wrong]
                return (
                    f"Recorded wrong: of task {', '.join(wrong)} the labels deny what the model was sure of when it "
                    "was remembered. Remember before you train on the new, with the labels that the outputs stand for."
                )
            case "forgets":
                of = f" of task {', '.join(map(str, self._forgotten))}" if self._forgotten else ""
                more = (
                    f" The new is at {new} only: more items may help where a stronger penalty does not."
                    if (
                        new and self.accuracy_then and self.new_accuracy < self.accuracy_then - LOST  # pyright: ignore
                    )
                    else ""
                )
                return f"Forgets: accuracy{of} fell by {self.drop}. {stronger}, or remember more items.{more}"
            case "learns nothing":
                weaker = f"Lower the strength (now {strength}), say to a third"
                if weights:
                    gave_way = f"which weighed {sum(weights) / len(weights):.2g} on average, so that no more is lost"
                    weaker = f"The old is held at the price of the new, {gave_way}: raise max_drop, or remember more"
                return (
                    f"Learns nothing: the old is held, and the new is at {new} only, where the old was at "
                    f"{self._best_then:.3f}. {weaker}."
                )
            case "may forget":
                return (
                    f"May forget: the old fell by {self.drop} on {self.drop.items} items, where {self.allowed:g} is "
                    f"allowed; so few cannot tell for sure. {stronger}, remember more, or pass old=(inputs, labels) "
                    "that the model was not trained on."
                )
            case "too few to tell":
                return (
                    f"Too few to tell: the old fell by {self.drop} on {self.drop.items} items. Remember more, or pass "
                    "old=(inputs, labels) that the model was not trained on."
                )
        optimistic = " It is judged by items that the penalty holds: other old data will have lost more."
        look = "" if new else " report(model, new=(inputs, labels)) looks at the new, too."
        return f"About right: the old fell by {self.drop}.{optimistic if self.is_optimistic else ''}{look}"

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON can say it, verdict and advice included."""
        said = {"verdict": self.verdict, "advice": self.advice, "drop": dataclasses.asdict(self.drop)}
        return {**dataclasses.asdict(self), **said, "penalty": self.penalty, "is_optimistic": self.is_optimistic}

    def __str__(self) -> str:
        lines = ["task  items (witnesses)  agreement  accuracy (then)      drop (95 % interval)  mean |Δz|  penalty"]
        for row in self.tasks:
            now, then = ("-" if value is None else f"{value:.3f}" for value in (row.accuracy, row.accuracy_then))
            items = f"{row.items} ({row.witnesses})"
            lines.append(
                f"{row.task:>4}  {items:>17}  {row.agreement:>9.3f}  {f'{now} ({then})':>15}  "
                f"{row.drop!s:>24}  {row.drift:>9.4f}  {row.penalty:>7.4g}  {row.in_words(self.allowed)}"
            )
        worst = sorted(
            (now - then, task.task, label) for task in self.tasks for label, (_, then, now) in task.classes.items()
        )
        lost = [f"class {label} of task {task} ({-drop:.2f})" for drop, task, label in worst[:3] if drop < 0]
        new = [] if self.new_accuracy is None else [f"accuracy on the new: {self.new_accuracy:.3f}"]
        given = [] if self.old is None else [f"drop on the old that was given: {self.old}"]
        least = [f"lost most: {', '.join(lost)}"] if lost else []
        moved = f", moved between {min(self.strengths):.3g} and {max(self.strengths):.3g}" if self.strengths else ""
        if self.weights_of_new:
            low, high, now = min(self.weights_of_new), max(self.weights_of_new), self.weights_of_new[-1]
            moved += f", while the new weighed between {low:.2g} and {high:.2g} (now {now:.2g})"
        strength = f"penalty with strength {self.strength:.3g}{moved}: {self.penalty:.4g}"
        return "\n".join([*lines, *least, *given, *new, strength, self.advice])


def report_tasks(memory: Memory, call: ModelCall, loss: ItemLoss, model: nn.Module) -> Iterator[TaskReport]:
    """Compare the logits that a model gives now with those kept, task by task."""
    for task in memory.counts:
        ours = memory.take(memory.tasks == task).to(find_device(model))
        kept, width = ours.read(), int(ours.widths.max())
        outputs = call.compute_logits(model, kept.inputs, task, apart=ours.witness)
        now = F.pad(call.match_width(outputs, width), (0, kept.logits.shape[1] - width))  # other tasks' may be wider
        after = outputs.argmax(1)  # out of all classes that the model has now, which may be more than it had
        yield _compare(task, ours, kept, now, after, loss(now, kept))


def _compare(task: int, ours: Memory, kept: MemoryBatch, now: Tensor, after: Tensor, losses: Tensor) -> TaskReport:
    mask = torch.ones_like(now, dtype=torch.bool) if kept.mask is None else kept.mask
    chances = kept.logits.masked_fill(~mask, float("-inf")).softmax(1)
    confidence, before = chances.max(1)
    labelled, witness = kept.labels >= 0, ours.witnesses
    right_then, right = before == kept.labels, after == kept.labels
    judged = witness if bool(witness.any()) else torch.ones_like(witness)
    known = judged & labelled
    if bool(known.any()):
        lost, won, n = (int(each.sum()) for each in (known & right_then & ~right, known & ~right_then & right, known))
    else:
        lost, won, n = int((judged & (before != after)).sum()), 0, int(judged.sum())
    held = ~witness if bool((~witness).any()) else witness
    return TaskReport(
        task=task,
        items=len(kept),
        witnesses=int(witness.sum()),
        agreement=_share(before == after, judged) or 0.0,
        drop=Drop.of(lost, won, n),
        drift=(now - kept.logits)[mask].abs().mean().item(),
        penalty=losses[held].mean().item(),
        accuracy=_share(right, labelled),
        accuracy_then=_share(right_then, labelled),
        confidence_then=confidence.mean().item(),
        classes=_by_class(kept.labels, right_then, right),
    )


def _by_class(labels: Tensor, *rights: Tensor) -> dict[int, tuple[int, float, float]]:
    found = {}
    for label in labels[labels >= 0].unique().tolist():
        ours = labels == label
        then, now = (right[ours].float().mean().item() for right in rights)
        found[label] = int(ours.sum()), then, now
    return found


def _share(values: Tensor, of: Tensor) -> float | None:
    return values[of].float().mean().item() if bool(of.any()) else None
