"""Results of runs: records grouped by method and settings, named, with mean and standard error over seeds.

Every table, chart, figure and claim is made of these.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

from selfreminder import metrics
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import show_bytes
from selfreminder.experiment.catalogue import digest_parts, method_facts
from selfreminder.experiment.folder import show, varying
from selfreminder.experiment.records import Records
from selfreminder.experiment.spec import Experiment
from selfreminder.report.style import look, other_marker

_AGREEING = (
    *("benchmark", "data", "images", "tasks", "split_into", "scenario", "validation", "width", "epochs", "hed"),
    "evaluate",
    "test_after",
)
"""fields in which runs agree with the runs of joint training that they are measured against"""
_NOT_LEARNED = 0.05
"""how far a method that has learned its newest tasks may be below fine-tuning, as in the claims"""
_NAMES = {"strength": "λ", "lr": "step size", "select": "selection"}
"""what fields are called where their own name is not what a reader would say"""


@dataclass(frozen=True)
class Estimate:
    """Mean over seeds and its standard error (None with one seed)."""

    mean: float
    stderr: float | None

    @property
    def ends(self) -> tuple[float, float]:
        """One standard error below the mean and above it."""
        error = self.stderr or 0.0
        return self.mean - error, self.mean + error

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        return cls(*metrics.mean_and_stderr(values))


@dataclass(frozen=True)
class Result:
    """One method with one choice of settings, over its seeds: a row of a table, a line of a chart.

    Measures are None where they are not defined for every seed: forgetting and the two transfers with a single task,
    ρ and intransigence without joint training of the same seeds, and what was not evaluated. Averages are over the
    tasks that were, see `describe_evaluation`.
    """

    name: str
    """the method's, with the settings that tell it from other results of the method"""
    runs: tuple[Records, ...]
    """those that are done, one for each seed"""
    references: tuple[Records, ...]
    """runs of joint training on the same tasks: ρ and intransigence are measured against the one of the same seed"""
    colour: str
    marker: str

    @property
    def experiment(self) -> Experiment:
        """That of the first run; the others differ from it in their seed."""
        return self.runs[0].experiment

    @property
    def method(self) -> str:
        return self.experiment.method

    @property
    def is_reference(self) -> bool:
        """Whether it is joint training, which the others are measured against."""
        return method_facts(self.method).is_reference

    @property
    def is_fine_tuning(self) -> bool:
        """Whether it is plain training, which remembers nothing."""
        return method_facts(self.method).is_fine_tuning

    @property
    def seeds(self) -> int:
        return len(self.runs)

    @property
    def bytes(self) -> float:
        """What the method carries to a next task beside the model, mean over seeds."""
        return sum(run.tasks[-1]["bytes"] for run in self.runs) / len(self.runs)

    @property
    def calibration_error(self) -> Estimate | None:
        """Expected calibration error over all tasks at the end; None where it was not recorded."""
        return _estimate([_mean_measured(run.tasks[-1].get("calibration_error")) for run in self.runs])

    @property
    def steps(self) -> Estimate | None:
        """Steps of the optimizer on all tasks."""
        return _estimate([_sum_of_tasks(run.tasks, "steps") for run in self.runs])

    @property
    def passes(self) -> Estimate | None:
        """Items that went forward through the network, for each item of the tasks' own training: 1 is fine-tuning."""
        both = [[_sum_of_tasks(run.tasks, name) for name in ("passes", "new_items")] for run in self.runs]
        return _estimate([passes / items if passes is not None and items else None for passes, items in both])

    @property
    def seconds(self) -> Estimate | None:
        """Seconds to learn all tasks, without evaluation; None where runs have no timings, as packed ones."""
        return _estimate([_sum_of_tasks(run.timings, "seconds") for run in self.runs])

    @property
    def peak_bytes(self) -> float | None:
        """The most memory that a process took while it learned a task, over all seeds; None where nobody could tell."""
        peaks = [task.get("peak_bytes") for run in self.runs for task in run.timings]
        return None if None in peaks or not peaks else max(peak for peak in peaks if peak is not None)

    @cached_property
    def average_curve(self) -> list[Estimate]:
        """Task average after each task."""
        return _estimate_curve([metrics.task_average(run.test) for run in self.runs])

    @cached_property
    def first_curve(self) -> list[Estimate | None]:
        """Accuracy on the first task after each task; None where it was not evaluated."""
        return _estimate_measured([metrics.first_task(run.test) for run in self.runs])

    @cached_property
    def rho_curve(self) -> list[Estimate | None]:
        """Forgetting ratio ρ after each task; empty without joint training of the same seeds."""
        ratios = [
            metrics.rho(
                run.test,
                reference.test,
                [task["chance"] for task in run.tasks],
                growing=run.experiment.scenario == "class",
            )
            for run, reference in self._paired
        ]
        return [_estimate(values) for values in zip(*ratios, strict=True)]

    @cached_property
    def step_curve(self) -> list[tuple[int, Estimate]]:
        """The average of the tasks so far after so many steps of all tasks; empty where nobody looked."""
        curves = [_curve_over_steps(run) for run in self.runs]
        if not all(curves):
            return []
        # Tasks may be longer with one seed than with another: each has what was seen last.
        steps = sorted({step for curve in curves for step, _ in curve if step >= max(each[0][0] for each in curves)})
        seen = [[curve[bisect_right(curve, step, key=itemgetter(0)) - 1][1] for curve in curves] for step in steps]
        return [(step, Estimate.of(values)) for step, values in zip(steps, seen)]

    @property
    def anytime(self) -> Estimate | None:
        """The mean of that curve: how well it would have predicted at any moment; None where nobody looked."""
        means = [[value for _, value in _curve_over_steps(run)] for run in self.runs]
        return Estimate.of([sum(each) / len(each) for each in means]) if all(means) else None

    @property
    def task_average(self) -> Estimate:
        return self.average_curve[-1]

    @property
    def first_task(self) -> Estimate | None:
        return self.first_curve[-1]

    @property
    def rho(self) -> Estimate | None:
        return self.rho_curve[-1] if self.rho_curve else None

    @property
    def newest(self) -> Estimate:
        """Accuracy on each task just after it was learned, averaged over tasks."""
        return Estimate.of([sum(row[-1] for row in run.test) / len(run.test) for run in self.runs])

    @property
    def forgetting(self) -> Estimate | None:
        return _estimate([metrics.forgetting(run.test) for run in self.runs])

    @property
    def backward_transfer(self) -> Estimate | None:
        return _estimate([metrics.backward_transfer(run.test) for run in self.runs])

    @property
    def forward_transfer(self) -> Estimate | None:
        return _estimate([_forward_transfer(run) for run in self.runs])

    @property
    def intransigence(self) -> Estimate | None:
        return _estimate([metrics.intransigence(run.test, reference.test) for run, reference in self._paired])

    @property
    def negative_flips(self) -> Estimate | None:
        """Share of old tasks' test items that were right when learned and are wrong at the end."""
        return _estimate([_negative_flips(run) for run in self.runs])

    @property
    def validation(self) -> Estimate:
        """Accuracy on validation data over all tasks at the end: what settings are chosen by."""
        return Estimate.of([metrics.task_average(run.validation)[-1] for run in self.runs])

    @property
    def matrix(self) -> list[list[Estimate | None]]:
        """The accuracy matrix over seeds: row t has the test accuracies on tasks 0…t after task t, or None."""
        by_task = zip(*(run.test for run in self.runs), strict=True)
        return [_estimate_measured(rows) for rows in by_task]

    def leads(self, other: "Result") -> list[float]:
        """Compute by how much its task average at the end is above another's, for each seed that both have."""
        own, others = (
            {run.experiment.seed: metrics.task_average(run.test)[-1] for run in result.runs} for result in (self, other)
        )
        return [own[seed] - others[seed] for seed in sorted(own.keys() & others.keys())]

    def as_dict(self) -> dict[str, Any]:
        """Say it as JSON can."""
        measures = ("task_average", "first_task", "rho", "forgetting", "backward_transfer", "forward_transfer")
        curves = {"task_average": self.average_curve, "first_task": self.first_curve, "rho": self.rho_curve}
        return {
            "method": self.method,
            "seeds": self.seeds,
            **{name: _plain(getattr(self, name)) for name in (*measures, "intransigence", "negative_flips", "anytime")},
            "bytes": self.bytes,
            **{name: _plain(getattr(self, name)) for name in ("calibration_error", "steps", "passes", "seconds")},
            "peak_bytes": self.peak_bytes,
            "strength": self.experiment.strength,
            "lr": self.experiment.lr,
            "curves": {name: [_plain(point) for point in curve] for name, curve in curves.items()},
        }

    @property
    def _paired(self) -> list[tuple[Records, Records]]:
        references = {run.experiment.seed: run for run in self.references}
        return [(run, references[run.experiment.seed]) for run in self.runs if run.experiment.seed in references]


