"""A lock on a folder, so that one process at a time writes to it. It goes with its process, however that ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from selfreminder._base.errors import SelfReminderError

_LOCK = ".lock"


class LockedError(SelfReminderError):
    """Another process is at work in a folder."""


@contextmanager
def locked(folder: Path, patience: float = 5.0, lock: str = _LOCK) -> Iterator[None]:
    """Let no second process write to a folder; wait a little for one that is on its way out.

    Args:
        folder: the folder to lock.
        patience: seconds to wait before `LockedError` is raised.
        lock: the name of the lock file: another one locks a single file in a folder where others may be at work.
    """
    try:
        taken = FileLock(folder / lock).acquire(timeout=patience, poll_interval=0.1)
    except Timeout:
        raise LockedError(f"another process is at work in {folder}: wait for it, or choose another folder") from None
    with taken:
        yield


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
