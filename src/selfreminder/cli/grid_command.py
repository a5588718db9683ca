"""Run a grid for a command, whichever it is: its options, the live display, Ctrl-C, failures, the exit code."""

import hashlib
import json as json_format
import shlex
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from selfreminder._base.atomic import write_text
from selfreminder._base.errors import SelfReminderError
from selfreminder.cli import COMMAND_LINE
from selfreminder.cli.data import fetch
from selfreminder.cli.terminal import MORE, Flag, show_time, whole_number
from selfreminder.experiment.cluster import find_slurm, open_place
from selfreminder.experiment.folder import TABLE, with_command
from selfreminder.experiment.pool.grid import Grid, Job
from selfreminder.experiment.pool.process import Done, Failed, Progress, is_given_up
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.tracking import Tracking
from selfreminder.report.results import Result

_PLAIN_EVERY = 10.0
_LIVE_EVERY = 0.2
_MOST_NAMES = 5
_BAR, _LEAST_BAR, _LEAST_NAME = 24, 8, 16
_NUMBERS = 56
"""columns of a run's line beside its name and its bar"""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Running:
    """How runs are done, whatever they are."""

    jobs: Annotated[int | None, Parameter(name=["--jobs", "-j"], converter=whole_number)] = None
    """Worker processes; by default as cores and memory suffice for."""
    data_dir: Path | None = None
    """A folder with data files of yours; or SELFREMINDER_DATA."""
    retry_failed: Flag = False
    """Try runs again that have failed twice in the same way."""
    dry_run: Flag = False
    """Run nothing: say how many runs are left, and about what they take: core-hours, time, memory, bytes written."""
    on: Annotated[str, Parameter(group=MORE)] = "local"
    """Where: local; ray, one of its own; auto, the Ray cluster of this machine; ray://HOST:PORT; slurm."""
    cpus_per_run: Annotated[float, Parameter(group=MORE)] = 1.0
    """Cores for each run, on Ray."""
    gpus_per_run: Annotated[float, Parameter(group=MORE)] = 0.0
    """GPUs for each run, on Ray; a part of one lets several runs share it."""
    slurm: Annotated[tuple[str, ...], Parameter(negative="", show_default=False, group=MORE)] = ()
    """A setting of submitit's, such as timeout_min=240, with --on slurm. May be given again."""
    track: Annotated[tuple[str, ...], Parameter(negative="", show_default=False, group=MORE)] = ()
    """Tell a tracker of the runs: tensorboard, mlflow, trackio or wandb. May be given again."""
    json: Flag = False
    """Print JSON instead of a table."""

    def check(self) -> None:
        """Raise if there would be no worker, no such tracker, or the place of the workers cannot be reached."""
        if self.jobs is not None and self.jobs < 1:
            raise SelfReminderError(f"jobs is {self.jobs}: it must be at least 1")
        _ = self.tracking, self.grid_type

    @cached_property
    def grid_type(self) -> Callable[..., Grid]:
        """What makes a grid whose runs are done where --on says."""
        if self.slurm and self.on != "slurm":
            raise SelfReminderError(f"--slurm {self.slurm[0]} is for --on slurm")
        place = open_place(self.on, self.cpus_per_run, self.gpus_per_run, self.own_data)
        return find_slurm(self.slurm) if self.on == "slurm" else partial(Grid, place=place)

    @cached_property
    def tracking(self) -> Tracking:
        """The trackers that are told of the runs."""
        return Tracking(self.track)

    def fetch_data(self, experiments: Iterable[Experiment]) -> None:
        """Fetch the data sets of experiments, where they are not at hand."""
        for name in dict.fromkeys(name for experiment in experiments for name in experiment.data_sets):
            fetch(name, self.data_dir)

    @property
    def own_data(self) -> str | None:
        """The folder with data files of the user's own, as text."""
        return None if self.data_dir is None else str(self.data_dir)

    def make_grid(
        self, experiments: Iterable[Experiment], folder: Path, about: Mapping[str, Any], check_first: bool = True
    ) -> Grid:
        """Make the grid of experiments in a folder."""
        return self.grid_type(experiments, folder, self.jobs, self.own_data, check_first, self.retry_failed, about)


