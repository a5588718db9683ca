"""Run one experiment in a folder, or go on with it. Killed at any moment, it goes on as if it had not been."""

import errno
import hashlib
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

from selfreminder import __version__
from selfreminder._base.atomic import remove_stale
from selfreminder._base.checked import DAMAGE, format_line
from selfreminder._base.denormals import without_denormals
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.lock import locked
from selfreminder._base.products import by_onednn, onednn_products
from selfreminder._base.together import Together
from selfreminder.benchmarks.stream import Stream, Task
from selfreminder.experiment.catalogue import digest_code, digest_parts, method_facts
from selfreminder.experiment.checkpoint import RunState
from selfreminder.experiment.costs import PeakMemory
from selfreminder.experiment.evaluation import Evaluation
from selfreminder.experiment.pool.process import Progress
from selfreminder.experiment.preparation import Prepared, prepare
from selfreminder.experiment.ranks import gathered
from selfreminder.experiment.records import RECORDS, STATE, TIMINGS, Records, Writer, read_folder, read_records
from selfreminder.experiment.spec import Experiment
from selfreminder.metrics import task_average
from selfreminder.training import StoppedError, TrainState, Watcher, train

_PATIENCE = 5.0
"""seconds to wait for a process that is on its way out of a run's folder"""
_WORTH_SAVING = 3.0
"""seconds of work that are saved when a task's training ends, or the task: to save a short one takes longer"""


