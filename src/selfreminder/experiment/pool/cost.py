"""What runs will cost, before they are run: time, memory and disk.

Times are those of runs like them in the folder, else by a few steps here: see `speed`. So is the memory of a worker,
else it is the estimate that limits workers, rather too much than too little. What is written is counted from the
settings: the lines of the records, and the items that a memory keeps.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from selfreminder._base.sizes import show_bytes
from selfreminder.experiment.catalogue import benchmark, uses
from selfreminder.experiment.evaluation import list_evaluated
from selfreminder.experiment.folder import run_folders
from selfreminder.experiment.pool.estimate import Alike, RunTimes, estimate_memory
from selfreminder.experiment.pool.speed import Speed, estimate_speed
from selfreminder.experiment.records import read_records
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.status import read_timings

_FREE = ("seed", "strength", "lr", "weight_decay", "momentum", "schedule", "options")
"""fields on which the cost of a run does not depend"""
_START, _EPOCH, _TASK, _EVALUATED = 700, 195, 320, 75
"""bytes in records and timings: of the first line, of an epoch, of a task, and of each task evaluated after it"""
_BESIDE = 15
"""bytes of an item in a memory beside its numbers and logits: label, task, number and the like"""
_NUMBER_BYTES = {"float32": 4, "float16": 2, "uint8": 1, "affine8": 1, "int8": 1, "compressed": 1}
_ADAMS = 12
"""bytes of a parameter in a state: itself and Adam's two moments"""
_LARGEST = ("longest", "peak", "state")
"""of these, several runs have the largest; of others, the sum"""


@dataclass(frozen=True)
class Cost:
    """What runs that are left will take."""

    runs: int
    seconds: float
    """of one core"""
    longest: float
    """of the longest run: it has one worker, however many there are"""
    spans: float
    """seconds that the runs take, one after the other; of several processes each, less than those of one core"""
    measured: int
    """runs of which the folder has times of others like them; the rest is estimated"""
    peak: int = 0
    """bytes of memory that a worker takes at most"""
    peaks_measured: int = 0
    """runs of which the folder has the peaks of others like them"""
    written: int = 0
    """bytes that stay in the folder"""
    state: int = 0
    """bytes of the largest state, which a run has in its folder while it is under way"""

    @classmethod
    def join(cls, parts: Iterable["Cost"]) -> "Cost":
        """Add up the costs of several groups of runs."""
        added = list(parts)
        values = {each.name: [getattr(cost, each.name) for cost in added] for each in fields(cls)}
        return cls(**{name: (max(of, default=0) if name in _LARGEST else sum(of)) for name, of in values.items()})

    def describe(self, whole: int, workers: int) -> str:
        """Say it in sentences; `whole` is how many runs there are, done ones included.

        >>> print(Cost(3, 7200.0, 3600.0, 7200.0, 1, 2 * 10**9, 0, 3_000_000, 48_000_000).describe(5, 2))
        3 of 5 runs are left: about 2 core-hours, 60 minutes with 2 workers (1 run by the times of others in the folder,
        2 by a step timed here, which is right to a factor of two). A worker takes up to 2 GB of memory (estimated,
        rather too much). About 3 MB will be written, and 48 MB for each run under way, its state.
        """
        if not self.runs:
            return f"None of {whole} runs is left."
        return " ".join(
            (
                f"{self.runs} of {whole} runs {'is' if self.runs == 1 else 'are'} left: about "
                f"{_show_hours(self.seconds)} core-hours, {_show_time(self.wall(workers))} with "
                f"{workers} worker{'' if workers == 1 else 's'} ({self.rests_on}).",
                f"A worker takes up to {show_bytes(self.peak)} of memory ({self._say_peak()}).",
                f"About {show_bytes(self.written)} will be written, and {show_bytes(self.state)} for each run under "
                "way, its state.",
            )
        )

    @property
    def rests_on(self) -> str:
        """Say what the times rest on."""
        by_times = f"{self.measured} run{'' if self.measured == 1 else 's'} by the times of others in the folder"
        by_steps = f"{self.runs - self.measured} by a step timed here, which is right to a factor of two"
        return ", ".join(
            part for part, count in ((by_times, self.measured), (by_steps, self.runs - self.measured)) if count
        )

    def _say_peak(self) -> str:
        return "as others did in the folder" if self.peaks_measured == self.runs else "estimated, rather too much"

    def wall(self, workers: int) -> float:
        """Estimate the seconds until all are done with so many workers."""
        return max(self.spans / workers, self.longest)

    def as_dict(self, workers: int) -> dict[str, Any]:
        """As JSON can say it."""
        hours, days = self.seconds / 3600, self.wall(workers) / 86400
        return {
            "left": self.runs,
            "core_hours": float(f"{hours:.4g}"),
            "days": float(f"{days:.4g}"),
            "by_times": self.measured,
            "peak_bytes": self.peak,
            "by_peaks": self.peaks_measured,
            "written_bytes": self.written,
            "state_bytes": self.state,
        }


