"""Slurm, by submitit: an array job whose tasks take runs from a grid's folder until none is left.

Before its time limit a task saves the state of its run and is queued again. The parent submits, and then only reads
files: it may go at any moment, and the array goes on.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import FailedJobError

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.lock import is_locked
from selfreminder.experiment.folder import GRID, read_grid
from selfreminder.experiment.pool.grid import Grid
from selfreminder.experiment.pool.process import (
    Done,
    Failed,
    Job,
    Left,
    Progress,
    keep_failure,
    read_failure,
    remove_leftovers,
    signals_noted,
)
from selfreminder.experiment.records import read_records
from selfreminder.experiment.status import read_run_status

LOGS = ".slurm"
"""the folder of submitit's files, in that of the grid"""
_MOST_TASKS = 100
"""of an array, where --jobs does not say it"""
_LOOK_EVERY = 1.0
_REFUSALS = (RuntimeError, OSError, NameError, TypeError, AssertionError, FailedJobError)
"""what submitit raises for a Slurm that is not there, or for settings that it does not know"""
_NEVER = 1_000_000
"""how often a task may reach its time limit: it goes on each time"""


@dataclass
class SlurmGrid(Grid):
    """A grid that an array job runs. `settings` are submitit's: timeout_min, slurm_partition, cluster=local, …"""

    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def workers(self) -> int:
        """How many tasks the array has."""
        return max(1, min(self.jobs or _MOST_TASKS, sum(job.answer is None for job in self.all) + self.to_come()))

    @property
    def note(self) -> str | None:
        return None

    def run(self) -> Iterator[Job | None]:
        """Submit an array, and yield what becomes of its runs; again if it has ended and runs are left."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write_list()
        waiting, tasks, without = deque(job for job in self.all if job.answer is None), [], 0
        with signals_noted() as signals:
            yield from self._ask(waiting, self.workers)
            while waiting:
                if not any(not task.done() for task in tasks):
                    without = without + 1 if tasks else 0
                    if without > 1:
                        raise SelfReminderError(f"the array's tasks end without a run: see {self.folder / LOGS}")
                    tasks = self._submit(waiting)
                for job in list(waiting):
                    if (news := self._look(job)) is not None:
                        yield job
                        without = 0
                        if news:
                            waiting.remove(job)
                yield from self._ask(waiting, self.workers)
                yield None
                if signals:
                    names = ", ".join(sorted({str(task.job_id).partition("_")[0] for task in tasks}))
                    print(f"selfreminder: the array goes on; scancel {names} ends it", file=sys.stderr)
                    raise KeyboardInterrupt
                time.sleep(_LOOK_EVERY)
            if self.more is not None:
                self.write_list()

    def _submit(self, waiting: deque[Job]) -> list[submitit.Job[None]]:
        cores = max(job.experiment.processes for job in waiting)
        settings = {"name": "selfreminder", "timeout_min": 24 * 60, "cpus_per_task": cores, **self.settings}
        cluster = settings.pop("cluster", "slurm")
        try:
            folder = self.folder.resolve()
            limits = {"slurm_max_num_timeout": _NEVER} if cluster == "slurm" else {"local_max_num_timeout": _NEVER}
            executor = submitit.AutoExecutor(folder / LOGS, cluster=cluster, **limits)
            executor.update_parameters(**settings)
            failed = {job.experiment.key: job.failed_before for job in waiting}
            take = TakeRuns(folder, self.data_dir and str(Path(self.data_dir).resolve()), failed)
            with executor.batch():
                return [executor.submit(take) for _ in range(min(self.workers, len(waiting)))]
        except _REFUSALS as error:
            said = " ".join(str(error).split())[:300]
            raise SelfReminderError(f"--on slurm: the array cannot be submitted ({said})") from None

    def _look(self, job: Job) -> bool | None:
        """Look at the files of a run: True if it has ended, False if it has news, None else."""
        if job.unwanted:
            job.answer = Left()
            self.write_list()  # whoever has it sees that it is gone
            return True
        if not is_locked(job.folder):
            failure = read_failure(job.folder)
            if self._is_done(job):
                job.answer = Done()
            elif failure is not None and failure != job.failed_before:
                job.answer = failure
            job.started = None if job.answer is None else job.started
            job.ended = time.monotonic()
            return True if job.answer is not None else None
        job.started = job.started or time.monotonic()
        found, most = read_run_status(job.experiment, job.folder), job.experiment
        here = (min(found.tasks + 1, most.tasks), most.tasks, min(found.epoch + 1, most.epochs), most.epochs)
        job.advance(Progress(*here, found.average, found.part))
        return False


class TakeRuns:
    """What a task of the array does. It is sent to Slurm, and sent again before its time limit."""

    def __init__(self, folder: Path, data_dir: str | None, failed: Mapping[str, Failed | None]) -> None:
        self.folder, self.data_dir, self.failed = folder, data_dir, dict(failed)

    def __call__(self) -> None:
        # In a thread: the signal of the time limit comes to the main one, which must wait for the state to be saved.
        self._asked, errors = threading.Event(), []
        self._thread = threading.Thread(target=self._work, args=(errors,), daemon=True)
        self._thread.start()
        while self._thread.is_alive():
            time.sleep(0.2)
        if errors:
            raise errors[0]

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """Save the state of the run; called by submitit shortly before the time limit."""
        self._asked.set()
        while self._thread.is_alive():
            time.sleep(0.05)
        return submitit.helpers.DelayedSubmission(TakeRuns(self.folder, self.data_dir, self.failed))

    def _work(self, errors: list[Exception]) -> None:
        try:
            take_runs(self.folder, self.data_dir, self.failed, self._asked)
        except Exception as error:
            errors.append(error)


def take_runs(
    folder: Path, data_dir: str | None, failed: Mapping[str, Failed | None], asked_to_stop: threading.Event
) -> None:
    """Take one run after the other from a grid's folder, until none is left that nobody has."""
    import torch  # noqa: PLC0415 - for the tasks of an array, not for their parent

    from selfreminder.experiment.pool.worker import attempt  # noqa: PLC0415

    torch.set_num_threads(1)
    taken = True
    while taken and not asked_to_stop.is_set():
        taken = False
        for experiment in read_grid(folder) or []:
            run = folder / experiment.key
            records = None if is_locked(run) else read_records(run)
            if is_locked(run) or (records is not None and records.done) or read_failure(run) != failed.get(run.name):
                continue
            stop = _Unlisted(folder, experiment.key, asked_to_stop)
            answer = attempt(experiment, run, data_dir, lambda progress: None, stop, asked_to_stop)
            if isinstance(answer, Done):
                remove_leftovers(run)
            elif isinstance(answer, Failed):
                keep_failure(run, answer)
            taken = True
            break  # the list may have changed


@dataclass
class _Unlisted:
    """Tells whether a run is to stop: asked to, or not on the grid's list any more."""

    folder: Path
    key: str
    asked: threading.Event
    seen: int = 0
    looked: float = 0.0

    def __call__(self) -> bool:
        if (now := time.monotonic()) - self.looked > _LOOK_EVERY:
            self.looked, written = now, (self.folder / GRID).stat().st_mtime_ns
            if written != self.seen:
                self.seen = written
                if self.key not in {experiment.key for experiment in read_grid(self.folder) or []}:
                    return True
        return self.asked.is_set()
