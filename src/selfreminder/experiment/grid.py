"""Run many experiments in worker processes of one thread each. The parent itself does not need torch."""

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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
                workers = [_Worker(self.data_dir) for _ in range(self.workers if waiting else 0)]
                stopping = False
                while workers:
                    for worker in workers:
                        if worker.job is None and worker.alive:
                            worker.take(None if stopping or not waiting else waiting.popleft())
                    for worker in _ready(workers):
                        yield from worker.news(waiting)
                    yield None
                    if signals and not stopping:
                        stopping = True
                        for worker in workers:
                            worker.stop()
                    elif len(signals) > 1:
                        raise KeyboardInterrupt
                    dead = [worker for worker in workers if not worker.alive]
                    workers = [worker for worker in workers if worker.alive]
                    crashed = any(worker.crashed for worker in dead)
                    if crashed and waiting and not stopping:
                        workers.append(_Worker(self.data_dir))
                if stopping:
                    raise KeyboardInterrupt
            finally:
                for worker in workers:
                    worker.kill()


class _Worker:
    def __init__(self, data_dir: str | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_start, args=(theirs, data_dir), daemon=True)
        self.process.start()
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

    def news(self, waiting: deque[Job]) -> Iterator[Job]:
        try:
            word = self.connection.recv()
        except (EOFError, OSError):
            yield from self._died(waiting)
            return
        job = self.job
        if job is None:
            return
        if isinstance(word, Progress):
            job.progress = word
            if job.first_fraction is None:
                # Time before the first word (loading data) counts for nothing.
                job.first_fraction, job.started = word.fraction, time.monotonic()
        else:
            job.answer, job.ended, self.job = word, time.monotonic(), None
        yield job

    def _died(self, waiting: deque[Job]) -> Iterator[Job]:
        self.process.join()
        self.alive, self.crashed = False, True
        job, self.job = self.job, None
        if job is None:
            return
        job.deaths += 1
        job.started = None
        if self.process.exitcode in (-signal.SIGTERM, -signal.SIGINT):
            job.answer = Stopped()
        elif job.deaths >= _MOST_DEATHS:
            reason = f"its process died {job.deaths} times (exit code {self.process.exitcode})"
            job.answer = Failed(reason, users_mistake=False)
        else:
            waiting.appendleft(job)
        yield job

    def stop(self) -> None:
        if self.process.is_alive():
            self.process.terminate()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


def _start(connection: Connection, data_dir: str | None) -> None:
    from selfreminder.experiment.worker import work  # noqa: PLC0415 - torch is for the worker alone

    work(connection, data_dir)


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
