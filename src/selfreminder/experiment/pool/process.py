"""A worker process as its parent sees it: its jobs, the words that it sends, and how a run that failed is remembered.

Why a run failed is kept in its folder as `failure.json`: {"reason", "kind", "times", "version"}. This needs no torch.
"""

import json
import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Literal, Protocol

from selfreminder import __version__
from selfreminder._base.atomic import write_text
from selfreminder._base.checked import DAMAGE, with_check, without_check
from selfreminder._base.lock import LockedError, locked
from selfreminder.experiment.records import STATE
from selfreminder.experiment.spec import Experiment

FAILURE = "failure.json"
TRACE = "error.txt"
_MOST_DEATHS = 3
"""a run that takes its worker down so often is given up"""

Kind = Literal["mistake", "system", "diverged", "error", "died"]


@dataclass(frozen=True)
class Progress:
    """How far a run is. Tasks and epochs count from 1."""

    task: int
    tasks: int
    epoch: int
    epochs: int
    average: float | None
    """test accuracy over the tasks so far"""
    fraction: float
    """of the run's work"""


@dataclass(frozen=True)
class Done:
    """The run is complete."""

    seconds: float = field(default=0.0, compare=False)
    """that the worker spent on it since it took it up"""


@dataclass(frozen=True)
class Stopped:
    """The run was asked to stop and has saved its state."""


@dataclass(frozen=True)
class Left:
    """The run is not wanted any more. If it had begun, its state is saved; its worker goes on to the next."""


@dataclass(frozen=True)
class Leave:
    """Said to a worker whose run is not wanted any more."""


@dataclass(frozen=True)
class Busy:
    """Another process has the run."""


@dataclass(frozen=True)
class Failed:
    """The run cannot go on."""

    reason: str
    kind: Kind
    """mistake: what was asked for cannot be; system: disk, permissions; diverged: the loss left the numbers;
    error: a defect, its trace is in error.txt; died: its process was killed again and again"""
    times: int = 1
    """in a row, for the same reason"""
    version: str = __version__
    """of selfreminder"""

    @property
    def users_mistake(self) -> bool:
        return self.kind in ("mistake", "system")


@dataclass(eq=False)
class Job:
    """One experiment of a grid, and how far it is."""

    experiment: Experiment
    folder: Path
    label: str = ""
    progress: Progress | None = None
    first_fraction: float | None = None
    """where it stood when it was taken up"""
    started: float | None = None
    ended: float | None = None
    answer: Done | Stopped | Left | Failed | None = None
    failed_before: Failed | None = None
    elsewhere: bool = False
    """another process has it"""
    unwanted: bool = False
    """to be left as it is: whoever looks at a grid's news may say so"""
    deaths: int = 0

    @property
    def running(self) -> bool:
        """Whether a worker of this process has it."""
        return self.started is not None and self.answer is None

    @property
    def given_up(self) -> bool:
        """Whether nobody wants it any more, unless it was done before it heard of that."""
        return self.unwanted and not isinstance(self.answer, Done)

    def advance(self, progress: Progress) -> None:
        """Note how far the run is."""
        self.progress = progress
        if self.first_fraction is None:
            # Time before the first word (loading data) counts for nothing.
            self.first_fraction, self.started = progress.fraction, time.monotonic()

    def seconds_for_all(self) -> float | None:
        """Estimate how long the whole run takes at the speed seen; None where nothing was seen."""
        if self.started is None or self.progress is None or self.first_fraction is None:
            return None
        share = (1.0 if isinstance(self.answer, Done) else self.progress.fraction) - self.first_fraction
        return ((self.ended or time.monotonic()) - self.started) / share if share > 0.01 else None

    def seconds_left(self) -> float | None:
        """Estimate how long the rest of the run takes; None where nothing was seen."""
        whole = self.seconds_for_all()
        return None if whole is None or self.progress is None else whole * (1 - self.progress.fraction)


class Line(Protocol):
    """A line between a worker and its parent, over which each sends the other words."""

    def send(self, word: Any, /) -> None: ...
    def recv(self) -> Any: ...
    def poll(self) -> bool: ...


