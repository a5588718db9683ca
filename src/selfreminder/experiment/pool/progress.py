"""What a run says of itself while it goes, and how it ended. Nothing here needs torch.

Why a run failed is kept in its folder as `failure.json`: {"reason", "kind", "times", "version"}.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from selfreminder import __version__
from selfreminder._base.atomic import write_text
from selfreminder._base.lock import LockedError, locked
from selfreminder.experiment.records import STATE

FAILURE = "failure.json"
TRACE = "error.txt"
_OFTEN = 2

Kind = Literal["mistake", "system", "diverged", "error", "died"]


@dataclass(frozen=True)
class Progress:
    """How far a run is. Tasks and epochs count from 1."""

    task: int
    tasks: int
    epoch: int
    epochs: int
    average: float | None
    """test accuracy over the tasks so far"""
    fraction: float
    """of the run's work"""


@dataclass(frozen=True)
class Done:
    """The run is complete."""

    seconds: float = field(default=0.0, compare=False)
    """that the worker spent on it since it took it up"""


@dataclass(frozen=True)
class Stopped:
    """The run was asked to stop and has saved its state."""


@dataclass(frozen=True)
class Left:
    """The run is not wanted any more. If it had begun, its state is saved; its worker goes on to the next."""


@dataclass(frozen=True)
class Leave:
    """Said to a worker whose run is not wanted any more."""


@dataclass(frozen=True)
class Busy:
    """Another process has the run."""


@dataclass(frozen=True)
class Failed:
    """The run cannot go on."""

    reason: str
    kind: Kind
    """mistake: what was asked for cannot be; system: disk, permissions; diverged: the loss left the numbers;
    error: a defect, its trace is in error.txt; died: its process was killed again and again"""
    times: int = 1
    """in a row, for the same reason"""
    version: str = __version__
    """of selfreminder"""

    @property
    def users_mistake(self) -> bool:
        return self.kind in ("mistake", "system")


def read_failure(folder: Path) -> Failed | None:
    """Read why a run failed the last time; None if it did not, or nobody can tell."""
    try:
        return Failed(**json.loads((folder / FAILURE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def keep_failure(folder: Path, failed: Failed) -> Failed:
    """Write down why a run failed; returns it with how often the run has failed in this way."""
    before = read_failure(folder)
    if before is not None and (before.reason, before.version) == (failed.reason, failed.version):
        failed = replace(failed, times=before.times + 1)
    # On a full disk nothing can be kept; and if another process has the run by now, it will say how it ends.
    with suppress(OSError, LockedError):
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, patience=0.0):
            write_text(folder / FAILURE, json.dumps(asdict(failed), indent=1) + "\n")
    return failed


def remove_leftovers(folder: Path) -> None:
    """Remove from the folder of a run that is done what only one that is not has: it may have been killed before."""
    for name in (FAILURE, TRACE, STATE):
        with suppress(OSError):
            (folder / name).unlink(missing_ok=True)


def is_given_up(failed: Failed | None) -> bool:
    """Tell whether trying again is of no use: twice the same end, with this version. What the system did may pass."""
    return failed is not None and failed.times >= _OFTEN and failed.version == __version__ and failed.kind != "system"
