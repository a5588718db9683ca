"""`selfreminder data`: list, get, verify."""

import json as json_format
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from selfreminder._base.errors import DataError
from selfreminder.cli.terminal import Json, print_rows
from selfreminder.data import DATASETS, dataset, source


def show(*, data_dir: Path | None = None, json: Json = False) -> None:
    """List the data sets and what of them is at hand.

    Parameters
    ----------
    data_dir
        A folder with data files of yours; SELFREMINDER_DATA does the same.
    json
        Print JSON.
    """
    rows = []
    for data in DATASETS.values():
        found = source.find(data, data_dir)
        state = f"{len(found)} of {len(data.files)} files at hand" if data.files else "made when needed"
        folder = str(next(iter(found.values())).parent) if found else ""
        rows.append({"name": data.name, "summary": data.summary, "state": state, "folder": folder})
    if json:
        print(json_format.dumps({"results": rows}, indent=1))
    else:
        print_rows("Data sets", [(r["name"], r["summary"], r["state"], r["folder"]) for r in rows])


def get(name: str, *, data_dir: Path | None = None) -> None:
    """Fetch a data set into the cache, unless it is at hand, and check it.

    Parameters
    ----------
    name
        Which: see `selfreminder data list`.
    data_dir
        A folder with data files of yours, looked at first; SELFREMINDER_DATA does the same.
    """
    fetch(name, data_dir)
    for path in source.find(dataset(name), data_dir).values():
        print(path)


def verify(name: str | None = None, *, data_dir: Path | None = None) -> int:
    """Check the files at hand by their sha256. Exit code 1 if one is missing or damaged.

    Parameters
    ----------
    name
        One data set; without it, all of which a file is at hand.
    data_dir
        A folder with data files of yours, looked at first; SELFREMINDER_DATA does the same.
    """
    bad = 0
    for data in [dataset(name)] if name else DATASETS.values():
        found = source.find(data, data_dir)
        if not found and name is None:
            continue
        for file in data.files:
            state = "missing"
            if path := found.get(file.name):
                try:
                    source.read(file, path)
                    state = "good"
                except DataError as error:
                    state = f"BAD: {error}"
            bad += state != "good"
            print(f"{data.name}/{file.name}: {state}")
    return 1 if bad else 0


def fetch(name: str, data_dir: Path | None) -> None:
    """Make sure that a data set is at hand and good; fetching shows a progress bar on standard error."""
    data = dataset(name)
    with _progress() as progress:
        found = source.get(data, data_dir, progress)
    for file in data.files:
        source.read(file, found[file.name])


@contextmanager
def _progress() -> Iterator[source.Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        shown: dict[str, int] = {}

        def tell(what: str, done: int, total: int | None) -> None:
            if what not in shown:
                shown[what] = int(bar.add_task(what, total=total))
            bar.update(bar.task_ids[shown[what]], completed=done, total=total)

        yield tell