def _curve_over_steps(run: Records) -> list[tuple[int, float]]:
    """The average of the tasks so far at each look and at the end of each task, by steps since the beginning."""
    if not run.looks or any("steps" not in task for task in run.tasks):
        return []
    curve, before = [], 0
    for task in run.tasks:
        looks = [look for look in run.looks if look["task"] == task["task"] and look["steps"] < task["steps"]]
        for measured in (*looks, task):
            curve.append((before + measured["steps"], sum(measured["test"]) / len(measured["test"])))
        before += task["steps"]
    return curve


def group_runs(runs: Iterable[Records], name: Callable[[Experiment], str] | None = None) -> list[Result]:
    """Group the runs that are done by method and settings, in the order in which those first come.

    Args:
        runs: records, of which those that are not done are left out.
        name: gives the name of a group from one of its experiments. By default it is the method's, with the settings
            that differ between groups of the method.
    """
    groups: dict[str, list[Records]] = {}
    for run in runs:
        if run.done:
            groups.setdefault(replace(run.experiment, seed=0).key, []).append(run)
    references: dict[tuple[Any, ...], list[Records]] = {}
    methods: dict[str, list[Experiment]] = {}
    for group in groups.values():
        experiment = group[0].experiment
        methods.setdefault(experiment.method, []).append(experiment)
        if method_facts(experiment.method).is_reference:
            references.setdefault(_agreeing(experiment), group)
    found = []
    for group in groups.values():
        experiment = group[0].experiment
        alike = methods[experiment.method]
        values = experiment.as_dict()
        settings = {field: values[field] for field in varying(alike)}
        said = name(experiment) if name else name_settings(experiment.method, settings)
        is_reference = method_facts(experiment.method).is_reference
        measured_against = group if is_reference else references.get(_agreeing(experiment), ())
        colour, marker = look(experiment.method, list(methods))
        marker = other_marker(marker, alike.index(experiment))
        found.append(Result(said, tuple(group), tuple(measured_against), colour, marker))
    return found


