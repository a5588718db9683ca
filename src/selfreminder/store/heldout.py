"""Held-out slices: the items on which later versions are judged. Nothing is ever trained on them.

Every update holds out a slice of its own; version 1 has one of the old data. A slice keeps what is needed to judge by
it: inputs as the memory's codecs keep them, labels, item numbers, metadata columns.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from selfreminder._base import tensor_file
from selfreminder._base.checked import DAMAGE
from selfreminder._base.codec_names import NAMES
from selfreminder._base.errors import StoreError
from selfreminder.memory import codec
from selfreminder.memory.encoded import Kept

HELDOUT = "heldout.safetensors"
_KEY = "selfreminder-heldout"
_PLAIN = ("labels", "items", "slices", "times", "hashes")

ACCURACY, AGREEMENT = "accuracy", "agreement"
"""how a slice measures: against true labels, or against what the model said when the slice came in"""


@dataclass(frozen=True)
class SliceFacts:
    """One slice."""

    name: str
    """which version brought it: "v1" """
    measure: str = ACCURACY


@dataclass(frozen=True, eq=False)
class HeldOut:
    """All slices of a version: equal-length columns, one row an item.

    >>> one = HeldOut.of({"x": torch.rand(4, 2)}, torch.tensor([0, 1, 0, 1]), name="v1", first_item=10, time=0)
    >>> two = one + HeldOut.of({"x": torch.rand(2, 2)}, torch.tensor([1, 1]), name="v2", first_item=20, time=0)
    >>> len(two), two.names, two.slice("v2").items.tolist()
    (6, ('v1', 'v2'), [20, 21])
    """

    inputs: dict[str, Kept] = field(default_factory=dict)
    labels: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """(n,) true classes; in a slice of agreement, the classes that the model said"""
    items: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """(n,) item numbers"""
    slices: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """(n,) places in `facts`"""
    times: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """(n,) when an item came in, in seconds since 1970"""
    hashes: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """(n,) of inputs, so that an equal item is not trained on later"""
    columns: dict[str, tuple[str | None, ...]] = field(default_factory=dict)
    """metadata by name, (n,) texts each; None where an item has none"""
    facts: tuple[SliceFacts, ...] = ()

    @classmethod
    def of(
        cls,
        inputs: Mapping[str, Tensor],
        labels: Tensor,
        *,
        name: str,
        first_item: int = 0,
        items: Tensor | None = None,
        time: int,
        hashes: Tensor | None = None,
        columns: Mapping[str, Sequence[str | None]] | None = None,
        measure: str = ACCURACY,
        kept_as: str = "compressed",
    ) -> "HeldOut":
        """One slice; without `items`, its items are numbered from `first_item` on."""
        n = len(labels)
        return cls(
            {name: codec.encode(kept_as, x.detach().cpu()) for name, x in inputs.items()},
            labels.cpu().long(),
            torch.arange(first_item, first_item + n) if items is None else items.long(),
            torch.zeros(n, dtype=torch.int64),
            torch.full((n,), time, dtype=torch.int64),
            torch.zeros(n, dtype=torch.int64) if hashes is None else hashes,
            {name: tuple(column) for name, column in (columns or {}).items()},
            (SliceFacts(name, measure),),
        )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the slices, oldest first."""
        return tuple(each.name for each in self.facts)

    def __add__(self, other: "HeldOut") -> "HeldOut":
        """Both versions' slices, one after the other."""
        if not len(self):
            return other
        if not len(other):
            return self
        names = dict.fromkeys([*self.columns, *other.columns])
        none = (None,)
        return HeldOut(
            {name: ours + other.inputs[name] for name, ours in self.inputs.items()},
            torch.cat([self.labels, other.labels]),
            torch.cat([self.items, other.items]),
            torch.cat([self.slices, other.slices + len(self.facts)]),
            torch.cat([self.times, other.times]),
            torch.cat([self.hashes, other.hashes]),
            {
                name: self.columns.get(name, none * len(self)) + other.columns.get(name, none * len(other))
                for name in names
            },
            self.facts + other.facts,
        )

    def take(self, index: Tensor) -> "HeldOut":
        """The items of these rows (indices or a mask); a slice that has none left is gone."""
        rows = index.nonzero().flatten() if index.dtype == torch.bool else index
        places, slices = self.slices[rows].unique(return_inverse=True)
        return replace(
            self,
            inputs={name: x.take(rows) for name, x in self.inputs.items()},
            slices=slices,
            **{name: getattr(self, name)[rows] for name in _PLAIN if name != "slices"},
            columns={name: tuple(column[row] for row in rows.tolist()) for name, column in self.columns.items()},
            facts=tuple(self.facts[place] for place in places.tolist()),
        )

    def slice(self, name: str) -> "HeldOut":
        """One slice."""
        return self.take(self.slices == self.names.index(name))

    def read(self) -> dict[str, Tensor]:
        """The inputs, by name, as they were given."""
        return {name: x.decode() for name, x in self.inputs.items()}

    def where(self, column: str, value: str) -> Tensor:
        """(n,) bool: the items whose metadata column has a value."""
        return torch.tensor([each == value for each in self.columns[column]], dtype=torch.bool)

    # Files ---------------------------------------------------------------------------------------------

    def write(self, path: Path) -> None:
        """Write all slices to one file, whole or not at all."""
        encoded = {f"inputs.{name}{end}": part for name, x in self.inputs.items() for end, part in x.parts.items()}
        values = {name: list(dict.fromkeys(column)) for name, column in self.columns.items()}
        coded = {f"column.{name}": _encode_text(column, values[name]) for name, column in self.columns.items()}
        about = {
            "schema": 1,
            "inputs": {name: x.facts for name, x in self.inputs.items()},
            "values": values,
            "slices": [[each.name, each.measure] for each in self.facts],
        }
        tensor_file.write(path, encoded | coded | {name: getattr(self, name) for name in _PLAIN}, _KEY, about)

    @classmethod
    def load(cls, path: Path) -> "HeldOut":
        """The inverse of `write`."""
        try:
            tensors, about = tensor_file.read(path, _KEY)
            found = cls(
                inputs={
                    name: codec.from_parts(tensors, facts, f"inputs.{name}") for name, facts in about["inputs"].items()
                },
                **{name: tensors[name] for name in _PLAIN},
                columns={name: _decode_text(tensors[f"column.{name}"], each) for name, each in about["values"].items()},
                facts=tuple(SliceFacts(*each) for each in about["slices"]),
            )
            found.check()
        except (RuntimeError, *DAMAGE) as error:  # `NotATensorFileError` is a ValueError
            raise StoreError(f"{path} holds no held-out slices: {error}") from None
        return found

    def check(self) -> None:
        """Raise if this cannot be what slices are made of."""
        n = len(self)
        for name in _PLAIN:
            if getattr(self, name).shape != (n,) or getattr(self, name).dtype != torch.int64:
                raise ValueError(f"'{name}' is no whole number an item")
        for x in self.inputs.values():
            x.check(NAMES)
        lengths = {len(each) for each in (*self.inputs.values(), *self.columns.values())}
        if lengths - {n} or (n and not self.inputs):
            raise ValueError(f"its columns are not of {n} items each")
        texts = [each for column in self.columns.values() for each in column if each is not None]
        if not all(type(text) is str for text in (*texts, *self.names, *(each.measure for each in self.facts))):
            raise ValueError("its names and columns are no texts")
        if n and not 0 <= int(self.slices.min()) <= int(self.slices.max()) < len(self.facts):
            raise ValueError("items are in no slice")


def _encode_text(column: Iterable[str | None], values: Sequence[str | None]) -> Tensor:
    places = {value: place for place, value in enumerate(values)}
    return torch.tensor([places[value] for value in column], dtype=torch.int32)


def _decode_text(places: Tensor, values: Sequence[Any]) -> tuple[str | None, ...]:
    if places.numel() and int(places.min()) < 0:
        raise ValueError("a column has a place before its first value")
    return tuple(values[place] for place in places.tolist())
