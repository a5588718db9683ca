"""A user's own data, cut into pieces: the tasks of a stream."""

import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selfreminder._base.errors import DataError
from selfreminder.data.limit import get_limit
from selfreminder.data.mapped import MappedRows, iterate_rows
from selfreminder.data.own import OwnData, find_kind, read_own_data
from selfreminder.data.own.blocks import CsvBlocks, ParquetBlocks
from selfreminder.data.own.cutting import find_times, find_unordered, name_tasks, order_tasks
from selfreminder.data.own.hugging_face import SavedBlocks
from selfreminder.data.own.in_blocks import read_in_blocks
from selfreminder.data.own.inputs import (
    count_gaps,
    describe_inputs,
    join_inputs,
    list_wanted,
    load_tokenizer,
    make_encoding,
)
from selfreminder.data.own.kept import find_place, load_kept, make_room, save_kept
from selfreminder.data.own.labels import name_labels
from selfreminder.data.own.own_data import Progress
from selfreminder.data.own.reading import Reading
from selfreminder.data.own.room import Room, TooLargeError

_BLOCKS = {"csv": CsvBlocks, "parquet": ParquetBlocks, "hf": SavedBlocks}
_FACTS = ("classes", "sha256", "skipped", "remarks", "unordered")
"""of pieces, which are kept with inputs in a file"""
_REFUSED = "8GB"
"""of what a function gives, which is read at once"""


@dataclass(frozen=True, eq=False)
class Pieces:
    """Data of one's own, cut into tasks: the rows of each, by name, in order."""

    x: Tensor
    """in memory, or `MappedRows` of a file if that would be too much"""
    y: Tensor
    classes: tuple[str, ...]
    rows: dict[str, Tensor]
    sha256: str
    skipped: tuple[str, ...] = ()
    times: Tensor | None = None
    """(n,) int64, by which items are in order; None where they have none"""
    place: Path | None = None
    """the folder in the cache, of data that is read from there"""
    remarks: tuple[str, ...] = ()
    """lines about the inputs of a table"""
    unordered: str | None = None
    """the column of dates that the items, cut in their order, are not in the order of"""

    @property
    def nbytes(self) -> int:
        """What the inputs take, in memory or in the cache."""
        return self.x.array.nbytes if isinstance(self.x, MappedRows) else self.x.nbytes


@dataclass(frozen=True)
class Listener:
    """Who is told of the progress; whoever it is, what is read is the same."""

    tell: Progress | None = field(default=None, compare=False)


def read_pieces(source: str, reading: str, listener: Listener = Listener()) -> Pieces:
    """Read data and cut it into tasks; `reading` is JSON.

    What is larger than memory is decoded once, into the cache, and read from there.
    """
    how = Reading.of(json.loads(reading or "{}"))
    return _read_once(source, how, find_place(source, how), listener)


@lru_cache(maxsize=2)  # runs of other seeds and methods have the same; the place tells files that have changed
def _read_once(source: str, how: Reading, place: Path | None, listener: Listener) -> Pieces:
    found = _load(place)
    if found is None:
        with make_room(place) as folder:
            found = _read_anew(source, how, folder, listener.tell)
            if isinstance(found.x, MappedRows) and place is not None:
                _save(place, found)
                found = _load(place) or found
    if how.sha256 not in (None, found.sha256):
        raise DataError(f"{source} has changed since these runs were begun: compare it in another folder")
    return found


def describe_pieces(pieces: Pieces) -> list[tuple[str, str, str]]:
    """Describe the tasks of data: name, items, and the items of each class, or how many classes."""
    rows = []
    for name, at in pieces.rows.items():
        labels, counts = pieces.y[at].unique(return_counts=True)
        shown = ", ".join(f"{pieces.classes[int(k)]} {int(n)}" for k, n in zip(labels, counts))
        most = f"{len(labels)} classes of {int(counts.min())} to {int(counts.max())} items"
        rows.append((name, str(len(at)), shown if len(labels) <= 6 else most))
    return rows


