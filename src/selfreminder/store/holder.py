"""Who holds a store: one process at a time writes to it, and the others can say which."""

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from selfreminder._base.atomic import remove_stale, write_text
from selfreminder._base.errors import StoreError
from selfreminder._base.lock import LockedError, locked
from selfreminder.store.manifest import who_am_i

HOLDER = "holder.json"
_PATIENCE = 1.0


@contextmanager
def hold(folder: Path, command: str | None = None) -> Iterator[None]:
    """Let no second process write to a store; one that finds it held says who holds it.

    The lock goes with its process, however that ends. What it says of itself may stay behind: it counts only while the
    lock is taken.
    """
    try:
        with locked(folder, _PATIENCE):
            remove_stale(folder)
            write_text(folder / HOLDER, json.dumps(_describe(command), indent=1) + "\n")
            try:
                yield
            finally:
                with suppress(OSError):
                    (folder / HOLDER).unlink(missing_ok=True)
    except LockedError:
        raise StoreError(f"{folder} is held by {name_holder(folder)}: wait for it to end, then try again") from None


def name_holder(folder: Path) -> str:
    """Who holds a store, in words."""
    try:
        found = json.loads((folder / HOLDER).read_text(encoding="utf-8"))
        since = f"{found['who']} on {found['host']} since {found['since']}"
        return f"process {found['pid']} of {since}, running `{found['command']}`"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _describe(command: str | None) -> dict[str, str | int]:
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "who": who_am_i(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command or " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }
