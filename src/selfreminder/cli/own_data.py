"""Options of commands that take data of the user's own, and what is said of it before anything is trained."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import show_bytes
from selfreminder.cli.terminal import MORE, Changes, Extent, Flag, Whole
from selfreminder.experiment.spec import Experiment

if TYPE_CHECKING:
    from selfreminder.data.own.pieces import Pieces

OWN = "own"
"""the benchmark of a user's own data"""
_MOST_NAMED = 5
"""of what is left out"""
_MOST_TASKS = 12
"""that are shown"""

Names = Annotated[tuple[str, ...], Parameter(negative="")]


@Parameter(name="*", group=MORE)
@dataclass(frozen=True, kw_only=True)
class OwnDataOptions:
    """Data of your own, and how it is cut into tasks."""

    data: str | None = None
    """Your own data: folder:PATH, npz:PATH, csv:PATH, parquet:PATH, hf:FOLDER, or module:function."""
    by: str | None = None
    """How it is cut into tasks: folder, class, a column, date:month (or month), parts:5."""
    label: str | None = None
    """The column or key of the labels."""
    size: Whole | None = None
    """Side that images are made to have."""
    channels: Whole | None = None
    """Of images: 1 or 3."""
    inputs: Names = ()
    """Columns of numbers that are inputs; by default all."""
    categories: Names = ()
    """Columns of which each value is a category."""
    text: Names = ()
    """Columns of which the words count."""
    tokenizer: str | None = None
    """A folder with a tokenizer: text becomes token numbers, for --model hf:FOLDER."""
    skip_bad: Flag = False
    """Leave out what cannot be read."""

    def choose_benchmark(self, benchmark: str | None) -> str:
        """Give the benchmark that is meant: own data has one of its own."""
        if benchmark is None and self.data is None:
            raise SelfReminderError("name a benchmark (see selfreminder list), or data of your own with --data")
        if self.data is not None and benchmark not in (None, OWN):
            raise SelfReminderError(f"--data is for data of your own: leave out {benchmark}, or --data")
        if benchmark == OWN and self.data is None:
            raise SelfReminderError("say where your data is: --data folder:PATH, npz:PATH, csv:PATH, …")
        if self.data is None and (given := [name for name, value in vars(self).items() if value]):
            raise SelfReminderError(f"--{given[0].replace('_', '-')} is for data of your own: give --data too")
        return benchmark or OWN

    def read(self, quiet: bool, changes: Changes, tasks: int | None) -> dict[str, Any]:
        """Read the data, show its tasks, and give the settings of experiments on it: data, reading, tasks.

        Raises what is wrong with so many tasks of it in the scenario that is asked for, before anything is started.
        """
        if self.data is None:
            return {}
        # torch takes seconds to import: only for those who bring data
        from selfreminder.benchmarks.own import arrange_pieces  # noqa: PLC0415

        split = {"inputs", "categories", "text"}
        said = {k: [n for v in value for n in v.split(",")] if k in split else value for k, value in vars(self).items()}
        given = {name: value for name, value in said.items() if value or type(value) is int}  # a 0 is none to leave out
        reading = {name: value for name, value in given.items() if name != "data"}
        pieces = _read(self.data, reading, quiet)
        _check_order(pieces.unordered, changes.test_after, changes.scenario)
        tasks = max(1, min(tasks or len(pieces.rows), len(pieces.rows)))
        arrange_pieces(pieces, changes.scenario or "domain", tasks=tasks, test_after=changes.test_after)
        return {"data": self.data, "reading": {**reading, "sha256": pieces.sha256}, "tasks": len(pieces.rows)}


def apply_own(
    benchmark: str | None, own: OwnDataOptions | None, changes: Changes | None, extent: Extent | None, quiet: bool
) -> tuple[str, Extent, dict[str, Any]]:
    """Give the benchmark that is meant, its extent, and the settings that data and changes of the user's own make."""
    own, changes, extent = own or OwnDataOptions(), changes or Changes(), extent or Extent()
    benchmark = own.choose_benchmark(benchmark)
    read = own.read(quiet, changes, extent.tasks)
    tasks = read.pop("tasks", None) if extent.tasks is None else extent.tasks
    read.pop("tasks", None)
    return benchmark, replace(extent, tasks=tasks), changes.settings | read


def pin_own_data(experiments: Sequence[Experiment], quiet: bool) -> list[Experiment]:
    """Read the user's own data of experiments, show its tasks, and give the experiments of just that data."""
    found: dict[tuple[str, str], tuple[str, str | None]] = {}
    pinned = []
    for e in experiments:
        if e.benchmark == OWN:
            key = e.data, json.dumps(e.reading, sort_keys=True)
            if key not in found:
                pieces = _read(e.data, e.reading, quiet)
                found[key] = pieces.sha256, pieces.unordered
            sha256, unordered = found[key]
            _check_order(unordered, e.test_after, e.scenario)
            e = replace(e, reading={**e.reading, "sha256": sha256})
        pinned.append(e)
    return pinned


def _read(data: str, reading: Mapping[str, Any], quiet: bool) -> "Pieces":
    """Read data of the user's own, and show its tasks."""
    from selfreminder.data.own.pieces import Listener, describe_pieces, read_pieces  # noqa: PLC0415

    with Console(stderr=True, quiet=quiet).status(Text(f"reading {data}")) as status:

        def tell(what: str, done: int, total: int | None) -> None:
            status.update(Text(f"reading {data}: {done:,}{f' of {total:,}' if total else ''} {what}"))

        pieces = read_pieces(data, json.dumps(reading, sort_keys=True), Listener(tell))
    if not quiet:
        _show(data, describe_pieces(pieces), pieces)
        if pieces.place is not None:
            said = f"{pieces.place} ({show_bytes(pieces.nbytes)}), which may be removed afterwards"
            print(f"  too much for memory, read from {said}", file=sys.stderr)
    return pieces


def _check_order(dates: str | None, test_after: bool, scenario: str | None) -> None:
    """Raise if the order of the data counts, and is not that of these dates."""
    if dates is not None and (test_after or scenario == "stream"):
        raise SelfReminderError(f"rows are not in order of '{dates}': sort them, or cut --by {dates}:month")


def _show(data: str, rows: list[tuple[str, str, str]], pieces: "Pieces") -> None:
    """Say what the tasks and the inputs are; to standard error, where progress goes."""
    print(f"{data}: {len(rows)} tasks", file=sys.stderr)
    wide = max(len(name) for name, _, _ in rows[:_MOST_TASKS])
    for name, items, classes in rows[:_MOST_TASKS]:
        print(f"  {name:<{wide}}  {items:>7}  {classes}", file=sys.stderr)
    if len(rows) > _MOST_TASKS:
        print(f"  … and {len(rows) - _MOST_TASKS:,} more", file=sys.stderr)
    if pieces.unordered is not None:
        print(f"  parts are in the order of the rows, which is not that of '{pieces.unordered}'", file=sys.stderr)
    for line in pieces.remarks:
        print(f"  {line}", file=sys.stderr)
    if skipped := pieces.skipped:
        more = f", … ({len(skipped) - _MOST_NAMED} more)" if len(skipped) > _MOST_NAMED else ""
        print(f"  left out: {len(skipped)}: {', '.join(skipped[:_MOST_NAMED])}{more}", file=sys.stderr)
