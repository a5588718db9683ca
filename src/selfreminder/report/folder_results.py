"""What the folder of a comparison or a grid holds at this moment: its runs, and the results of those that are done."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from selfreminder._base.errors import SelfReminderError
from selfreminder.experiment.folder import Origin, check_exists, read_about, read_grid, read_origin, run_folders, show
from selfreminder.experiment.pool.process import read_failure
from selfreminder.experiment.records import PACKED, RECORDS, Records, read_current_records
from selfreminder.experiment.spec import Experiment
from selfreminder.report.results import Result, group_runs, sort_best_first

_STREAM = ("benchmark", "data", "images", "tasks", "split_into", "scenario", "epochs", "hed", "test_after", "evaluate")
"""fields in which runs agree whose accuracies can be compared: they learn the same tasks for as long"""
_NONE = {"scenario": "own"}
"""what a field without a value is called, where that is not all"""


@dataclass(frozen=True)
class FolderResults:
    """The runs of a folder, by method and seed, and the results of those that are done."""

    runs: tuple[Records, ...]
    """that have begun"""
    left: tuple[Experiment, ...]
    """that have not, as far as the folder knows of them"""
    results: tuple[Result, ...]
    """of the runs that are done, the best of each stream first"""
    origin: Origin
    """the command that gave these runs"""
    failures: dict[str, str]
    """why runs failed, by key"""

    @property
    def experiments(self) -> list[Experiment]:
        return [*(run.experiment for run in self.runs), *self.left]

    @property
    def done(self) -> int:
        return sum(run.done for run in self.runs)

    @property
    def streams(self) -> dict[str, "FolderResults"]:
        """The same for each stream of tasks, by its name; the runs of a comparison have one."""
        streams = sorted(
            {_stream(experiment) for experiment in self.experiments},
            key=lambda stream: [(value is None, value or 0) for value in stream],
        )
        return {
            _name_stream(stream, streams): replace(
                self,
                runs=tuple(run for run in self.runs if _stream(run.experiment) == stream),
                left=tuple(experiment for experiment in self.left if _stream(experiment) == stream),
                results=tuple(result for result in self.results if _stream(result.experiment) == stream),
            )
            for stream in streams
        }


def read_folder_results(folder: Path) -> FolderResults:
    """Read the records of a folder, which may be growing.

    Raises SelfReminderError if it is no folder of a comparison or a grid, or if its records are damaged.
    """
    check_exists(folder)
    if (folder / RECORDS).exists():
        raise SelfReminderError(f"{folder} is the folder of one run: give the one around it, {folder.resolve().parent}")
    grid = {experiment.key: experiment for experiment in read_grid(folder) or []}
    # A comparison may be added to, run by run; the file of a grid has all its runs, and none of an earlier file's.
    is_whole = "spec" in (read_about(folder) or {})
    paths = [path for path in run_folders(folder) if path.name in grid or not is_whole]
    begun, damaged = _read_runs(paths, grid)
    keys = {records.experiment.key for records in begun}
    left = [experiment for key, experiment in grid.items() if key not in keys]
    if not begun and not left:
        raise SelfReminderError(f"{folder} holds no records of runs{_where_else(folder)}")
    begun.sort(key=lambda run: (run.experiment.method, run.experiment.seed, run.experiment.key))
    streams: dict[tuple[Any, ...], list[Records]] = {}
    for run in begun:
        streams.setdefault(_stream(run.experiment), []).append(run)
    results = [result for runs in streams.values() for result in sort_best_first(group_runs(runs))]
    waiting = [*(run.experiment for run in begun if not run.done), *left]
    failed = {experiment.key: read_failure(folder / experiment.key) for experiment in waiting}
    failures = {key: failure.reason for key, failure in failed.items() if failure is not None} | damaged
    return FolderResults(tuple(begun), tuple(left), tuple(results), read_origin(folder), failures)


def _read_runs(paths: Sequence[Path], grid: Container[str]) -> tuple[list[Records], dict[str, str]]:
    """Read the records of runs that have begun; and say which of a grid's are damaged, as `status` does too."""
    found, damaged = [], {}
    for path in paths:
        try:
            records = read_current_records(path)
        except SelfReminderError as error:
            if path.name not in grid:
                raise
            damaged[path.name] = str(error)
        else:
            found += [] if records is None else [records]
    return found, damaged


def _where_else(folder: Path) -> str:
    of_runs, packed = folder.glob(f"*/*/{RECORDS}"), folder.glob(f"*/{PACKED}")
    inside = sorted({path.parent.parent.name for path in of_runs} | {path.parent.name for path in packed})
    if inside:
        return f": give one of the folders in it, {', '.join(inside)}"
    return ": give the folder of a comparison, such as `selfreminder compare` makes"


def _stream(experiment: Experiment) -> tuple[Any, ...]:
    return tuple(getattr(experiment, name) for name in _STREAM)


def _name_stream(stream: tuple[Any, ...], streams: Sequence[tuple[Any, ...]]) -> str:
    """Name a stream by its benchmark, and what tells it from the others of that benchmark."""
    alike = [other for other in streams if other[0] == stream[0]]
    differing = [place for place in range(1, len(_STREAM)) if any(other[place] != stream[place] for other in alike)]
    said = {
        place: _NONE.get(_STREAM[place], "all") if stream[place] is None else show(stream[place]) for place in differing
    }
    words = ["", "", *_STREAM[2:-1], "evaluated"]
    return ", ".join([stream[0], *(f"{text} {words[place]}".strip() for place, text in said.items())])
