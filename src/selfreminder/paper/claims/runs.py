"""The runs that a claim is about, and the numbers that it takes from them: one for each seed."""

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from selfreminder.data import dataset
from selfreminder.experiment.catalogue import uses
from selfreminder.experiment.records import Records, index_by_key
from selfreminder.experiment.spec import Experiment
from selfreminder.metrics import first_task, forgetting, rho, task_average
from selfreminder.paper.likely_reasons import Change, change_runs
from selfreminder.paper.specs import WORDS, count_whole_seeds, figure_runs
from selfreminder.report.html import decimal
from selfreminder.report.results import name_settings

_FLOAT32 = 4
"""bytes of a number"""
NOT_LEARNED = 0.05
"""how far a method that has learned its newest tasks may be below fine-tuning"""


class NotEnoughDataError(Exception):
    """A claim cannot be judged; the message says why."""


class LacksRunsError(NotEnoughDataError):
    """Runs that it is judged by are not there."""


@dataclass(frozen=True)
class Measurement:
    """A number for each seed, in the order of the seeds."""

    who: str
    values: tuple[float, ...]
    after: int | None = None
    """so many tasks; None: it is of a whole run"""
    points: bool = True
    """accuracies, whose differences people count in hundredths"""
    is_bound: bool = False
    """no measurement, but what one is compared with"""

    @property
    def when(self) -> str:
        return "" if self.after is None else f"after {self.after} task{'s' if self.after > 1 else ''}"

    @property
    def label(self) -> str:
        return f"{self.who} {self.when}".strip()

    @property
    def mean(self) -> float:
        return fmean(self.values)

    def minus(self, other: "Measurement") -> "Measurement":
        differences = tuple(a - b for a, b in zip(self.values, other.values, strict=True))
        return replace(self, who=f"the lead of {self.who} over {other.who}", values=differences)

    def constant(self, who: str, value: float) -> "Measurement":
        """Make a number that does not depend on the seed, to compare this with."""
        return replace(self, who=who, values=(value,) * len(self.values), is_bound=True)


@dataclass(frozen=True)
class Line:
    """One method with one setting, over its seeds: what a line of a figure stands for."""

    name: str
    runs: tuple[Records, ...]

    def average(self, after: int | None = None) -> Measurement:
        """Measure the accuracy over all tasks so far, after so many; else after the last."""
        return self._each(lambda run, t: task_average(run.test)[t], after)

    def first(self, after: int | None = None) -> Measurement:
        """Measure the accuracy on the first task."""
        found = self._each(lambda run, t: first_task(run.test)[t], after)
        return replace(found, who=f"the first task of {self.name}")

    def newest(self, after: int | None = None) -> Measurement:
        """Measure the accuracy on a task that has just been learned, mean over the tasks."""
        return self._each(lambda run, t: fmean(run.test[i][i] for i in range(t + 1)), after)

    def forgetting(self) -> Measurement:
        """Measure the forgetting, see `metrics.forgetting`."""
        return Measurement(f"the forgetting of {self.name}", tuple(forgetting(run.test) or 0.0 for run in self.runs))

    def bytes(self, after: int | None = None) -> float:
        """Count the bytes kept, mean over seeds."""
        return self._each(lambda run, t: self.measured(run, t, "bytes"), after).mean

    def share_of_bytes(self, other: "Line", after: int | None = None) -> Measurement:
        """Measure the bytes kept, as a share of another method's."""
        whole = other.bytes(after)
        if not whole:
            raise NotEnoughDataError(f"{other.name} keeps nothing to take a share of")
        found = self._each(lambda run, t: self.measured(run, t, "bytes") / whole, after)
        return replace(found, who=f"the bytes of {self.name} to those of {other.name}", points=False)

    def numbers(self, after: int | None = None) -> float:
        """Count the numbers kept, see `count_numbers`; EWC's are as many as its bytes have room for."""
        kept = count_numbers(self.runs[0].experiment, after)
        return self.bytes(after) / _FLOAT32 if kept is None else kept

    def rho(self, joint: "Line", after: int | None = None) -> Measurement:
        """Measure the forgetting ratio, with joint training of the same seed."""
        bounds = {run.experiment.seed: run for run in joint.runs}

        def ratio(run: Records, t: int) -> float:
            chance = [self.measured(run, task, "chance") for task in range(len(run.tasks))]
            found = rho(run.test, bounds[run.experiment.seed].test, chance)[t]
            if found is None:
                raise NotEnoughDataError(
                    f"ρ of {self.name} is not defined: joint training of seed {run.experiment.seed} is less than "
                    "5 points above guessing"
                )
            return found

        found = self._each(ratio, after)
        return replace(found, who=f"ρ of {self.name}", points=False)

    def probes(self, task: int, name: str) -> list[list[list[float]]]:
        """Give for each seed a matrix of what was looked at after a task, counted from 0."""
        return [self.measured(run, task, "probe")[name] for run in self.runs]

    def measured(self, run: Records, task: int, name: str) -> Any:
        if name not in run.tasks[task]:
            raise NotEnoughDataError(f"the records of {self.name} do not have {name}: they are of an earlier version")
        return run.tasks[task][name]

    def _each(self, number: Callable[[Records, int], float], after: int | None) -> Measurement:
        count = self.runs[0].experiment.tasks if after is None else after
        values = tuple(number(run, count - 1) for run in self.runs)
        return Measurement(self.name, values, count)


