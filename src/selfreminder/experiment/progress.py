"""What a run says of itself while it goes, and how it ended. Nothing here needs torch."""

from dataclasses import dataclass


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


@dataclass(frozen=True)
class Stopped:
    """The run was asked to stop and has saved its state."""


@dataclass(frozen=True)
class Failed:
    """The run cannot go on."""

    reason: str
    users_mistake: bool