def name_settings(
    method: str, settings: Mapping[str, Any], words: Mapping[str, Callable[[Any], str]] | None = None
) -> str:
    """Name a method with some of its settings; `words` says those that it has in its own way.

    >>> name_settings("ewc", {}), name_settings("ewc", {"strength": 30.0, "lr": None})
    ('ewc', 'ewc (λ 30, step size default)')
    >>> name_settings("icarl", {"per_class": 5}, {"per_class": "{} per class".format})
    'icarl (5 per class)'
    """
    said = []
    for field, value in settings.items():
        if words and field in words:
            said.append(words[field](value))
        else:
            called = _NAMES.get(field, field.replace("_", " "))
            said.append(f"{called} {'default' if value is None else show(value)}")
    return f"{method} ({', '.join(said)})" if said else method


def describe_other_code(results: Iterable[Result]) -> str | None:
    """Say of which methods, benchmarks and models runs were made with other code than there is now; None if of none."""
    found = set()
    for run in (run for result in results for run in result.runs):
        e, made = run.experiment, run.versions
        if made.get("code") not in (None, method_facts(e.method).code):
            found.add(e.method)
        if {"benchmark_code", "model_code"} & made.keys():
            with suppress(SelfReminderError):  # of a module that is not here nothing is known
                now = digest_parts(e.benchmark, e.model)
                names = {"benchmark_code": e.benchmark, "model_code": str(e.model)}
                found |= {name for what, name in names.items() if what in made and made[what] != now.get(what)}
    if not found:
        return None
    return f"Made with earlier code: {', '.join(sorted(found))}. To run them again, remove their folders."


