"""Run one experiment in a folder, or go on with it. Killed at any moment, it goes on as if it had not been."""

import copy
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import torch
from torch import Tensor, nn

from selfreminder import __version__, methods
from selfreminder._base.atomic import remove_stale
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.lock import locked
from selfreminder.benchmarks import make_stream
from selfreminder.benchmarks.models import build_model
from selfreminder.benchmarks.stream import Split, Stream, StreamSpec, Task
from selfreminder.experiment.catalogue import benchmark
from selfreminder.experiment.checkpoint import RunState
from selfreminder.experiment.pool.process import Progress
from selfreminder.experiment.records import RECORDS, STATE, TIMINGS, Records, Writer, read_folder, read_records
from selfreminder.experiment.spec import Experiment
from selfreminder.metrics import negative_flips, stratified_chance, task_average
from selfreminder.training import StoppedError, Training, TrainState, Watcher, accuracy, predicted_right, train

_PATIENCE = 5.0
"""seconds to wait for a process that is on its way out of a run's folder"""
_WORTH_SAVING = 3.0
"""seconds of training after which its end is saved before the task's end begins"""


def run(
    experiment: Experiment,
    folder: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    save_every: float = 30.0,
) -> Records:
    """Run an experiment in a folder, or go on with it, and give its records.

    The state is saved every `save_every` seconds of training, and when a task has been trained for seconds: what comes
    after that, a method's end of the task and the evaluation, is done again after an interruption.

    Args:
        experiment: what to run.
        folder: its own, made if there is none; one of another experiment is refused.
        data_dir: a folder with data files of yours, looked at first.
        watch: is told the progress, several times an epoch.
        stop: is asked after every step; when it says so, the state is saved and `training.StoppedError` raised.
        save_every: seconds of training between two saves.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, _PATIENCE):
        remove_stale(folder)
        before = read_records(folder)
        if before is not None and before.experiment != experiment:
            raise SelfReminderError(f"{folder} holds another experiment: choose another folder")
        if before is None or not before.done:
            state = RunState.load(folder) if before else None
            length = state.records_length if state else 0
            read_folder(folder, length)  # says if the part that stays is damaged
            prepared = _Run(experiment, folder, data_dir, watch, stop, save_every)
            with Writer(folder / RECORDS, length) as prepared.records:
                prepared.go(state)
        (folder / STATE).unlink(missing_ok=True)
        done = read_records(folder)
    assert done is not None
    return done


def check(experiment: Experiment, data_dir: str | os.PathLike[str] | None = None) -> None:
    """Raise what `run` would raise before its first step: a method that does not apply, a memory too large."""
    _Run(experiment, Path(), data_dir, lambda progress: None, lambda: False, 0.0)


def stream_of(experiment: Experiment, data_dir: str | os.PathLike[str] | None = None) -> Stream:
    """Make the stream of tasks that an experiment learns."""
    spec = StreamSpec(
        data=experiment.data,
        tasks=experiment.tasks,
        seed=experiment.seed,
        images=experiment.images,
        split_into=experiment.split_into,
        validation=experiment.validation,
        data_dir=data_dir,
    )
    return make_stream(experiment.benchmark, spec)


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
        if experiment.device.startswith("cuda") and not torch.cuda.is_available():
            raise SelfReminderError(f"device {experiment.device}: torch finds no CUDA here; use --device cpu")
        names = ("strength", "size", "select", "codec", "logit_codec", "over_tasks", "seed")
        settings = {name: getattr(experiment, name) for name in names}
        settings["memory_batch"] = experiment.memory_batch or experiment.batch_size
        given = {name: value for name, value in settings.items() if value is not None}
        self.method = methods.build(experiment.method, given, experiment.options)
        self.how = Training(
            epochs=experiment.epochs,
            batch_size=experiment.batch_size,
            optimizer=experiment.optimizer or self.method.optimizer,
            lr=experiment.lr,
            weight_decay=experiment.weight_decay,
            plateau=experiment.plateau,
            seed=experiment.seed,
            device=experiment.device,
        )
        self.stream = stream_of(experiment, data_dir)
        model = benchmark(experiment.benchmark).model
        network = build_model(model, width=experiment.width, seed=experiment.seed, heads=self.stream.heads)
        self.model: nn.Module = self.method.prepare(network.to(experiment.device), self.stream)
        self.untrained = copy.deepcopy(self.model)
        self.right: list[Tensor] = []
        """per task, whether each test item was predicted right when the task had just been learned"""
        self.average: float | None = None
        work = [self.method.work(task) for task in range(experiment.tasks)]
        self.work_before = [sum(work[:task]) / sum(work) for task in range(experiment.tasks + 1)]

    def go(self, state: RunState | None) -> None:
        first, train_state = 0, TrainState()
        if state is None:
            recorded = self.experiment.as_recorded()
            self.records.write({"event": "start", "experiment": recorded, "versions": _versions(self.how.device)})
        else:
            first, train_state = state.task, state.train
            self.model.load_state_dict(train_state.model)
            self.method.load_state_dict({k: v.to(self.how.device) for k, v in state.method.items()})
            self.right = state.right
        seen = [_Seen.of(task) for task in self.stream[:first]]
        with (self.folder / TIMINGS).open("a", encoding="utf-8") as self.timings:
            for index in range(first, len(self.stream)):
                task = self.stream[index]
                started = time.monotonic()
                train_state = train(self.model, task, self.method, self.how, train_state, self._watcher(index))
                if time.monotonic() - started >= _WORTH_SAVING:
                    # Training may have ended before its last epoch: it is not to be taken up again.
                    self._save(index, replace(train_state, epoch=self.how.epochs))
                started = time.monotonic()
                self.method.after_task(self.model, task)
                self._time({"task": index, "after_task_seconds": time.monotonic() - started})
                seen.append(_Seen.of(task))
                self._record_task(task, seen)
                train_state = TrainState(model=self.model.state_dict())
                self._save(index + 1, train_state)
        self.method.save(self.folder)
        self.records.write({"event": "done"})
        self.records.sync()

    def _record_task(self, task: Task, seen: list["_Seen"]) -> None:
        started = time.monotonic()
        rights = [self._right(self.model, each.test, each.head) for each in seen]
        self.right.append(rights[-1])
        test = [accuracy(right) for right in rights]
        event = {
            "event": "task",
            "task": task.index,
            "test": test,
            "validation": [accuracy(self._right(self.model, each.validation, each.head)) for each in seen],
            "flips": [negative_flips(old.tolist(), new.tolist()) for old, new in zip(self.right, rights)],
            "chance": stratified_chance(task.test.y.bincount().tolist()),
            "bytes": self.method.nbytes(),
        }
        if measures := self.method.measures():
            event["measures"] = measures
        if task.index < self.experiment.probe:
            event["probe"] = self._probe(seen[0])
        if task.index + 1 < len(self.stream):
            following = self.stream[task.index + 1]
            event["next"] = accuracy(self._right(self.model, following.test, following.head))
            event["next_untrained"] = accuracy(self._right(self.untrained, following.test, following.head))
        self.records.write(event)
        seconds = time.monotonic() - started
        self._time({"task": task.index, "evaluation_seconds": seconds, "done": self._done(task.index, 1.0)})
        (self.average,) = task_average([test])
        self._tell(task.index, self.how.epochs - 1, 1.0)

    @torch.no_grad()
    def _probe(self, first: "_Seen") -> dict[str, list[list[float]]]:
        """By true class of the first task's validation part: its logits' mean and deviation, its predictions."""
        self.model.eval()
        x, y = first.validation.x.to(self.how.device), first.validation.y
        logits = self.method.predict(self.model, x, first.head).cpu()
        of_class = [logits[y == label] for label in range(logits.shape[1])]
        predicted = [rows.argmax(1).bincount(minlength=logits.shape[1]) for rows in of_class]
        return {
            "logit_mean": [rows.mean(0).tolist() for rows in of_class],
            "logit_deviation": [rows.std(0, correction=0).tolist() for rows in of_class],
            "confusion": [counts.tolist() for counts in predicted],
        }

    def _right(self, model: nn.Module, split: Split, head: int | None) -> Tensor:
        if self.stop():
            raise StoppedError
        return predicted_right(model, split, self.method, head, self.how.device)

    def _watcher(self, task: int) -> Watcher:
        def epoch_done(epoch: int, loss: float, seconds: float) -> None:
            self.records.write({"event": "epoch", "task": task, "epoch": epoch, "loss": loss})
            done = self._done(task, (epoch + 1) / self.how.epochs)
            self._time({"task": task, "epoch": epoch, "seconds": seconds, "done": done})

        return Watcher(
            epoch=epoch_done,
            tick=lambda epoch, fraction: self._tell(task, epoch, fraction),
            save=lambda state: self._save(task, state),
            stop=self.stop,
            save_every=self.save_every,
        )

    def _save(self, task: int, state: TrainState) -> None:
        RunState(task, state, self.method.state_dict(), self.right, self.records.sync()).save(self.folder)

    def _time(self, event: dict[str, float]) -> None:
        print(json.dumps(event), file=self.timings, flush=True)

    def _tell(self, task: int, epoch: int, fraction: float) -> None:
        self.watch(
            Progress(
                task=task + 1,
                tasks=len(self.stream),
                epoch=epoch + 1,
                epochs=self.how.epochs,
                average=self.average,
                fraction=self._done(task, (epoch + fraction) / self.how.epochs),
            )
        )

    def _done(self, task: int, part: float) -> float:
        """The part of the whole run's work that is done with a part of a task."""
        before, after = self.work_before[task : task + 2]
        return before + (after - before) * part


def _versions(device: str) -> dict[str, str]:
    """What a run is made with. Runs are the same to the byte, and paired by seed, on one kind of processor."""
    cuda = torch.device(device).type == "cuda"
    return {
        "selfreminder": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": torch.cuda.get_device_name(device) if cuda else torch.backends.cpu.get_cpu_capability(),
    }


@dataclass(frozen=True)
class _Seen:
    """What is looked at again after every task; the training data is let go."""

    validation: Split
    test: Split
    head: int | None

    @classmethod
    def of(cls, task: Task) -> "_Seen":
        return cls(task.validation, task.test, task.head)
