"""A lock on a folder or a file, so that one at a time changes it. It goes with its process, however that ends."""

import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from selfreminder._base.errors import SelfReminderError

_LOCK = ".lock"
_HOLDER = re.compile(r"process [0-9]+ on [\w.-]+ since [0-9: -]+")


class LockedError(SelfReminderError):
    """Another process is at work in a folder or on a file."""


@contextmanager
def locked(folder: Path, patience: float = 5.0, lock: str = _LOCK) -> Iterator[None]:
    """Let no second process write to a folder; wait a little for one that is on its way out.

    Args:
        folder: the folder to lock.
        patience: seconds to wait before `LockedError` is raised.
        lock: the name of the lock file: another one locks a single file in a folder where others may be at work.
    """
    with _hold(folder / lock, patience, f"in {folder}", "choose another folder"):
        yield


@contextmanager
def locked_file(path: Path, patience: float = 60.0) -> Iterator[None]:
    """Let no other thread, process or machine change a file while it is read, changed and written.

    It may be read all the while. The lock is a file beside it, which stays there.
    """
    path = path.resolve()
    lock = path.with_name(f".{path.name[:40]}{_LOCK}")
    with _hold(lock, patience, f"on {path}", "end it", path):
        yield


@contextmanager
def _hold(path: Path, patience: float, where: str, instead: str, known: Path | None = None) -> Iterator[None]:
    lock = FileLock(path)
    try:
        taken = lock.acquire(timeout=patience, poll_interval=0.1)
    except Timeout:
        holder = _find_holder(path)
        raise LockedError(f"another process is at work {where}{holder}: wait for it, or {instead}") from None
    except OSError as error:
        error.filename = error.filename if known is None else str(known)  # nobody knows the lock
        raise
    with taken:
        if type(lock) is FileLock:  # where a file system has no locks, filelock has words of its own in there
            with suppress(OSError):
                since = time.strftime("%Y-%m-%d %H:%M:%S")
                path.write_text(f"process {os.getpid()} on {platform.node()} since {since}\n", encoding="utf-8")
        yield


def _find_holder(path: Path) -> str:
    with suppress(OSError, ValueError), path.open(encoding="utf-8") as file:
        if found := _HOLDER.match(file.read(200)):
            return f" ({found[0]})"
    return ""


def is_locked(folder: Path) -> bool:
    """Tell whether a process is at work in a folder.

    Asking takes the lock for some microseconds: who wants the folder meanwhile asks again. Of a folder that cannot be
    written to, such as an archive, nobody can have the lock.
    """
    path = folder / _LOCK
    if not path.is_file():
        return False
    try:
        with FileLock(path).acquire(timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return False
