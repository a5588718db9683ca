"""`python -m chaos.command WORDS`: a command of selfreminder in which the system may fail at a chosen moment.

CHAOS_WRITE=EIO:7 lets fail the seventh time that a file below the working folder is opened to be written or renamed, in
each process, workers included: they import this module too. CHAOS_LONGEST is how long a file may become.
CHAOS_BEGUN is made when the command's own code begins. For a store the clock stands still.
"""

import errno
import gzip
import hashlib
import importlib
import io
import os
import resource
import sys
import tarfile
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from selfreminder.__main__ import main
from selfreminder.data import DATASETS
from selfreminder.data.source import DataFile, DataSet, Form

PARTS = {f"part-{number}": bytes([number]) * 2_000_000 for number in range(3)}
MADE_UP = DATASETS["chaos"] = DataSet(
    name="chaos",
    summary="made up, so that `data get` has something to unpack",
    files=tuple(
        DataFile(name, hashlib.sha256(content).hexdigest(), (Form((f"chaos/{name}",)),))
        for name, content in PARTS.items()
    ),
    archives=("chaos.tar.gz",),
)


def make_archive(parts: dict[str, bytes] = PARTS) -> bytes:
    """Make the archive that holds the made-up data."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in parts.items():
            entry = tarfile.TarInfo(f"chaos/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(made.getvalue(), 1, mtime=0)


def break_write(code: int, number: int, folder: Path) -> None:
    """Let a write fail: Python asks its audit hooks before it opens or renames a file."""
    writes = count(1)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "os.rename") or not isinstance(arguments[0], str | os.PathLike):
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        if Path(arguments[0]).absolute().is_relative_to(folder) and next(writes) == number:
            raise OSError(code, os.strerror(code), str(arguments[0]))

    sys.addaudithook(hook)


class _Noon(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime(2026, 1, 1, 12, tzinfo=tz or UTC)


def stop_clock() -> None:
    """Let all versions of a store be of one moment, so that those that should be the same are so to the byte."""
    importlib.import_module("selfreminder.store.items").time = _Still
    for name in ("manifest", "versions"):
        importlib.import_module(f"selfreminder.store.{name}").datetime = _Noon


class _Still:
    @staticmethod
    def time() -> float:
        return _Noon.now().timestamp()


if said := os.environ.get("CHAOS_WRITE"):
    break_write(getattr(errno, said.partition(":")[0]), int(said.partition(":")[2]), Path.cwd())
if longest := os.environ.get("CHAOS_LONGEST"):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(longest), int(longest)))

if __name__ == "__main__":
    if Path("store").exists() and sys.argv[1:2] in (["update"], ["delete"]):
        stop_clock()
    if begun := os.environ.pop("CHAOS_BEGUN", None):
        Path(begun).touch()
    sys.exit(main())
