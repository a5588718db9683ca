"""What to tune, and what to try for each method. Needs neither torch nor Optuna."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import product
from statistics import fmean
from typing import Any

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder._base.sizes import Size
from selfreminder.experiment.catalogue import method_facts, uses
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.folder import show
from selfreminder.experiment.records import Records
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.tuning.tuned import METHOD_FIELDS, Keys, locate_section
from selfreminder.methods import OPTIMIZERS
from selfreminder.metrics import task_average

STRENGTHS = {
    "fsr-logit": (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    "fsr-logitlab": (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    "fsr-distill": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
    "icarl": (0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    "lwf": (0.03, 0.1, 0.3, 1.0, 3.0),
    "ewc": (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0),
    "generative-replay": (0.3, 1.0, 3.0),
    "hat": (0.1, 0.3, 0.75, 1.5, 2.5),
    "fsr-refresh": (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    "si": (0.1, 1.0, 10.0, 30.0, 100.0),
    "mas": (0.001, 0.003, 0.01, 0.03, 0.1),
    "imm": (0.0, 0.0001, 0.001, 0.01),
    "den": (0.0001, 0.001, 0.01),
    **dict.fromkeys(("er", "er-ace", "der", "derpp", "cls-er", "icarl-nearest-mean"), (0.1, 0.3, 1.0, 3.0, 10.0)),
}
STEP_SIZES = {
    **dict.fromkeys(("adam", "adamw"), (0.0001, 0.0004, 0.0008, 0.0016)),
    "sgd": (0.001, 0.003, 0.01, 0.03, 0.1),
    "plateau": (0.01, 0.03, 0.05, 0.1, 0.2, 0.5),
}
"""by optimiser, and for HAT's protocol"""
SAMPLERS = ("grid", "tpe")
_STREAM = ("benchmark", "method", "seed", "data", "images", "tasks", "split_into", "hed", "test_after")
_FIXED = (*_STREAM, "reading", "scenario", "evaluate", "evaluate_every", "validation", "probe", "device", "precision")
_FIXED += ("processes", "options")
_SIZES = ("per_class", "per_task", "budget", "items")
TUNABLE = tuple(f.name for f in fields(Experiment) if f.name not in (*_FIXED, *_SIZES))
USUAL_TRIALS = 20
"""of each method, where a sampler chooses them"""
_FIRST_SEED = 100
"""seeds that no comparison uses begin here"""

Settings = dict[str, Any]
"""a value for each field that is tuned"""


