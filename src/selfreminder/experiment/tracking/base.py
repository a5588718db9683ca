"""What a tracker is: four hooks that are told of one run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from selfreminder._base.errors import MissingExtraError, unknown

TRACKERS = ("tensorboard", "mlflow", "trackio", "wandb")
"""each is a module here, and an extra of the same name"""


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker knows it."""

    name: str
    """the run's key; or "figures", which is no run: it has nothing but files"""
    folder: Path
    """of the whole grid"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """the fields of its experiment"""
    versions: Mapping[str, str] = field(default_factory=dict)


class Tracker(Protocol):
    """Is told of one run, in the order of its records. Whatever it raises is a warning, and it is told no more."""

    def start(self, run: TrackedRun, known: str | None) -> str:
        """Open the tracked run, or go on in the one that is `known`; gives its name in the tracker."""
        ...

    def epoch(self, step: int, values: Mapping[str, float]) -> None:
        """Take the loss and the seconds of an epoch; steps count the epochs of all tasks so far."""
        ...

    def task(self, step: int, values: Mapping[str, float]) -> None:
        """Take what was measured after a task: accuracies, bytes, seconds."""
        ...

    def end(self, files: Sequence[Path]) -> None:
        """Close the tracked run, with its memory or, of "figures", images."""
        ...


def load_tracker(name: str) -> type[Tracker]:
    """Import a tracker; raise if there is none of the name, or its extra is missing."""
    if name not in TRACKERS:
        raise unknown("tracker", name, TRACKERS)
    try:
        return import_module(f"selfreminder.experiment.tracking.{name}").OwnTracker
    except ImportError as error:
        raise MissingExtraError(f"--track {name} needs {error.name}: pip install 'selfreminder[{name}]'") from None
