"""Reading a memory back: all of it, some rows, or a random draw that is unbiased for Eq. 1."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.seeds import seed_for
from selfreminder._base.sizes import as_index
from selfreminder.memory.columns import Columns

T = TypeVar("T")

_FITS = 2**29
"""bytes of deflated inputs that are read once and kept beside the memory, so that a draw costs nothing"""
_SINGLE = ("mps",)
"""devices without float64: there a draw is as even as float32 can make it"""


@dataclass(frozen=True, eq=False)
class MemoryBatch:
    """Items read back from a memory, with weights that make Σ weight·d unbiased for Σ_t mean_j d (Eq. 1).

    A loss of your own, `Reminder(loss=…)`, gets the model's logits now and one of these:

    >>> def largest_change(logits: Tensor, kept: MemoryBatch) -> Tensor:
    ...     return (logits - kept.logits).abs().amax(1)
    """

    inputs: dict[str, Tensor]
    """decoded; "x" for a plain tensor"""
    logits: Tensor
    """(n, K) float32, as recorded"""
    mask: Tensor | None
    """(n, K), which logits count; None where all do"""
    labels: Tensor
    tasks: Tensor
    weight: Tensor
    for_labels: Tensor | None = None
    """(n,) which items are of a second draw, of which the labels alone count; None where all is of one draw"""

    def __len__(self) -> int:
        return len(self.logits)

    def add_draw(self, other: "MemoryBatch") -> "MemoryBatch":
        """Both, one after the other: of these the logits count, of the other the labels."""
        both = {
            name: torch.cat([getattr(self, name), getattr(other, name)])
            for name in ("logits", "labels", "tasks", "weight")
        }
        return MemoryBatch(
            inputs={name: torch.cat([x, other.inputs[name]]) for name, x in self.inputs.items()},
            mask=None if self.mask is None or other.mask is None else torch.cat([self.mask, other.mask]),
            for_labels=torch.arange(len(self) + len(other), device=self.logits.device) >= len(self),
            **both,
        )


class DrawGenerators:
    """The random generators of draws from a memory, one for each device."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._made: dict[torch.device, torch.Generator] = {}
        self._loaded: dict[str, Tensor] = {}  # states that a checkpoint had and nobody has needed yet

    def get(self, device: torch.device) -> torch.Generator:
        """The generator of a device: as a checkpoint left one of its kind, whatever its number, else a new one."""
        if device not in self._made:
            generator = torch.Generator(device).manual_seed(seed_for(self._seed, "draws"))
            alike = [name for name in self._loaded if torch.device(name).type == device.type]
            if alike:
                name = str(device) if str(device) in alike else alike[0]
                generator.set_state(self._loaded.pop(name).cpu())
            self._made[device] = generator
        return self._made[device]

    def state_dict(self) -> dict[str, Tensor]:
        """The state of each generator, by device."""
        return {**self._loaded, **{str(device): generator.get_state() for device, generator in self._made.items()}}

    def load_state_dict(self, states: dict[str, Tensor]) -> None:
        """Go on from a `state_dict`."""
        self._made, self._loaded = {}, dict(states)


def _once(make: Callable[[Any], T]) -> cached_property[T]:
    """A property that is made when it is first asked for, and fit for a backward pass wherever that is."""

    @wraps(make)
    def made(reader: Any) -> T:
        with torch.inference_mode(False), torch.no_grad():
            return make(reader)

    return cached_property(made)


