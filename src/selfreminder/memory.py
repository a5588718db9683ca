"""Memory: a few old items with the logits that the model gave them. A value: ``memory = memory + remembered``."""

import dataclasses
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from selfreminder import codec
from selfreminder.codec import Encoded
from selfreminder.errors import SelfReminderError, unknown
from selfreminder.sizes import share_evenly, show_bytes

UNKNOWN = -1
"""the label, source or time of an item where nobody said"""
_MOST = 2**31 - 1
_FITS = 2**29
"""bytes of deflated inputs that are read once and kept beside the memory, so that a draw costs nothing"""
_DTYPES = {
    "width": torch.int16,
    "labels": torch.int16,
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
    (8, {0: 6, 1: 2}, 344)
    """

    inputs: dict[str, Encoded] = field(default_factory=dict)
    """as their codecs keep them; "x" for a plain tensor, several for tokenised text"""
    kept_logits: Encoded = field(default_factory=lambda: codec.encode("float32", torch.zeros(0, 0)))
    """(n, K), padded to the widest, as their codec keeps them"""
    width: Tensor | None = None
    """how many logits of each item count; None where all do"""
    labels: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int16))
    tasks: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int32))
    ids: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int32))
    """given once, in order, never again"""
    sources: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int32))
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
        logit_codec: str = "float32",
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
        most_classes = torch.iinfo(torch.int16).max
        if labels is not None and n and not (labels.min() >= UNKNOWN and labels.max() <= most_classes):
            raise SelfReminderError(f"labels are classes from 0 to {most_classes:,}, or {UNKNOWN} where unknown")
        if width > most_classes:
            raise SelfReminderError(f"a memory holds at most {most_classes:,} logits an item, the model gives {width}")
        for name, x in inputs.items():
            if len(x) != n:
                raise SelfReminderError(f"input '{name}' has {len(x)} items, the logits {n}")
        if logit_codec not in codec.LOGIT_NAMES:
            raise unknown("logit codec", logit_codec, codec.LOGIT_NAMES)
        wanted = dict.fromkeys(inputs, codecs) if isinstance(codecs, str) else codecs
        device = logits.device

        def column(values: Tensor | int, dtype: torch.dtype) -> Tensor:
            if isinstance(values, int):
                return torch.full((n,), values, dtype=dtype, device=device)
            return values.detach().to(device, dtype)

        small = sources is None or not n or bool((sources.abs() <= _MOST).all())
        return cls(
            inputs={
                name: codec.encode(codec.resolve(wanted[name], x), x.detach()).to(device) for name, x in inputs.items()
            },
            kept_logits=codec.encode(logit_codec, logits.detach().to(torch.float32)),
            labels=column(UNKNOWN if labels is None else labels, torch.int16),
            tasks=column(task, torch.int32),
            ids=torch.arange(n, dtype=torch.int32, device=device),
            sources=column(UNKNOWN if sources is None else sources, torch.int32 if small else torch.int64),
            selections=column(0, torch.uint8),
            times=None if time is None else column(time, torch.int64),
            selection_names=(selection,),
            next_id=n,
        )

    def check(self) -> None:
        """Raise if this cannot be a memory, whoever made it."""
        for name, encoded, names in (
            *((f"input '{name}'", x, codec.NAMES) for name, x in self.inputs.items()),
            ("logits", self.kept_logits, codec.LOGIT_NAMES),
        ):
            encoded.check(names)
            if len(encoded) != len(self):
                raise SelfReminderError(f"{name}: {len(encoded)} items, there are {len(self)} of the others")
        for name, dtype in _DTYPES.items():
            if (column := getattr(self, name)) is None:
                continue
            if column.ndim != 1 or len(column) != len(self):
                raise SelfReminderError(f"column '{name}' has not the length of the others, {len(self)}")
            if column.dtype != dtype and not (name == "sources" and column.dtype == torch.int32):
                raise SelfReminderError(f"column '{name}' is {column.dtype}, it should be {dtype}")
        good = len(self.kept_logits.shape) == 1
        if len(self) and good:
            good = bool(
                (self.widths >= 0).all()
                and (self.widths <= self.kept_logits.shape[0]).all()
                and (self.tasks[1:] >= self.tasks[:-1]).all()
                and (self.selections < len(self.selection_names)).all()
            )
        if not good:
            raise SelfReminderError("its columns contradict each other")

    # What it holds ------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Memory({len(self)} items of {len(self.counts)} tasks, {show_bytes(self.nbytes)})"

    @cached_property
    def logits(self) -> Tensor:
        """(n, K) float32, as they are read back."""
        return self.kept_logits.decode()

    @property
    def widths(self) -> Tensor:
        """(n,) how many logits of each item count."""
        widest = self.kept_logits.shape[0]
        return torch.full_like(self.ids, widest, dtype=torch.int16) if self.width is None else self.width

    @property
    def codecs(self) -> dict[str, str]:
        """How each input is kept."""
        return {name: x.codec for name, x in self.inputs.items()}

    @property
    def device(self) -> torch.device:
        return self.ids.device

    @property
    def _plain(self) -> dict[str, Tensor]:
        values = {name: getattr(self, name) for name in _DTYPES}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def columns(self) -> dict[str, Tensor]:
        """Every tensor by name: all that is kept, and all that a file holds."""
        encoded = {f"inputs.{name}": x for name, x in self.inputs.items()} | {"logits": self.kept_logits}
        columns = {f"{name}{ending}": part for name, x in encoded.items() for ending, part in x.parts.items()}
        return columns | self._plain

    @property
    def facts(self) -> dict[str, Any]:
        """What is not a column, as JSON can say it."""
        return {
            "inputs": {name: x.facts for name, x in self.inputs.items()},
            "logits": self.kept_logits.facts,
            "selection_names": list(self.selection_names),
            "next_id": self.next_id,
        }

    @classmethod
    def from_columns(cls, columns: Mapping[str, Tensor], facts: Mapping[str, Any]) -> "Memory":
        """The inverse of `columns` and `facts`."""

        def encoded(name: str, facts: dict[str, Any]) -> Encoded:
            parts = {ending: columns.get(f"{name}{ending}") for ending in ("", ".scale", ".sizes")}
            return Encoded.from_parts({ending: part for ending, part in parts.items() if part is not None}, facts)

        return cls(
            inputs={name: encoded(f"inputs.{name}", about) for name, about in facts["inputs"].items()},
            kept_logits=encoded("logits", facts["logits"]),
            selection_names=tuple(facts["selection_names"]),
            next_id=int(facts["next_id"]),
            **{name: columns[name] for name in _DTYPES if name in columns},
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all columns, provenance included."""
        return sum(column.nbytes for column in self.columns.values())

    @property
    def item_nbytes(self) -> int:
        """Bytes of one item: of the mean one, where they differ."""
        return self.nbytes // len(self) if len(self) else 0

    @property
    def least_item_nbytes(self) -> int:
        """Bytes that no item can be kept in fewer than, however well it deflates."""
        parts = (part for name, part in self.columns.items() if self._is_aligned(name))
        return sum(part[0].nbytes for part in parts) if len(self) else 0

    def _is_aligned(self, column: str) -> bool:
        return not any(column == f"inputs.{name}" and x.sizes is not None for name, x in self.inputs.items())

    def _nbytes_before(self) -> Tensor:
        """(n + 1,) bytes of the items before each place."""
        each = self.kept_logits.item_nbytes() + sum(column.element_size() for column in self._plain.values())
        for encoded in self.inputs.values():
            each = each + encoded.item_nbytes()
        return torch.nn.functional.pad(each.cumsum(0), (1, 0))

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
        for name, ours in self.inputs.items():
            if ours.shape != other.inputs[name].shape:
                raise SelfReminderError(
                    f"this memory holds inputs '{name}' of shape {ours.shape}, "
                    f"the new ones have {other.inputs[name].shape}"
                )
        names = tuple(dict.fromkeys((*self.selection_names, *other.selection_names)))
        recoded = torch.tensor([names.index(name) for name in other.selection_names], dtype=torch.uint8)
        widest = max(self.kept_logits.shape[0], other.kept_logits.shape[0])
        uneven = bool((self.widths != widest).any() or (other.widths != widest).any())
        merged = Memory(
            inputs={name: ours + other.inputs[name] for name, ours in self.inputs.items()},
            kept_logits=_widen(self.kept_logits, widest) + _widen(other.kept_logits, widest),
            width=torch.cat([self.widths, other.widths]) if uneven else None,
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

    def take(self, index: Tensor) -> "Memory":
        """The items of these rows (indices or a mask), in this order within a task."""
        rows = index.nonzero().flatten() if index.dtype == torch.bool else index
        rows = rows[torch.argsort(self.tasks[rows], stable=True)]
        return dataclasses.replace(
            self,
            inputs={name: x.take(rows) for name, x in self.inputs.items()},
            kept_logits=self.kept_logits.take(rows),
            **{name: column[rows] for name, column in self._plain.items()},
        )

    def with_logits(self, logits: Tensor) -> "Memory":
        """The same items with other logits (n, K)."""
        return dataclasses.replace(self, kept_logits=codec.encode(self.kept_logits.codec, logits))

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
        before = self._nbytes_before()
        counts = list(self.counts.values())
        starts = list(accumulate(counts, initial=0))

        def rows(items: int) -> list[tuple[int, int]]:
            return [(start, start + share) for start, share in zip(starts, share_evenly(items, counts))]

        def size(items: int) -> int:
            return sum(int(before[end] - before[start]) for start, end in rows(items))

        items = bisect_right(range(len(self) + 1), budget, key=size) - 1
        if items < len(counts):
            raise SelfReminderError(
                f"a budget of {show_bytes(budget)} holds {max(items, 0)} items of {self.item_nbytes} bytes, "
                f"fewer than one for each of the {len(counts)} tasks: raise the budget"
            )
        if items == len(self):
            return self
        return self.take(torch.cat([torch.arange(*each) for each in rows(items)]).to(self.device))

    def to(self, device: torch.device | str) -> "Memory":
        """The same memory with its columns on a device."""
        if self.device == torch.device(device):
            return self
        return dataclasses.replace(
            self,
            inputs={name: x.to(device) for name, x in self.inputs.items()},
            kept_logits=self.kept_logits.to(device),
            **{name: column.to(device) for name, column in self._plain.items()},
        )

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
            inputs={name: self._read(name, index) for name in self.inputs},
            logits=pick(self.logits),
            mask=None if self._mask is None else pick(self._mask),
            labels=pick(self._long_labels),
            tasks=pick(self.tasks),
            weight=weight,
        )

    def _read(self, name: str, index: Tensor | None) -> Tensor:
        if name in self._inflated:
            read = self._inflated[name]
            return read if index is None else read.index_select(0, index)
        return self.inputs[name].decode(index)

    @cached_property
    def _inflated(self) -> dict[str, Tensor]:
        """Deflated inputs that fit, read once and for all."""
        deflated = {name: x for name, x in self.inputs.items() if x.sizes is not None}
        size = sum(len(x) * math.prod(x.shape) * 4 for x in deflated.values())
        return {name: x.decode().to(self.device) for name, x in deflated.items()} if size <= _FITS else {}

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
        if self.width is None:
            return None
        return torch.arange(self.kept_logits.shape[0], device=self.device) < self.width[:, None]

    @cached_property
    def _long_labels(self) -> Tensor:
        return self.labels.long()


def _widen(logits: Encoded, width: int) -> Encoded:
    padded = torch.nn.functional.pad(logits.values, (0, width - logits.shape[0]))
    return dataclasses.replace(logits, values=padded)


def _times(memory: Memory) -> Tensor:
    return torch.full_like(memory.sources, UNKNOWN) if memory.times is None else memory.times