@dataclass(frozen=True)
class Candidates:
    """What is tried for one method: the values of each field, and the runs of a trial."""

    comparison: Comparison
    """of this method alone"""
    base: Experiment
    """all that is not tuned"""
    values: Mapping[str, tuple[Any, ...]]
    """of each field that is tuned"""
    seeds: tuple[int, ...]
    reference: Experiment | None = None
    """adam, where sgd's step size is tuned"""

    @property
    def method(self) -> str:
        return self.base.method

    @property
    def name(self) -> str:
        """What is tuned, for people and for files."""
        return "-".join([re.sub(r"[^\w.+-]+", "-", self.method).strip("-."), *self.values])

    @property
    def section(self) -> Keys:
        """The place of the choice in a table."""
        return locate_section(self.comparison.benchmark, self.comparison.scale, self.method, self.comparison.size)

    @property
    def by_newest(self) -> bool:
        """Whether a run is judged by its newest tasks alone."""
        return method_facts(self.method).is_fine_tuning and set(self.values) == {"lr"}

    def digest(self, *more: object) -> str:
        """Make a name for exactly these candidates, so that trials of others are not taken for theirs."""
        said = [self.base.as_recorded(), {k: list(v) for k, v in self.values.items()}, self.seeds, more]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:8]

    def combine(self) -> list[Settings]:
        """List every combination of values."""
        return [dict(zip(self.values, values)) for values in product(*self.values.values())]

    def runs(self, settings: Mapping[str, Any]) -> list[Experiment]:
        """List a trial's runs, one for each seed."""
        return self._with_seeds(change(self.base, settings))

    def has(self, run: Experiment) -> bool:
        """Tell whether a run is one of a trial, whatever its settings are."""
        usual = {name: values[0] for name, values in self.values.items()}
        return run.seed in self.seeds and change(replace(run, seed=self.base.seed), usual) == self.base

    @property
    def reference_runs(self) -> list[Experiment]:
        return [] if self.reference is None else self._with_seeds(self.reference)

    def _with_seeds(self, experiment: Experiment) -> list[Experiment]:
        if experiment.lr == OPTIMIZERS["adam"] and _optimizer(experiment) == "adam":
            experiment = replace(experiment, lr=None)  # the same run, which may have been made
        return [replace(experiment, seed=seed) for seed in self.seeds]

    def position(self, name: str, settings: Mapping[str, Any]) -> float:
        """Place settings among the values of a field: at their number, or at their index in the list."""
        value, values = settings[name], self.values[name]
        return value if is_numeric(values) else values.index(value)

    def curve(self, records: Records) -> list[float]:
        """Compute what a run is judged by after each task so far. Test data has no part in it."""
        if not self.by_newest:
            return task_average(records.validation)
        newest = [row[-1] for row in records.validation]
        return [fmean(newest[: task + 1]) for task in range(len(newest))]

    def score(self, runs: Sequence[Records]) -> float:
        """Compute what a trial is judged by: the mean over its runs."""
        return round(fmean(self.curve(records)[-1] for records in runs), 4)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What is to be tuned, and how.

    >>> tuning = Tuning(comparison=Comparison(benchmark="permuted-mnist", methods=("hat", "adam")))
    >>> [(candidates.method, candidates.values) for candidates in tuning.candidates], tuning.skipped
    ([('hat', {'strength': (0.1, 0.3, 0.75, 1.5, 2.5)})], ['adam'])
    """

    comparison: Comparison
    """at what: benchmark, scale, methods, size of the memory …"""
    fields: tuple[str, ...] = ()
    """of the experiment; none: strength, or sgd's step size"""
    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """candidates by field, where they are not the usual ones"""
    sampler: str = "grid"
    """grid: every combination of candidates; tpe: values in their range and somewhat beyond"""
    trials: int | None = None
    """of each method with tpe; None: 20"""
    seeds: int = 2
    prune: bool | None = None
    """end trials that fall behind; None: with tpe, where nobody needs the whole curve"""

    def __post_init__(self) -> None:
        if self.sampler not in SAMPLERS:
            raise unknown("sampler", self.sampler, SAMPLERS)
        for name in (*self.fields, *self.values):
            if name not in TUNABLE and not any(name in list_options(method) for method in self._methods):
                options = {option for method in self._methods for option in list_options(method)}
                raise unknown("field", name, [*TUNABLE, *sorted(options)])
        for name in self.values:
            if self.fields and name not in self.fields:
                raise SelfReminderError(f"there are values of {name}, but the fields are {', '.join(self.fields)}")
        for name, value in (("seeds", self.seeds), ("trials", self.trials)):
            if value is not None and value < 1:
                raise SelfReminderError(f"{name} is {value}: it must be at least 1")
        if self.trials is not None and self.sampler == "grid":
            raise SelfReminderError("trials are for --sampler tpe: a grid has as many as there are candidates")

    @cached_property
    def candidates(self) -> list[Candidates]:
        """Those of each method that has something to tune."""
        found = [self._gather_candidates(method) for method in self._methods if self._fields_of(method)]
        for candidates in found:
            for settings in candidates.combine():
                candidates.runs(settings)  # raises what is wrong with a value
        return found

    @property
    def skipped(self) -> list[str]:
        """Methods that have nothing to tune."""
        return [method for method in self._methods if not self._fields_of(method)]

    @property
    def is_writable(self) -> bool:
        """Whether a table can say what is chosen: it has what is a method's own, its options among that."""
        names = {name for candidates in self.candidates for name in candidates.values}
        return all(name in METHOD_FIELDS or name not in TUNABLE for name in names)

    @property
    def count(self) -> int | None:
        """How many trials each method has, at most; None: as many as there are combinations."""
        return None if self.sampler == "grid" else self.trials or USUAL_TRIALS

    @property
    def prunes(self) -> bool:
        """Whether trials that fall behind are ended."""
        return self.sampler != "grid" if self.prune is None else self.prune

    def list_runs(self, done: Sequence[Experiment] = ()) -> list[Experiment]:
        """List all runs before any trial is asked for; where a sampler chooses, runs of about the same cost.

        Args:
            done: runs that there are: with a sampler, they are of its trials.
        """
        found: list[Experiment] = []
        for candidates in self.candidates:
            found += candidates.reference_runs
            if self.count is None:
                found += [run for settings in candidates.combine() for run in candidates.runs(settings)]
                continue
            tried = [run for run in done if candidates.has(run)]
            found += tried
            to_come = range(self.count * len(candidates.seeds) - len(tried))
            # Of seeds that no trial has: nobody has made them.
            found += [replace(candidates.base, seed=candidates.seeds[-1] + 1 + each) for each in to_come]
        return list({run.key: run for run in found}.values())

    @cached_property
    def _methods(self) -> list[str]:
        return list(self.comparison.methods or dict.fromkeys(e.method for e in self.comparison.experiments))

    def _fields_of(self, method: str) -> list[str]:
        if asked := self.fields or tuple(self.values):
            own = list_options(method)
            return [name for name in dict.fromkeys(asked) if (uses(method, name) if name in TUNABLE else name in own)]
        if uses(method, "strength"):
            return ["strength"]
        return ["lr"] if method == "sgd" and self.comparison.defaults.lr is None else []

    def _comparison_of(self, method: str) -> Comparison:
        """Take the comparison with one method alone; one that keeps no items has no size of a memory."""
        settings = {name: value for name, value in self.comparison.settings.items() if name != "evaluate_every"}
        of_one = replace(self.comparison, methods=(method,), seeds=1, settings=settings)
        is_scales_own = of_one.size == Size(per_class=of_one.defaults.per_class)
        return replace(of_one, size=None) if is_scales_own or not uses(method, "per_class") else of_one

    def _gather_candidates(self, method: str) -> Candidates:
        comparison, names = self._comparison_of(method), self._fields_of(method)
        base = comparison.experiments[0]
        values = {name: self._values_of(base, name) for name in names}
        return Candidates(
            comparison=comparison,
            # Without what the table has by now of the tuned fields: the study is the same one whatever that is.
            base=change(replace(base, seed=_FIRST_SEED), {name: listed[0] for name, listed in values.items()}),
            values=values,
            seeds=tuple(range(_FIRST_SEED, _FIRST_SEED + self.seeds)),
            reference=self._comparison_of("adam").experiments[0] if method == "sgd" and names == ["lr"] else None,
        )

    def _values_of(self, base: Experiment, name: str) -> tuple[Any, ...]:
        usual = {
            "strength": STRENGTHS.get(base.method) or _around(method_facts(base.method).strength),
            "lr": STEP_SIZES["plateau" if base.plateau else _optimizer(base)],
        }
        values = tuple(dict.fromkeys(self.values.get(name) or usual.get(name, ())))
        if not values:
            raise SelfReminderError(f"{base.method}: {name} has no usual candidates: give some, --values {name}=…")
        return tuple(sorted(values)) if is_numeric(values) else values


