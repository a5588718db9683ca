"""A memory in one safetensors file: versioned, hashed, mapped when opened, written whole or not at all.

The file's metadata has one key, ``selfreminder``, with canonical JSON: schema, facts, and the sha256 of all
columns and facts. The same content gives the same bytes. Nothing is ever unpickled.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from selfreminder.atomic import replacing
from selfreminder.errors import MemoryFileError
from selfreminder.memory import Memory

SCHEMA = 1
_KEY = "selfreminder"


def save_memory(memory: Memory, path: str | os.PathLike[str]) -> None:
    """Write a memory to a file, whole or not at all."""
    columns = {name: column.detach().cpu().contiguous() for name, column in memory.columns.items()}
    about = {"schema": SCHEMA, **memory.facts}
    about["sha256"] = _content_hash(columns, about)
    with replacing(path) as temporary:
        save_file(columns, temporary, metadata={_KEY: _canonical(about)})


def open_memory(path: str | os.PathLike[str], *, verify: bool = True) -> Memory:
    """Read a memory file. Columns are mapped; `verify=False` leaves them unread until they are used."""
    path = Path(path)
    columns, about = _read(path)
    if verify and _content_hash(columns, about) != about["sha256"]:
        raise MemoryFileError(f"{path} was changed after it was written (its content does not match its hash)")
    try:
        memory = Memory.from_columns(columns, about)
        rows = {len(column) for column in columns.values()}
    except (KeyError, TypeError, ValueError) as error:
        raise MemoryFileError(f"{path} lacks a part of a memory: {error}") from None
    if len(rows) > 1:
        raise MemoryFileError(f"{path} has columns of different lengths: {sorted(rows)}")
    return memory


def memory_hash(path: str | os.PathLike[str]) -> str:
    """The content hash that a memory file carries."""
    return _read(Path(path))[1]["sha256"]


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if path.is_dir():
        raise MemoryFileError(f"{path} is a folder, not a memory file")
    if not path.exists():
        raise MemoryFileError(f"{path} does not exist")
    with path.open("rb"):
        pass  # safetensors reports a file that may not be read as one that is not there
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            if text is None:
                raise MemoryFileError(f"{path} is a safetensors file, but no memory of selfreminder")
            about = json.loads(text)
            if not isinstance(about, dict) or not isinstance(about.get("schema"), int):
                raise MemoryFileError(f"{path} does not say which schema it has: it was edited")
            if about["schema"] > SCHEMA:
                raise MemoryFileError(
                    f"{path} has schema {about['schema']}, this version reads up to {SCHEMA}: "
                    "update selfreminder"
                )
            columns = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, json.JSONDecodeError) as error:
        raise MemoryFileError(f"{path} is no memory file, or was cut short or edited: {error}") from None
    return columns, about


def _content_hash(columns: dict[str, Tensor], about: dict[str, Any]) -> str:
    facts = {key: value for key, value in about.items() if key != "sha256"}
    digest = hashlib.sha256(_canonical(facts).encode())
    for name in sorted(columns):
        column = columns[name]
        digest.update(f"{name} {column.dtype} {list(column.shape)}".encode())
        digest.update(column.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
