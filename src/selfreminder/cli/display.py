"""The live display of a grid: a line for each running run, and one for all. Plain lines where no terminal is."""

import sys
import time
from collections.abc import Generator

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from selfreminder.experiment.grid import Grid, Job
from selfreminder.experiment.progress import Done

_PLAIN_EVERY = 10.0


def show_time(seconds: float | None) -> str:
    """Minutes and seconds for people.

    >>> show_time(125), show_time(4000), show_time(None)
    ('2:05', '1:06:40', '?')
    """
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def watched(grid: Grid) -> Generator[Job | None]:
    """Run a grid while showing on standard error how it goes; yields what `Grid.run` does."""
    console = Console(file=sys.stderr, highlight=False)
    if console.is_terminal:
        with Live(console=console, transient=True, auto_refresh=False) as live:
            for job in grid.run():
                live.update(_picture(grid), refresh=True)
                yield job
    else:
        last = time.monotonic()
        for job in grid.run():
            ended = job is not None and isinstance(job.answer, Done)
            if ended or time.monotonic() - last > _PLAIN_EVERY:
                last = time.monotonic()
                print(_plain(grid, job), file=sys.stderr, flush=True)
            yield job


def _done(grid: Grid) -> int:
    return sum(isinstance(job.answer, Done) for job in grid.all)


def _plain(grid: Grid, job: Job | None) -> str:
    overall = f"{_done(grid)} of {len(grid.all)} runs done, {show_time(grid.seconds_left())} left"
    if job is not None and isinstance(job.answer, Done):
        average = job.progress.average if job.progress else None
        shown = "" if average is None else f", task average {average:.3f}"
        return f"{job.experiment.method} seed {job.experiment.seed}: done{shown}; {overall}"
    running = ", ".join(
        f"{j.experiment.method} seed {j.experiment.seed} task {j.progress.task}/{j.progress.tasks}"
        for j in grid.all
        if j.running and j.progress
    )
    return f"{overall}; {running or 'starting'}"


def _picture(grid: Grid) -> Group:
    table = Table.grid(padding=(0, 2))
    for job in grid.all:
        if not job.running:
            continue
        progress = job.progress
        name = Text(f"{job.experiment.method} seed {job.experiment.seed}", style="bold")
        if progress is None:
            table.add_row(name, Text("starting", style="dim"))
            continue
        table.add_row(
            name,
            ProgressBar(total=1.0, completed=progress.fraction, width=24),
            f"task {progress.task}/{progress.tasks}",
            f"epoch {progress.epoch}/{progress.epochs}",
            "" if progress.average is None else f"average {progress.average:.3f}",
            f"{show_time(job.seconds_left())} left",
        )
    overall = Text(f"{_done(grid)} of {len(grid.all)} runs done, {show_time(grid.seconds_left())} left")
    return Group(table, overall)
