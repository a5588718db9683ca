"""Memory: a few old items with the logits that the model gave them. A value: ``memory = memory + remembered``."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from selfreminder import codec
from selfreminder.errors import SelfReminderError
from selfreminder.sizes import share_evenly, show_bytes

UNKNOWN = -1
"""the label, source or time of an item where nobody said"""
_MOST = 2**31 - 1
_DTYPES = {
    "logits": torch.float32,
    "width": torch.int16,
    "labels": torch.int32,
    "tasks": torch.int32,
    "ids": torch.int32,
    "sources": torch.int64,
    "selections": torch.uint8,
    "times": torch.int64,
}


@dataclass(frozen=True, eq=False)
class MemoryBatch:
    """Items read back from a memory, with weights that make Σ weight·d unbiased for Σ_t mean_j d (Eq. 1)."""

    inputs: dict[str, Tensor]
    """decoded; "x" for a plain tensor"""
    logits: Tensor
    """(n, K) float32, as recorded"""
    mask: Tensor | None
    """(n, K), which logits count; None where all do"""
    labels: Tensor
    tasks: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.logits)


@dataclass(frozen=True, eq=False, repr=False)
class Memory:
    """Equal-length columns, one row an item, ordered by task and within a task by priority.

    >>> memory = Memory.of({"x": torch.rand(6, 4)}, torch.zeros(6, 3), task=0)
    >>> memory = memory + Memory.of({"x": torch.rand(2, 4)}, torch.zeros(2, 3), task=1)
    >>> len(memory), memory.counts, memory.nbytes
    (8, {0: 6, 1: 2}, 408)
    """

    inputs: dict[str, Tensor] = field(default_factory=dict)
    """as encoded; "x" for a plain tensor, several for tokenised text"""
    codecs: dict[str, str] = field(default_factory=dict)
    """how each input is kept"""
    logits: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    """(n, K), padded to the widest"""
    width: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int16))
    """how many logits of each item count"""
    labels: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int32))
    tasks: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int32))
    ids: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int32))
    """given once, in order, never again"""
    sources: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """the item's index in the data it was chosen from"""
    selections: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.uint8))
    """why it was chosen: an index into `selection_names`"""
    times: Tensor | None = None
    """when, in seconds since 1970; None where no item has one"""
    selection_names: tuple[str, ...] = ()
    next_id: int = 0

    @classmethod
    def of(
        cls,
        inputs: Mapping[str, Tensor],
        logits: Tensor,
        *,
        task: int,
        labels: Tensor | None = None,
        sources: Tensor | None = None,
        codecs: Mapping[str, str] | str = "auto",
        selection: str = "given",
        time: int | None = None,
    ) -> "Memory":
        """A memory of one task, best items first; `codecs` is one name for all inputs or one for each."""
        if logits.ndim != 2:
            raise SelfReminderError(f"logits have the shape (items, classes), not {tuple(logits.shape)}")
        if not 0 <= task <= _MOST:
            raise SelfReminderError(f"task is {task}: it is a number from 0 on")
        n, width = logits.shape
        for name, values in (("labels", labels), ("sources", sources)):
            if values is not None and values.shape != (n,):
                raise SelfReminderError(f"{name} have the shape {tuple(values.shape)}, there are {n} items")
        if labels is not None and n and not (labels.min() >= UNKNOWN and labels.max() <= _MOST):
            raise SelfReminderError(f"labels are classes from 0 on, or {UNKNOWN} where unknown")
        if width > torch.iinfo(torch.int16).max:
            raise SelfReminderError(f"a memory holds at most 32,767 logits an item, the model gives {width}")
        for name, x in inputs.items():
            if len(x) != n:
                raise SelfReminderError(f"input '{name}' has {len(x)} items, the logits {n}")
        wanted = dict.fromkeys(inputs, codecs) if isinstance(codecs, str) else codecs
        resolved = {name: codec.resolve(wanted[name], x) for name, x in inputs.items()}

        def column(values: Tensor | int, dtype: torch.dtype) -> Tensor:
            if isinstance(values, int):
                return torch.full((n,), values, dtype=dtype, device=logits.device)
            return values.detach().to(logits.device, dtype)

        return cls(
            inputs={name: codec.encode(resolved[name], x.detach()).to(logits.device) for name, x in inputs.items()},
            codecs=resolved,
            logits=logits.detach().to(torch.float32),
            width=column(width, torch.int16),
            labels=column(UNKNOWN if labels is None else labels, torch.int32),
            tasks=column(task, torch.int32),
            ids=torch.arange(n, dtype=torch.int32, device=logits.device),
            sources=column(UNKNOWN if sources is None else sources, torch.int64),
            selections=column(0, torch.uint8),
            times=None if time is None else column(time, torch.int64),
            selection_names=(selection,),
            next_id=n,
        )

    def check(self) -> None:
        """Raise if this cannot be a memory, whoever made it."""
        columns = self.columns
        for name, column in columns.items():
            if column.ndim < 1 or len(column) != len(self):
                raise SelfReminderError(f"column '{name}' has not the length of the others, {len(self)}")
            if name in _DTYPES and column.dtype != _DTYPES[name]:
                raise SelfReminderError(f"column '{name}' is {column.dtype}, it should be {_DTYPES[name]}")
        if self.codecs.keys() != self.inputs.keys() or not set(self.codecs.values()) <= set(codec.NAMES) - {"auto"}:
            raise SelfReminderError(f"its codecs are {self.codecs}, its inputs {sorted(self.inputs)}")
        good = self.logits.ndim == 2
        if len(self) and good:
            good = bool(
                (self.width >= 0).all()
                and (self.width <= self.logits.shape[1]).all()
                and (self.tasks[1:] >= self.tasks[:-1]).all()
                and (self.selections < len(self.selection_names)).all()
            )
        if not good:
            raise SelfReminderError("its columns contradict each other")

    # What it holds ------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.logits)

    def __repr__(self) -> str:
        return f"Memory({len(self)} items of {len(self.counts)} tasks, {show_bytes(self.nbytes)})"

    @property
    def columns(self) -> dict[str, Tensor]:
        """Every tensor by name: all that is kept, and all that a file holds."""
        columns = {f"inputs.{name}": x for name, x in self.inputs.items()}
        for name in _DTYPES:
            if (value := getattr(self, name)) is not None:
                columns[name] = value
        return columns

    @property
    def facts(self) -> dict[str, Any]:
        """What is not a column, as JSON can say it."""
        return {
            "codecs": self.codecs,
            "selection_names": list(self.selection_names),
            "next_id": self.next_id,
        }

    @classmethod
    def from_columns(cls, columns: Mapping[str, Tensor], facts: Mapping[str, Any]) -> "Memory":
        """The inverse of `columns` and `facts`."""
        inputs = {k.removeprefix("inputs."): v for k, v in columns.items() if k.startswith("inputs.")}
        rest = {k: v for k, v in columns.items() if not k.startswith("inputs.")}
        return cls(
            inputs=inputs,
            codecs=dict(facts["codecs"]),
            selection_names=tuple(facts["selection_names"]),
            next_id=int(facts["next_id"]),
            **rest,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all columns, provenance included."""
        return sum(column.nbytes for column in self.columns.values())

    @property
    def item_nbytes(self) -> int:
        """Bytes of one item."""
        return self.nbytes // len(self) if len(self) else 0

    @cached_property
    def counts(self) -> dict[int, int]:
        """Items of each task."""
        tasks, counts = torch.unique_consecutive(self.tasks, return_counts=True)
        return dict(zip(tasks.tolist(), counts.tolist()))

    # New memories from old ----------------------------------------------------------------------------

    def __add__(self, other: "Memory") -> "Memory":
        """Both memories' items; those of `other` come after ours of the same task and get new ids."""
        if not len(other):
            return self
        if not len(self):
            return dataclasses.replace(other, ids=other.ids + self.next_id, next_id=self.next_id + other.next_id)
        if self.inputs.keys() != other.inputs.keys():
            raise SelfReminderError(
                f"this memory holds the inputs {sorted(self.inputs)}, the other {sorted(other.inputs)}"
            )
        inputs, codecs = {}, {}
        for name in self.inputs:
            inputs[name], codecs[name] = self._merge_input(other, name)
        names = tuple(dict.fromkeys((*self.selection_names, *other.selection_names)))
        recoded = torch.tensor([names.index(name) for name in other.selection_names], dtype=torch.uint8)
        widest = max(self.logits.shape[1], other.logits.shape[1])
        merged = Memory(
            inputs=inputs,
            codecs=codecs,
            logits=torch.cat([_widen(self.logits, widest), _widen(other.logits, widest)]),
            width=torch.cat([self.width, other.width]),
            labels=torch.cat([self.labels, other.labels]),
            tasks=torch.cat([self.tasks, other.tasks]),
            ids=torch.cat([self.ids, other.ids + self.next_id]),
            sources=torch.cat([self.sources, other.sources]),
            selections=torch.cat([self.selections, recoded.to(other.ids.device)[other.selections.long()]]),
            times=None if self.times is None and other.times is None else torch.cat([_times(self), _times(other)]),
            selection_names=names,
            next_id=self.next_id + other.next_id,
        )
        in_order = bool((merged.tasks[1:] >= merged.tasks[:-1]).all())
        return merged if in_order else merged.take(torch.arange(len(merged), device=merged.tasks.device))

    def _merge_input(self, other: "Memory", name: str) -> tuple[Tensor, str]:
        ours, theirs = self.inputs[name], other.inputs[name]
        if ours.shape[1:] != theirs.shape[1:]:
            raise SelfReminderError(
                f"this memory holds inputs '{name}' of shape {tuple(ours.shape[1:])}, "
                f"the new ones have {tuple(theirs.shape[1:])}"
            )
        if self.codecs[name] == other.codecs[name] and ours.dtype == theirs.dtype:
            return torch.cat([ours, theirs]), self.codecs[name]
        # Different codecs: keep what both read back, so that nothing is rounded a second time.
        decoded = codec.decode(self.codecs[name], ours), codec.decode(other.codecs[name], theirs)
        return torch.cat(decoded), "raw"

    def take(self, index: Tensor) -> "Memory":
        """The items of these rows (indices or a mask), in this order within a task."""
        rows = index.nonzero().flatten() if index.dtype == torch.bool else index
        rows = rows[torch.argsort(self.tasks[rows], stable=True)]
        return Memory.from_columns({name: column[rows] for name, column in self.columns.items()}, self.facts)

    def interleave(self, task: int, older: int) -> "Memory":
        """Let the items of a task that joined it later, all but its `older` first ones, rank among those.

        The first of every class come first, older before newer, then the second of every class.
        """
        rows = (self.tasks == task).nonzero().flatten()
        turns, seen = [], Counter[tuple[bool, int]]()
        for place, label in enumerate(self.labels[rows].tolist()):
            turns.append(seen[place >= older, label])
            seen[place >= older, label] += 1
        index = torch.arange(len(self), device=rows.device)
        index[rows] = rows[torch.argsort(torch.tensor(turns), stable=True).to(rows.device)]
        return self.take(index)

    def shrink(self, budget: int) -> "Memory":
        """At most `budget` bytes: every task gives up its last items until all tasks are even within one."""
        if not len(self):
            return self
        items = budget // self.item_nbytes
        if items < len(self.counts):
            raise SelfReminderError(
                f"a budget of {show_bytes(budget)} holds {items} items of {self.item_nbytes} bytes, "
                f"fewer than one for each of the {len(self.counts)} tasks: raise the budget"
            )
        if items >= len(self):
            return self
        shares = share_evenly(items, list(self.counts.values()))
        kept, start = [], 0
        for share, count in zip(shares, self.counts.values()):
            kept.append(torch.arange(start, start + share))
            start += count
        return self.take(torch.cat(kept).to(self.ids.device))

    def to(self, device: torch.device | str) -> "Memory":
        """The same memory with its columns on a device."""
        if self.logits.device == torch.device(device):
            return self
        moved = {name: column.to(device) for name, column in self.columns.items()}
        return Memory.from_columns(moved, self.facts)

    # Reading back -------------------------------------------------------------------------------------

    def draw(self, n: int, generator: torch.Generator | None = None) -> MemoryBatch:
        """At most n items whose weighted sum is unbiased for Eq. 1's sum over tasks of means over items.

        A memory of up to n items is returned whole: no noise. A larger one is laid on [0, T), each task over
        an interval of length 1, and one point is drawn in each of n equal strata: every item comes up
        n / (T·m_t) times on average, whatever the tasks' sizes m_t, with less variance than free draws. The
        cost does not depend on how much is kept.
        """
        if n >= len(self):
            return self._whole
        starts, counts, tasks = self._layout
        strata = torch.arange(n, dtype=torch.float64, device=starts.device)
        noise = torch.rand(n, dtype=torch.float64, device=starts.device, generator=generator)
        position = (strata + noise) * (tasks / n)
        # Rounding may reach T itself, or the end of an interval.
        task = position.long().clamp_(max=tasks - 1)
        count = counts[task]
        within = ((position - task) * count).long().minimum(count - 1)
        weight = torch.full((n,), tasks / n, device=starts.device)
        return self.batch(starts[task] + within, weight)

    def batch(self, index: Tensor | None, weight: Tensor) -> MemoryBatch:
        """The items of these rows (None: all), decoded."""

        def pick(column: Tensor) -> Tensor:
            return column if index is None else column.index_select(0, index)

        return MemoryBatch(
            inputs={name: codec.decode(self.codecs[name], pick(x)) for name, x in self.inputs.items()},
            logits=pick(self.logits),
            mask=None if self._mask is None else pick(self._mask),
            labels=pick(self._long_labels),
            tasks=pick(self.tasks),
            weight=weight,
        )

    @cached_property
    def _layout(self) -> tuple[Tensor, Tensor, int]:
        counts = torch.tensor(list(self.counts.values()), device=self.tasks.device)
        return counts.cumsum(0) - counts, counts, len(counts)

    @cached_property
    def _whole(self) -> MemoryBatch:
        _, counts, _ = self._layout
        return self.batch(None, (1.0 / counts).to(torch.float32).repeat_interleave(counts))

    @cached_property
    def _mask(self) -> Tensor | None:
        widest = self.logits.shape[1]
        if bool((self.width == widest).all()):
            return None
        return torch.arange(widest, device=self.width.device) < self.width[:, None]

    @cached_property
    def _long_labels(self) -> Tensor:
        return self.labels.long()


def _widen(logits: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(logits, (0, width - logits.shape[1]))


def _times(memory: Memory) -> Tensor:
    return torch.full_like(memory.sources, UNKNOWN) if memory.times is None else memory.times
