"""A user's own data as a value: tensors, labels with their names, and whatever else is known of each item."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selfreminder._base.errors import DataError, unknown
from selfreminder.data.mapped import take_rows
from selfreminder.data.own.encoding import Columns, TableEncoding

Progress = Callable[[str, int, int | None], None]
"""(what, items so far, items in all if known)"""

LABELS = ("label", "labels", "y")
"""names of a column or key that is taken for the labels where nobody named one"""

_SHOWN = 5


@dataclass(frozen=True, eq=False)
class OwnData:
    """Items as tensors and columns with one row an item.

    >>> x, y, site = torch.rand(3, 2), torch.tensor([0, 1, 0]), np.array(["A", "B", "B"])
    >>> own = OwnData({"x": x}, y, ("cat", "dog"), {"site": site})
    >>> len(own.rows(own.columns["site"] == "B"))
    2
    """

    inputs: dict[str, Tensor]
    """"x" for one tensor, of images uint8 (n, C, H, W); several by name"""
    labels: Tensor | None
    """(n,) int64, the place in `classes`; None where there are none"""
    classes: tuple[str, ...] | None
    """names in the order of their numbers; None where labels are only numbers, or there are none"""
    columns: Columns
    """one value an item of everything else, such as "site", "date" or an image's "path"; text as objects"""
    numbers: tuple[str, ...] = ()
    """of a table that is not encoded: the columns that `x` has, in this order"""
    encoding: TableEncoding | None = None
    """of a table: how its inputs were made; give it again for later data of the same model"""
    skipped: tuple[str, ...] = ()
    """what was left out because it was bad, each with the reason"""

    def __post_init__(self) -> None:
        lengths = {name: len(x) for name, x in self.inputs.items()} | {k: len(v) for k, v in self.columns.items()}
        if self.labels is not None:
            lengths["labels"] = len(self.labels)
        if len(set(lengths.values())) != 1:
            shown = ", ".join(f"'{name}' {length}" for name, length in lengths.items())
            raise DataError(f"the data is not of one length: {shown}" if shown else "the data has no inputs")

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def rows(self, index: slice | Tensor | np.ndarray | Sequence[int]) -> "OwnData":
        """Some of the items: a slice, numbers, or one truth value an item."""
        at = np.arange(len(self))[index.cpu().numpy() if isinstance(index, Tensor) else index]
        places = torch.from_numpy(at)
        return replace(
            self,
            inputs={name: take_rows(x, places) for name, x in self.inputs.items()},
            labels=None if self.labels is None else self.labels[places],
            columns={name: column[at] for name, column in self.columns.items()},
        )


@dataclass(frozen=True, eq=False)
class Found:
    """What a reader found, before labels are numbered and tables become tensors."""

    inputs: dict[str, Tensor]
    """empty for a table"""
    labels: np.ndarray | None
    """(n,) as they were found: whole numbers or names"""
    columns: Columns
    label_name: str = "the labels"
    names: tuple[str, ...] | None = None
    """of the classes, where the source has them by number"""
    places: Sequence[Any] | None = None
    """where each item was, for messages"""
    skipped: tuple[str, ...] = ()

    def place(self, row: int | np.integer) -> str:
        return f"item {row}" if self.places is None else str(self.places[int(row)])

    def keep(self, mask: np.ndarray, skipped: Sequence[str]) -> "Found":
        """The items where `mask` is true; why the others are left out is noted."""
        at = np.flatnonzero(mask)
        places = torch.from_numpy(at)
        return replace(
            self,
            inputs={name: take_rows(x, places) for name, x in self.inputs.items()},
            labels=None if self.labels is None else self.labels[at],
            columns={name: column[at] for name, column in self.columns.items()},
            places=[self.place(row) for row in at],
            skipped=(*self.skipped, *skipped),
        )


def check_bad(bad: Sequence[str], total: int, what: str, skip_bad: bool) -> None:
    """Raise if something is bad and nobody said to leave it out, or if nothing else is there."""
    if not bad or (skip_bad and len(bad) < total):
        return
    shown = "; ".join(bad[:_SHOWN]) + (f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else "")
    remedy = "nothing is left" if skip_bad else "mend or remove them, or leave them out with skip_bad (--skip-bad)"
    raise DataError(f"{len(bad)} of {total} {what}: {shown}: {remedy}")


def find_label(label: str | None, names: Sequence[str]) -> str | None:
    """The name of the labels among `names`: the one that is asked for, or a customary one; None if there is none."""
    if label is None:
        return next((name for name in LABELS if name in names), None)
    check_names("label column", [label], names)
    return label


def check_names(kind: str, wanted: Sequence[str], names: Sequence[str]) -> None:
    """Raise if one of the wanted is not there; the nearest is said."""
    for name in wanted:
        if name not in names:
            raise DataError(str(unknown(kind, name, names)))