def describe(folder: Path, given: Mapping[str, Path] | None = None, **about: Any) -> dict[str, Any]:
    """Say what `grid.json` is to say of a folder: the command as it was typed, and what that is about.

    Args:
        folder: of the runs.
        given: files that the command was given, by the names of their copies in the folder.
        about: what else is to be said.
    """
    sha256 = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in (given or {}).items()}
    about |= {"sha256": sha256} if sha256 else {}
    return with_command(folder, COMMAND_LINE.get(), about | ({"tuned": TABLE} if TABLE in sha256 else {}))


def all_done(grid: Grid) -> bool:
    """Tell whether every run of a grid is done."""
    return all(isinstance(job.answer, Done) for job in grid.all)


def run_grid(
    grid: Grid,
    present: Callable[[], None],
    note: Callable[[Job | None], object] = lambda job: None,
    is_complete: Callable[[Grid], bool] = all_done,
    tracking: Tracking | None = None,
) -> int:
    """Run a grid with a live display, present what came of it, and give the exit code.

    Args:
        grid: what to run, in a folder that is claimed.
        present: prints the results.
        note: is told all that `Grid.run` yields; what it raises ends the runs.
        is_complete: tells whether all was done that should be.
        tracking: tells trackers of the runs.
    """
    tracking = tracking or Tracking(())
    try:
        folders = tracking.following(grid.folder, lambda: [job.folder for job in list(grid.all)])
        with folders, closing(run_live(grid)) as news:  # closing it ends the workers
            for job in news:
                note(job)
    except KeyboardInterrupt:
        command = shlex.join(["selfreminder", *COMMAND_LINE.get()])
        print(f"Stopped; what was done is in {grid.folder}. To go on: {command}", file=sys.stderr)
        return 130
    present()
    tracking.tell_figures(grid.folder)
    for line in failure_lines((job.experiment.key, failure) for job, failure in grid.failures):
        print(f"selfreminder: {line}", file=sys.stderr)
    return 0 if is_complete(grid) else 1


def write_summary(summary: Mapping[str, Any], folder: Path) -> str:
    """Write what a command found as `results.json`; gives the text, to be printed for --json."""
    text = json_format.dumps(summary, indent=1)
    write_text(folder / "results.json", text + "\n")
    return text


def draw_results(results: Sequence[Result], title: str, folder: Path) -> list[Path]:
    """Draw accuracies, the forgetting ratio where there is one, and costs, into a folder; returns the files."""
    # matplotlib takes half a second to import: only when there is something to draw.
    from selfreminder.report.figures import draw_accuracy, draw_costs, draw_ratio, draw_steps  # noqa: PLC0415

    drawn = draw_accuracy(results, title, folder / "accuracy") + draw_ratio(results, title, folder / "rho")
    drawn += draw_steps(results, title, folder / "steps")
    return drawn + draw_costs(results, title, folder / "costs")


def failure_lines(failures: Iterable[tuple[str, Failed]]) -> list[str]:
    """A line for each reason why runs of these names failed.

    >>> failure_lines([("a", Failed("too large", "mistake")), ("b", Failed("too large", "mistake"))])
    ['2 runs failed: too large (a, b)']
    """
    by_reason: dict[tuple[str, bool], list[str]] = {}
    for name, failure in failures:
        by_reason.setdefault((failure.reason, is_given_up(failure)), []).append(name)
    lines = []
    for (reason, final), names in by_reason.items():
        what, where = f"{names[0]} failed", ""
        if len(names) > 1:
            more = [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
            what, where = f"{len(names)} runs failed", f" ({', '.join(names[:_MOST_NAMES] + more)})"
        again = "; more than once, so not tried again without --retry-failed" if final else ""
        lines.append(f"{what}: {reason}{where}{again}")
    return lines


def run_live(grid: Grid) -> Generator[Job | None]:
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
    running = ", ".join(f"{j.label} {_how_far(j.progress)}" for j in grid.all if j.running and j.progress)
    return f"{overall}; {running or 'starting'}"


def _how_far(progress: Progress) -> str:
    """Say at which task a run is, and what it has come to.

    >>> _how_far(Progress(task=3, tasks=10, epoch=1, epochs=5, average=0.6612, fraction=0.22))
    'task 3/10 (average 0.661)'
    """
    average = "" if progress.average is None else f" (average {progress.average:.3f})"
    return f"task {progress.task}/{progress.tasks}{average}"


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
