"""One method's choice: its candidates, what was tried of them, and which is taken.

Choices are made on validation data alone. The best is the candidate with the highest validation accuracy, averaged over
all tasks after the last one and over the seeds. Only the step size of fine-tuning, adam or sgd, where it is all that is
chosen, has a rule of its own: a baseline should learn each task, and not be rewarded for learning little. Adam's has
the highest validation accuracy on the newest task, averaged over tasks; sgd's is the smallest within 2 points of
adam's; if none is, the largest.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from statistics import fmean
from typing import Any, Literal

from selfreminder.experiment.catalogue import method_facts
from selfreminder.experiment.folder import show
from selfreminder.experiment.records import Records
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.tuning.tuned import Keys
from selfreminder.methods import OPTIMIZERS
from selfreminder.metrics import mean_and_stderr, task_average

_NEAR = 0.02

Settings = dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """What is to be chosen for one method."""

    base: Experiment
    """all that is not to be chosen"""
    candidates: Mapping[str, tuple[Any, ...]]
    """by field"""
    seeds: tuple[int, ...]
    section: Keys
    """its place in a table"""
    reference: Experiment | None = None
    """adam, where sgd's step size is chosen"""

    @property
    def method(self) -> str:
        return self.base.method

    @property
    def name(self) -> str:
        """What is tuned, for people and for files."""
        return "-".join([self.method, *self.candidates])

    @property
    def by_newest(self) -> bool:
        """Whether it is judged by the newest tasks alone."""
        return method_facts(self.method).is_fine_tuning and set(self.candidates) == {"lr"}

    def digest(self, *more: object) -> str:
        """A name for exactly this choice, so that trials of another one have no part in it."""
        said = [self.base.as_recorded(), {k: list(v) for k, v in self.candidates.items()}, self.seeds, more]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:8]

    def grid(self) -> list[Settings]:
        """Every combination of candidates."""
        return [dict(zip(self.candidates, values)) for values in product(*self.candidates.values())]

    def runs(self, settings: Mapping[str, Any]) -> list[Experiment]:
        """A trial's runs, one for each seed."""
        return self._with_seeds(replace(self.base, **settings))

    @property
    def reference_runs(self) -> list[Experiment]:
        return [] if self.reference is None else self._with_seeds(self.reference)

    def _with_seeds(self, experiment: Experiment) -> list[Experiment]:
        if experiment.lr == OPTIMIZERS["adam"] and optimizer(experiment) == "adam":
            experiment = replace(experiment, lr=None)  # the same run, which may have been made
        return [replace(experiment, seed=seed) for seed in self.seeds]

    def position(self, field: str, settings: Mapping[str, Any]) -> float:
        """Where settings are among the candidates of a field: at their number, or their place in the list."""
        value, candidates = settings[field], self.candidates[field]
        return value if is_numeric(candidates) else candidates.index(value)

    def curve(self, records: Records) -> list[float]:
        """What a run is judged by, after each task so far. Test data has no part in it."""
        if not self.by_newest:
            return task_average(records.validation)
        newest = [row[-1] for row in records.validation]
        return [fmean(newest[: task + 1]) for task in range(len(newest))]

    def value(self, runs: Sequence[Records]) -> float:
        """What a trial is judged by: the mean over its runs."""
        return round(fmean(self.curve(records)[-1] for records in runs), 4)


@dataclass(frozen=True)
class Tried:
    """What became of a trial."""

    settings: Settings
    state: Literal["done", "pruned", "diverged", "unfinished"]
    value: float | None = None
    """validation accuracy, of a trial that is done"""
    by_seed: tuple[float, ...] = ()

    @property
    def stderr(self) -> float | None:
        """Of its value, over seeds; None with one."""
        return mean_and_stderr(self.by_seed)[1] if self.by_seed else None


@dataclass(frozen=True)
class Outcome:
    """What was tried for one method, and what is chosen."""

    choice: Choice
    tried: Sequence[Tried]
    study: str
    adams_newest: float | None = None
    """adam's validation accuracy on the newest task, where the choice is by that"""

    @cached_property
    def chosen(self) -> Tried | None:
        """None if no trial came to an end."""
        done = [trial for trial in self.tried if trial.value is not None]
        if self.choice.reference is not None:
            by_size = sorted(done, key=lambda trial: trial.settings["lr"])
            if self.adams_newest is None or not by_size:
                return None
            enough = round(self.adams_newest - _NEAR, 4)
            return next((trial for trial in by_size if (trial.value or 0.0) >= enough), by_size[-1])
        return max(done, key=lambda trial: trial.value or 0.0, default=None)

    @property
    def at_edge(self) -> dict[str, str]:
        """Fields whose chosen value is the least or greatest candidate: a better one may lie beyond."""
        if self.chosen is None or self.choice.reference is not None:
            return {}
        found = {}
        for name, candidates in self.choice.candidates.items():
            if len(candidates) > 1 and is_numeric(candidates):
                ends = {min(candidates): "smallest", max(candidates): "largest"}
                if (value := self.chosen.settings[name]) in ends:
                    found[name] = ends[value]
        return found


def is_numeric(values: Sequence[Any]) -> bool:
    """Whether candidates are numbers, rather than names or switches."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def text_of(value: Any) -> str:
    """A candidate as the command line takes it.

    >>> text_of(0.0003), text_of(100.0), text_of(True), text_of(None)
    ('0.0003', '100', 'true', 'none')
    """
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return "none" if value is None else show(value)


def name_of(settings: Mapping[str, Any]) -> str:
    """What a trial is called in a table."""
    if len(settings) == 1:
        return text_of(*settings.values())
    return " ".join(f"{name} {text_of(value)}" for name, value in settings.items())


def optimizer(experiment: Experiment) -> str:
    """Name the optimizer that an experiment is trained by."""
    return experiment.optimizer or method_facts(experiment.method).optimizer
