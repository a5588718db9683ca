"""Data as it comes in: read, checked against what the store knows, and split.

On which side of a split an item is depends on its inputs alone: the same item, in whatever later data, is on the same
side again, so that what is held out is never trained on.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selfreminder._base.errors import DataError
from selfreminder._base.factories import find_modules_in
from selfreminder.data.own import OwnData, read_own_data
from selfreminder.data.own.encoding import TableEncoding
from selfreminder.memory.encoded import Kept
from selfreminder.memory.number_formats import split_bytes
from selfreminder.samples import Samples
from selfreminder.store.config import Config
from selfreminder.store.progress import Progress, Watch, ignore

MOST_HELD = 10_000
"""items of a slice: they show a drop of a third of a point, and more would only take room"""
_AT_ONCE = 1024
_UNIT = 2.0**63


@dataclass(frozen=True, eq=False)
class Incoming:
    """Data with a name, a hash for each item and one for all."""

    own: OwnData
    source: str
    hashes: Tensor
    """(n,) int64 from 0 on, of an item's inputs"""
    fingerprint: str
    """sha256 of inputs, labels and columns"""

    def __len__(self) -> int:
        return len(self.own)

    def take(self, rows: Tensor) -> "Incoming":
        """Some of the items."""
        return replace(self, own=self.own.rows(rows), hashes=self.hashes[rows])

    @property
    def form(self) -> "TableForm | None":
        """How it became inputs, if it was a table."""
        own = self.own
        return TableForm(own.numbers, own.encoding) if own.encoding is not None or own.numbers else None

    def texts(self) -> dict[str, tuple[str | None, ...]]:
        """The metadata columns as texts."""
        return {name: tuple(map(str, column.tolist())) for name, column in self.own.columns.items()}

    def samples(self, first_item: int = 0, rows: Tensor | None = None) -> Samples:
        """As training takes it: the items of these rows; sources are item numbers."""
        rows = torch.arange(len(self)) if rows is None else rows
        own = self.own.rows(rows)
        return Samples(dict(own.inputs), own.labels, first_item + rows)


