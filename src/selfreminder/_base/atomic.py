"""Files that are written whole or not at all."""

import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PART = re.compile(r"\.(?:([0-9a-f]{8})\.)?([0-9]{1,9})(?:\.[0-9a-f]{8})?\.part$")
"""the end of a temporary name: machine, process, a number of its own; earlier versions had the process alone"""
_DAY = 86_400


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside `path` that takes its place in one step when the block ends well.

    When the block fails, `path` is as it was and the temporary file is gone. A file that is replaced keeps its mode:
    what others could not read, they cannot read afterwards either.
    """
    path = Path(path).resolve()
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    temporary = name_temporary(path)
    try:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
        temporary.touch(0o666 if mode is None else mode, exist_ok=False)
        mode = stat.S_IMODE(temporary.stat().st_mode) if mode is None else mode
        yield temporary
        temporary.chmod(mode)  # some writers put a file of their own, for the owner only, in its place
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # nobody knows the temporary file
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file whole or not at all."""
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def name_temporary(path: Path) -> Path:
    """Name a temporary file or folder beside `path`: another one at each call, in each thread, process and machine."""
    return path.with_name(f".{path.name[:40]}.{_machine()}.{os.getpid()}.{secrets.token_hex(4)}.part")


def move_folder(source: Path, target: Path) -> None:
    """Give a folder its name in one step: `target` is there whole, or not at all. Its files were written before."""
    _sync_folder(source)
    source.rename(target)
    _sync_folder(target.parent)


def remove_stale(folder: Path, name: str = "") -> None:
    """Remove what a kill in the middle of a write has left in a folder; others may be writing there at this moment.

    Args:
        folder: where to look.
        name: only what was to become the file of this name; by default everything.
    """
    for path in folder.glob(".*.part"):
        found = _PART.search(path.name)
        if found is None or (name and path.name[: found.start()] != f".{name[:40]}"):
            continue
        machine, process = found.groups()
        with suppress(OSError):  # it is gone meanwhile, or not ours to remove
            # Whether a process of another machine lives, nobody can say; none writes for a day without a pause.
            here = machine in (None, _machine())
            if not _is_alive(int(process)) if here else time.time() - path.stat().st_mtime > _DAY:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _machine() -> str:
    """8 hex digits."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # elsewhere signal 0 is no question: rather a file too many than a process too few
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is somebody else's
        pass
    return True


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
