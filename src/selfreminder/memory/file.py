"""A memory in one safetensors file: versioned, hashed, mapped when opened, written whole or not at all.

The file's metadata has one key, ``selfreminder``, with canonical JSON: schema, facts, and the sha256 of all
columns and facts. The same content gives the same bytes. Nothing is ever unpickled.
"""

import hashlib
import math
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from selfreminder._base import tensor_file
from selfreminder._base.atomic import remove_stale
from selfreminder._base.errors import MemoryFileError
from selfreminder._base.lock import locked_file
from selfreminder.memory.memory import Memory
from selfreminder.memory.number_formats import split_bytes

SCHEMA = 2
_KEY = "selfreminder"
_AT_ONCE = 1024
_BYTES_AT_ONCE = 2**26
"""items, and bytes of them, that are decoded at a time, so that a large memory stays where it is"""


def save_memory(memory: Memory, path: str | os.PathLike[str]) -> None:
    """Write a memory to a file, whole or not at all. Who is changing that file by `change_memory` is waited for."""
    with locked_file(Path(path)) if Path(path).exists() else nullcontext():
        _write(memory, Path(path))


def change_memory(path: str | os.PathLike[str], change: Callable[[Memory], Memory | None]) -> Memory | None:
    """Read a memory file, change the memory, write it: nobody else writes the file meanwhile, so no change is lost.

    Args:
        path: of the file.
        change: gives the memory that takes the place of the one it gets; None leaves the file as it is.
    """
    _check_there(Path(path))
    with locked_file(Path(path)):
        changed = change(open_memory(path))
        if changed is not None:
            _write(changed, Path(path))
    return changed


def open_memory(path: str | os.PathLike[str], *, verify: bool = True) -> Memory:
    """Read a memory file. Columns are mapped; `verify=False` leaves them unread until they are used."""
    return open_with_hash(path, verify=verify)[0]


def open_with_hash(path: str | os.PathLike[str], *, verify: bool = True) -> tuple[Memory, str]:
    """Read a memory file, and the content hash that it carries."""
    columns, about = _read(Path(path))
    if verify and tensor_file.hash_content(columns, about) != about[tensor_file.HASH]:
        raise MemoryFileError(f"{path} was changed after it was written: its content does not match its hash")
    try:
        if about["schema"] == 1:
            columns, about = _from_schema_1(columns, about)
        memory = Memory.from_columns(columns, about)
        memory.check()
    except (ArithmeticError, AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise MemoryFileError(f"{path} holds no whole memory: {error}") from None
    return memory, about[tensor_file.HASH]


def memory_hash(path: str | os.PathLike[str]) -> str:
    """The content hash that a memory file carries."""
    return _read(Path(path))[1][tensor_file.HASH]


def hash_items(memory: Memory) -> list[str]:
    """12 hex digits an item, of its inputs and logits as they are read back.

    They depend neither on the other items nor on how anything is kept, so an item can be found again after a
    merge or a deletion, when ids and rows have changed.
    """
    hashes = []
    largest = max((math.prod(x.shape) * x.dtype.itemsize for x in memory.inputs.values()), default=0)
    at_once = max(1, min(_AT_ONCE, _BYTES_AT_ONCE // max(largest, 1)))
    for rows in torch.arange(len(memory), device=memory.device).split(at_once):
        inputs = {name: _widest(memory.inputs[name].decode(rows)) for name in sorted(memory.inputs)}
        logits, widths = memory.kept_logits.decode(rows), memory.widths[rows].tolist()
        columns = [(f"{name!r} {x.dtype} {list(x.shape[1:])}".encode(), split_bytes(x)) for name, x in inputs.items()]
        for item, (width, kept) in enumerate(zip(widths, split_bytes(logits))):
            digest = hashlib.sha256()
            for what, each in columns:
                digest.update(what)
                digest.update(each[item])
            digest.update(f"logits {width}".encode())
            digest.update(kept[: width * logits.element_size()])
            hashes.append(digest.hexdigest()[:12])
    return hashes


def _widest(x: Tensor) -> Tensor:
    """The same numbers in the widest type of their kind, because a merge may widen them."""
    if x.is_complex():
        return x
    return x.to(torch.float64 if x.is_floating_point() else torch.int64)


def _write(memory: Memory, path: Path) -> None:
    tensor_file.write(path, memory.columns, _KEY, {"schema": SCHEMA, **memory.facts})
    remove_stale(path.resolve().parent, path.resolve().name)


def _check_there(path: Path) -> None:
    if not path.is_file():
        raise MemoryFileError(f"{path} is a folder" if path.is_dir() else f"{path} does not exist")


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    _check_there(path)
    try:
        columns, about = tensor_file.read(path, _KEY, verify=False)  # a newer schema may have another hash
    except tensor_file.NotATensorFileError as error:
        raise MemoryFileError(f"{path} is no memory file: {error}") from None
    schema = about.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise MemoryFileError(f"{path} has schema {schema}, this version reads up to {SCHEMA}: update selfreminder")
    if type(schema) is not int or schema < 1 or tensor_file.HASH not in about:
        raise MemoryFileError(f"{path} does not say which schema or hash it has: it was edited")
    return columns, about


def _from_schema_1(columns: dict[str, Tensor], about: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """As this version writes it: schema 1 had one codec name an input, and wider labels."""
    inputs = {name: {"codec": name_of_codec} for name, name_of_codec in about["codecs"].items()}
    facts = about | {"inputs": inputs, "logits": {"codec": "float32"}}
    return columns | {"labels": columns["labels"].to(torch.int16)}, facts