@dataclass(frozen=True)
class TableForm:
    """How a table becomes inputs: as it did for version 1."""

    inputs: tuple[str, ...] = ()
    """columns of numbers that are taken as they are, in this order"""
    encoding: TableEncoding | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {"inputs": list(self.inputs), "encoding": self.encoding and self.encoding.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "TableForm":
        """The inverse of `to_json`."""
        encoding = value["encoding"]
        return cls(tuple(value["inputs"]), None if encoding is None else TableEncoding.from_json(encoding))


def read_incoming(
    data: Any,
    config: Config,
    *,
    classes: tuple[str, ...] | None = None,
    grow: bool = False,
    form: TableForm | None = None,
    skip_bad: bool = False,
    watch: Watch = ignore,
) -> Incoming:
    """Read data, whatever it is that `data.own.read_own_data` takes.

    Args:
        data: a path, the name of a function, or the data itself.
        config: says which columns are what.
        classes: names of the outputs that the model has.
        grow: labels may have names beyond those.
        form: of the table that version 1 was made with.
        skip_bad: leave out what cannot be read.
        watch: is told the progress.
    """
    find_modules_in(config.folder)
    table, how = config.data, form or TableForm(config.data.inputs or ())
    encoding: Any = how.encoding
    if form is None and (table.categories or table.text):
        encoding = partial(TableEncoding.fit, numbers=table.inputs, categories=table.categories, text=table.text)
    own = data
    if not isinstance(data, OwnData):
        own = read_own_data(
            data,
            label=table.label,
            classes=classes,
            grow=grow,
            inputs=None if encoding is not None else how.inputs or None,
            encoding=encoding,
            size=table.size,
            channels=table.channels,
            skip_bad=skip_bad,
            progress=lambda what, done, of: watch(Progress(what, done / of if of else 0.0)),
        )
    inside = {*own.numbers, *(own.encoding.columns if own.encoding else ())} - set(table.slices)
    own = replace(own, columns={name: each for name, each in own.columns.items() if name not in inside})
    hashes = hash_inputs(own.inputs)
    return Incoming(own, show_source(data), hashes, _fingerprint(own, hashes))


def show_source(data: Any) -> str:
    """How a manifest names data."""
    return str(data) if isinstance(data, str | os.PathLike) else f"a {type(data).__name__}"


def hash_inputs(inputs: Mapping[str, Tensor]) -> Tensor:
    """(n,) int64 from 0 on: one for each item, of its inputs.

    >>> one, two = hash_inputs({"x": torch.tensor([[1, 2], [1, 2]])})
    >>> bool(one == two)
    True
    """
    names, found = sorted(inputs), []
    n = len(inputs[names[0]])
    heads = {name: f"{name!r} {inputs[name].dtype} {list(inputs[name].shape[1:])}".encode() for name in names}
    for start in range(0, n, _AT_ONCE):
        parts = [(heads[name], split_bytes(inputs[name][start : start + _AT_ONCE])) for name in names]
        for item in range(min(_AT_ONCE, n - start)):
            digest = hashlib.blake2b(digest_size=8)
            for head, each in parts:
                digest.update(head)
                digest.update(each[item])
            found.append(int.from_bytes(digest.digest(), "little") >> 1)
    return torch.tensor(found, dtype=torch.int64)


def choose_heldout(hashes: Tensor, share: float) -> Tensor:
    """(n,) bool: which items are held out; it depends on nothing but their hashes.

    >>> int(choose_heldout(hash_inputs({"x": torch.arange(1000)}), 0.2).sum())
    192
    """
    return _spread(hashes, 0) < min(share, MOST_HELD / max(len(hashes), 1))


def choose_validation(hashes: Tensor, share: float) -> Tensor:
    """(n,) bool: which of the items that are not held out are for validation."""
    return _spread(hashes, 1) < share


def check_alike(incoming: Incoming, kept: Mapping[str, Kept]) -> None:
    """Refuse inputs that are not of the kind that the store has."""
    inputs = incoming.own.inputs
    if not kept:
        return
    if inputs.keys() != kept.keys():
        had = ", ".join(sorted(kept))
        raise DataError(f"{incoming.source} has the inputs {', '.join(sorted(inputs))}, the store has {had}")
    for name, x in inputs.items():
        old = kept[name]
        if tuple(x.shape[1:]) != tuple(old.shape) or x.dtype != old.read_dtype:
            raise DataError(
                f"{incoming.source}: input '{name}' has items of {_show(tuple(x.shape[1:]), x.dtype)}, the store has "
                f"{_show(old.shape, old.read_dtype)}: bring the data into that form before it comes in"
            )


def check_labels(incoming: Incoming, outputs: int, *, grow: bool) -> int:
    """Refuse labels that the model has no output for; how many outputs it is to have."""
    labels = incoming.own.labels
    if labels is None:
        raise DataError(
            f"{incoming.source} has no labels: a model learns from labelled data, and is judged by it; name their "
            "column as label in [data] of selfreminder.toml, where it is not y, label or labels"
        )
    most = max(outputs, int(labels.max()) + 1)
    if most > outputs and not grow:
        row = int(labels.argmax())
        name = incoming.own.classes[most - 1] if incoming.own.classes else most - 1
        raise DataError(
            f"{incoming.source}: label {name} (item {row}) has no output, the model has {outputs}: if it is a new "
            "class, let the model grow by --grow; if not, mend the labels"
        )
    counts = labels.bincount(minlength=most)
    if empty := [place for place in range(outputs, most) if not counts[place]]:
        raise DataError(
            f"{incoming.source}: class {empty[0]} would be new, but has no item: number new classes in order"
        )
    return most


def _spread(hashes: Tensor, which: int) -> Tensor:
    """(n,) evenly in [0, 1), one number for each of several choices."""
    # splitmix64 of the hash: the choices are independent of each other
    z = hashes.numpy().astype(np.uint64) + np.uint64((which + 1) * 0x9E3779B97F4A7C15 % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return torch.from_numpy((z >> np.uint64(1)).astype(np.float64) / _UNIT)


def _fingerprint(own: OwnData, hashes: Tensor) -> str:
    digest = hashlib.sha256(hashes.numpy().tobytes())
    digest.update(b"-" if own.labels is None else own.labels.numpy().tobytes())
    digest.update(repr(own.classes).encode())
    for name in sorted(own.columns):
        digest.update(name.encode())
        digest.update("\0".join(map(str, own.columns[name].tolist())).encode(errors="replace"))
    return digest.hexdigest()


def _show(shape: tuple[int, ...], dtype: torch.dtype) -> str:
    return f"shape {tuple(shape)} and {str(dtype).removeprefix('torch.')}"
