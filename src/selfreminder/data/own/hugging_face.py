"""A Hugging Face data set: saved in a folder by `save_to_disk`, or given as it is."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from selfreminder._base.errors import DataError, MissingExtraError, printable
from selfreminder.data.own.arrays import to_numpy, to_tensor
from selfreminder.data.own.blocks import TypedBlocks
from selfreminder.data.own.encoding import Columns
from selfreminder.data.own.inputs import check_single
from selfreminder.data.own.own_data import Found, Progress, check_names, find_label
from selfreminder.data.own.reading import Reading
from selfreminder.data.own.room import Room, check_size, to_rows
from selfreminder.data.own.tables import ROWS_AT_ONCE, read_batch

Rows = Callable[[Sequence[str]], Iterable[Any]]
"""gives the named columns as tables of pyarrow, some rows after the other"""

_BYTES_AT_ONCE = 1 << 24
_STATE, _PARTS = "state.json", "dataset_dict.json"


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` wrote this folder."""
    return any((folder / name).is_file() for name in (_STATE, _PARTS))


def is_dataset(value: Any) -> bool:
    """Whether it is a Hugging Face data set with a length."""
    return all(hasattr(value, name) for name in ("column_names", "features", "with_format", "__len__"))


def load_saved(folder: Path, limit: int) -> Any:
    """Read a saved data set; its tables are not mapped, because one that was cut short would end the process."""
    datasets = _import_datasets(folder)
    check_size(str(folder), sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()), limit)
    try:
        _list_files(folder)
        found = datasets.load_from_disk(str(folder), keep_in_memory=True)
        found.data.table.validate(full=True)  # places beyond its end would be read otherwise
        # Names that may be no text are read then, and what it says of its format is copied, however deep.
        return found.with_format("arrow")
    except DataError:
        raise
    except Exception as error:  # what is damaged can raise anything
        raise _explain(folder, error) from None


def read_dataset(
    data: Any,
    where: str,
    *,
    label: str | None,
    inputs: Sequence[str] | None,
    size: int | None,
    channels: int | None,
    room: Room,
    skip_bad: bool,
    progress: Progress | None,
) -> Found:
    """Read a data set: its image, or else its lists of numbers (such as token ids), are the inputs; else it is a table.

    The names of classes are known if the label is a ClassLabel. Lists of text and structures are left out.
    """
    if not len(data):
        raise DataError(f"{where} is empty")
    check_size(where, data.data.nbytes, room.limit)
    data = data.with_format("arrow")
    uses = _find_uses(data.features, where, inputs)
    label = _find_label(data.features, where, label)
    columns = _read_values(data, uses)
    raw = columns.pop(label) if label is not None else None
    what = f"label column '{label}' of {where}" if label is not None else "the labels"
    found = Found({}, raw, columns, what, uses.names.get(label or ""))
    return _add_inputs(
        found, uses, lambda names: _iterate(data, names), where,
        size=size, channels=channels, room=room, skip_bad=skip_bad, progress=progress,
    )  # fmt: skip


class SavedBlocks(TypedBlocks):
    """A saved data set in blocks of rows, as they were written: images and lists are read so as well as a table."""

    def __init__(self, path: Path, skip_bad: bool, progress: Progress | None) -> None:
        super().__init__(path, skip_bad, progress)
        self.datasets = _import_datasets(path)
        try:
            self.info = self.datasets.DatasetInfo.from_directory(str(path))
            self.files = _list_files(path)
            self.features = dict(next(self._iterate_blocks()).features)
        except StopIteration:
            raise DataError(f"{path} is empty") from None
        except DataError:
            raise
        except Exception as error:  # what is damaged can raise anything
            raise _explain(path, error) from None

    def find_label(self, label: str | None) -> str | None:
        return _find_label(self.features, str(self.path), label)

    def add_inputs(self, found: Found, label: str, how: Reading, room: Room) -> Found:
        uses = _find_uses(self.features, str(self.path), how.inputs or None)
        if not uses.is_table and (how.categories or how.text):
            raise DataError(f"{self.path} is no table: it has no columns to be encoded")
        if not uses.images:
            check_single(uses.lists)
        found = replace(found, names=uses.names.get(label))
        return _add_inputs(
            found, uses, self._iterate_rows, str(self.path),
            size=how.size, channels=how.channels, room=room, skip_bad=self.skip_bad, progress=self.progress,
        )  # fmt: skip

    def _raw(self) -> Iterator[dict[str, Any]]:
        uses = _find_uses(self.features, str(self.path), None)
        return (_read_values(block, uses) for block in self._iterate_blocks())

    def _iterate_rows(self, names: Sequence[str]) -> Iterator[Any]:
        for block in self._iterate_blocks():
            yield from _iterate(block, names)

    def _iterate_blocks(self) -> Iterator[Any]:
        """Give some rows after the other as data sets; like the whole they are not mapped, but read."""
        import pyarrow  # noqa: PLC0415 - datasets needs it

        try:
            for file in self.files:
                with pyarrow.OSFile(str(file)) as opened, pyarrow.ipc.open_stream(opened) as stream:
                    for batches in _gather(stream):
                        table = pyarrow.Table.from_batches(batches)
                        table.validate(full=True)  # places beyond its end would be read otherwise
                        block = self.datasets.Dataset(table, info=self.info, fingerprint="of a block")
                        yield block.with_format("arrow")
        except Exception as error:  # what is damaged can raise anything
            raise _explain(self.path, error) from None


