"""A folder that one process at a time writes to."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selfreminder._base.errors import SelfReminderError

_LOCK = ".lock"


class LockedError(SelfReminderError):
    """Another process is at work in a folder."""


@contextmanager
def locked(folder: Path, patience: float = 5.0, lock: str = _LOCK) -> Iterator[None]:
    """Let no second process write to a folder; wait a little for one that is on its way out.

    `lock` names a lock of its own, for one file in a folder where others may be at work.
    """
    with (folder / lock).open("w") as file:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LockedError(
                        f"another process is at work in {folder}: wait for it, or choose another folder"
                    ) from None
                time.sleep(0.1)
        yield


def held(folder: Path) -> bool:
    """Whether a process is at work in a folder.

    A lock goes with its process, however that ends. Asking takes a shared lock for some microseconds: who wants the
    folder meanwhile asks again.
    """
    try:
        with (folder / _LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no such folder, or none that we may read
        return False
    return False
