"""Records as a table: one row for each run, task learned and task looked at. See docs/records.md."""

import json
import os
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, overload

from selfreminder._base.errors import MissingExtraError, SelfReminderError, unknown
from selfreminder.experiment.folder import check_exists, read_grid, run_folders
from selfreminder.experiment.records import RECORDS, Records, read_current_records, read_packed
from selfreminder.experiment.spec import Experiment, field_type, parse_value

_RENAMED = {"validation": "validation_share"}
"""a field of the experiment whose name a measurement has"""
_MEASURED: dict[str, type] = {
    "after_task": int,
    "on_task": int,
    "accuracy": float,
    "validation": float,
    "flips": float,
    "chance": float,
    "bytes": int,
    "calibration_error": float,
    "forward_transfer": float,
    "loss": float,
    "steps": int,
    "new_items": int,
    "passes": int,
    "seconds": float,
    "peak_bytes": int,
    "measures": str,
    "done": bool,
}


def list_columns() -> dict[str, type]:
    """List the table's columns in order, with the type of each."""
    names = {field.name: field_type(field.name)[0] for field in fields(Experiment)}
    of_run = {_RENAMED.get(name, name): str if of is dict else of for name, of in names.items()}
    return {"run": str, **of_run, **_MEASURED}


@overload
def records(folder: str | os.PathLike[str], frame: None = None, *, every: bool = False) -> list[dict[str, Any]]: ...
@overload
def records(folder: str | os.PathLike[str], frame: Literal["pandas", "polars"], *, every: bool = False) -> Any: ...
def records(folder: str | os.PathLike[str], frame: str | None = None, *, every: bool = False) -> Any:
    """Read what runs measured as a table: one row for each run, task learned and task looked at.

    docs/records.md says what the columns are. Runs that are not done have the tasks so far.

    Args:
        folder: of a grid, a comparison or one run. Packed runs are read as if they had folders.
        frame: what to make of the rows: None for a list of dicts, "pandas" or "polars" for a frame of theirs.
        every: take all runs of a grid's folder, not only those of the grid that was started last.
    """
    if frame not in (None, "pandas", "polars"):
        raise unknown("frame", str(frame), ("pandas", "polars"))
    found = ((path.name, read_current_records(path)) for path in _find_runs(Path(folder), every))
    rows = [row for name, run in found if run is not None for row in _rows(name, run)]
    if frame is None:
        return rows
    try:
        library = import_module(frame)
    except ImportError:
        raise MissingExtraError(f"frame='{frame}' needs {frame}: pip install {frame}") from None
    if frame == "pandas":
        return library.DataFrame(rows, columns=list(list_columns()))
    return library.DataFrame(rows, schema=list_columns())


def _find_runs(folder: Path, every: bool) -> list[Path]:
    """Find the folders of the runs that are meant by the folder of a run or of a grid."""
    if (folder / RECORDS).is_file() or folder.name in read_packed(folder.parent):
        return [folder]
    check_exists(folder)
    if not every and (grid := read_grid(folder)) is not None:
        return [folder / experiment.key for experiment in grid]
    if found := run_folders(folder):
        return found
    raise SelfReminderError(f"{folder} holds no runs: give the folder of a grid, a comparison or a run")


def _rows(name: str, run: Records) -> Iterator[dict[str, Any]]:
    """Make the rows of one run."""
    experiment = {_RENAMED.get(key, key): parse_value(key, value) for key, value in run.experiment.as_dict().items()}
    for as_text in ("options", "reading"):
        experiment[as_text] = json.dumps(experiment[as_text], sort_keys=True)
    for task, timing in zip(run.tasks, run.timings, strict=True):
        of_tasks = task.get("on", range(len(task["test"])))
        calibration = task.get("calibration_error", [None] * len(task["test"]))
        columns = task["test"], task["validation"], task["flips"], calibration
        for on, accuracy, validation, flips, error in zip(of_tasks, *columns, strict=True):
            yield {
                "run": name,
                **experiment,
                "after_task": task["task"],
                "on_task": on,
                "accuracy": accuracy,
                "validation": validation,
                "flips": flips,
                "chance": run.tasks[on]["chance"],
                "bytes": task["bytes"],
                "calibration_error": error,
                "forward_transfer": task["next"] - task["next_untrained"] if "next" in task else None,
                "loss": run.losses.get(task["task"]),
                **{name: task.get(name) for name in ("steps", "new_items", "passes")},
                **{name: timing.get(name) for name in ("seconds", "peak_bytes")},
                "measures": json.dumps(task.get("measures", {}), sort_keys=True),
                "done": run.done,
            }
