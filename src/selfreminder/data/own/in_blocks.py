"""Data that is read in blocks: of each item its label and its task are in memory, its inputs there or in a file."""

from collections import Counter
from collections.abc import Callable

import numpy as np
from torch import Tensor

from selfreminder._base.errors import DataError
from selfreminder.data.own.arrays import drop_infinite
from selfreminder.data.own.blocks import Blocks
from selfreminder.data.own.cutting import name_tasks, order_tasks
from selfreminder.data.own.encoding import Columns, TableEncoding
from selfreminder.data.own.inputs import (
    count_gaps,
    describe_inputs,
    fit_encoding,
    join_inputs,
    list_numbers,
    list_wanted,
    load_tokenizer,
)
from selfreminder.data.own.labels import drop_gaps, name_labels, number_labels
from selfreminder.data.own.own_data import Found, OwnData, check_names
from selfreminder.data.own.reading import Reading
from selfreminder.data.own.room import Room, to_rows
from selfreminder.data.own.words import leave_out

Encode = Callable[[Columns], Tensor]
"""makes inputs of a block of columns"""
_ROW = "\0row"


def read_in_blocks(
    blocks: Blocks, how: Reading, room: Room, source: str
) -> tuple[OwnData, np.ndarray, tuple[str, ...]]:
    """Read data block by block, as if at once; give each item's task by name, too, and lines about the inputs."""
    blocks.scan()
    empty: Columns = {name: np.empty(0, "M8[us]" if kind == "M" else kind) for name, kind in blocks.kinds.items()}
    label = blocks.find_label(how.label)
    if label is None:
        raise DataError(f"{source} has no labels: name their column with --label")
    del empty[label]
    blocks.check_words(*list_wanted(empty, how))
    empty = {name: np.empty(0, "M8[us]" if (kind := blocks.kinds[name]) == "M" else kind) for name in empty}
    if how.by is None:
        name_tasks(next(blocks.read(list(empty)))[2], blocks.rows, None, source)  # it raises
    whole = blocks.read_whole([label, *_list_cutting(empty, how.by)])
    labels = whole.pop(label)
    found = Found({}, labels, {**whole, _ROW: np.arange(blocks.rows)}, f"label column '{label}' of {blocks.path}")
    found = drop_gaps(blocks.add_inputs(leave_out(found, blocks.bad_rows), label, how, room), how.skip_bad)
    if found.inputs:
        found = drop_infinite(found, how.skip_bad)
    numbered, classes = number_labels(found, None, False)
    assert numbered is not None
    at = found.columns.pop(_ROW)
    if how.by == "class":
        tasks = name_labels(numbered, classes)
    else:
        tasks = name_tasks({**empty, **found.columns}, len(at), how.by, source)
    skipped = (*blocks.skipped, *found.skipped)
    if found.inputs:
        return OwnData(found.inputs, numbered, classes, found.columns, skipped=skipped), tasks, ()
    if how.tokenizer:
        tokenize, names, gaps = load_tokenizer(empty, how), list(how.text), Counter()
        x = _encode(blocks, names, tokenize, room, at)
    else:
        first = tasks == next(iter(order_tasks(tasks))) if how.by not in (None, "class") else np.full(len(at), True)
        encoding, gaps = _fit(blocks, empty, how, room, at[first]), Counter()

        def encode(block: Columns) -> Tensor:
            gaps.update(count_gaps(block, encoding))
            return join_inputs(encoding.encode(block), encoding)

        names = list(encoding.columns)
        x = _encode(blocks, names, encode, room, at)
    own = OwnData({"x": x}, numbered, classes, found.columns, skipped=skipped)
    return own, tasks, describe_inputs(empty, names, how.by, gaps)


def _list_cutting(columns: Columns, by: str | None) -> list[str]:
    """List the columns that tasks may be cut by, or parts of them: all dates, and the one that is named."""
    return [name for name, empty in columns.items() if empty.dtype.kind == "M" or name == by]


def _fit(blocks: Blocks, empty: Columns, how: Reading, room: Room, rows: np.ndarray) -> TableEncoding:
    """Fit an encoding to some rows."""
    numbers = list_numbers(empty, how)
    check_names("column", [*numbers, *how.categories, *how.text], list(empty))
    wanted = [name for name in numbers if empty[name].dtype.kind in "biuf"]  # of others, fitting tells what is wrong
    values = room.make("the numbers of the first task", (len(wanted), len(rows)), np.float64)
    some: Columns = dict(empty) | dict(zip(wanted, values))
    done = 0
    for start, end, block in blocks.read([*wanted, *how.categories], "rows measured"):
        inside = _find_inside(rows, start, end)
        for place, name in enumerate(wanted):
            values[place, done : done + len(inside)] = block[name][inside]
        for name in how.categories:  # which there are is all that counts
            some[name] = np.unique(np.concatenate([some[name], block[name][inside]]))
        done += len(inside)
    return fit_encoding(some, how, numbers)


def _encode(blocks: Blocks, names: list[str], encode: Encode, room: Room, rows: np.ndarray) -> Tensor:
    made, done = None, 0
    for start, end, block in blocks.read(names, "rows encoded"):
        inside = _find_inside(rows, start, end)
        if not len(inside):
            continue
        x = encode({name: column[inside] for name, column in block.items()}).numpy()
        if made is None:
            made = room.make(f"the encoded table of {blocks.path}", (len(rows), *x.shape[1:]), x.dtype)
        made[done : done + len(x)] = x
        done += len(x)
    assert made is not None
    return to_rows(made)


def _find_inside(rows: np.ndarray, start: int, end: int) -> np.ndarray:
    """Find which rows of a block are among some rows of the whole table, which are sorted."""
    return rows[np.searchsorted(rows, start) : np.searchsorted(rows, end)] - start
