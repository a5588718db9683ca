"""Records to tidy numbers: curves over tasks and results at the end, mean and standard error over seeds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from selfreminder.experiment.catalogue import references
from selfreminder.experiment.records import Records
from selfreminder.metrics import (
    backward_transfer,
    first_task,
    forgetting,
    forward_transfer,
    intransigence,
    mean_and_stderr,
    rho,
    task_average,
)


@dataclass(frozen=True)
class Estimate:
    """Mean over seeds and its standard error (None with one seed)."""

    mean: float
    stderr: float | None

    @classmethod
    def of(cls, values: list[float]) -> "Estimate":
        return cls(*mean_and_stderr(values))


@dataclass(frozen=True)
class MethodResult:
    """One method over all its seeds."""

    method: str
    seeds: int
    average_curve: list[Estimate]
    """task average after each task"""
    first_curve: list[Estimate]
    """accuracy on the first task after each task"""
    rho_curve: list[Estimate | None]
    """forgetting ratio ρ after each task; empty without `joint` at the same seeds, None where it is undefined"""
    forgetting: Estimate | None
    """None with a single task, as the two transfers are"""
    backward_transfer: Estimate | None
    forward_transfer: Estimate | None
    intransigence: Estimate | None
    """None without `joint` at the same seeds"""
    negative_flips: Estimate | None
    """share of old tasks' test items that were right when learned and are wrong at the end"""
    bytes: float
    strength: float | None
    lr: float | None

    @property
    def task_average(self) -> Estimate:
        return self.average_curve[-1]

    @property
    def first_task(self) -> Estimate:
        return self.first_curve[-1]

    @property
    def rho(self) -> Estimate | None:
        return self.rho_curve[-1] if self.rho_curve else None

    def as_dict(self) -> dict[str, Any]:
        """As JSON can say it."""
        return {
            "method": self.method,
            "seeds": self.seeds,
            "task_average": vars(self.task_average),
            "first_task": vars(self.first_task),
            "rho": _plain(self.rho),
            "forgetting": _plain(self.forgetting),
            "backward_transfer": _plain(self.backward_transfer),
            "forward_transfer": _plain(self.forward_transfer),
            "intransigence": _plain(self.intransigence),
            "negative_flips": _plain(self.negative_flips),
            "bytes": self.bytes,
            "strength": self.strength,
            "lr": self.lr,
            "curves": {
                "task_average": [vars(point) for point in self.average_curve],
                "first_task": [vars(point) for point in self.first_curve],
                "rho": [_plain(point) for point in self.rho_curve],
            },
        }


def _plain(estimate: Estimate | None) -> dict[str, float | None] | None:
    return None if estimate is None else vars(estimate)


def results(records: Iterable[Records]) -> list[MethodResult]:
    """One result per method, in the order in which methods first come; unfinished runs are left out."""
    groups: dict[str, list[Records]] = {}
    for record in records:
        if record.done:
            groups.setdefault(record.experiment.method, []).append(record)
    joint = {record.experiment.seed: record for name in references() for record in groups.get(name, [])}
    return [_result(method, runs, joint) for method, runs in groups.items()]


def _result(method: str, runs: list[Records], joint: dict[int, Records]) -> MethodResult:
    paired = [(run, joint[run.experiment.seed]) for run in runs if run.experiment.seed in joint]
    ratios = [rho(run.test, bound.test, [task["chance"] for task in run.tasks]) for run, bound in paired]
    return MethodResult(
        method=method,
        seeds=len(runs),
        average_curve=_curve([task_average(run.test) for run in runs]),
        first_curve=_curve([first_task(run.test) for run in runs]),
        rho_curve=[_estimate(values) for values in zip(*ratios, strict=True)],
        forgetting=_estimate([forgetting(run.test) for run in runs]),
        backward_transfer=_estimate([backward_transfer(run.test) for run in runs]),
        forward_transfer=_estimate([_forward(run) for run in runs]),
        intransigence=_estimate([intransigence(run.test, bound.test) for run, bound in paired]),
        negative_flips=_estimate([_flips(run) for run in runs]),
        bytes=sum(run.tasks[-1]["bytes"] for run in runs) / len(runs),
        strength=runs[0].experiment.strength,
        lr=runs[0].experiment.lr,
    )


def _curve(curves: list[list[float]]) -> list[Estimate]:
    return [Estimate.of(list(values)) for values in zip(*curves, strict=True)]


def _estimate(values: Sequence[float | None]) -> Estimate | None:
    """Over seeds; None where it is not defined for every one of them."""
    defined = [value for value in values if value is not None]
    return Estimate.of(defined) if defined and len(defined) == len(values) else None


def _forward(run: Records) -> float | None:
    before = [task for task in run.tasks if "next" in task]
    return forward_transfer([task["next"] for task in before], [task["next_untrained"] for task in before])


def _flips(run: Records) -> float | None:
    old = run.tasks[-1]["flips"][:-1]
    return sum(old) / len(old) if old else None
