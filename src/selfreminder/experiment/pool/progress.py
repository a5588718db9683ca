"""What a run says of itself while it goes, and how it ended. Nothing here needs torch."""

from dataclasses import dataclass, field
from typing import Literal

from selfreminder import __version__

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