def _gather(batches: Iterable[Any]) -> Iterator[list[Any]]:
    """Give batches of rows in groups: each takes a data set's time, which is long for a few rows."""
    some, rows, nbytes = [], 0, 0
    for batch in batches:
        some.append(batch)
        rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
        if rows >= ROWS_AT_ONCE or nbytes >= _BYTES_AT_ONCE:
            yield some
            some, rows, nbytes = [], 0, 0
    if rows:
        yield some


def _import_datasets(folder: Path) -> Any:
    """Import the library, and check that it can read a folder."""
    try:
        import datasets  # noqa: PLC0415 - of the extra `transformers`
    except ImportError:
        raise MissingExtraError(
            "reading a Hugging Face data set needs datasets: pip install 'selfreminder[transformers]'"
        ) from None
    if not is_saved(folder):
        raise DataError(f"{folder} is no saved data set: save it by dataset.save_to_disk(…)")
    if not (folder / _STATE).is_file():
        try:
            parts = [str(part) for part in json.loads((folder / _PARTS).read_text(encoding="utf-8"))["splits"]]
            shown = f"{folder} has the parts {', '.join(parts)}: name one, hf:{folder / parts[0]}"
        except Exception as error:  # what is damaged can raise anything
            raise _explain(folder, error) from None
        raise DataError(shown)
    return datasets


def _list_files(folder: Path) -> list[Path]:
    """List the tables of a saved data set, as it names them: files of its own folder, and no others."""
    state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
    names = [str(file["filename"]) for file in state["_data_files"]]
    if outside := [name for name in names if Path(name).name != name]:
        raise DataError(f"{folder / _STATE} names '{printable(outside[0])}', which is no file of this folder")
    return [folder / name for name in names]


def _explain(folder: Path, error: Exception) -> DataError:
    reason = (str(error).splitlines() or [""])[0]
    return DataError(f"{folder} cannot be read as a data set: {type(error).__name__}: {reason}")


@dataclass(frozen=True)
class _Uses:
    """What the columns of a data set are used for."""

    values: list[str]
    """they have one value an item"""
    images: list[str]
    lists: list[str]
    """of numbers: inputs where there is no image"""
    names: dict[str, tuple[str, ...]]
    """of classes, by column"""

    @property
    def is_table(self) -> bool:
        return not (self.images or self.lists)


def _find_uses(features: Any, where: str, inputs: Sequence[str] | None) -> _Uses:
    """Find what columns are used for, if these are inputs."""
    wanted = list(features) if inputs is None else list(inputs)
    check_names(f"input of {where}", wanted, list(features))
    values = [name for name, feature in features.items() if type(feature).__name__ in ("Value", "ClassLabel")]
    images = [name for name in wanted if type(features[name]).__name__ == "Image"]
    lists = [name for name in wanted if name not in images and name not in values and _holds_numbers(features[name])]
    if len(images) > 1 or (inputs is not None and 0 < len(images or lists) < len(inputs)):
        raise DataError(f"{where}: {', '.join(images or wanted)} are no inputs of one kind: say which, inputs=…")
    names = {name: tuple(features[name].names) for name in values if hasattr(features[name], "names")}
    return _Uses(values, images, lists, names)


