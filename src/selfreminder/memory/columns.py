"""What a memory is made of: equal-length columns, the facts beside them, and the bytes that they take."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Any, Self

import torch
from torch import Tensor

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import share_evenly
from selfreminder.memory import codec
from selfreminder.memory.encoded import Kept
from selfreminder.memory.fingerprint import Fingerprint

DTYPES = {
    "width": torch.int16,
    "labels": torch.int16,
    "tasks": torch.int32,
    "ids": torch.int32,
    "sources": torch.int64,
    "selections": torch.uint8,
    "times": torch.int64,
    "witness": torch.bool,
}
"""of the columns beside inputs and logits; sources that fit have int32"""


@dataclass(frozen=True)
class ReservoirState:
    """How far a reservoir has come along its stream: all that it needs to go on, see `reservoir`."""

    seen: int
    """items that the stream has had"""
    seed: int
    """of the items' keys"""
    below: int = 2**63 - 1
    """only smaller keys enter: the smallest of those that found no room"""

    def __post_init__(self) -> None:
        if not all(type(value) is int and 0 <= value < 2**63 for value in (self.seen, self.seed, self.below)):
            raise SelfReminderError("this is no stream: it has whole numbers from 0 on, below 2**63")


@dataclass(frozen=True, eq=False, repr=False)
class Columns:
    """The columns and facts of a `Memory`."""

    inputs: dict[str, Kept] = field(default_factory=dict)
    """as their codecs keep them; "x" for a plain tensor, several for tokenised text"""
    kept_logits: Kept = field(default_factory=lambda: codec.encode("float32", torch.zeros(0, 0)))
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
    witness: Tensor | None = None
    """whether it is a witness: never drawn, only looked at; None where no item is"""
    selection_names: tuple[str, ...] = ()
    next_id: int = 0
    fingerprints: Mapping[int, Fingerprint] = field(default_factory=dict)
    """what recorded the logits of a task, where somebody said"""
    reservoirs: Mapping[int, ReservoirState] = field(default_factory=dict)
    """of the tasks that a reservoir fills"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """of the reminder that saved it: loss, strength and the like"""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def widths(self) -> Tensor:
        """(n,) how many logits of each item count."""
        widest = self.kept_logits.shape[0]
        return torch.full_like(self.ids, widest, dtype=torch.int16) if self.width is None else self.width

    @property
    def witnesses(self) -> Tensor:
        """(n,) which items are witnesses."""
        return torch.zeros_like(self.ids, dtype=torch.bool) if self.witness is None else self.witness

    @property
    def device(self) -> torch.device:
        return self.ids.device

    @property
    def plain_columns(self) -> dict[str, Tensor]:
        """Those beside inputs and logits."""
        values = {name: getattr(self, name) for name in DTYPES}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def columns(self) -> dict[str, Tensor]:
        """Every tensor by name: all that is kept, and all that a file holds."""
        encoded = {f"inputs.{name}": x for name, x in self.inputs.items()} | {"logits": self.kept_logits}
        columns = {f"{name}{ending}": part for name, x in encoded.items() for ending, part in x.parts.items()}
        return columns | self.plain_columns

    @property
    def facts(self) -> dict[str, Any]:
        """What is not a column, as JSON can say it."""
        facts: dict[str, Any] = {
            "inputs": {name: x.facts for name, x in self.inputs.items()},
            "logits": self.kept_logits.facts,
            "selection_names": list(self.selection_names),
            "next_id": self.next_id,
        }
        # Only where there are any: files without them are those of earlier versions, hashes included.
        if self.fingerprints:
            facts["recorders"] = {str(task): fingerprint.facts for task, fingerprint in self.fingerprints.items()}
        if self.reservoirs:
            facts["streams"] = {str(task): asdict(stream) for task, stream in self.reservoirs.items()}
        if self.settings:
            facts["settings"] = dict(self.settings)
        return facts

    @classmethod
    def from_columns(cls, columns: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Self:
        """The inverse of `columns` and `facts`."""
        inputs = facts["inputs"].items()
        return cls(
            inputs={name: codec.from_parts(columns, about, f"inputs.{name}") for name, about in inputs},
            kept_logits=codec.from_parts(columns, facts["logits"], "logits"),
            selection_names=tuple(facts["selection_names"]),
            next_id=int(facts["next_id"]),
            fingerprints={
                int(task): Fingerprint.from_facts(about) for task, about in facts.get("recorders", {}).items()
            },
            reservoirs={int(task): ReservoirState(**about) for task, about in facts.get("streams", {}).items()},
            settings=dict(facts.get("settings", {})),
            **{name: columns[name] for name in DTYPES if name in columns},
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
        for name, column in self.plain_columns.items():
            if column.ndim != 1 or len(column) != len(self):
                raise SelfReminderError(f"column '{name}' has not the length of the others, {len(self)}")
            if column.dtype != DTYPES[name] and not (name == "sources" and column.dtype == torch.int32):
                raise SelfReminderError(f"column '{name}' is {column.dtype}, it should be {DTYPES[name]}")
        if (
            len(self.kept_logits.shape) != 1
            or (self.widths < 0).any()
            or (self.widths > self.kept_logits.shape[0]).any()
            or (self.tasks[1:] < self.tasks[:-1]).any()
            or (self.selections >= len(self.selection_names)).any()
            or not all(isinstance(name, str) for name in self.selection_names)
            or not 0 <= self.next_id < 2**31
        ):
            raise SelfReminderError("its columns contradict each other")

    # Bytes --------------------------------------------------------------------------------------------

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
        """Bytes that no item can be kept in fewer than, whichever it is."""
        plain = sum(column.element_size() for column in self.plain_columns.values())
        encoded = (*self.inputs.values(), self.kept_logits)
        return plain + sum(x.least_item_nbytes for x in encoded) if len(self) else 0

    def nbytes_before(self) -> Tensor:
        """(n + 1,) bytes of the items before each place."""
        plain = sum(column.element_size() for column in self.plain_columns.values())
        each = sum((x.item_nbytes() for x in self.inputs.values()), self.kept_logits.item_nbytes() + plain)
        return torch.nn.functional.pad(each.cumsum(0), (1, 0))


def find_rows_within(budget: int, before: Tensor, counts: Sequence[int]) -> list[tuple[int, int]]:
    """The first rows of each task, as start and end, that are even over tasks and have at most `budget` bytes.

    Args:
        before: (n + 1,) bytes of the items before each place.
        counts: items of each task.

    >>> find_rows_within(50, torch.arange(9) * 10, [6, 2])
    [(0, 3), (6, 8)]
    """
    starts = list(accumulate(counts, initial=0))

    def rows(items: int) -> list[tuple[int, int]]:
        return [(start, start + share) for start, share in zip(starts, share_evenly(items, counts))]

    def size(items: int) -> int:
        return sum(int(before[end] - before[start]) for start, end in rows(items))

    return rows(max(bisect_right(range(len(before)), budget, key=size) - 1, 0))


def interleave_classes(labels: Tensor, older: int) -> Tensor:
    """(n,) an order in which items from `older` on rank among those before them.

    The first of every class come first, older before newer, then the second of every class.

    >>> interleave_classes(torch.tensor([0, 0, 1, 0, 1]), older=3).tolist()
    [0, 2, 3, 4, 1]
    """
    turns, seen = [], Counter[tuple[bool, int]]()
    for place, label in enumerate(labels.tolist()):
        turns.append(seen[place >= older, label])
        seen[place >= older, label] += 1
    return torch.argsort(torch.tensor(turns), stable=True)
