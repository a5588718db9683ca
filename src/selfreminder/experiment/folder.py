"""A grid's folder: which runs are in it. `grid.json` lists those of the grid that was started last."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from selfreminder._base.atomic import remove_stale, replace_file, write_text
from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder.experiment.catalogue import uses
from selfreminder.experiment.lock import locked
from selfreminder.experiment.records import PACKED, RECORDS, read_packed
from selfreminder.experiment.spec import Experiment

GRID = "grid.json"
COMPARISON = "comparison.json"
"""what a comparison's folder has beside that"""
_OTHERS = {"spec": "a grid of selfreminder run", "figure": "the paper's figures", "tuning": "a tuning"}
"""by what `grid.json` says of it"""
TABLE = "tuned.toml"
"""a copy of the table that the runs were given by --tuned"""
_PATIENCE = 5.0


def write_grid(folder: Path, experiments: Iterable[Experiment], about: Mapping[str, Any]) -> None:
    """Let a folder know its whole list of runs, and what else is to be known of them."""
    runs = [{"key": experiment.key, "experiment": experiment.as_recorded()} for experiment in experiments]
    text, path = json.dumps({**about, "runs": runs}, indent=1) + "\n", folder / GRID
    if not path.is_file() or path.read_bytes() != text.encode():
        write_text(path, text)


def keep_copy(given: Path, path: Path) -> None:
    """Keep a file that a command was given beside the runs."""
    with replace_file(path) as copy:
        copy.write_bytes(given.read_bytes())


def read_about(folder: Path) -> dict[str, Any] | None:
    """All that `grid.json` says; None if there is none, or it is damaged."""
    try:
        about = json.loads((folder / GRID).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return about if isinstance(about, dict) else None


def read_grid(folder: Path) -> list[Experiment] | None:
    """The runs that belong to a folder's grid, in their order; None if nobody wrote them down."""
    path = folder / GRID
    try:
        return [Experiment(**run["experiment"]) for run in json.loads(path.read_text(encoding="utf-8"))["runs"]]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, LookupError, TypeError) as error:
        raise SelfReminderError(f"{path} is damaged ({error}): start its grid again to write it anew") from None


def run_folders(folder: Path, *, deep: bool = False) -> list[Path]:
    """List the folders of all runs that have begun in a folder, whichever grid they were of.

    Those of packed runs are among them, and need not exist. With `deep`, folders within folders are looked into.
    """
    anywhere = "**/" if deep else ""
    begun = {path.parent for path in folder.glob(f"{anywhere or '*/'}{RECORDS}")}
    packed = (path.parent for path in folder.glob(f"{anywhere}{PACKED}"))
    return sorted(begun.union(around / key for around in packed for key in read_packed(around)))


def check_exists(folder: Path) -> None:
    """Refuse what is no folder, naming the one that may have been meant."""
    if not folder.exists():
        beside = folder.parent
        names = sorted(path.name for path in beside.iterdir() if path.is_dir()) if beside.is_dir() else []
        if names:
            raise unknown(f"folder in {beside.resolve()}", folder.name, names)
        raise SelfReminderError(f"{folder} does not exist: give the folder of a grid or a comparison")
    if not folder.is_dir():
        raise SelfReminderError(f"{folder} is a file: give the folder of a grid or a comparison")


def refuse_others(folder: Path, ours: str) -> None:
    """Refuse the folder of a command that would then not know it any more; `ours` is what `about` has of our own."""
    about = read_about(folder) or {}
    of_comparison = (folder / COMPARISON).is_file()
    found = "a comparison" if of_comparison else next((what for k, what in _OTHERS.items() if k in about), None)
    if found is not None and (of_comparison or ours not in about):
        raise SelfReminderError(f"{folder} holds {found}: choose another folder with --out")


@contextmanager
def claimed(folder: Path, ours: str) -> Iterator[None]:
    """Make sure that a folder is such a grid's, or nobody's yet; nobody else writes its list of runs meanwhile."""
    if folder.exists():
        # A kill may have left a lock, or a file that was being written.
        others = not folder.is_dir() or any(not path.name.startswith(".") for path in folder.iterdir())
        if others and not (folder / GRID).is_file():  # in this order: another may be writing it just now
            raise SelfReminderError(f"{folder} exists and holds no grid: choose another one with --out")
    refuse_others(folder, ours)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, _PATIENCE):
        remove_stale(folder)
        yield


def varying(experiments: Iterable[Experiment]) -> list[str]:
    """The fields, beside seed, in which runs of one method differ."""
    seen: dict[str, dict[str, Any]] = {}
    found = []
    names = [field.name for field in fields(Experiment) if field.name not in ("method", "seed")]
    for experiment in experiments:
        values = experiment.as_dict()
        first = seen.setdefault(experiment.method, values)
        found += [name for name in names if name not in found and values[name] != first[name]]
    return [name for name in names if name in found]


def label(experiment: Experiment, names: Iterable[str]) -> str:
    """What a person calls a run, given the fields that vary."""
    values = {name: getattr(experiment, name) for name in names if uses(experiment.method, name)}
    shown = (f"{name} {show(value)}" for name, value in values.items() if value is not None)
    return " ".join([experiment.method, *shown, f"seed {experiment.seed}"])


def show(value: Any) -> str:
    """A field's value for people.

    >>> show(0.003), show(1.0), show(None), show({"a": 1})
    ('0.003', '1', '-', '{"a": 1}')
    """
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value) if isinstance(value, dict | bool) else str(value)
