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
from selfreminder.experiment.records import RECORDS, Records, read_packed, read_records
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
    "done": bool,
}


def columns() -> dict[str, type]:
    """The table's columns and their types, in order."""
    names = {field.name: field_type(field.name)[0] for field in fields(Experiment)}
    of_run = {_RENAMED.get(name, name): str if of is dict else of for name, of in names.items()}
    return {"run": str, **of_run, **_MEASURED}


@overload
def records(folder: str | os.PathLike[str], frame: None = None, *, every: bool = False) -> list[dict[str, Any]]: ...
@overload
def records(folder: str | os.PathLike[str], frame: Literal["pandas", "polars"], *, every: bool = False) -> Any: ...
def records(folder: str | os.PathLike[str], frame: str | None = None, *, every: bool = False) -> Any:
    """What the runs of a folder measured: one row for each run, task learned and task looked at.

    A list of dicts, or a frame of pandas or polars if those are installed. Of a grid's folder, the runs of the grid
    that was started last; with `every`, all that are there. Runs that are not done have the tasks so far.
    """
    if frame not in (None, "pandas", "polars"):
        raise unknown("frame", str(frame), ("pandas", "polars"))
    found = ((path.name, read_records(path)) for path in _find_runs(Path(folder), every))
    rows = [row for name, run in found if run is not None for row in _rows(name, run)]
    if frame is None:
        return rows
    try:
        library = import_module(frame)
    except ImportError:
        raise MissingExtraError(f"frame='{frame}' needs {frame}: pip install {frame}") from None
    if frame == "pandas":
        return library.DataFrame(rows, columns=list(columns()))
    return library.DataFrame(rows, schema=columns())


def _find_runs(folder: Path, every: bool) -> list[Path]:
    """Find the folders of the runs that are meant by the folder of a run or of a grid."""
    if (folder / RECORDS).is_file() or folder.name in read_packed(folder.parent):
        return [folder]
    check_exists(folder)
    grid = None if every else read_grid(folder)
    if grid is not None:
        return [folder / experiment.key for experiment in grid]
    found = run_folders(folder)
    if not found:
        raise SelfReminderError(f"{folder} holds no runs: give the folder of a grid, a comparison or a run")
    return found


def _rows(name: str, run: Records) -> Iterator[dict[str, Any]]:
    experiment = {_RENAMED.get(key, key): parse_value(key, value) for key, value in run.experiment.as_dict().items()}
    experiment["options"] = json.dumps(run.experiment.options, sort_keys=True)
    for task in run.tasks:
        for on, accuracy in enumerate(task["test"]):
            yield {
                "run": name,
                **experiment,
                "after_task": task["task"],
                "on_task": on,
                "accuracy": accuracy,
                "validation": task["validation"][on],
                "flips": task["flips"][on],
                "chance": run.tasks[on]["chance"],
                "bytes": task["bytes"],
                "done": run.done,
            }
