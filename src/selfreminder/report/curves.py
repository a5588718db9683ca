"""Records to tidy numbers: curves over tasks and results at the end, mean and standard error over seeds."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from selfreminder.experiment.records import Records
from selfreminder.metrics import first_task, forgetting, mean_and_stderr, task_average


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
    forgetting: Estimate | None
    """None with a single task"""
    bytes: float
    strength: float
    lr: float | None

    @property
    def task_average(self) -> Estimate:
        return self.average_curve[-1]

    @property
    def first_task(self) -> Estimate:
        return self.first_curve[-1]

    def as_dict(self) -> dict[str, Any]:
        """As JSON can say it."""
        return {
            "method": self.method,
            "seeds": self.seeds,
            "task_average": vars(self.task_average),
            "first_task": vars(self.first_task),
            "forgetting": None if self.forgetting is None else vars(self.forgetting),
            "bytes": self.bytes,
            "strength": self.strength,
            "lr": self.lr,
            "curves": {
                "task_average": [vars(point) for point in self.average_curve],
                "first_task": [vars(point) for point in self.first_curve],
            },
        }


def results(records: Iterable[Records]) -> list[MethodResult]:
    """One result per method, in the order in which methods first come; unfinished runs are left out."""
    groups: dict[str, list[Records]] = {}
    for record in records:
        if record.done:
            groups.setdefault(record.experiment.method, []).append(record)
    return [_result(method, runs) for method, runs in groups.items()]


def _result(method: str, runs: list[Records]) -> MethodResult:
    forgotten = [value for run in runs if (value := forgetting(run.test)) is not None]
    return MethodResult(
        method=method,
        seeds=len(runs),
        average_curve=_curve([task_average(run.test) for run in runs]),
        first_curve=_curve([first_task(run.test) for run in runs]),
        forgetting=Estimate.of(forgotten) if forgotten else None,
        bytes=sum(run.tasks[-1]["bytes"] for run in runs) / len(runs),
        strength=runs[0].experiment.strength,
        lr=runs[0].experiment.lr,
    )


def _curve(curves: list[list[float]]) -> list[Estimate]:
    return [Estimate.of(list(values)) for values in zip(*curves, strict=True)]
