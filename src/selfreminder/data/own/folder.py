"""A folder of images: a folder for each class, or none; and what a `metadata.csv` says of them."""

import os
from collections import Counter
from pathlib import Path

import numpy as np

from selfreminder._base.errors import DataError
from selfreminder.data.own.encoding import Columns
from selfreminder.data.own.own_data import LABELS, Found, Progress, check_names
from selfreminder.data.own.room import Room
from selfreminder.data.own.tables import read_csv, to_column

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jpe", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"}
)
"""how files of images end"""

_METADATA = "metadata.csv"
_FILE_NAMES = ("file_name", "filename", "file", "path", "image")
"""how its column of files may be named; the first is Hugging Face's"""


def read_folder(
    folder: Path,
    *,
    label: str | None,
    size: int | None,
    channels: int | None,
    room: Room,
    skip_bad: bool,
    progress: Progress | None,
) -> Found:
    """Read the images of a folder: `folder/class/…/image`, or `folder/image` without labels.

    A `metadata.csv` in the folder has a row for an image, by its path from there or by its name alone. Its columns
    join, and one of them has the labels if `label` names it, or if there are no class folders and it is named "label".
    """
    from selfreminder.data.own.images import read_images  # noqa: PLC0415 - needs the extra `cli`

    files, classes = _list_images(folder)
    paths = [file.relative_to(folder).as_posix() for file in files]
    joined = _join_metadata(folder / _METADATA, paths, skip_bad)
    by_column = label or next((name for name in LABELS if name in joined and not classes), None)
    if by_column is not None:
        check_names("label column", [by_column], list(joined))
    pixels, readable, skipped = read_images(
        files, paths, size=size, channels=channels, room=room, skip_bad=skip_bad, progress=progress
    )
    kept = [path for path, good in zip(paths, readable) if good]
    columns = {name: column[readable] for name, column in joined.items() if name not in (by_column, "path")}
    names = None
    if by_column is not None:
        labels = joined[by_column][readable]
    elif classes:
        labels, names = _number_folders(folder, kept, classes)
    else:
        labels = None
    where = f"label column '{by_column}' of {folder / _METADATA}" if by_column else f"the folders in {folder}"
    columns["path"] = np.array(kept, object)
    return Found({"x": pixels}, labels, columns, where, names, places=kept, skipped=tuple(skipped))


def read_task_folders(
    folder: Path, *, size: int | None, channels: int | None, room: Room, skip_bad: bool, progress: Progress | None
) -> Found:
    """Read the images of `folder/task/class/…/image`; the column "folder" has each one's task."""
    from selfreminder.data.own.images import read_images  # noqa: PLC0415 - needs the extra `cli`

    tasks = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not tasks:
        raise DataError(f"{folder} has no folders: one for each task, with a folder for each class, is what is needed")
    listed = [_list_images(task) for task in tasks]
    classes = sorted({name for _, names in listed for name in names})
    if lacking := [task.name for task, (_, names) in zip(tasks, listed) if not names]:
        raise DataError(f"{folder}: {lacking[0]} has no classes: it should have a folder for each, with its images")
    files = [file for found, _ in listed for file in found]
    paths = [file.relative_to(folder).as_posix() for file in files]
    pixels, readable, skipped = read_images(
        files, paths, size=size, channels=channels, room=room, skip_bad=skip_bad, progress=progress
    )
    kept = [path for path, good in zip(paths, readable) if good]
    of_task = np.array([path.split("/", 1)[0] for path in kept], object)
    inside = [path.split("/", 1)[1] for path in kept]
    for task, (_, names) in zip(tasks, listed):
        _number_folders(task, [path for path, name in zip(inside, of_task) if name == task.name], names)
    labels, names = _number_folders(folder, inside, classes)
    return Found(
        {"x": pixels}, labels, {"folder": of_task}, f"the folders in {folder}", names, kept, skipped=tuple(skipped)
    )


def _list_images(folder: Path) -> tuple[list[Path], list[str]]:
    """All images, sorted, and the names of the class folders."""
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "__")))
    loose = sorted(path for path in folder.iterdir() if _is_image(path))
    inside = {name: _walk(folder / name) for name in classes}
    if not loose and not any(inside.values()):
        others = Counter(path.suffix or "no ending" for path in folder.rglob("*") if path.is_file())
        shown = ", ".join(f"{count} of {suffix}" for suffix, count in others.most_common(3))
        raise DataError(
            f"{folder} has no images{f', only other files ({shown})' if shown else ''}: it should have a folder for "
            f"each class with {', '.join(sorted(SUFFIXES))}"
        )
    if empty := [name for name in classes if not inside[name]]:
        raise DataError(f"{folder}: class '{empty[0]}' is empty, no images are in its folder: add some or remove it")
    if loose and classes:
        raise DataError(
            f"{folder} has {len(loose)} images beside its class folders, such as {loose[0].name}: move each into one"
        )
    return loose or [path for name in classes for path in inside[name]], classes


def _walk(folder: Path) -> list[Path]:
    return sorted(path for at, _, names in os.walk(folder) for name in names if _is_image(path := Path(at) / name))


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


def _number_folders(folder: Path, paths: list[str], classes: list[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    place = {name: number for number, name in enumerate(classes)}
    labels = np.array([place[path.split("/", 1)[0]] for path in paths], np.int64)
    for name, count in zip(classes, np.bincount(labels, minlength=len(classes))):
        if not count:
            raise DataError(f"{folder}: class '{name}' is empty, none of its images can be read")
    return labels, tuple(classes)


def _join_metadata(file: Path, paths: list[str], skip_bad: bool) -> Columns:
    """The columns of a metadata file in the order of the images; gaps where it has no row."""
    if not file.is_file():
        return {}
    table = read_csv(file, skip_bad=skip_bad)
    name = next((name for name in _FILE_NAMES if name in table.columns), None)
    if name is None:
        raise DataError(f"{file} has no column of files: name it {_FILE_NAMES[0]} (it has {', '.join(table.columns)})")
    row_of: dict[str, int] = {}
    for row, given in enumerate(table.columns[name]):
        key = str(given).replace("\\", "/").removeprefix("./")
        if key in row_of:
            raise DataError(f"{file}, {table.places[row]}: '{key}' is there twice")
        row_of[key] = row
    bare = Counter(path.rsplit("/", 1)[-1] for path in paths)
    rows = []
    for path in paths:
        own = path.rsplit("/", 1)[-1]
        rows.append(row_of.get(path, row_of.get(own, -1) if bare[own] == 1 else -1))
    missing = set(range(len(row_of))) - set(rows)
    if missing and not skip_bad:
        first = list(row_of)[min(missing)]
        raise DataError(
            f"{file} names {len(missing)} files that are no images there, such as '{first}': remove the rows"
        )
    at = np.array(rows)
    columns = {}
    for other, column in table.columns.items():
        if other == name:
            continue
        values = column[at].astype(object)
        values[at < 0] = None
        columns[other] = to_column(other, values) if (at < 0).any() else column[at]
    return columns
