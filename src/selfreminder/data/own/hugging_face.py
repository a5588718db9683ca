"""A Hugging Face data set: saved in a folder by `save_to_disk`, or given as it is."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from selfreminder._base.errors import DataError, MissingExtraError
from selfreminder.data.own.arrays import to_tensor
from selfreminder.data.own.own_data import Found, Progress, check_names, find_label
from selfreminder.data.own.room import Room, check_size
from selfreminder.data.own.tables import to_column

_SAVED = ("state.json", "dataset_dict.json")


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` wrote this folder."""
    return any((folder / name).is_file() for name in _SAVED)


def is_dataset(value: Any) -> bool:
    """Whether it is a Hugging Face data set with a length."""
    return all(hasattr(value, name) for name in ("column_names", "features", "with_format", "__len__"))


def load_saved(folder: Path, limit: int) -> Any:
    """Read a saved data set; its tables are not mapped, because one that was cut short would end the process."""
    try:
        import datasets  # noqa: PLC0415 - of the extra `transformers`
    except ImportError:
        raise MissingExtraError(
            "reading a Hugging Face data set needs datasets: pip install 'selfreminder[transformers]'"
        ) from None
    if not is_saved(folder):
        raise DataError(f"{folder} is no saved data set: save it by dataset.save_to_disk(…)")
    check_size(str(folder), sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()), limit)
    try:
        found = datasets.load_from_disk(str(folder), keep_in_memory=True)
        if isinstance(found, datasets.Dataset):
            found.data.table.validate(full=True)  # places beyond its end would be read otherwise
    except Exception as error:  # what is damaged can raise anything
        raise DataError(f"{folder} cannot be read as a data set: {type(error).__name__}: {error}") from None
    if isinstance(found, datasets.DatasetDict):
        parts = [str(part) for part in found]
        raise DataError(f"{folder} has the parts {', '.join(parts)}: name one, hf:{folder / parts[0]}")
    return found


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
    data = data.with_format(None)
    features = data.features
    wanted = list(features) if inputs is None else list(inputs)
    check_names(f"input of {where}", wanted, list(features))
    label = find_label(label, list(features))
    values = [name for name, feature in features.items() if type(feature).__name__ in ("Value", "ClassLabel")]
    images = [name for name in wanted if type(features[name]).__name__ == "Image"]
    lists = [name for name in wanted if name not in images and name not in values and _holds_numbers(features[name])]
    if len(images) > 1 or (inputs is not None and 0 < len(images or lists) < len(inputs)):
        raise DataError(f"{where}: {', '.join(images or wanted)} are no inputs of one kind: say which, inputs=…")
    columns = {name: to_column(name, _to_objects(data[name])) for name in values}
    raw = columns.pop(label, None) if label is not None else None
    if label is not None and raw is None:
        raise DataError(f"'{label}' of {where} has several values an item: a label is a whole number or a name")
    names = tuple(features[label].names) if label is not None and hasattr(features[label], "names") else None
    if names is not None and raw is not None and (raw == -1).any():
        raw = np.where(raw == -1, np.nan, raw)  # how Hugging Face says that there is no label
    found = Found({}, raw, columns, f"'{label}' of {where}" if label else "the labels", names)
    if not images:
        tensors = {name: _stack_lists(name, list(data[name]), where) for name in lists}
        return replace(found, inputs={"x": tensors.popitem()[1]} if len(tensors) == 1 else tensors)

    from datasets import Image  # noqa: PLC0415 - it is there, for it made the data

    from selfreminder.data.own.images import read_images  # noqa: PLC0415 - needs the extra `cli`

    parts = list(data.cast_column(images[0], Image(decode=False))[images[0]])
    places = [part["path"] or f"item {i}" for i, part in enumerate(parts)]
    pixels, readable, skipped = read_images(
        [part["bytes"] if part["bytes"] is not None else Path(part["path"]) for part in parts],
        places,
        size=size,
        channels=channels,
        room=room,
        skip_bad=skip_bad,
        progress=progress,
    )
    return replace(replace(found, places=places).keep(readable, skipped), inputs={"x": pixels})


def _holds_numbers(feature: Any) -> bool:
    """Whether a feature is a list or an array of numbers, or lists of them."""
    feature = feature[0] if isinstance(feature, list) else feature
    while hasattr(feature, "feature"):
        feature = feature.feature
    return str(getattr(feature, "dtype", "")).startswith(("int", "uint", "float", "bool"))


def _to_objects(values: Any) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = list(values)
    return array


def _stack_lists(name: str, rows: list[Any], where: str) -> Tensor:
    arrays = [np.asarray(row) for row in rows]
    shapes = list(dict.fromkeys(array.shape for array in arrays))
    if len(shapes) > 1:
        raise DataError(
            f"{where}: '{name}' has different shapes, such as {shapes[0]} and {shapes[1]}: pad to one length "
            "(a tokenizer's padding='max_length')"
        )
    array = np.stack(arrays)
    return to_tensor(name, array.astype(np.float32) if array.dtype == np.float64 else array)
