"""Why a run failed, kept in its folder as `failure.json`: {"reason", "kind", "times", "version"}."""

import json
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from selfreminder import __version__
from selfreminder._base.atomic import write_text
from selfreminder._base.lock import LockedError, locked
from selfreminder.experiment.pool.progress import Failed
from selfreminder.experiment.records import STATE

FAILURE = "failure.json"
TRACE = "error.txt"
_OFTEN = 2


def read_failure(folder: Path) -> Failed | None:
    """Why a run failed the last time; None if it did not, or nobody can tell."""
    try:
        return Failed(**json.loads((folder / FAILURE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def keep_failure(folder: Path, failed: Failed) -> Failed:
    """Write down that a run failed; gives it back with how often it has failed in this way."""
    before = read_failure(folder)
    if before is not None and (before.reason, before.version) == (failed.reason, failed.version):
        failed = replace(failed, times=before.times + 1)
    # On a full disk nothing can be kept; and if another process has the run by now, it will say how it ends.
    with suppress(OSError, LockedError):
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, patience=0.0):
            write_text(folder / FAILURE, json.dumps(asdict(failed), indent=1) + "\n")
    return failed


def tidy(folder: Path) -> None:
    """Of a run that is done, remove what is there only of one that is not: it may have been killed before it could."""
    for name in (FAILURE, TRACE, STATE):
        with suppress(OSError):
            (folder / name).unlink(missing_ok=True)


def given_up(failed: Failed | None) -> bool:
    """Whether trying again is of no use: twice the same end, with this version. What the system did may pass."""
    return failed is not None and failed.times >= _OFTEN and failed.version == __version__ and failed.kind != "system"