class Worker:
    """A worker process, which takes one job after the other. Elsewhere than on this machine, it is a subclass."""

    def __init__(self, data_dir: str | None, first: list[Experiment] | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        here, theirs = context.Pipe()
        self.connection: Line = here
        arguments = (theirs, data_dir, first or [])
        self.process: SpawnProcess = context.Process(target=_start, args=arguments, daemon=True)
        # A Ctrl-C while the child starts is for the parent alone; the child takes the mask over.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    job: Job | None = None
    alive = True
    _leaving = False

    @property
    def idle(self) -> bool:
        """Whether it has no job."""
        return self.alive and self.job is None

    @property
    def free(self) -> bool:
        """Whether it can take a job at once."""
        return self.idle

    def take(self, job: Job | None) -> None:
        """Let it start on a job; None: let it end."""
        with suppress(OSError):  # if it is gone, `news` will say so
            self.connection.send(None if job is None else (job.experiment, job.folder))
        if job is None:
            self._join()
            self.alive = False
        else:
            self.job, job.started, job.first_fraction = job, time.monotonic(), None
            self._leaving = False

    def leave_unwanted(self) -> None:
        """Make it leave its job if nobody wants that any more."""
        if self.job is not None and self.job.unwanted and not self._leaving:
            self._leaving = True
            with suppress(OSError):
                self.connection.send(Leave())

    def news(self, waiting: deque[Job], stopping: bool) -> Iterator[Job]:
        """Receive its news; yields the job that they are about. One that it could not finish goes back to `waiting`."""
        try:
            word = self._newest()
        except (EOFError, OSError):
            word = None
        job = self.job
        if isinstance(word, Progress):
            if job is not None:
                yield job
            return
        self.job = None
        if word is None or isinstance(word, Stopped):  # gone, or told to go by somebody
            self._join()
            self.alive = False
        if job is None:
            return
        if isinstance(word, Done | Failed | Left):
            job.answer, job.ended = word, time.monotonic()
        elif stopping:
            job.answer = Stopped()
        elif isinstance(word, Busy):
            job.started = None
            waiting.append(job)
        else:
            how = self._explain_death()
            job.deaths, job.started = job.deaths + (how is not None), None
            if job.deaths < _MOST_DEATHS:
                waiting.appendleft(job)
            else:
                job.answer = Failed(f"its process died {job.deaths} times ({how})", "died")
        yield job

    def _newest(self) -> object:
        """Receive its newest progress, or an answer: a parent that is short of time must not fall behind."""
        word = self.connection.recv()
        while isinstance(word, Progress):
            if self.job is not None:
                self.job.advance(word)
            if not self.connection.poll():
                break
            word = self.connection.recv()
        return word

    def stop(self) -> None:
        """Ask it to save the state of its run and to end."""
        self.process.terminate()

    def _join(self) -> None:
        """Wait for the end of a worker that ends by itself."""
        self.process.join()

    def _explain_death(self) -> str | None:
        """Say how it died; None if its run cannot have been the reason."""
        return f"exit code {self.process.exitcode}"

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.join()


def _start(connection: Connection, data_dir: str | None, first: list[Experiment]) -> None:
    from selfreminder.experiment.pool.worker import work  # noqa: PLC0415 - torch is for the worker alone

    work(connection, data_dir, first)


class Place(Protocol):
    """Where the workers of a grid are."""

    def begin(self, experiments: list[Experiment], first: list[Experiment], folder: Path) -> None:
        """Make sure that these experiments can be run there; workers check those of `first` before they train."""
        ...

    def count(self) -> int | None:
        """Count the workers that there can be now; None where the machine at hand says it."""
        ...

    def hire(self) -> Worker:
        """Start a worker."""
        ...

    def wait(self, workers: list[Worker]) -> list[Worker]:
        """Wait a little for workers that have something to say; returns those."""
        ...


@dataclass
class Local:
    """The cores of this machine."""

    data_dir: str | None = None
    _first: list[Experiment] = field(default_factory=list)

    def begin(self, experiments: list[Experiment], first: list[Experiment], folder: Path) -> None:
        self._first = first

    def count(self) -> int | None:
        return None

    def hire(self) -> Worker:
        return Worker(self.data_dir, self._first)

    def wait(self, workers: list[Worker]) -> list[Worker]:
        by_connection: dict[Any, Worker] = {worker.connection: worker for worker in workers if worker.alive}
        return [by_connection[connection] for connection in wait(list(by_connection), timeout=0.25)]


@contextmanager
def signals_noted() -> Iterator[list[int]]:
    """Note SIGINT and SIGTERM in a list instead of dying of them."""
    noted: list[int] = []
    before = {s: signal.signal(s, lambda number, _: noted.append(number)) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def read_failure(folder: Path) -> Failed | None:
    """Read why a run failed the last time; None if it did not, or nobody can tell."""
    try:
        return Failed(**without_check(json.loads((folder / FAILURE).read_text(encoding="utf-8"))))
    except (OSError, *DAMAGE):
        return None


def keep_failure(folder: Path, failed: Failed) -> Failed:
    """Write down why a run failed; returns it with how often the run has failed in this way."""
    before = read_failure(folder)
    if before is not None and (before.reason, before.version) == (failed.reason, failed.version):
        failed = replace(failed, times=before.times + 1)
    # On a full disk nothing can be kept; and if another process has the run by now, it will say how it ends. One that
    # only asks whether somebody has it is gone the next moment.
    with suppress(OSError, LockedError):
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, patience=0.2):
            write_text(folder / FAILURE, json.dumps(with_check(asdict(failed)), indent=1) + "\n")
    return failed


def remove_leftovers(folder: Path) -> None:
    """Remove from the folder of a run that is done what only one that is not has: it may have been killed before."""
    for name in (FAILURE, TRACE, STATE):
        with suppress(OSError):
            (folder / name).unlink(missing_ok=True)


def is_given_up(failed: Failed | None) -> bool:
    """Tell whether trying again is of no use: twice the same end, with this version. What the system did may pass."""
    return failed is not None and failed.times >= 2 and failed.version == __version__ and failed.kind != "system"
