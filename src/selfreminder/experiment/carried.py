"""The files of a folder, carried elsewhere as they change: from a node to its driver, or into an object store.

Cut off at any moment, what has arrived is something that a run goes on from: what is written first needs nothing of
what comes after it.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from selfreminder._base.atomic import replace_file
from selfreminder.experiment.records import RECORDS, STATE

_LAST = (RECORDS, STATE)
Versions = dict[str, tuple[int, int]]
"""size and time of change of files, by name"""


@dataclass(frozen=True)
class Carried:
    """What has changed in a folder."""

    written: Mapping[str, bytes] = field(default_factory=dict)
    """contents by name, in the order in which they are to be written"""
    removed: tuple[str, ...] = ()
    """to be removed after that"""

    def put(self, folder: Path) -> None:
        """Change another folder in the same way, each file whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.written.items():
            with replace_file(folder / name) as temporary:
                temporary.write_bytes(content)
        for name in self.removed:
            (folder / name).unlink(missing_ok=True)


def sort_for_writing(names: Iterable[str]) -> list[str]:
    """Sort the names of files so that each can be written before the next, and read after it.

    A state needs records that are at least as long as they were when it was saved, and records that say that a run is
    done need the memory that was written before.

    >>> sort_for_writing(["state.safetensors", "records.jsonl", "memory.safetensors"])
    ['memory.safetensors', 'records.jsonl', 'state.safetensors']
    """
    return sorted(names, key=lambda name: (_LAST.index(name) if name in _LAST else -1, name))


def read_changes(folder: Path, known: Versions) -> Carried:
    """Read the files of a folder, but not of those in it, that differ from what is known of them; `known` follows.

    A run may be at work there. Hidden files are its own.
    """
    found: dict[str, bytes] = {}
    there: set[str] = set()

    def read(name: str) -> None:
        try:
            with (folder / name).open("rb") as file:
                status = os.fstat(file.fileno())
                there.add(name)
                version = status.st_size, status.st_mtime_ns
                if known.get(name) != version:
                    found[name], known[name] = file.read(), version
        except FileNotFoundError:
            pass

    for name in reversed(_LAST):
        read(name)
    # Not before: what records speak of is there.
    names = [path.name for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
    for name in sorted({*names} - {*_LAST}, reverse=True):
        if not name.startswith("."):
            read(name)
    removed = tuple(sorted(known.keys() - there))
    for name in removed:
        del known[name]
    return Carried(dict(reversed(found.items())), removed)
