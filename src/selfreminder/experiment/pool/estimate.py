"""Estimates: how many workers fit into memory, and how long a run will take."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from selfreminder.data import dataset, source
from selfreminder.data.limit import get_limit
from selfreminder.experiment.catalogue import benchmark, references
from selfreminder.experiment.spec import Experiment

T = TypeVar("T")

_BASE = 600_000_000
"""bytes of a process with torch, a network and its optimiser"""
_COPIES = 9
"""a data set as it is on disk, as floating-point numbers, and as those of the task at hand"""
MOST_KEPT = 2**30
"""bytes of tasks' test and validation parts that a run keeps from one evaluation to the next"""
_DATA = ("benchmark", "data", "images", "model", "width", "batch_size", "device", "precision", "processes")
_ALIKE = (
    (*_DATA, "method", "select", "per_class", "per_task", "budget", "items", "memory_batch"),
    (*_DATA, "method"),
    _DATA,
    ("method",),
    (),
)
"""fields in which runs agree whose epochs take about as long, from the most alike"""
_ALIKE_ENOUGH = 2
"""the first of these, whose times are those of a run within little"""


def count_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def estimate_memory(experiment: Experiment, data_dir: str | None = None) -> int:
    """Estimate the bytes that a worker takes for an experiment, rather too many than too few."""
    if experiment.has_own_data:
        place = Path(experiment.data.partition(":")[2] or experiment.data).expanduser()
        found = place.rglob("*") if place.is_dir() else [place]
        size = sum(path.stat().st_size for path in found if path.is_file())
        return _BASE + _COPIES * min(size, get_limit())  # more is read from a file
    files = (path for name in experiment.data_sets for path in source.find(dataset(name), data_dir).values())
    size = sum(path.stat().st_size for path in set(files))
    if benchmark(experiment.benchmark).parts_of_data:
        return _BASE + size * _COPIES
    # Each task is another form of all the data: its test part may stay, and joint training looks at all of it.
    if experiment.method in references():
        return _BASE + size * (_COPIES + 8 * experiment.tasks)
    return _BASE + size * _COPIES + min(size * experiment.tasks, MOST_KEPT)


def count_workers(experiments: Iterable[Experiment], data_dir: str | None = None) -> tuple[int, str | None]:
    """Count one worker per core, or as many as the free memory holds; in that case with a line that says so.

    Of runs that several processes train together, each process has a core.
    """
    like = {(e.data, e.benchmark, e.tasks, e.method in references(), e.processes): e for e in experiments}
    most = max((experiment.processes for experiment in like.values()), default=1)
    wanted, free = max(1, count_cores() // most), measure_free_memory()
    if free is None:
        return wanted, None
    largest = max((e.processes * estimate_memory(e, data_dir) for e in like.values()), default=_BASE)
    fitting = max(1, free // largest)
    if fitting >= wanted:
        return wanted, None
    workers = "1 worker" if fitting == 1 else f"{fitting} workers"
    return fitting, (
        f"{workers} instead of {wanted}: {_gb(free)} of memory are free, and a worker may need {_gb(largest)}; "
        "--jobs sets another number"
    )


def measure_free_memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Measure the bytes that new processes can have: what the system has left, or a control group if that is less.

    None where the system does not say.
    """
    found = [_left_in_group(folder) for folder in _groups(proc, cgroups)]
    found += [_in_table(proc / "meminfo", "MemAvailable:", 1024)]
    return min((bytes_left for bytes_left in found if bytes_left is not None), default=None)


def _groups(proc: Path, cgroups: Path) -> list[Path]:
    """Find the folders of this process's memory control groups, version 1 or 2, with those around them."""
    folders: list[Path] = []
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = cgroups / "memory" if controllers else cgroups
        inner = root / path.lstrip("/")
        folders += [inner, *(around for around in inner.parents if around.is_relative_to(root))]
    return folders


def _left_in_group(folder: Path) -> int | None:
    for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        most, used = _text(folder / limit).strip(), _text(folder / usage).strip()
        if most.isdigit() and used.isdigit():
            # Files read long ago are given back when memory is short.
            cache = _in_table(folder / "memory.stat", "total_inactive_file", 1)
            cache = _in_table(folder / "memory.stat", "inactive_file", 1) if cache is None else cache
            return max(0, int(most) - int(used) + (cache or 0))
    return None


def _in_table(path: Path, name: str, unit: int) -> int | None:
    rows = (line.split() for line in _text(path).splitlines())
    return next((int(row[1]) * unit for row in rows if row[:1] == [name]), None)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


def count_epochs(experiment: Experiment) -> int:
    """Count the epochs of a whole run."""
    return experiment.tasks * experiment.epochs


class Alike(Generic[T]):
    """Values of runs, found by other runs that are like them.

    Args:
        join: makes one value of those of two runs that are equally like a third.
    """

    def __init__(self, join: Callable[[T, T], T]) -> None:
        self._join, self._joined = join, dict[tuple[Any, ...], T]()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._joined)

    def add(self, experiment: Experiment, value: T) -> None:
        """Note the value of a run."""
        for key in _keys(experiment):
            self._joined[key] = self._join(self._joined[key], value) if key in self._joined else value

    def find(self, experiment: Experiment, *, alike: bool = False) -> T | None:
        """Find the value of the runs that are most like one; None if there are none.

        With `alike`, only of runs of the same network and as many images, and of the same method.
        """
        keys = list(_keys(experiment))[: _ALIKE_ENOUGH if alike else None]
        return next((self._joined[key] for key in keys if key in self._joined), None)


class RunTimes:
    """How long whole runs take, by the times of runs that are like them.

    Args:
        seen: (experiment, the part of it that was done, the seconds that it took), as often as there are any.
    """

    def __init__(self, seen: Iterable[tuple[Experiment, float, float]]) -> None:
        # The epochs that were done, and their seconds.
        self._totals: Alike[tuple[float, float]] = Alike(lambda one, other: (one[0] + other[0], one[1] + other[1]))
        for experiment, part, seconds in seen:
            self._totals.add(experiment, (part * count_epochs(experiment), seconds))

    def __bool__(self) -> bool:
        """Whether anything was seen."""
        return bool(self._totals)

    def estimate(self, experiment: Experiment, *, alike: bool = False) -> float | None:
        """Estimate the seconds of a whole run, by the runs that are most like it; None if nothing was seen.

        With `alike`, only by runs of the same network and as many images, and of the same method.
        """
        found = self._totals.find(experiment, alike=alike)
        return None if found is None else count_epochs(experiment) * found[1] / found[0]


def _keys(experiment: Experiment) -> Iterator[tuple[Any, ...]]:
    for names in _ALIKE:
        yield (names, *(getattr(experiment, name) for name in names))
