"""What commands read from a terminal and write to it: options that several of them have, numbers and tables."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter, Token
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from selfreminder._base.errors import SelfReminderError, printable
from selfreminder._base.factories import shorten_path
from selfreminder._base.sizes import Size, show_bytes
from selfreminder.cli import COMMAND_LINE, HELP_ALL
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.devices import choose_device, choose_precision
from selfreminder.report.results import Estimate, Result


def say(text: str) -> None:
    """Print a line to standard output."""
    print(printable(text))


def whole_number(_: object, tokens: Sequence[Token]) -> int:
    """Read a number of the command line, which would else be rounded."""
    text = tokens[0].value
    if not re.fullmatch(r"[+-]?\d{1,18}", text):
        shown = text if len(text) < 30 else f"{text[:20]}…"
        raise ValueError(f"'{shown}' is no whole number of up to 18 digits")
    if len(text) > 18:
        raise ValueError(f"'{text[:18]}…' is too large a number")
    return int(text)


Whole = Annotated[int, Parameter(converter=whole_number)]
Out = Annotated[Path | None, Parameter(name=["--out", "-o"])]
MORE = Group("More options", sort_key=1, show=HELP_ALL in COMMAND_LINE.get())
"""those that --help leaves out, and --help-all shows"""
Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Json = Annotated[bool, Parameter(help="Print JSON.", show_default=False)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MemorySize:
    """How much stays in the memory: at least one of these was given."""

    per_class: Whole | None = None
    """Items of each class that a task leaves in the memory."""
    per_task: Whole | None = None
    """Items that a task leaves in the memory."""
    items: Whole | None = None
    """Items of the whole memory."""
    budget: str | None = None
    """Bytes of the whole memory, such as 250KB."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Extent:
    """How large a benchmark is run, where that is not as the scale says."""

    tasks: Whole | None = None
    """Tasks in the stream, its first ones; by default as the scale says."""
    epochs: Whole | None = None
    """Epochs on each task; by default as the scale says."""
    width: float | None = None
    """Of the network, as a factor of the paper's."""


@Parameter(name="*", group=MORE)
@dataclass(frozen=True, kw_only=True)
class Changes:
    """What of every run is otherwise than the scale says."""

    scenario: Literal["task", "domain", "class", "stream"] | None = None
    """What is told of a task: see `selfreminder list`; by default the benchmark's own."""
    model: str | None = None
    """The network: resnet18, mlp:256x3, timm:NAME, hf:FOLDER, module:factory, file.py:factory, …; else the usual."""
    freeze: Flag = False
    """Train the network's last layer alone, on features that are computed once."""
    optimizer: Literal["adam", "adamw", "sgd"] | None = None
    """Of all methods; by default each has its own."""
    lr: float | None = None
    """Step size of all methods; by default it is tuned, or the paper's."""
    momentum: float | None = None
    """Of sgd."""
    schedule: Literal["constant", "cosine", "warmup-cosine", "linear"] | None = None
    """Of the step size within a task."""
    augment: str | None = None
    """Changes of training images: flip, crop, crop-flip, or module:function of yours."""
    batch_size: Whole | None = None
    """New items in a step."""
    precision: Literal["fp32", "bf16", "auto"] | None = None
    """Of training steps; auto: bf16 where the processor computes in it. By default fp32."""
    evaluate_every: Whole | None = None
    """Steps between evaluations while a task is learned; by default only its end is evaluated."""
    test_after: Flag = False
    """Of data cut by time: test on the last fifth of each period, not on a fifth that is drawn."""
    processes: Whole | None = None
    """That train each run together, on a part of every batch each; by default one."""
    hed: Literal["today", "2018"] | None = None
    """Of color-cifar10: its colour space HED as scikit-image computes it since 0.18, or as it did in 2018."""

    @property
    def settings(self) -> dict[str, Any]:
        """Those that were given."""
        said = {name: value for name, value in vars(self).items() if value is not None and value is not False}
        said |= {name: shorten_path(said[name]) for name in ("model", "augment") if name in said}
        return {name: value for name, value in said.items() if (name, value) != ("processes", 1)}


def make_comparison(
    benchmark: str, methods: str | None, memory: MemorySize | None, extent: Extent | None, **settings: Any
) -> Comparison:
    """Make the comparison that options ask for; `settings` are those that it takes as they are."""
    settings["device"] = choose_device(settings["device"])
    if (own := settings.get("settings", {})) and "precision" in own:
        chosen = choose_precision(own["precision"], settings["device"])
        settings["settings"] = {name: value for name, value in own.items() if name != "precision"}
        settings["settings"] |= {"precision": chosen} if chosen != "fp32" else {}
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
        results: what to show, in this order; what none of them has, such as a forgetting ratio ρ, has no column.
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
    if any(result.anytime for result in results):
        estimates["at any time"] = [result.anytime for result in results]
    if validation:
        estimates["validation"] = [result.validation for result in results]
    if any(result.calibration_error for result in results):
        estimates["calibration error"] = [result.calibration_error for result in results]
    columns = {name: list(map(show_estimate, column)) for name, column in estimates.items()}
    columns["bytes kept"] = [show_bytes(result.bytes) for result in results]
    if any(result.passes for result in results):
        columns["passes"] = ["-" if result.passes is None else f"{result.passes.mean:.2f}" for result in results]
    if any(result.seconds for result in results):
        columns["seconds"] = ["-" if result.seconds is None else f"{result.seconds.mean:.3g}" for result in results]
    return list(columns), [list(row) for row in zip(*columns.values())]


def console() -> Console:
    """Open standard output, wide enough that nothing is cut: a narrow terminal wraps."""
    found = Console(highlight=False)
    return Console(highlight=False, width=max(found.width, 100) if found.is_terminal else 200)


def print_rows(title: str, rows: Iterable[Sequence[str]]) -> None:
    """Print a heading and aligned rows."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    for row in rows:
        table.add_row(*(Text(printable(cell), style="bold" if i == 0 else "") for i, cell in enumerate(row)))
    out = console()
    out.print(Text(printable(title), style="bold underline"))
    out.print(table)
    out.print()


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table with headings; the first column to the left, the others to the right."""
    table = Table(box=box.SIMPLE_HEAD)
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="left" if i == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console().print(table)
