"""Run many experiments in worker processes of one thread each. The parent itself does not need torch.

Several processes may run grids in one folder: each run is done by the one that has it first.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.lock import is_locked
from selfreminder.experiment.folder import GRID, label, varying, write_grid
from selfreminder.experiment.pool.estimate import RunTimes, count_workers
from selfreminder.experiment.pool.process import (
    Done,
    Failed,
    Job,
    Left,
    Local,
    Place,
    Worker,
    is_given_up,
    keep_failure,
    read_failure,
    remove_leftovers,
    signals_noted,
)
from selfreminder.experiment.records import read_packed, read_records
from selfreminder.experiment.spec import Experiment

__all__ = ["Grid", "Job"]


@dataclass
class Grid:
    """Experiments in one folder, each in a folder of its own that is named by its key."""

    experiments: Iterable[Experiment]
    folder: Path
    jobs: int | None = None
    """worker processes; None: one per core, fewer where memory would not suffice"""
    data_dir: str | None = None
    check_first: bool = True
    """whether a mistake in one run is one in the whole: one run of each method is checked before any is trained, and
    mistakes are not kept; else a mistake is its run's failure like any other"""
    retry_failed: bool = False
    """try runs again that have failed twice in the same way"""
    about: Mapping[str, Any] = field(default_factory=dict)
    """what else `grid.json` should say"""
    place: Place | None = None
    """where its workers are; None: on this machine"""
    more: Callable[[], Iterable[Experiment]] | None = None
    """asked for experiments when a worker has nothing to do; when it has none, that is all"""
    to_come: Callable[[], int] = lambda: 0
    """how many experiments it will still give, about"""
    all: list[Job] = field(init=False, default_factory=list)
    listed_too: Sequence[Experiment] = field(init=False, default=())
    """runs of other commands, which the folder's list keeps"""
    stopping: bool = field(init=False, default=False)
    """whether it was interrupted, and its workers save their states"""

    def __post_init__(self) -> None:
        read_packed(self.folder)  # if it is damaged, that is said here, once, and not by every run
        self._add(self.experiments)

    def _add(self, experiments: Iterable[Experiment]) -> list[Job]:
        added = [Job(experiment, self.folder / experiment.key) for experiment in experiments]
        self.all += added
        names = varying(job.experiment for job in self.all)
        for job in self.all:
            job.label = label(job.experiment, names)
        for job in added:
            job.failed_before = read_failure(job.folder)
            if self._is_done(job):
                job.answer = Done()
            elif is_given_up(job.failed_before) and not self.retry_failed:
                job.answer = job.failed_before
        return added

    @property
    def failures(self) -> list[tuple[Job, Failed]]:
        """The runs that failed, and why."""
        return [(job, job.answer) for job in self.all if isinstance(job.answer, Failed)]

    def seconds_left(self) -> float | None:
        """Estimate the seconds until all is done, from the speeds seen so far; None before there are any."""
        seen = [(job.experiment, 1.0, s) for job in self.all if (s := job.seconds_for_all()) is not None]
        if not seen:
            return None
        times, left = RunTimes(seen), [0.0]
        for job in self.all:
            if job.answer is None:
                own = job.seconds_left()
                left.append((times.estimate(job.experiment) or 0.0) if own is None else own)
        to_come = self.to_come() * sum(seconds for *_, seconds in seen) / len(seen)
        return max((sum(left) + to_come) / self.workers, *left)  # a run has one worker, however many there are

    @property
    def workers(self) -> int:
        """How many worker processes it has."""
        there = None if self.place is None else self.place.count()
        most = (self.jobs or self._fitting[0]) if there is None else min(there, self.jobs or there)
        return most if self.more else max(1, min(most, sum(job.answer is None for job in self.all)))

    @property
    def note(self) -> str | None:
        """A line for the user where there are fewer workers than cores."""
        unfinished = sum(job.answer is None for job in self.all)
        if self.jobs is not None or self.place is not None:
            return None
        return self._fitting[1] if self._fitting[0] < unfinished else None

    @cached_property
    def _fitting(self) -> tuple[int, str | None]:
        left = (job.experiment for job in self.all if self.more or job.answer is None)
        return count_workers(left, self.data_dir)

    def run(self) -> Iterator[Job | None]:
        """Run all that is not done. Yields a job when it has news, and None every now and then.

        SIGINT and SIGTERM make the workers save their states and end; then KeyboardInterrupt is raised.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write_list()
        for job in self.all:
            if isinstance(job.answer, Done):
                remove_leftovers(job.folder)
        waiting = deque(job for job in self.all if job.answer is None)
        workers: list[Worker] = []
        with signals_noted() as signals:
            try:
                yield from self._ask(waiting, self.workers)
                # One of each method: whether they can be run is known before any is trained.
                first = list({job.experiment.method: job.experiment for job in waiting if self.check_first}.values())
                place = self.place or Local(self.data_dir)
                if waiting:
                    place.begin([job.experiment for job in waiting], first, self.folder)
                while workers or (waiting and not self.stopping):
                    if not self.stopping:
                        yield from self._ask(waiting, sum(worker.free for worker in workers))
                        wanted = min(self.workers, sum(not worker.idle for worker in workers) + len(waiting))
                        workers += [place.hire() for _ in range(wanted - len(workers))]
                    for worker in workers:
                        worker.leave_unwanted()
                        if worker.idle and (self.stopping or not waiting):
                            worker.take(None)
                        elif worker.free:
                            yield from self._employ(worker, waiting)
                    for worker in place.wait(workers):
                        for job in worker.news(waiting, self.stopping):
                            self._keep_ending(job)
                            yield job
                    yield None
                    self._check_folder(workers)
                    if signals and not self.stopping:
                        self.stopping = True
                        for worker in workers:
                            worker.stop()  # it saves the state of its run first
                    elif len(signals) > 1:
                        raise KeyboardInterrupt
                    workers = [worker for worker in workers if worker.alive]
                if self.more is not None:
                    self.write_list()  # without what was left
                if self.stopping:
                    raise KeyboardInterrupt
            finally:
                for worker in workers:
                    worker.kill()

    def _ask(self, waiting: deque[Job], count: int) -> Iterator[Job]:
        """Ask for more until so many jobs wait, or there are no more; yields those that are done already."""
        while self.more is not None and len(waiting) < count:
            added = self._add(self.more())
            if not added:
                return
            self.write_list()
            waiting.extend(job for job in added if job.answer is None)
            yield from (job for job in added if job.answer is not None)

    def write_list(self) -> None:
        """Write the list of the folder's runs, but for those that nobody wants any more."""
        wanted = {run.key: run for run in self.listed_too}
        wanted |= {job.experiment.key: job.experiment for job in self.all if not job.given_up}
        to_come = {"to_come": count} if (count := self.to_come()) else {}
        write_grid(self.folder, wanted.values(), {**self.about, **to_come})

    def _check_folder(self, workers: Iterable[Worker]) -> None:
        """End if somebody has removed the folder: what workers put there since is not what a command goes on with."""
        if (self.folder / GRID).exists():
            return
        for worker in workers:
            worker.kill()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write_list()
        raise SelfReminderError(f"{self.folder} was removed while its runs were under way: run the same command again")

    def _employ(self, worker: Worker, waiting: deque[Job]) -> Iterator[Job]:
        """Give a worker the first job that nobody has; yields those that others have finished meanwhile."""
        for job in list(waiting):
            if job.unwanted:
                waiting.remove(job)
                job.answer = Left()
                yield job
                continue
            job.elsewhere = is_locked(job.folder)
            if job.elsewhere:
                continue
            waiting.remove(job)
            failure = read_failure(job.folder)
            if self._is_done(job):
                job.answer = Done()
            elif failure is not None and failure != job.failed_before:
                job.answer = failure
            else:
                worker.take(job)
                return
            yield job

    def _is_done(self, job: Job) -> bool:
        try:
            records = read_records(job.folder)
        except SelfReminderError:
            if self.check_first:
                raise
            return False  # the run will say it
        return records is not None and records.done and records.experiment == job.experiment

    def _keep_ending(self, job: Job) -> None:
        """Write into the folder of a run how it has ended."""
        if isinstance(job.answer, Done):
            remove_leftovers(job.folder)
        elif isinstance(job.answer, Failed) and not (self.check_first and job.answer.users_mistake):
            job.answer = keep_failure(job.folder, job.answer)
