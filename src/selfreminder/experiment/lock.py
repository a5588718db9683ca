"""A folder that one process at a time writes to."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selfreminder.errors import SelfReminderError


@contextmanager
def locked(folder: Path, patience: float = 5.0) -> Iterator[None]:
    """Let no second process write to a folder; wait a little for one that is on its way out."""
    with (folder / ".lock").open("w") as file:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SelfReminderError(
                        f"another process is at work in {folder}: wait for it, or choose another folder"
                    ) from None
                time.sleep(0.1)
        yield
