"""A user's own data: folders of images, arrays, tables, Hugging Face data sets, or whatever a function gives.

`read_own_data` is the way in; each kind of source has a file, and gives what it found to be numbered and checked alike.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from selfreminder._base.errors import DataError, explain_os_error, unknown
from selfreminder._base.factories import DATA, call_factory, installed, is_factory
from selfreminder._base.sizes import parse_bytes
from selfreminder.data.own import hugging_face
from selfreminder.data.own.arrays import drop_infinite, read_npz, read_value
from selfreminder.data.own.encoding import Columns, TableEncoding
from selfreminder.data.own.folder import read_folder, read_task_folders
from selfreminder.data.own.labels import UnknownClassError, drop_gaps, number_labels
from selfreminder.data.own.own_data import Found, OwnData, Progress, find_label
from selfreminder.data.own.room import Room
from selfreminder.data.own.tables import MakeEncoding, Table, make_inputs, read_csv, read_parquet, to_column
from selfreminder.data.own.words import drop_words

__all__ = ["KINDS", "OwnData", "TableEncoding", "UnknownClassError", "find_kind", "read_own_data"]

KINDS = ("folder", "npz", "csv", "parquet", "hf")
"""what may stand before the colon of a source"""

_ENDINGS = {".npz": "npz", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet"}


def read_own_data(
    source: str | PathLike[str] | Any,
    *,
    label: str | None = None,
    classes: Sequence[str] | None = None,
    grow: bool = False,
    inputs: Sequence[str] | None = None,
    encoding: MakeEncoding | None = None,
    wanted: Callable[[Columns], tuple[Sequence[str], bool]] | None = None,
    size: int | None = None,
    channels: int | None = None,
    skip_bad: bool = False,
    limit: str | int = "8GB",
    progress: Progress | None = None,
    by_folder: bool = False,
    spill: Path | None = None,
) -> OwnData:
    """Read data of the user's own.

    Args:
        source: `folder:PATH` (a folder for each class, with images), `npz:PATH`, `csv:PATH`, `parquet:PATH`,
            `hf:FOLDER` (saved by `save_to_disk`), `package.module:function` that gives data, a path of any of these
            kinds, or the data itself: an array, (x, y), arrays by name, a Dataset, a frame, a Hugging Face data set.
        label: the column or key with the labels; without it "label", "labels" or "y" if there is one, and of a
            folder of images the names of its folders.
        classes: names in the order of their numbers, if they are known. Without them whole numbers are taken as they
            are, and names are numbered in their sorted order.
        grow: number labels that are not in `classes` after them, instead of refusing them.
        inputs: the columns or keys that are inputs, in this order; without it "x" or "inputs", or all numbers of a
            table except "id" and "index".
        encoding: of a table: how its numbers, categories and text become inputs, or a function that fits this to the
            columns, such as `TableEncoding.fit`.
        wanted: of a table whose encoding is fitted: gives the columns that may be numbers for it, and whether they were
            named as such. In a CSV file, one with a few words among its numbers is refused, or such rows are left out.
        size: of a side of an image; without it all must have one size.
        channels: of an image, 1 or 3; without it 1 if all are grey.
        skip_bad: leave out what cannot be read, items without a label, and, of a table, rows with gaps; an encoding
            fills gaps, and leaves out none. `OwnData.skipped` says what it was.
        limit: the most bytes that the data may take, checked before they are taken.
        progress: called with what is done, how much of it, and how much there is.
        by_folder: a folder has a folder for each task, with folders of classes: the column "folder" has their names.
        spill: a folder for files: images, and arrays of an .npz, that are larger than the limit are put there and read
            when they are needed, instead of being refused.

    >>> import numpy as np
    >>> own = read_own_data({"x": np.zeros((3, 4), np.float32), "y": ["dog", "cat", "dog"], "site": ["A", "A", "B"]})
    >>> own.classes, own.labels, own.columns["site"].tolist()
    (('cat', 'dog'), tensor([1, 0, 1]), ['A', 'A', 'B'])
    """
    most = parse_bytes(limit)
    images: dict[str, Any] = {
        "size": size, "channels": channels, "room": Room(most, spill), "skip_bad": skip_bad, "progress": progress
    }  # fmt: skip
    kind, place = find_kind(source)
    where = str(place) if isinstance(source, str | PathLike) else "the data"
    if kind == "function":
        place = call_factory(place, group=DATA)
        if isinstance(place, OwnData):
            return place
        kind = "value"
    try:
        if kind == "folder":
            found = read_task_folders(place, **images) if by_folder else read_folder(place, label=label, **images)
        elif kind == "npz":
            found = read_npz(place, label=label, inputs=inputs, room=images["room"], progress=progress)
        elif kind in ("csv", "parquet"):
            table = read_csv(place, skip_bad=skip_bad, limit=most) if kind == "csv" else read_parquet(place, limit=most)
            found = _split_table(table, where, label)
            if kind == "csv":
                known = encoding.numbers if isinstance(encoding, TableEncoding) else ()
                names, named = wanted(found.columns) if wanted else (inputs or tuple(known), True)
                found = drop_words(found, names, named, skip_bad)
        elif kind == "hf" or hugging_face.is_dataset(place):
            data = hugging_face.load_saved(place, most) if kind == "hf" else place
            found = hugging_face.read_dataset(data, where, label=label, inputs=inputs, **images)
        elif hasattr(place, "columns") and hasattr(place, "to_numpy"):  # a frame of pandas or polars
            columns = {str(name): to_column(str(name), place[name].to_numpy()) for name in place.columns}
            found = _split_table(Table(columns, [f"row {row}" for row in range(len(place))]), where, label)
        else:
            found = read_value(place, where, label=label, inputs=inputs, progress=progress)
    except OSError as error:
        raise DataError(explain_os_error(error)) from None
    found = drop_gaps(found, skip_bad)
    tensors, numbers, fitted = found.inputs, (), None
    if not tensors:
        found, tensors, numbers, fitted = make_inputs(found, inputs, encoding, limit=most, skip_bad=skip_bad)
    elif encoding is not None:
        raise DataError(f"{where} is no table: it has no columns to be encoded")
    else:
        found = drop_infinite(found, skip_bad)
        tensors = found.inputs
    labels, names = number_labels(found, classes, grow)
    return OwnData(tensors, labels, names, found.columns, numbers, fitted, found.skipped)


def find_kind(source: Any) -> tuple[str, Any]:
    """Find the kind of a source, and its path, the function's name, or the value itself."""
    if not isinstance(source, str | PathLike):
        return "value", source
    text = str(source)
    before, colon, after = text.partition(":")
    if colon and before in KINDS:
        return before, _find_path(Path(after), before)
    path = Path(text).expanduser()
    if not path.exists():
        if is_factory(text) or text in installed(DATA):
            return "function", text
        if colon and before.isalpha() and len(before) > 1:
            raise DataError(str(unknown("kind of data", before, [*KINDS, "package.module:function"])))
    path = _find_path(path, None)
    if path.is_dir():
        return ("hf" if hugging_face.is_saved(path) else "folder"), path
    if kind := _ENDINGS.get(path.suffix.lower()):
        return kind, path
    raise DataError(f"{path}: its ending says no kind of data: put one before it, {', '.join(f'{k}:' for k in KINDS)}")


def _find_path(path: Path, kind: str | None) -> Path:
    path = path.expanduser()
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder")
    if kind is not None and path.is_dir() != (kind in ("folder", "hf")):
        raise DataError(f"{kind}:{path}: it is a {'folder' if path.is_dir() else 'file'}")
    return path


def _split_table(table: Table, where: str, label: str | None) -> Found:
    columns = dict(table.columns)
    name = find_label(label, list(columns))
    raw = columns.pop(name) if name is not None else None
    if not columns:
        raise DataError(f"{where} has no column besides the labels")
    what = f"label column '{name}' of {where}" if name is not None else "the labels"
    return Found({}, raw, columns, what, places=table.places, skipped=table.skipped)