def run(
    experiment: Experiment,
    folder: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    save_every: float = 30.0,
    stream: Stream | None = None,
    model: Callable[[], nn.Module] | None = None,
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
        stream: tasks of your own, see `Stream.of`; the experiment's benchmark is own then, its data a name for them.
        model: makes the network, with the number of outputs that the stream needs, instead of the experiment's.
    """
    _check_given(stream, model)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, _PATIENCE):
        remove_stale(folder)
        before = read_records(folder)
        if before is not None and before.experiment != experiment:
            raise SelfReminderError(f"{folder} holds another experiment: choose another folder")
        given = _digest_given(stream, model)
        made = {} if before is None else before.versions
        for what, digest in given.items():
            if made.get(what, digest) != digest:
                raise SelfReminderError(
                    f"{folder} holds a run with another {what}: choose another folder, or remove it"
                )
        if before is None or not before.done:
            state = RunState.load(folder) if before else None
            length = state.records_length if state else 0
            read_folder(folder, length)  # says if the part that stays is damaged
            if experiment.processes > 1 and (stream is not None or model is not None):
                raise SelfReminderError(
                    f"processes is {experiment.processes}: other processes cannot be given a stream or a model of "
                    "yours; name them in the experiment, as module:function"
                )
            prepared = prepare(experiment, data_dir, stream, model)
            with gathered(experiment, folder, data_dir, resumed=state is not None) as together:
                learn(experiment, prepared, folder, state, together, watch, stop, save_every, given)
        (folder / STATE).unlink(missing_ok=True)
        done = read_records(folder)
    if done is None:
        raise FileNotFoundError(errno.ENOENT, "it was removed while its run was under way", str(folder))
    return done


def check(experiment: Experiment, data_dir: str | os.PathLike[str] | None = None) -> None:
    """Raise what `run` would raise before its first step: a method that does not apply, a memory too large."""
    prepare(experiment, data_dir)


def learn(
    experiment: Experiment,
    prepared: Prepared,
    folder: Path,
    state: RunState | None = None,
    together: Together | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    save_every: float = 30.0,
    given: Mapping[str, str] | None = None,
) -> None:
    """Learn the tasks of an experiment one after the other, from the start or from a state.

    Of several processes each calls this, the first with the folder of the run, others with one that nobody reads.
    """
    with (
        without_denormals(),
        onednn_products(),
        Writer(folder / RECORDS, state.records_length if state else 0) as records,
    ):
        _Run(experiment, prepared, folder, records, together or Together(), watch, stop, save_every, given or {}).go(
            state
        )


class _Run:
    timings: IO[str]

    def __init__(
        self,
        experiment: Experiment,
        prepared: Prepared,
        folder: Path,
        records: Writer,
        together: Together,
        watch: Callable[[Progress], None],
        stop: Callable[[], bool],
        save_every: float,
        given: Mapping[str, str],
    ) -> None:
        self.given = given
        self.experiment, self.folder, self.records, self.together = experiment, folder, records, together
        self.watch, self.stop, self.save_every = watch, stop, save_every
        self.stream, self.method, self.how = prepared.stream, prepared.method, prepared.how
        self.model, self.passes = prepared.model, prepared.passes
        together.unseen = self.passes.add
        self.evaluation = Evaluation(experiment, prepared, stop, together)
        self.saved = 0.0
        self.average: float | None = None
        work = [self.method.work(task) for task in range(experiment.tasks)]
        self.work_before = [before / sum(work) for before in accumulate(work, initial=0.0)]

    def go(self, state: RunState | None) -> None:
        first, train_state = 0, TrainState()
        if state is None:
            recorded = self.experiment.as_recorded()
            self.records.write(
                {
                    "event": "start",
                    "experiment": recorded,
                    "versions": _versions(self.how.device, self.experiment, self.given),
                }
            )
        else:
            first, train_state = state.task, state.train
            try:
                self.method.load_state_dict({k: v.to(self.how.device) for k, v in state.method.items()})
                self.model.load_state_dict(train_state.model)
            except (RuntimeError, *DAMAGE) as error:  # earlier versions wrote no hash of its content
                path, why = self.folder / STATE, str(error).partition("\n")[0]
                raise SelfReminderError(f"{path} is damaged: {why}; remove it to start this run again") from None
            self.evaluation.right = state.right
        self.saved = time.monotonic()
        with (self.folder / TIMINGS).open("a", encoding="utf-8") as self.timings:
            for index in range(first, len(self.stream)):
                task = self.stream[index]
                watch_peak, self.passes.items = PeakMemory(self.how.device), 0
                train_state = train(
                    self.model, task, self.method, self.how, train_state, self._watcher(task), self.together
                )
                # Training may have ended before its last epoch: it is not to be taken up again.
                trained = replace(train_state, epoch=self.how.epochs, passes=self.passes.items)
                if saved := self._is_worth_saving():
                    self._save(index, trained)
                else:  # what ends the task changes the tensors, and may be stopped
                    trained = replace(trained, model=_copy(trained.model), optimizer=_copy(trained.optimizer))
                kept, right = None if saved else self.method.snapshot(), list(self.evaluation.right)
                try:
                    started = time.monotonic()
                    if self.how.boundaries:
                        self.method.after_task(self.model, task)
                    for tensors in (
                        (self.model.state_dict(), self.method.state_dict()) if self.together.world > 1 else ()
                    ):
                        self.together.check_same(f"task {index + 1}", tensors)
                    ended = {"after_task_seconds": time.monotonic() - started, **watch_peak.measure()}
                    self._time({"task": index, **ended})
                    self._record_task(
                        task, {"steps": trained.steps, "new_items": trained.new_items, "passes": self.passes.items}
                    )
                except StoppedError:
                    if kept is not None and not self.together.rank:
                        RunState(index, trained, kept(), right, self.records.sync()).save(self.folder)
                    raise
                train_state = TrainState(
                    model=self.model.state_dict(), optimizer={} if self.how.boundaries else train_state.optimizer
                )
                if self._is_worth_saving():
                    self._save(index + 1, train_state)
        self.method.save(self.folder)
        self.records.write({"event": "done"})
        self.records.sync()

    def _record_task(self, task: Task, spent: dict[str, int]) -> None:
        started = time.monotonic()
        event = self.evaluation.measure(task, spent)
        self.records.write(event)
        seconds = time.monotonic() - started
        self._time({"task": task.index, "evaluation_seconds": seconds, "done": self._done(task.index, 1.0)})
        (self.average,) = task_average([event["test"]])
        self._tell(task.index, self.how.epochs - 1, 1.0)

    def _watcher(self, learned: Task) -> Watcher:
        task = learned.index

        def epoch_done(epoch: int, loss: float, seconds: float) -> None:
            self.records.write({"event": "epoch", "task": task, "epoch": epoch, "loss": loss})
            done = self._done(task, (epoch + 1) / self.how.epochs)
            self._time({"task": task, "epoch": epoch, "seconds": seconds, "done": done})

        def begin(state: TrainState) -> None:
            if state.epoch or state.step:  # what it took to be ready was counted then
                self.passes.items = state.passes

        def look(steps: int) -> None:
            passes = self.passes.items  # to be looked at is not a part of learning
            self.records.write(self.evaluation.look(learned, steps))
            self.passes.items = passes

        return Watcher(
            begin=begin,
            epoch=epoch_done,
            tick=lambda epoch, fraction: self._tell(task, epoch, fraction),
            save=lambda state: self._save(task, replace(state, passes=self.passes.items)),
            stop=self.stop,
            save_every=self.save_every,
            look=look,
            look_every=self.experiment.evaluate_every or 0,
        )

    def _save(self, task: int, state: TrainState) -> None:
        if not self.together.rank:
            right = self.evaluation.right
            RunState(task, state, self.method.state_dict(), right, self.records.sync()).save(self.folder)
        self.saved = time.monotonic()

    def _is_worth_saving(self) -> bool:
        return time.monotonic() - self.saved >= min(_WORTH_SAVING, self.save_every)

    def _time(self, event: dict[str, Any]) -> None:
        where = {"host": platform.node(), "at": round(time.time(), 3)}
        self.timings.write(format_line({**event, **where}).decode())
        self.timings.flush()

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


def _copy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _check_given(stream: object, model: object) -> None:
    """Raise unless what a caller gives beside the experiment is of the right kind."""
    if stream is not None and not isinstance(stream, Stream):
        raise SelfReminderError(f"stream is a {type(stream).__name__}: give a Stream, as Stream.of([(x, y), …]) makes")
    if model is not None and (isinstance(model, nn.Module) or not callable(model)):
        raise SelfReminderError(f"model is a {type(model).__name__}: give a function that makes it, as lambda: model")


def _digest_given(stream: Stream | None, model: Callable[[], nn.Module] | None) -> dict[str, str]:
    """Digest what a caller gives beside the experiment, by what it is called."""
    found = {"stream": "" if stream is None else stream.digest()}
    if model is not None:
        # A lambda's source is that of its whole line; what was built says which sizes were closed over.
        code = digest_code(model) if getattr(model, "__name__", "") != "<lambda>" else ""
        with torch.random.fork_rng(devices=[]):
            built = model()
        if not isinstance(built, nn.Module):
            raise SelfReminderError(f"model gives a {type(built).__name__}: it should give a torch.nn.Module")
        shapes = {name: tuple(each.shape) for name, each in built.state_dict().items()}
        found["model"] = hashlib.sha256(f"{code}{built}{shapes}".encode()).hexdigest()[:12]
    return {what: digest for what, digest in found.items() if digest}


def _versions(device: str, experiment: Experiment, given: Mapping[str, str]) -> dict[str, str]:
    """What a run is made with. Runs are the same to the byte, and paired by seed, on one kind of processor."""
    cuda = torch.device(device).type == "cuda"
    return {
        "selfreminder": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": torch.cuda.get_device_name(device) if cuda else _name_processor(),
        "code": method_facts(experiment.method).code,
        **digest_parts(experiment.benchmark, experiment.model),
        **given,
    }


def _name_processor() -> str:
    return torch.backends.cpu.get_cpu_capability() + (" oneDNN" if by_onednn() else "")