class Runs:
    """The records of a scale, found by what a figure shows.

    Args:
        records: of all figures and of likely reasons, in whatever order.
        scale: the figures' scale.
    """

    def __init__(self, records: Iterable[Records], scale: str) -> None:
        self.scale = scale
        self.figure = ""
        self._seeds: int | None = None
        self._change: Change | None = None
        self._done = {key: record for key, record in index_by_key(records).items() if record.done}
        self.used: dict[str, Records] = {}
        """the runs that were found for a claim, by key"""

    def of_figure(self, name: str) -> "Runs":
        """Give the same records, seen as the runs of a figure."""
        other = copy.copy(self)
        other.figure, other.used = name, {}
        other._seeds = count_whole_seeds(name, self.scale, self._done)
        return other

    def changed(self, change: Change) -> "Runs":
        """Give the same records, for figures whose runs are changed."""
        other = copy.copy(self)
        other._change = change
        return other

    def line(self, method: str, **settings: Any) -> Line:
        """Find the runs of a method in the figure, with settings where it is there with several.

        Raises NotEnoughDataError unless every run that the figure has of it is there, done, and of real data.
        """
        wanted = self.wanted(method, **settings)
        name = name_settings(method, settings, WORDS)
        if any(e.has_generated_data for e in wanted):
            raise NotEnoughDataError(f"the images of {self.figure} are made up at scale {self.scale}")
        done = [self._done[e.key] for e in wanted if e.key in self._done]
        if len(done) < len(wanted) or not wanted:
            raise LacksRunsError(f"{name} has {len(done)} of {len(wanted)} runs done in {self.figure}")
        self.used |= {record.key: record for record in done}
        return Line(name, tuple(sorted(done, key=lambda record: record.experiment.seed)))

    def lines(self, *methods: str, **settings: Any) -> list[Line]:
        """Find the runs of several methods, with the same settings."""
        return [self.line(method, **settings) for method in methods]

    def values(self, method: str, setting: str) -> list[Any]:
        """List the values of a setting that the figure shows a method with, in order."""
        return sorted({getattr(e, setting) for e in self.wanted(method)})

    def wanted(self, method: str, **settings: Any) -> list[Experiment]:
        """List the runs that the figure has of a method, with settings, whether they are done or not."""
        # What is tested as a likely reason is said of the usual seeds.
        seeds = self._seeds if self._change is None else None
        own = [e for e in figure_runs(self.figure, self.scale, seeds).values() if e.method == method]
        own = own if self._change is None else change_runs(own, self._change)
        return [e for e in own if all(_has(e, *setting) for setting in settings.items())]


def count_numbers(experiment: Experiment, after: int | None = None) -> int | None:
    """Count the numbers of a memory after so many tasks as the paper does: an item's pixels and logits; None of others.

    Where all tasks have all classes: as with one head.
    """
    if not uses(experiment.method, "per_class"):
        return None
    images = dataset(experiment.data_sets[0])
    tasks = experiment.tasks if after is None else after
    return tasks * (experiment.per_class or 0) * images.classes * (math.prod(images.shape) + images.classes)


def check_learned(*lines: Line, than: Line, after: int | None = None) -> None:
    """Raise NotEnoughDataError if a method is far below fine-tuning on tasks that it has just learned."""
    for line in lines:
        own, tuned = line.newest(after).mean, than.newest(after).mean
        if round(tuned - own, 9) > NOT_LEARNED:
            raise NotEnoughDataError(
                f"{line.name} has not learned its newest tasks, {decimal(own)} against {decimal(tuned)} of "
                f"{than.name}, more than {100 * NOT_LEARNED:.0f} points below"
            )


def _has(experiment: Experiment, setting: str, value: Any) -> bool:
    own = getattr(experiment, setting)
    # A selection's options are not what a claim is about.
    return (own.partition(":")[0] if setting == "select" else own) == value