def describe_unlearned(results: Sequence[Result]) -> str | None:
    """Say which methods are far below fine-tuning on tasks just learned: such forget little, having learned little.

    Where nobody is fine-tuned, it is said beside the best of the others. Nothing is said of scenarios with new classes
    in one output, where fine-tuning answers with the newest, always.
    """
    judged = [each for each in results if each.experiment.scenario not in ("class", "stream")]
    tuned = [result for result in judged if result.is_fine_tuning]
    best: dict[tuple[Any, ...], Result] = {}
    for result in tuned or [each for each in judged if not each.is_reference]:
        stream = _agreeing(result.experiment)
        best[stream] = max(best.get(stream, result), result, key=lambda each: each.newest.mean)
    found = []
    for result in judged:
        than = best.get(_agreeing(result.experiment))
        if than is None or result.is_reference:
            continue
        if round(than.newest.mean - result.newest.mean, 9) > _NOT_LEARNED:
            found.append(f"{result.name} ({result.newest.mean:.3f}, {than.name} {than.newest.mean:.3f})")
    beside = "fine-tuning" if tuned else "others"
    return f"Has not learned its newest tasks as well as {beside}: {', '.join(found)}." if found else None


def describe_evaluation(evaluate: str) -> str | None:
    """Say over which tasks averages are, where they are not over all; see `Experiment.evaluate`."""
    if evaluate == "all":
        return None
    if evaluate == "newest":
        return (
            "Only the newest task was evaluated after each: averages are over it alone, and say nothing of forgetting."
        )
    return "After each task the first, the newest and eight others were evaluated: averages are over those."


def describe_unseen_moments(results: Iterable[Result]) -> str | None:
    """Say where moments between steps were asked for and there were none: no task has so many steps."""
    every = {e.evaluate_every for each in results if (e := each.experiment).evaluate_every and each.anytime is None}
    if not every:
        return None
    return f"No task has {min(filter(None, every))} steps: nothing was evaluated while tasks were learned."


def describe_over_budget(results: Iterable[Result]) -> str | None:
    """Say which methods carry more bytes than the budget: it limits a memory, not weights or data beside the model."""
    over = [
        f"{result.name} ({show_bytes(result.bytes)})"
        for result in results
        if (budget := result.experiment.size.budget_bytes) is not None and result.bytes > budget
    ]
    return f"More than the budget, which limits memories alone: {', '.join(over)}." if over else None


def count_seeds(results: Iterable[Result]) -> str:
    """Say of how many seeds results are: results of runs that are not all done may be of different numbers."""
    counts = {result.seeds for result in results}
    if counts <= {1}:
        return "one seed"
    low, high = min(counts), max(counts)
    return f"{high} seeds" if low == high else f"{low} to {high} seeds"


def sort_best_first(results: Iterable[Result]) -> list[Result]:
    """Sort results by their task average at the end; those that are equal, by name."""
    return sorted(results, key=lambda result: (-result.task_average.mean, result.name))


def _agreeing(experiment: Experiment) -> tuple[Any, ...]:
    return tuple(getattr(experiment, field) for field in _AGREEING)


def _plain(estimate: Estimate | None) -> dict[str, float | None] | None:
    return None if estimate is None else vars(estimate)


def _estimate_curve(curves: Sequence[Sequence[float]]) -> list[Estimate]:
    return [Estimate.of(values) for values in zip(*curves, strict=True)]


def _estimate_measured(curves: Sequence[Sequence[float]]) -> list[Estimate | None]:
    """Estimate each place of curves over seeds; None where one of them was not measured."""
    columns = zip(*curves, strict=True)
    return [_estimate([None if math.isnan(value) else value for value in values]) for values in columns]


def _estimate(values: Sequence[float | None]) -> Estimate | None:
    """Over seeds; None where it is not defined for every one of them."""
    defined = [value for value in values if value is not None]
    return Estimate.of(defined) if defined and len(defined) == len(values) else None


def _forward_transfer(run: Records) -> float | None:
    before = [task for task in run.tasks if "next" in task]
    return metrics.forward_transfer([task["next"] for task in before], [task["next_untrained"] for task in before])


def _negative_flips(run: Records) -> float | None:
    old = [share for share in run.flips[-1][:-1] if not math.isnan(share)]
    return sum(old) / len(old) if old else None


def _sum_of_tasks(tasks: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [task.get(name) for task in tasks]
    return None if None in values else math.fsum(value for value in values if value is not None)


def _mean_measured(values: Sequence[float] | None) -> float | None:
    return None if values is None else math.fsum(values) / len(values)
