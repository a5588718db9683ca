"""How long a run will take, from the times of runs that are like it."""

from collections.abc import Iterable, Iterator
from typing import Any

from selfreminder.experiment.spec import Experiment

_DATA = ("benchmark", "data", "images", "width", "batch_size", "device")
_ALIKE = (
    (*_DATA, "method", "select", "per_class", "per_task", "budget", "memory_batch"),
    (*_DATA, "method"),
    _DATA,
    ("method",),
    (),
)
"""fields in which runs agree whose epochs take about as long, from the most alike"""


def epochs(experiment: Experiment) -> int:
    """Of a whole run."""
    return experiment.tasks * experiment.epochs


class Speeds:
    """Seconds of whole runs, from (experiment, the part of it that was done, seconds that it took)."""

    def __init__(self, seen: Iterable[tuple[Experiment, float, float]]) -> None:
        self._totals: dict[tuple[Any, ...], tuple[float, float]] = {}
        for experiment, part, seconds in seen:
            for key in _keys(experiment):
                work, time = self._totals.get(key, (0.0, 0.0))
                self._totals[key] = work + part * epochs(experiment), time + seconds

    def __bool__(self) -> bool:
        """Whether anything was seen."""
        return bool(self._totals)

    def seconds(self, experiment: Experiment) -> float | None:
        """Of the whole run, by the runs that are most like it; None if nothing was seen."""
        found = next((self._totals[key] for key in _keys(experiment) if key in self._totals), None)
        return None if found is None else epochs(experiment) * found[1] / found[0]


def _keys(experiment: Experiment) -> Iterator[tuple[Any, ...]]:
    for names in _ALIKE:
        yield (names, *(getattr(experiment, name) for name in names))