class ReadableColumns(Columns):
    """The columns of a memory as they are read back. Each thing is made once, when it is first asked for."""

    def draw(self, n: int, generator: torch.Generator | None = None, *, part: tuple[int, int] = (0, 1)) -> MemoryBatch:
        """Draw at most n items whose weighted sum is unbiased for Eq. 1's sum over tasks of means over items.

        Witnesses are never drawn: to a draw, they are not there. A memory of up to n items is returned whole: no
        noise. A larger one is laid on [0, T), each task over an interval of length 1, and one point is drawn in each
        of n equal strata: every item comes up n / (T·m_t) times on average, whatever the tasks' sizes m_t, with less
        variance than free draws. The cost does not depend on how much is kept.

        With part=(r, w) it is the r-th of w equal slices of a draw of w·n items; the mean of their weighted sums is
        that of the whole. Of fewer than w items each slice has all.
        """
        rank, world = (as_index("part", number) for number in part)
        if as_index("n", n) < 1:
            raise SelfReminderError(f"n is {n}: a draw has one item at least")
        if not 0 <= rank < world:
            raise SelfReminderError(f"part is {part}: it is (r, w) with r from 0 to w - 1")
        n *= world
        held, weight = self._drawn, self._weight
        if n >= len(weight):
            if world == 1 or len(weight) < world:  # rather than nothing for some
                return self._whole
            mine = torch.arange(rank, len(weight), world, device=weight.device)
            return self.batch(mine if held is None else held[mine], world * weight[mine])
        starts, counts, tasks = self._layout
        dtype = torch.float32 if starts.device.type in _SINGLE else torch.float64
        strata = torch.arange(n, dtype=dtype, device=starts.device)
        noise = torch.rand(n, dtype=dtype, device=starts.device, generator=generator)
        position = (strata + noise) * (tasks / n)
        # Rounding may reach T itself, or the end of an interval.
        task = position.long().clamp_(max=tasks - 1)
        count = counts[task]
        within = ((position - task) * count).long().minimum(count - 1)
        mine = (starts[task] + within)[rank::world]
        mine = mine if held is None else held[mine]
        return self.batch(mine, torch.full_like(mine, world * tasks / n, dtype=torch.float32))

    def batch(self, index: Tensor | None, weight: Tensor) -> MemoryBatch:
        """Decode the items of these rows (None: all)."""

        def pick(column: Tensor) -> Tensor:
            return column if index is None else column.index_select(0, index)

        return MemoryBatch(
            inputs={name: self._read(name, index) for name in self.inputs},
            logits=pick(self.logits),
            mask=None if self.mask is None else pick(self.mask),
            labels=pick(self._long_labels),
            tasks=pick(self.tasks),
            weight=weight,
        )

    @_once
    def counts(self) -> dict[int, int]:
        """Items of each task."""
        tasks, counts = torch.unique_consecutive(self.tasks, return_counts=True)
        return dict(zip(tasks.tolist(), counts.tolist()))

    @_once
    def logits(self) -> Tensor:
        """(n, K) float32, as they are read back."""
        return self.kept_logits.decode()

    @property
    def items_held(self) -> int:
        """Items that are drawn: all but witnesses."""
        return len(self._weight)

    @property
    def tasks_held(self) -> int:
        """Tasks of which items are drawn."""
        return self._layout[2]

    @_once
    def spread(self) -> float:
        """How far an item's logits are from their mean, Σ_k (z_k − z̄)²: the median over items, the mean over tasks.

        The median, because one input that is out of all proportion would speak for all others.
        """
        if not len(self._weight):
            return 0.0
        mask = torch.ones_like(self.logits, dtype=torch.bool) if self.mask is None else self.mask
        mean = (self.logits * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
        each = ((self.logits - mean) * mask).square().sum(1)
        each = each if self._drawn is None else each[self._drawn]
        medians = [of_task.median() for of_task in each.split(self._layout[1].tolist())]
        return torch.stack(medians).mean().item()

    def read_item(self, number: int) -> dict[str, Tensor] | None:
        """Decode the inputs (1, …) of the item with this id; None if it is not here."""
        row = (self.ids == number).nonzero().flatten()
        return {name: self._read(name, row) for name in self.inputs} if len(row) else None

    def _read(self, name: str, index: Tensor | None) -> Tensor:
        if name in self._inflated:
            read = self._inflated[name]
            return read if index is None else read.index_select(0, index)
        return self.inputs[name].decode(index).to(self.tasks.device)

    @_once
    def _inflated(self) -> dict[str, Tensor]:
        """Deflated inputs that fit, read once and for all."""
        deflated = {name: x for name, x in self.inputs.items() if x.is_deflated}
        size = sum(len(x) * math.prod(x.shape) * 4 for x in deflated.values())
        return {name: x.decode().to(self.tasks.device) for name, x in deflated.items()} if size <= _FITS else {}

    def draw_witnesses(self, n: int, generator: torch.Generator | None = None) -> MemoryBatch:
        """Draw at most n witnesses, each as likely as any other."""
        rows = self.witnesses.nonzero().flatten()
        if n < len(rows):
            rows = rows[torch.randperm(len(rows), generator=generator, device=rows.device)[:n]]
        return self.batch(rows, torch.full_like(rows, 1 / max(len(rows), 1), dtype=torch.float32))

    def read(self) -> MemoryBatch:
        """Decode all items, witnesses among them; each weighs the same."""
        return self.batch(None, torch.full_like(self.ids, 1 / max(len(self), 1), dtype=torch.float32))

    @_once
    def _drawn(self) -> Tensor | None:
        """The rows that are drawn from; None where all are."""
        return None if self.witness is None else (~self.witness).nonzero().flatten()

    @_once
    def _layout(self) -> tuple[Tensor, Tensor, int]:
        tasks = self.tasks if self._drawn is None else self.tasks[self._drawn]
        counts = torch.unique_consecutive(tasks, return_counts=True)[1]
        return counts.cumsum(0) - counts, counts, len(counts)

    @_once
    def _whole(self) -> MemoryBatch:
        return self.batch(self._drawn, self._weight)

    @_once
    def _weight(self) -> Tensor:
        """(n,) of each item that is drawn in Σ_t mean_j."""
        _, counts, _ = self._layout
        return (1.0 / counts).to(torch.float32).repeat_interleave(counts)

    @_once
    def mask(self) -> Tensor | None:
        """(n, K), which logits count; None where all do."""
        if self.width is None:
            return None
        return torch.arange(self.kept_logits.shape[0], device=self.tasks.device) < self.width[:, None]

    @_once
    def _long_labels(self) -> Tensor:
        return self.labels.long()
