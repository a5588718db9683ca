"""Data that is too large for memory, decoded once and kept in the cache: a folder for each, whole or not at all."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from selfreminder._base.atomic import move_folder, name_temporary, remove_stale
from selfreminder.data.mapped import MappedRows
from selfreminder.data.own import find_kind
from selfreminder.data.own.reading import Reading
from selfreminder.data.source import cache_folder

_FORMAT = 2
"""of what is kept: what earlier versions kept is decoded again"""
_FACTS, _INPUTS, _ROWS = "facts.json", "inputs.bin", "rows.npz"


def find_place(source: str, how: Reading) -> Path | None:
    """Find where data of a source is kept, or would be; None where nobody can tell whether a source has changed."""
    kind, path = find_kind(source)
    if not isinstance(path, Path):
        return None
    settings = asdict(replace(how, sha256=None))
    digest = hashlib.sha256(json.dumps([_FORMAT, kind, str(path.resolve()), settings], sort_keys=True).encode())
    for name, size, changed in _list_files(path):
        digest.update(f"{name}\0{size}\0{changed}\0".encode(errors="surrogateescape"))
    return cache_folder() / "own" / digest.hexdigest()[:16]


def _list_files(path: Path) -> list[tuple[str, int, int]]:
    if path.is_file():
        found = path.stat()
        return [("", found.st_size, found.st_mtime_ns)]
    files = []
    for at, _, names in os.walk(path):
        for name in names:
            file = Path(at) / name
            if file.exists():
                found = file.stat()
                files.append((str(file.relative_to(path)), found.st_size, found.st_mtime_ns))
    return sorted(files)


@contextmanager
def make_room(place: Path | None) -> Iterator[Path | None]:
    """Give a temporary folder beside a place for files of inputs; what is left in it when the block ends is removed."""
    if place is None:
        yield None
        return
    folder = name_temporary(place)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def save_kept(place: Path, x: MappedRows, facts: dict[str, Any], columns: dict[str, np.ndarray]) -> None:
    """Keep decoded inputs, whose file is in a temporary folder beside the place, with what else is known of them."""
    array = x.array
    assert isinstance(array, np.memmap) and array.filename is not None
    file = Path(array.filename)
    array.flush()
    for other in file.parent.iterdir():
        if other != file:
            other.unlink()
    file.rename(file.with_name(_INPUTS))
    with (file.parent / _ROWS).open("wb") as rows:
        np.savez(rows, at=x.at.numpy(), **columns)  # pyright: ignore[reportArgumentType]
        os.fsync(rows.fileno())
    text = json.dumps({**facts, "dtype": array.dtype.name, "shape": array.shape})
    with (file.parent / _FACTS).open("w", encoding="utf-8") as said:
        said.write(text)
        os.fsync(said.fileno())
    try:
        move_folder(file.parent, place)
    except OSError:
        if not (place / _FACTS).is_file():  # else another process was faster
            raise
    remove_stale(place.parent)


def load_kept(place: Path | None) -> tuple[MappedRows, dict[str, Any], dict[str, np.ndarray]] | None:
    """Open what is kept at a place; None if nothing is, or it is not whole."""
    if place is None or not (place / _FACTS).is_file():
        return None
    try:
        facts = json.loads((place / _FACTS).read_text(encoding="utf-8"))
        # A file that was cut short would end the process when it is read.
        dtype, shape = np.dtype(facts.pop("dtype")), tuple(facts.pop("shape"))
        if (place / _INPUTS).stat().st_size != int(np.prod(shape, dtype=object)) * dtype.itemsize:
            raise ValueError(_INPUTS)
        with (place / _ROWS).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            columns = {name: file[name] for name in file.files}
        at = torch.from_numpy(columns.pop("at"))
        return MappedRows(np.memmap(place / _INPUTS, dtype, "r", shape=shape), at), facts, columns
    except Exception:  # what is damaged can raise anything: it is decoded again
        shutil.rmtree(place, ignore_errors=True)
        return None
