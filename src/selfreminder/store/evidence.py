"""What validation data says of weights: of the new, a part of it; of the old, what the memory's witnesses say."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder.memory import Memory
from selfreminder.reminder.reminder import Reminder
from selfreminder.samples import Samples

_BATCH = 200
_LEAST, _MOST = 100, 2000
"""items of a kind that are looked at, whatever the training costs; more would cost more than they tell"""
_SHARE = 0.025
"""of the items that are seen in training, that are looked at each time: looking is to cost little beside training"""


@dataclass(frozen=True, eq=False)
class Answers:
    """Which items are answered right: (n,) of bool, of the new and of the old."""

    new: Tensor
    old: Tensor

    @property
    def accuracy(self) -> tuple[float, float | None]:
        """On the new, and on the old where there is something to judge it by."""
        return _mean(self.new), _mean(self.old) if len(self.old) else None

    @property
    def score(self) -> float:
        """The mean of both."""
        new, old = self.accuracy
        return new if old is None else (new + old) / 2

    def flips_since(self, before: "Answers") -> float:
        """The share of all items, new and old, that were right before and are not now."""
        was, now = torch.cat([before.new, before.old]), torch.cat([self.new, self.old])
        return _mean(was & ~now)

    def beats(self, other: "Answers") -> bool:
        """Whether the score is higher by more than its standard error, paired by item.

        An item is added that is won, and one that is lost (Bonett and Price): one of a hundred is no proof.
        """
        pairs = [(mine, theirs) for mine, theirs in ((self.new, other.new), (self.old, other.old)) if len(mine)]
        variance = 0.0
        for mine, theirs in pairs:
            n, won, lost = len(mine) + 2, int((mine & ~theirs).sum()) + 1, int((theirs & ~mine).sum()) + 1
            variance += ((won + lost) / n - ((won - lost) / n) ** 2) / n
        return self.score - other.score > math.sqrt(variance) / len(pairs)


class Evidence:
    """Validation data of the new, and items of a memory that speak for the old: witnesses, or for want of any, all."""

    def __init__(self, reminder: Reminder, validation: Samples, task: int, trained: int) -> None:
        """`trained` is how many items are seen in training, over all epochs."""
        assert validation.labels is not None
        self._call = replace(reminder.call, batch_size=_BATCH)
        self._task = task
        most = min(max(round(_SHARE * trained), _LEAST), _MOST)
        rows = _spread(torch.arange(len(validation)), most)
        self._new = {name: x[rows.to(x.device)] for name, x in validation.inputs.items()}, validation.labels[rows]
        self._old = _read(_speakers(reminder.memory, most))

    def ask(self, model: nn.Module) -> Answers:
        """Look which items a model answers right."""
        return Answers(*(logits.argmax(1) == labels for logits, labels in self._listen(model)))

    def measure_loss(self, model: nn.Module) -> float:
        """The mean of the cross entropies on the new and on the old."""
        losses = [F.cross_entropy(logits, labels).item() for logits, labels in self._listen(model) if len(labels)]
        return sum(losses) / len(losses)

    def _listen(self, model: nn.Module) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Logits and true classes, of the new and of the old."""
        inputs, labels = self._new
        return (self._call.compute_logits(model, inputs, self._task).cpu(), labels), self._recall(model)

    def _recall(self, model: nn.Module) -> tuple[Tensor, Tensor]:
        """The same of remembered items."""
        if not self._old:
            return torch.zeros(0, 1), torch.zeros(0, dtype=torch.int64)
        logits = [self._call.compute_logits(model, inputs, task).cpu() for task, inputs, _ in self._old]
        return torch.cat(logits), torch.cat([labels for *_, labels in self._old])


@dataclass(frozen=True)
class Interpolation:
    """Weights between the old and the new, (1 − share)·old + share·new, and what validation data says of them."""

    share: float
    accuracy_new: float
    accuracy_old: float | None
    flips: float
    """share of validation items that the old model has right and these weights have wrong"""


def interpolate(old: Mapping[str, Tensor], new: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """(1 − share)·old + share·new of weights and of batch norm's running statistics; counts are those of the new.

    >>> interpolate({"w": torch.zeros(2)}, {"w": torch.ones(2)}, 0.25)
    {'w': tensor([0.2500, 0.2500])}
    """
    if share == 1:
        return {name: value.clone() for name, value in new.items()}
    return {
        name: torch.lerp(old[name], value, share) if value.is_floating_point() else value.clone()
        for name, value in new.items()
    }


def choose_interpolation(tried: Sequence[Interpolation]) -> Interpolation:
    """The one with the fewest negative flips of those that lose nothing of the new; the last is the trained weights.

    Of several, the one with the higher accuracy on the new, and then the nearest to the old: flips grow with the share.

    >>> trained = Interpolation(1.0, accuracy_new=0.8, accuracy_old=0.9, flips=0.05)
    >>> half, fifth = Interpolation(0.5, 0.81, 0.92, flips=0.02), Interpolation(0.2, 0.7, 0.95, flips=0.0)
    >>> choose_interpolation([fifth, half, trained]).share
    0.5
    """
    good = [each for each in tried if each.accuracy_new >= tried[-1].accuracy_new]
    return min(good, key=lambda each: (each.flips, -each.accuracy_new, each.share))


def _speakers(memory: Memory, most: int) -> Memory:
    """The items of a memory by which weights are judged."""
    judges = memory.witnesses if bool(memory.witnesses.any()) else torch.ones_like(memory.witnesses)
    return memory.take(_spread(judges.nonzero().flatten(), most))


def _read(memory: Memory) -> list[tuple[int, dict[str, Tensor], Tensor]]:
    """Task, inputs and classes of items; the class is what was predicted then where nobody knows it."""
    found = []
    for task in memory.counts:
        kept = memory.take(memory.tasks == task).read()
        then = kept.logits if kept.mask is None else kept.logits.masked_fill(~kept.mask, float("-inf"))
        right = torch.where(kept.labels >= 0, kept.labels, then.argmax(1))
        found.append((task, kept.inputs, right.cpu()))
    return found


def _spread(rows: Tensor, most: int) -> Tensor:
    """At most so many rows, evenly over all: they may be in order of their classes or tasks."""
    if len(rows) <= most:
        return rows
    return rows[torch.linspace(0, len(rows) - 1, most, device=rows.device).round().long()]


def _mean(right: Tensor) -> float:
    return right.double().mean().item()