def _read_anew(source: str, how: Reading, folder: Path | None, progress: Progress | None) -> Pieces:
    kind, path = find_kind(source)
    if how.by == "folder" and kind != "folder":
        raise DataError(f"{source} is no folder of folders: --by folder is for folder:PATH")
    data, names, remarks = None, np.empty(0), ()
    if kind != "hf":  # it is written in blocks: to read it in them takes no longer
        try:
            data, names, remarks = _read(source, how, folder, progress)
        except TooLargeError:
            if kind not in _BLOCKS or folder is None:
                raise
    if data is None:
        blocks = _BLOCKS[kind](path, how.skip_bad, progress)
        data, names, remarks = read_in_blocks(blocks, how, Room(get_limit(), folder), source)
    if data.labels is None:
        raise DataError(f"{source} has no labels: name their column with --label")
    x, y = join_inputs(data.inputs, data.encoding), data.labels
    classes = data.classes or tuple(map(str, range(int(y.max()) + 1)))
    present = y.unique()
    if len(present) < 2:
        raise DataError(f"{source} has one class, '{classes[int(present[0])]}': there is nothing to tell it from")
    digest = hashlib.sha256(repr((x.shape, classes)).encode())
    for rows in iterate_rows(x):
        digest.update(rows.contiguous().numpy().data)
    digest.update(y.numpy().data)
    rows = {str(name): torch.from_numpy(np.flatnonzero(names == name)) for name in order_tasks(names)}
    times = find_times(data.columns, len(data), how.by)
    when = None if times is None else torch.from_numpy(times)
    return Pieces(
        x, y, classes, rows, digest.hexdigest()[:16], data.skipped, when,
        remarks=remarks, unordered=find_unordered(data.columns, how.by),
    )  # fmt: skip


def _read(
    source: str, how: Reading, folder: Path | None, progress: Progress | None
) -> tuple[OwnData, np.ndarray, tuple[str, ...]]:
    """Read one source; give each item's task by name, too, and lines about the inputs."""
    kind, _ = find_kind(source)
    is_table = kind in _BLOCKS or bool(how.categories or how.text)
    data = read_own_data(
        source,
        label=how.label,
        inputs=None if is_table else how.inputs or None,
        encoding=make_encoding(how) if is_table else None,
        wanted=partial(list_wanted, how=how),
        size=how.size,
        channels=how.channels,
        skip_bad=how.skip_bad,
        limit=_REFUSED if kind == "function" else get_limit(),
        progress=progress,
        by_folder=how.by == "folder",
        spill=folder,
    )
    if how.tokenizer:
        tokens = load_tokenizer(data.columns, how)(data.columns)
        data = replace(data, inputs={"x": tokens}, encoding=None)
        used, gaps = how.text, {}
    else:
        used = data.encoding.columns if data.encoding else data.numbers
        gaps = count_gaps(data.columns, data.encoding) if data.encoding else {}
    remarks = describe_inputs(data.columns, used, how.by, gaps) if used else ()
    if how.by == "class":
        if data.labels is None:
            raise DataError(f"{source} has no labels: name their column with --label")
        return data, name_labels(data.labels, data.classes), remarks
    return data, name_tasks(data.columns, len(data), how.by, source), remarks


def _save(place: Path, pieces: Pieces) -> None:
    assert isinstance(pieces.x, MappedRows)
    task = np.zeros(len(pieces.y), np.int64)
    for number, rows in enumerate(pieces.rows.values()):
        task[rows.numpy()] = number
    facts = {"tasks": list(pieces.rows)} | {name: getattr(pieces, name) for name in _FACTS}
    times = {} if pieces.times is None else {"times": pieces.times.numpy()}
    save_kept(place, pieces.x, facts, {"labels": pieces.y.numpy(), "task": task, **times})


def _load(place: Path | None) -> Pieces | None:
    kept = load_kept(place)
    if kept is None:
        return None
    x, facts, columns = kept
    rows = {name: torch.from_numpy(np.flatnonzero(columns["task"] == k)) for k, name in enumerate(facts["tasks"])}
    labels = torch.from_numpy(columns["labels"])
    times = torch.from_numpy(columns["times"]) if "times" in columns else None
    known: dict[str, Any] = {name: tuple(value) if isinstance(value := facts[name], list) else value for name in _FACTS}
    return Pieces(x, labels, rows=rows, times=times, place=place, **known)