def _find_label(features: Any, where: str, label: str | None) -> str | None:
    label = find_label(label, list(features))
    if label is not None and type(features[label]).__name__ not in ("Value", "ClassLabel"):
        raise DataError(f"'{label}' of {where} has several values an item: a label is a whole number or a name")
    return label


def _holds_numbers(feature: Any) -> bool:
    """Whether a feature is a list or an array of numbers, or lists of them."""
    feature = feature[0] if isinstance(feature, list) else feature
    while hasattr(feature, "feature"):
        feature = feature.feature
    return str(getattr(feature, "dtype", "")).startswith(("int", "uint", "float", "bool"))


def _iterate(data: Any, names: Sequence[str]) -> Iterator[Any]:
    data = data.select_columns(list(names))
    for start in range(0, len(data), ROWS_AT_ONCE):
        yield data[start : start + ROWS_AT_ONCE]


def _read_values(data: Any, uses: _Uses) -> Columns:
    """Read all columns that have one value an item."""
    if not uses.values:
        return {}
    columns = read_batch(data.select_columns(uses.values)[:])
    for name in uses.names:
        if (columns[name] == -1).any():  # how Hugging Face says that there is no label
            columns[name] = np.where(columns[name] == -1, np.nan, columns[name])
    return columns


def _add_inputs(
    found: Found,
    uses: _Uses,
    rows: Rows,
    where: str,
    *,
    size: int | None,
    channels: int | None,
    room: Room,
    skip_bad: bool,
    progress: Progress | None,
) -> Found:
    """Read the images, or else the lists of numbers; a table is left as it is."""
    if not uses.images:
        tensors = {name: _stack_lists(name, rows, where, room, progress) for name in uses.lists}
        return replace(found, inputs={"x": tensors.popitem()[1]} if len(tensors) == 1 else tensors)

    from selfreminder.data.own.images import read_images  # noqa: PLC0415 - needs the extra `cli`

    images = _Images(uses.images[0], rows)
    places = images.list_places()
    pixels, readable, skipped = read_images(
        images, places, size=size, channels=channels, room=room, skip_bad=skip_bad, progress=progress
    )
    return replace(replace(found, places=places).keep(readable, skipped), inputs={"x": pixels})


@dataclass(frozen=True)
class _Images:
    """The contents of a data set's images, or their files: one after the other, as often as needed."""

    name: str
    rows: Rows

    def __iter__(self) -> Iterator[bytes | Path]:
        for path, content in self._parts("path", "bytes"):
            inside, outside = content.as_py(), path.as_py()
            yield Path(outside) if inside is None and outside else inside or b""

    def list_places(self) -> list[str]:
        return [path.as_py() or f"item {row}" for row, (path,) in enumerate(self._parts("path"))]

    def _parts(self, *names: str) -> Iterator[tuple[Any, ...]]:
        for table in self.rows([self.name]):
            for chunk in table[self.name].chunks:
                yield from zip(*[chunk.field(name) for name in names])


def _stack_lists(name: str, rows: Rows, where: str, room: Room, progress: Progress | None) -> Tensor:
    """Make one tensor of a column of lists: they are looked at first, so that it can be larger than memory."""
    count, shapes, dtypes = 0, {}, set()
    for some in _iterate_arrays(name, rows):
        shapes |= dict.fromkeys(array.shape for array in some)
        dtypes |= {array.dtype for array in some}
        count += len(some)
        if progress:
            progress("items looked at", count, None)
    if len(shapes) > 1:
        one, other = list(shapes)[:2]
        raise DataError(
            f"{where}: '{name}' has different shapes, such as {one} and {other}: pad to one length "
            "(a tokenizer's padding='max_length')"
        )
    shape, dtype = next(iter(shapes)), np.result_type(*dtypes)
    like = to_tensor(name, np.zeros((1, *shape), np.float32 if dtype == np.float64 else dtype))
    made = room.make(f"'{name}' of {where}", (count, *shape), like.numpy().dtype)
    done = 0
    for some in _iterate_arrays(name, rows):
        with np.errstate(over="ignore"):  # what is too large for float32 is not finite: items of such are named later
            made[done : done + len(some)] = np.stack(some).astype(dtype)
        done += len(some)
        if progress:
            progress("items read", done, count)
    return to_rows(made)


def _iterate_arrays(name: str, rows: Rows) -> Iterator[list[np.ndarray]]:
    for table in rows([name]):
        yield [to_numpy(row) for row in table[name].to_pylist()]
