"""The status of a folder's runs, read from their files alone: whoever runs them is not disturbed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.lock import is_locked
from selfreminder.experiment.folder import check_exists, read_about, read_grid, run_folders
from selfreminder.experiment.pool.estimate import RunTimes, count_epochs
from selfreminder.experiment.pool.process import Failed, read_failure
from selfreminder.experiment.processors import count_processors, describe_mixed
from selfreminder.experiment.records import Records, read_records, read_timing_lines
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.throughput import Throughput, measure_throughput
from selfreminder.metrics import task_average

State = Literal["done", "running", "failed", "left"]


@dataclass(frozen=True)
class RunStatus:
    """How one run stands."""

    experiment: Experiment
    state: State
    tasks: int = 0
    """that are complete"""
    epochs: int = 0
    """that are complete, over all tasks"""
    epoch: int = 0
    """that are complete of the task at hand"""
    average: float | None = None
    """test accuracy over the tasks so far"""
    part: float = 0.0
    """of the whole run's work that is complete"""
    seconds: float = 0.0
    """measured, of what is complete"""
    versions: Mapping[str, str] = field(default_factory=dict)
    """what it is made with; nothing before it has begun"""
    failure: Failed | None = None
    records: Records | None = None

    def as_dict(self) -> dict[str, Any]:
        """As JSON can say it."""
        return {
            "run": self.experiment.key,
            "state": self.state,
            "tasks": self.tasks,
            "of_tasks": self.experiment.tasks,
            "epochs": self.epochs,
            "epochs_of_task": self.epoch,
            "of_epochs": count_epochs(self.experiment),
            "task_average": self.average,
            "seconds": self.seconds,
            "processor": self.versions.get("processor"),
            "failure": None if self.failure is None else vars(self.failure),
            "experiment": self.experiment.as_dict(),
        }


@dataclass(frozen=True)
class Status:
    """How all runs of a folder stand."""

    runs: list[RunStatus]
    others: int
    """runs in the folder that are not of the grid that was started last"""
    work_left: float | None
    """seconds of work of one process that are left, from the times measured; None where there are none"""
    to_come: int = 0
    """runs of a tuning's trials that have not begun, about"""
    nodes: Sequence[Throughput] = ()
    """what each machine has got done"""

    def count(self, state: State) -> int:
        """Count the runs in a state."""
        return sum(run.state == state for run in self.runs)

    def as_dict(self) -> dict[str, Any]:
        """As JSON can say it."""
        return {
            **{state: self.count(state) for state in get_args(State)},
            "others": self.others,
            "to_come": self.to_come,
            "seconds_left": self.seconds_left,
            "work_left": self.work_left,
            "processors": self.processors,
            "mixed": self.mixed,
            "nodes": [node.as_dict() for node in self.nodes],
            "results": [run.as_dict() for run in self.runs],
        }

    @property
    def processors(self) -> dict[str, dict[str, int]]:
        """Count the kinds of processor on which the runs of each benchmark were made, or are."""
        begun = [run for run in self.runs if run.versions]
        names = dict.fromkeys(run.experiment.benchmark for run in begun)
        return {
            name: count_processors(run.versions for run in begun if run.experiment.benchmark == name) for name in names
        }

    @property
    def mixed(self) -> list[str]:
        """Say of which benchmarks runs were made on several kinds of processor."""
        said = {name: describe_mixed(found) for name, found in self.processors.items()}
        return [f"{name}: {text}" for name, text in said.items() if text is not None]

    @property
    def seconds_left(self) -> float | None:
        """With as many processes as there are now; None if there is none, or no time was measured."""
        running = self.count("running")
        return None if self.work_left is None or not running else self.work_left / running


def read_status(folder: Path) -> Status:
    """Read how the runs of a folder stand at this moment."""
    check_exists(folder)
    experiments, begun = read_grid(folder), run_folders(folder)
    if experiments is None:  # made before there were lists of runs
        found = {path: records.experiment for path in begun if (records := read_records(path)) is not None}
    else:
        found = {folder / experiment.key: experiment for experiment in experiments}
    if not found:
        raise SelfReminderError(f"{folder} holds no runs: give the folder of a grid or a comparison")
    runs = [read_run_status(experiment, path) for path, experiment in found.items()]
    said = (read_about(folder) or {}).get("to_come")
    to_come = said if isinstance(said, int) else 0
    nodes = measure_throughput((folder / run.experiment.key, run.records) for run in runs if run.records is not None)
    return Status(runs, len(set(begun) - found.keys()), _estimate_work(runs, to_come), to_come, nodes)


def read_run_status(experiment: Experiment, folder: Path) -> RunStatus:
    """Read how one run stands."""
    running = is_locked(folder)  # first: a run that ends meanwhile is then seen to be done
    failure = read_failure(folder)
    try:
        records = read_records(folder)
    except SelfReminderError as error:
        return RunStatus(experiment, "failed", failure=Failed(str(error), "mistake"))
    done = records is not None and records.done
    state: State = "done" if done else "running" if running else "failed" if failure else "left"
    if records is None:
        return RunStatus(experiment, state, failure=failure)
    seconds, part = read_timings(folder)
    return RunStatus(
        experiment,
        state,
        tasks=len(records.tasks),
        epochs=len(records.epochs),
        epoch=sum(event["task"] == len(records.tasks) for event in records.epochs),
        average=task_average(records.test)[-1] if records.tasks else None,
        part=1.0 if done else part,
        seconds=seconds,
        versions=records.versions,
        failure=None if done else failure,
        records=records,
    )


def read_timings(folder: Path) -> tuple[float, float]:
    """Read the seconds that a run has taken, and the part of it that is done; of what was done again, the last time."""
    seconds: dict[tuple[Any, ...], float] = {}
    part = 0.0
    for event in read_timing_lines(folder):
        place = event["task"], event.get("epoch")
        seconds |= {(*place, name): float(value) for name, value in event.items() if name.endswith("seconds")}
        part = float(event.get("done", part))
    return sum(seconds.values()), part


def _estimate_work(runs: Sequence[RunStatus], to_come: int) -> float | None:
    """Estimate the seconds of work that are left for one process, by the times measured."""
    times = RunTimes((run.experiment, run.part, run.seconds) for run in runs if run.seconds and run.part)
    if not times:
        return None
    whole = [(1 - run.part, times.estimate(run.experiment)) for run in runs if run.state in ("running", "left")]
    whole += [(to_come / len(runs), times.estimate(run.experiment)) for run in runs]  # as long as those so far
    return sum(part * seconds for part, seconds in whole if seconds is not None)