def list_options(method: str) -> list[str]:
    """List a method's own options: its settings that no experiment has.

    >>> list_options("fsr-distill")
    ['temperature', 'mode']
    """
    shared = {*(each.name for each in fields(Experiment)), "size"}
    return sorted({name for name in method_facts(method).settings if name not in shared}, reverse=True)


def change(experiment: Experiment, settings: Mapping[str, Any]) -> Experiment:
    """Give an experiment other values of fields, or of its method's own options."""
    return replace(experiment, **with_settings({"options": experiment.options}, settings))


def with_settings(said: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Join settings to what is said of an experiment; those that are no fields are its method's own options.

    >>> with_settings({"lr": 0.1, "options": {"mode": "eval"}}, {"lr": 0.2, "temperature": 3.0})
    {'lr': 0.2, 'options': {'mode': 'eval', 'temperature': 3.0}}
    """
    own = {name: value for name, value in settings.items() if name not in TUNABLE}
    rest = {name: value for name, value in settings.items() if name in TUNABLE}
    options = {**said.get("options", {}), **own}
    return {**said, **rest, **({"options": options} if options else {})}


def _around(strength: float | None) -> tuple[float, ...]:
    """The usual candidates of a method that nobody has tried: its default, and up to a hundred times more or less."""
    return () if strength is None else tuple(float(f"{strength * factor:g}") for factor in (0.01, 0.1, 1, 10, 100))


def is_numeric(values: Sequence[Any]) -> bool:
    """Tell whether values are numbers, rather than names or switches."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def format_value(value: Any) -> str:
    """Format a value as the command line takes it.

    >>> format_value(0.0003), format_value(100.0), format_value(True), format_value(None)
    ('0.0003', '100', 'true', 'none')
    """
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return "none" if value is None else show(value)


def _optimizer(experiment: Experiment) -> str:
    return experiment.optimizer or method_facts(experiment.method).optimizer
