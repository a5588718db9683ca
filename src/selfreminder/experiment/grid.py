"""Run many experiments in worker processes of one thread each. The parent itself does not need torch."""

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from selfreminder.experiment.progress import Done, Failed, Progress, Stopped
from selfreminder.experiment.records import read
from selfreminder.experiment.spec import Experiment

_MOST_DEATHS = 3
"""a run that takes its worker down so often is given up"""


@dataclass(eq=False)
class Job:
    """One experiment of a grid and how it stands."""

    experiment: Experiment
    folder: Path
    progress: Progress | None = None
    first_fraction: float | None = None
    """where it stood when it was taken up"""
    started: float | None = None
    ended: float | None = None
    answer: Done | Stopped | Failed | None = None
    deaths: int = 0

    @property
    def running(self) -> bool:
        return self.started is not None and self.answer is None

    def seconds_for_all(self) -> float | None:
        """How long the whole run takes at the speed seen; None where nothing was seen."""
        if self.started is None or self.progress is None or self.first_fraction is None:
            return None
        share = (1.0 if self.answer else self.progress.fraction) - self.first_fraction
        return ((self.ended or time.monotonic()) - self.started) / share if share > 0.01 else None

    def seconds_left(self) -> float | None:
        whole = self.seconds_for_all()
        return None if whole is None or self.progress is None else whole * (1 - self.progress.fraction)


@dataclass
class Grid:
    """Experiments in one folder, each in a folder of its own that is named by its key."""

    experiments: Iterable[Experiment]
    folder: Path
    jobs: int | None = None
    """worker processes; None: one per core"""
    data_dir: str | None = None
    all: list[Job] = field(init=False)

    def __post_init__(self) -> None:
        self.all = [Job(experiment, self.folder / experiment.key) for experiment in self.experiments]
        for job in self.all:
            records = read(job.folder)
            if records is not None and records.done and records.experiment == job.experiment:
                job.answer = Done()

    @property
    def failures(self) -> list[tuple[Job, Failed]]:
        return [(job, job.answer) for job in self.all if isinstance(job.answer, Failed)]

    def seconds_left(self) -> float | None:
        """An estimate from the speeds seen so far; None before there are any."""
        by_method: dict[str, list[float]] = {}
        for job in self.all:
            if (seconds := job.seconds_for_all()) is not None:
                by_method.setdefault(job.experiment.method, []).append(seconds)
        if not by_method:
            return None
        means = {method: sum(seen) / len(seen) for method, seen in by_method.items()}
        typical = sum(means.values()) / len(means)
        left = 0.0
        for job in self.all:
            if job.answer is None:
                own = job.seconds_left()
                left += means.get(job.experiment.method, typical) if own is None else own
        return left / self.workers

    @property
    def workers(self) -> int:
        available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, min(self.jobs or available, sum(job.answer is None for job in self.all)))

    def run(self) -> Iterator[Job | None]:
        """Run all that is not done. Yields a job when it has news, and None every now and then.

        SIGINT and SIGTERM make the workers save their states and end; then KeyboardInterrupt is raised.
        """
        waiting = deque(job for job in self.all if job.answer is None)
        workers: list[_Worker] = []
        with _signals_noted() as signals:
            try:
                # One of each method: whether they can be run is known before any is trained.
                first = list({job.experiment.method: job.experiment for job in waiting}.values())
                workers = [_Worker(self.data_dir, first) for _ in range(self.workers if waiting else 0)]
                stopping = False
                while workers:
                    for worker in workers:
                        if worker.job is None and worker.alive:
                            worker.take(None if stopping or not waiting else waiting.popleft())
                    for worker in _ready(workers):
                        yield from worker.news(waiting, stopping)
                    yield None
                    if signals and not stopping:
                        stopping = True
                        for worker in workers:
                            worker.stop()
                    elif len(signals) > 1:
                        raise KeyboardInterrupt
                    crashed = sum(worker.crashed for worker in workers)
                    workers = [worker for worker in workers if worker.alive]
                    if not stopping:
                        workers += [_Worker(self.data_dir) for _ in range(min(crashed, len(waiting)))]
                if stopping:
                    raise KeyboardInterrupt
            finally:
                for worker in workers:
                    worker.kill()


class _Worker:
    def __init__(self, data_dir: str | None, first: list[Experiment] | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
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
        self.job: Job | None = None
        self.alive, self.crashed = True, False

    def take(self, job: Job | None) -> None:
        """Start on a job; None: end."""
        with suppress(OSError):  # if it is gone, `news` will say so
            self.connection.send(None if job is None else (job.experiment, job.folder))
        if job is None:
            self.process.join()
            self.alive = False
        else:
            self.job, job.started, job.first_fraction = job, time.monotonic(), None

    def news(self, waiting: deque[Job], stopping: bool) -> Iterator[Job]:
        try:
            word = self.connection.recv()
        except (EOFError, OSError):
            word = None
        job = self.job
        if isinstance(word, Progress):
            if job is not None:
                job.progress = word
                if job.first_fraction is None:
                    # Time before the first word (loading data) counts for nothing.
                    job.first_fraction, job.started = word.fraction, time.monotonic()
                yield job
            return
        self.job = None
        if word is None or isinstance(word, Stopped):  # gone, or told to go by somebody
            self.process.join()
            self.alive, self.crashed = False, True
        if job is None:
            return
        if isinstance(word, Done | Failed):
            job.answer, job.ended = word, time.monotonic()
        elif stopping:
            job.answer = Stopped()
        else:
            job.deaths, job.started = job.deaths + 1, None
            if job.deaths < _MOST_DEATHS:
                waiting.appendleft(job)
            else:
                reason = f"its process died {job.deaths} times (exit code {self.process.exitcode})"
                job.answer = Failed(reason, users_mistake=False)
        yield job

    def stop(self) -> None:
        if self.process.is_alive():
            self.process.terminate()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


def _start(connection: Connection, data_dir: str | None, first: list[Experiment]) -> None:
    from selfreminder.experiment.worker import work  # noqa: PLC0415 - torch is for the worker alone

    work(connection, data_dir, first)


def _ready(workers: list[_Worker]) -> list[_Worker]:
    by_connection: dict[Any, _Worker] = {worker.connection: worker for worker in workers if worker.alive}
    return [by_connection[connection] for connection in wait(list(by_connection), timeout=0.25)]


@contextmanager
def _signals_noted() -> Iterator[list[int]]:
    """Note SIGINT and SIGTERM in a list instead of dying of them."""
    noted: list[int] = []
    before = {s: signal.signal(s, lambda number, _: noted.append(number)) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