class RunCosts:
    """What the runs in folders, done or not, have cost: by them, what others like them will.

    Args:
        folder: with runs, anywhere in it.
        data_dir: a folder with data files of the user's own.
    """

    def __init__(self, folder: Path, data_dir: str | None = None) -> None:
        self._data_dir, self._known, seen = data_dir, dict[str, Cost](), list[tuple[Experiment, float, float]]()
        self._peaks: Alike[int] = Alike(max)
        for path in run_folders(folder, deep=True):
            records = read_records(path)
            seconds, part = read_timings(path)
            if records is not None and not seconds:  # a packed run has no file of times
                seconds = math.fsum(of_task.get("seconds", 0.0) for of_task in records.timings)
            if records is None or not seconds or not (part or records.done):
                continue
            seen.append((records.experiment, 1.0 if records.done else part, seconds))
            if peaks := [int(of_task["peak_bytes"]) for of_task in records.timings if "peak_bytes" in of_task]:
                self._peaks.add(records.experiment, max(peaks))
        self._times = RunTimes(seen)

    def estimate(self, experiments: Iterable[Experiment]) -> Cost:
        """Estimate what runs will take."""
        return Cost.join(map(self._estimate_one, experiments))

    def _estimate_one(self, experiment: Experiment) -> Cost:
        kind = json.dumps({name: value for name, value in experiment.as_dict().items() if name not in _FREE})
        if kind not in self._known:
            seconds, peak = self._times.estimate(experiment, alike=True), self._peaks.find(experiment, alike=True)
            speed = estimate_speed(experiment, self._data_dir)
            processes = experiment.processes
            span = speed.seconds / processes if seconds is None else seconds
            memory = _estimate_memory_file(experiment, speed)
            self._known[kind] = Cost(
                1,
                span * processes,
                span,
                span,
                seconds is not None,
                processes * (estimate_memory(experiment, self._data_dir) if peak is None else peak),
                peak is not None,
                _estimate_lines(experiment) + memory,
                _ADAMS * speed.parameters + memory,
            )
        return self._known[kind]


def _estimate_lines(experiment: Experiment) -> int:
    """Estimate the bytes of a run's records and timings."""
    evaluated = sum(len(list_evaluated(experiment, task)) for task in range(experiment.tasks))
    lines = experiment.tasks * (experiment.epochs * _EPOCH + _TASK)
    return _START + lines + evaluated * _EVALUATED


def _estimate_memory_file(experiment: Experiment, speed: Speed) -> int:
    """Estimate the bytes of a run's memory when it is done."""
    if not uses(experiment.method, "per_class"):
        return 0
    size, tasks = experiment.size, experiment.tasks
    if size.budget_bytes is not None:
        return size.budget_bytes
    split = benchmark(experiment.benchmark).splits_classes
    items = size.items or tasks * (size.per_task or (size.per_class or 0) * speed.outputs)
    if split and size.per_class is not None and experiment.scenario in ("class", "domain"):
        items = size.per_class * speed.outputs
    number = _NUMBER_BYTES.get(experiment.codec, 4 if experiment.has_own_data else 1)
    return items * (speed.inputs * number + speed.outputs * _NUMBER_BYTES[experiment.logit_codec] + _BESIDE)


def _show_hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f}" if hours >= 10 else f"{max(hours, 0.001):.2g}"  # no powers of ten


def _show_time(seconds: float) -> str:
    """Show a time that is about right.

    >>> _show_time(20), _show_time(600), _show_time(36_000), _show_time(900_000)
    ('under a minute', '10 minutes', '10.0 hours', '10.4 days')
    """
    minutes, hours = seconds / 60, seconds / 3600
    if minutes < 1:
        return "under a minute"
    if minutes < 90:
        return f"{minutes:.0f} minutes"
    return f"{hours:,.1f} hours" if hours <= 48 else f"{hours / 24:,.1f} days"
