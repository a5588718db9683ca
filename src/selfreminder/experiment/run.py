"""Run one experiment in a folder, or go on with it. Killed at any moment, it goes on as if it had not been."""

import fcntl
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import torch
from torch import nn

from selfreminder import __version__, data, methods
from selfreminder.errors import SelfReminderError
from selfreminder.experiment.progress import Progress
from selfreminder.experiment.records import RECORDS, TIMINGS, Records, Writer, read
from selfreminder.experiment.spec import Experiment, benchmark
from selfreminder.experiment.state import STATE, RunState
from selfreminder.metrics import task_average
from selfreminder.models import build_model
from selfreminder.stream import Split, Stream, Task, flat_parts, permuted
from selfreminder.train import Training, TrainState, Watcher, evaluate, train

_PATIENCE = 5.0
"""seconds to wait for a process that is on its way out of a run's folder"""


def run(
    experiment: Experiment,
    folder: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    save_every: float = 30.0,
) -> Records:
    """Run an experiment, or go on with it, and give its records.

    `stop` is asked after every step; when it says so, the state is saved and `train.StoppedError` raised. The
    state is saved every `save_every` seconds too.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        before = read(folder)
        if before is not None and before.experiment != experiment:
            raise SelfReminderError(f"{folder} holds another experiment: choose another folder")
        if before is None or not before.done:
            state = RunState.load(folder) if before else None
            length = state.records_length if state else 0
            prepared = _Run(experiment, folder, data_dir, watch, stop, save_every)
            with Writer(folder / RECORDS, length) as prepared.records:
                prepared.go(state)
        (folder / STATE).unlink(missing_ok=True)
        done = read(folder)
    assert done is not None
    return done


def make_stream(experiment: Experiment, data_dir: str | os.PathLike[str] | None = None) -> Stream:
    """The tasks of an experiment."""
    images = data.load(experiment.data, data_dir)
    parts = flat_parts(images, seed=experiment.seed, count=experiment.images, validation=experiment.validation)
    return permuted(parts, tasks=experiment.tasks, seed=experiment.seed, classes=images.classes)


class _Run:
    records: Writer
    timings: IO[str]

    def __init__(
        self,
        experiment: Experiment,
        folder: Path,
        data_dir: str | os.PathLike[str] | None,
        watch: Callable[[Progress], None],
        stop: Callable[[], bool],
        save_every: float,
    ) -> None:
        self.experiment, self.folder = experiment, folder
        self.watch, self.stop, self.save_every = watch, stop, save_every
        settings = {
            "strength": experiment.strength,
            "size": experiment.size,
            "select": experiment.select,
            "memory_batch": experiment.memory_batch or experiment.batch_size,
            "over_tasks": experiment.over_tasks,
            "seed": experiment.seed,
        }
        self.method = methods.build(experiment.method, settings, experiment.options)
        self.how = Training(
            epochs=experiment.epochs,
            batch_size=experiment.batch_size,
            optimizer=experiment.optimizer or self.method.optimizer,
            lr=experiment.lr,
            weight_decay=experiment.weight_decay,
            seed=experiment.seed,
            device=experiment.device,
        )
        self.stream = make_stream(experiment, data_dir)
        model = benchmark(experiment.benchmark).model
        self.model: nn.Module = build_model(model, width=experiment.width, seed=experiment.seed)
        self.model = self.method.prepare(self.model.to(experiment.device), self.stream)
        self.average: float | None = None
        work = [self.method.work(task) for task in range(experiment.tasks)]
        self.work_before = [sum(work[:task]) / sum(work) for task in range(experiment.tasks + 1)]

    def go(self, state: RunState | None) -> None:
        first, train_state = 0, TrainState()
        if state is None:
            self.records.write(
                {"event": "start", "experiment": self.experiment.as_dict(), "versions": _versions()}
            )
        else:
            first, train_state = state.task, state.train
            self.model.load_state_dict(train_state.model)
            self.method.load_state_dict({k: v.to(self.how.device) for k, v in state.method.items()})
        seen = [(task.validation, task.test, task.head) for task in self.stream[:first]]
        with (self.folder / TIMINGS).open("a", encoding="utf-8") as self.timings:
            for index in range(first, len(self.stream)):
                task = self.stream[index]
                train(self.model, task, self.method, self.how, train_state, self._watcher(index))
                self.method.after_task(self.model, task)
                seen.append((task.validation, task.test, task.head))
                self._record_task(task, seen)
                train_state = TrainState(model=self.model.state_dict())
                self._save(index + 1, train_state)
        self.method.save(self.folder)
        self.records.write({"event": "done"})
        self.records.sync()

    def _record_task(self, task: Task, seen: list[tuple[Split, Split, int | None]]) -> None:
        started = time.monotonic()

        def accuracy(split: Split, head: int | None) -> float:
            return evaluate(self.model, split, self.method, head, self.how.device)

        validation = [accuracy(split, head) for split, _, head in seen]
        test = [accuracy(split, head) for _, split, head in seen]
        self.records.write(
            {
                "event": "task",
                "task": task.index,
                "test": test,
                "validation": validation,
                "bytes": self.method.nbytes(),
            }
        )
        self._time({"task": task.index, "evaluation_seconds": time.monotonic() - started})
        (self.average,) = task_average([test])
        self._tell(task.index, self.how.epochs - 1, 1.0)

    def _watcher(self, task: int) -> Watcher:
        def epoch_done(epoch: int, loss: float, seconds: float) -> None:
            self.records.write({"event": "epoch", "task": task, "epoch": epoch, "loss": loss})
            self._time({"task": task, "epoch": epoch, "seconds": seconds})

        return Watcher(
            epoch=epoch_done,
            tick=lambda epoch, fraction: self._tell(task, epoch, fraction),
            save=lambda state: self._save(task, state),
            stop=self.stop,
            save_every=self.save_every,
        )

    def _save(self, task: int, state: TrainState) -> None:
        RunState(task, state, self.method.state_dict(), self.records.sync()).save(self.folder)

    def _time(self, event: dict[str, float]) -> None:
        print(json.dumps(event), file=self.timings, flush=True)

    def _tell(self, task: int, epoch: int, fraction: float) -> None:
        before, after = self.work_before[task : task + 2]
        of_task = (epoch + fraction) / self.how.epochs
        self.watch(
            Progress(
                task=task + 1,
                tasks=len(self.stream),
                epoch=epoch + 1,
                epochs=self.how.epochs,
                average=self.average,
                fraction=before + (after - before) * of_task,
            )
        )


def _versions() -> dict[str, str]:
    return {"selfreminder": __version__, "torch": torch.__version__, "python": platform.python_version()}


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let no second process write to a run."""
    with (folder / ".lock").open("w") as file:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SelfReminderError(f"another process is at work in {folder}: wait for it") from None
                time.sleep(0.1)
        yield
