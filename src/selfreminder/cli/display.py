"""The live display of a grid: a line for each running run, and one for all. Plain lines where no terminal is."""

import shlex
import sys
import time
from collections.abc import Generator, Iterable
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from selfreminder.experiment.pool.failures import given_up
from selfreminder.experiment.pool.grid import Grid, Job
from selfreminder.experiment.pool.progress import Done, Failed
from selfreminder.report.results import Estimate

_PLAIN_EVERY = 10.0
_LIVE_EVERY = 0.2
_MOST_NAMES = 5
_BAR, _LEAST_BAR, _LEAST_NAME = 24, 8, 16
_NUMBERS = 56
"""columns of a run's line beside its name and its bar"""


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


def failure_lines(failures: Iterable[tuple[str, Failed]]) -> list[str]:
    """A line for each reason why runs of these names failed.

    >>> failure_lines([("a", Failed("too large", "mistake")), ("b", Failed("too large", "mistake"))])
    ['2 runs failed: too large (a, b)']
    """
    by_reason: dict[tuple[str, bool], list[str]] = {}
    for name, failure in failures:
        by_reason.setdefault((failure.reason, given_up(failure)), []).append(name)
    lines = []
    for (reason, is_given_up), names in by_reason.items():
        what, where = f"{names[0]} failed", ""
        if len(names) > 1:
            more = [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
            what, where = f"{len(names)} runs failed", f" ({', '.join(names[:_MOST_NAMES] + more)})"
        again = "; more than once, so not tried again without --retry-failed" if is_given_up else ""
        lines.append(f"{what}: {reason}{where}{again}")
    return lines


def say_failures(grid: Grid) -> None:
    """Say on standard error which runs failed, and why."""
    for line in failure_lines((job.experiment.key, failure) for job, failure in grid.failures):
        print(f"selfreminder: {line}", file=sys.stderr)


def how_to_go_on(folder: Path) -> None:
    """Say on standard error what an interrupted command has left."""
    command = shlex.join(["selfreminder", *sys.argv[1:]])
    print(f"Stopped; what was done is in {folder}. To go on: {command}", file=sys.stderr)


def show_estimate(estimate: Estimate | None) -> str:
    """A mean with its standard error.

    >>> show_estimate(Estimate(0.5, 0.01)), show_estimate(Estimate(0.5, None)), show_estimate(None)
    ('0.500 ± 0.010', '0.500', '-')
    """
    if estimate is None:
        return "-"
    return f"{estimate.mean:.3f}" + ("" if estimate.stderr is None else f" ± {estimate.stderr:.3f}")


def watched(grid: Grid) -> Generator[Job | None]:
    """Run a grid while showing on standard error how it goes; yields what `Grid.run` does."""
    if grid.note:
        print(f"selfreminder: {grid.note}", file=sys.stderr)
    console = Console(file=sys.stderr, highlight=False)
    if console.is_terminal:
        with Live(console=console, transient=True, auto_refresh=False) as live:
            shown = 0.0
            for job in grid.run():
                if time.monotonic() - shown > _LIVE_EVERY:  # a picture of hundreds of runs takes milliseconds
                    live.update(_picture(grid, console.width), refresh=True)
                    shown = time.monotonic()
                yield job
    else:
        last = time.monotonic()
        for job in grid.run():
            ended = job is not None and isinstance(job.answer, Done)
            if ended or time.monotonic() - last > _PLAIN_EVERY:
                last = time.monotonic()
                print(_plain(grid, job), file=sys.stderr, flush=True)
            yield job


def _overall(grid: Grid) -> str:
    done = sum(isinstance(job.answer, Done) for job in grid.all)
    elsewhere = sum(job.elsewhere and job.answer is None for job in grid.all)
    left = sum(job.given_up for job in grid.all)
    parts = [f"{done} of {len(grid.all) - left + grid.to_come()} runs done"]
    parts += [f"{left} ended early"] if left else []
    parts += [f"{len(grid.failures)} failed"] if grid.failures else []
    parts += [f"{elsewhere} in another process"] if elsewhere else []
    # What is done at a task's end is ended first, which may take a while.
    ending = "stopping, Ctrl-C again ends it at once" if grid.stopping else None
    line = ", ".join([*parts, ending or f"{show_time(grid.seconds_left())} left"])
    benchmarks = {job.experiment.benchmark for job in grid.all}  # of several, each run's line names its own
    return f"{benchmarks.pop()}: {line}" if len(benchmarks) == 1 else line


def _plain(grid: Grid, job: Job | None) -> str:
    overall = _overall(grid)
    if job is not None and isinstance(job.answer, Done):
        average = job.progress.average if job.progress else None
        shown = "" if average is None else f", task average {average:.3f}"
        return f"{job.label}: done{shown}; {overall}"
    running = ", ".join(
        f"{j.label} task {j.progress.task}/{j.progress.tasks}" for j in grid.all if j.running and j.progress
    )
    return f"{overall}; {running or 'starting'}"


def _picture(grid: Grid, width: int) -> Group:
    """A line for each running run, however narrow the terminal: the bar gives way first, then the name's middle."""
    running = [job for job in grid.all if job.running]
    bar = min(_BAR, width - _NUMBERS - max((len(job.label) for job in running), default=0))
    table = Table.grid(padding=(0, 2))
    for _ in range(6 if bar >= _LEAST_BAR else 5):
        table.add_column(no_wrap=True)
    for job in running:
        progress = job.progress
        name = Text(_shortened(job.label, max(width - _NUMBERS, _LEAST_NAME)), style="bold")
        if progress is None:
            table.add_row(name, Text("starting", style="dim"))
            continue
        table.add_row(
            name,
            *([ProgressBar(total=1.0, completed=progress.fraction, width=bar)] if bar >= _LEAST_BAR else []),
            f"task {progress.task}/{progress.tasks}",
            f"epoch {progress.epoch}/{progress.epochs}",
            "" if progress.average is None else f"average {progress.average:.3f}",
            f"{show_time(job.seconds_left())} left",
        )
    return Group(table, Text(_overall(grid)))


def _shortened(name: str, most: int) -> str:
    """A name without its middle, if it is too long: a run's begins with its method and ends with its seed.

    >>> _shortened("fsr-logit strength 0.003 per_class 10 seed 1", 24)
    'fsr-logit strengt…seed 1'
    """
    end = most // 4
    return name if len(name) <= most else f"{name[: most - 1 - end]}…{name[-end:]}"
