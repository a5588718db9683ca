"""What commands read from a terminal and write to it: options that several of them have, numbers and tables."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import Size, show_bytes
from selfreminder.experiment.comparison import Comparison
from selfreminder.report.results import Estimate, Result


def whole_number(_: object, tokens: Sequence[Token]) -> int:
    """Read a number of the command line, which would else be rounded."""
    text = tokens[0].value
    if not re.fullmatch(r"[+-]?\d+", text):
        raise ValueError(f"'{text}' is no whole number")
    return int(text)


Whole = Annotated[int, Parameter(converter=whole_number)]
Out = Annotated[Path | None, Parameter(name=["--out", "-o"])]
Flag = Annotated[bool, Parameter(negative="")]
Json = Annotated[bool, Parameter(help="Print JSON.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MemorySize:
    """How much stays in the memory: at least one of these was given."""

    per_class: Whole | None = None
    """Items of each class that a task leaves in the memory."""
    per_task: Whole | None = None
    """Items that a task leaves in the memory."""
    budget: str | None = None
    """Bytes of the whole memory, such as 250KB."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Extent:
    """How large a benchmark is run, where that is not as the scale says."""

    tasks: Whole | None = None
    """Tasks in the stream; by default as the scale says. Fewer are the first ones of it."""
    epochs: Whole | None = None
    """Epochs on each task; by default as the scale says."""
    width: float | None = None
    """Of the network, as a factor of the paper's; by default as the scale says."""


def make_comparison(
    benchmark: str, methods: str | None, memory: MemorySize | None, extent: Extent | None, **settings: Any
) -> Comparison:
    """Make the comparison that options ask for; `settings` are those that it takes as they are."""
    names = [] if methods is None else [name.strip() for name in methods.split(",")]
    if not all(names):
        raise SelfReminderError(f"'{methods}' names no method at some place: write for example adam,fsr-logit")
    return Comparison(
        benchmark=benchmark,
        methods=tuple(dict.fromkeys(names)),
        size=None if memory is None else Size(**vars(memory)),
        **vars(extent or Extent()),
        **settings,
    )


def show_time(seconds: float | None) -> str:
    """Write a time in hours, minutes and seconds.

    >>> show_time(125), show_time(4000), show_time(None)
    ('2:05', '1:06:40', '?')
    """
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def show_estimate(estimate: Estimate | None) -> str:
    """Write a mean with its standard error.

    >>> show_estimate(Estimate(0.5, 0.01)), show_estimate(Estimate(0.5, None)), show_estimate(None)
    ('0.500 ± 0.010', '0.500', '-')
    """
    if estimate is None:
        return "-"
    return f"{estimate.mean:.3f}" + ("" if estimate.stderr is None else f" ± {estimate.stderr:.3f}")


def tabulate_results(results: Iterable[Result], *, validation: bool = False) -> tuple[list[str], list[list[str]]]:
    """Make the columns that all tables of results have: their headings, and a row of cells for each result.

    Args:
        results: what to show, in this order; where none has a forgetting ratio ρ, there is no column for it.
        validation: whether there is a column of accuracies on validation data.
    """
    results = list(results)
    estimates = {
        "task average": [result.task_average for result in results],
        "first task": [result.first_task for result in results],
        "forgetting": [result.forgetting for result in results],
    }
    if any(result.rho for result in results):
        estimates["ρ"] = [result.rho for result in results]
    if validation:
        estimates["validation"] = [result.validation for result in results]
    columns = [*(map(show_estimate, column) for column in estimates.values()), (show_bytes(r.bytes) for r in results)]
    return [*estimates, "bytes kept"], [list(row) for row in zip(*columns)]


def console() -> Console:
    """Open standard output, wide enough that nothing is cut: a narrow terminal wraps."""
    found = Console(highlight=False)
    return Console(highlight=False, width=max(found.width, 100) if found.is_terminal else 200)


def print_rows(title: str, rows: Iterable[Sequence[str]]) -> None:
    """Print a heading and aligned rows."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    for row in rows:
        table.add_row(*(Text(cell, style="bold" if i == 0 else "") for i, cell in enumerate(row)))
    out = console()
    out.print(Text(title, style="bold underline"))
    out.print(table)
    out.print()


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table with headings; the first column to the left, the others to the right."""
    table = Table(box=box.SIMPLE_HEAD)
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="left" if i == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    console().print(table)
