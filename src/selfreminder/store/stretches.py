"""Training on new samples in stretches: each goes on from where another ended, or, after a kill, from its own state."""

import hashlib
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from selfreminder._base.atomic import remove_stale, write_text
from selfreminder.experiment.checkpoint import RunState
from selfreminder.samples import Samples
from selfreminder.store.evidence import Evidence
from selfreminder.store.progress import Progress, Watch, ignore
from selfreminder.store.reminded import Reminded
from selfreminder.store.train_settings import TrainSettings
from selfreminder.training import StoppedError, Training, TrainState, Watcher, train

_TELL_EVERY = 0.2
"""seconds between two words about the progress"""
_CALL = "call"


@dataclass(kw_only=True, eq=False)
class Stretches:
    """The training of one candidate: what all its stretches have in common."""

    model: nn.Module
    method: Reminded
    current: dict[str, Tensor]
    """the weights that the first stretch begins with"""
    evidence: Evidence
    """is asked when all steps are done"""
    how: Training
    number: int
    """of the task"""
    folder: Path
    """each stretch has its state in a folder of its own in it"""
    watch: Watch = ignore
    stop: Callable[[], bool] = lambda: False
    save_every: float = 30.0
    whole: int = 0
    """steps of all stretches together, for the progress"""
    _work: int = field(default=0, init=False)
    """those that were done"""
    _tell_due: float = field(default=0.0, init=False)
    _ended: dict[str, RunState] = field(default_factory=dict, init=False)
    """where stretches ended that were done in this process"""
    _written: set[str] = field(default_factory=set, init=False)
    """those of them that are on disk"""
    _stopping: bool = field(default=False, init=False)
    _saved: float = field(default_factory=time.monotonic, init=False)

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return -(-len(self.method.samples) // self.how.batch_size)

    @property
    def total(self) -> int:
        """Steps of all epochs."""
        return self.steps * self.how.epochs

    def train(self, name: str, until: int, strength: float, after: str | None = None, doing: str = "") -> RunState:
        """Train until so many steps are done in all, from its own state, or from the end of another stretch.

        The model ends with the weights; what validation data says of them is in the state if all steps are done.
        """
        found = self._find(name) or (None if after is None else self._find(after))
        state = found or RunState(self.number, TrainState(), {}, [], 0)
        self.method.reminder.strength = strength
        self.model.load_state_dict(state.train.model or self.current)
        self.method.go_on(state.method, self.model)
        done = state.train.epoch * self.steps + state.train.step
        if state.right or done >= until < self.total:
            return state

        def stop() -> bool:
            nonlocal done
            done, self._work = done + 1, self._work + 1
            self.tell(doing or f"epoch {(done - 1) // self.steps + 1} of {self.how.epochs}")
            return done == until < self.total or self._is_asked_to_stop()

        def at(train_state: TrainState) -> RunState:
            return replace(state, train=train_state, method=self.method.state_dict())

        watcher = Watcher(
            epoch=lambda epoch, loss, seconds: self.method.losses.append(loss),
            save=lambda train_state: self._keep(name, at(train_state), is_over=done == until < self.total),
            stop=stop,
            save_every=self.save_every,
        )
        try:
            last = train(self.model, self.method.task(self.number), self.method, self.how, state.train, watcher)
        except StoppedError:
            if done != until or until == self.total:
                raise
            return state
        answers = self.evidence.ask(self.model)
        state = replace(at(last), right=[answers.new, answers.old])
        self._keep(name, state, is_over=True)
        return state

    def _find(self, name: str) -> RunState | None:
        """Where a stretch was; in memory, or in its folder."""
        if (kept := self._ended.get(name)) is not None:
            # Weights are copied where training goes on with them, the rest is not.
            return replace(kept, train=replace(kept.train), method=_clone(kept.method))
        if (folder := self.folder / name).is_dir():
            remove_stale(folder)
        return RunState.load(folder)

    def _keep(self, name: str, state: RunState, *, is_over: bool) -> None:
        """Keep a state; the end of a short stretch in memory: to do it again costs little more than to write it."""
        if is_over:
            self._ended[name] = _copy(state)
            if time.monotonic() - self._saved < self.save_every:
                return
        self._save(self._ended | {name: state})

    def _save(self, states: dict[str, RunState]) -> None:
        for name, state in states.items():
            if name not in self._written or name not in self._ended:
                (self.folder / name).mkdir(parents=True, exist_ok=True)
                state.save(self.folder / name)
        self._written |= self._ended.keys()
        self._saved = time.monotonic()

    def _is_asked_to_stop(self) -> bool:
        self._stopping = self._stopping or self.stop()
        return self._stopping

    def stop_if_asked(self) -> None:
        """Between stretches: save and raise `StoppedError` if somebody wants it."""
        if self._is_asked_to_stop():
            self._save(self._ended)
            raise StoppedError

    def tell(self, doing: str) -> None:
        """Say how far it is, now and then."""
        if time.monotonic() >= self._tell_due:
            self._tell_due = time.monotonic() + _TELL_EVERY
            self.watch(Progress(doing, min(self._work / self.whole, 1.0)))


def keep_own_state(folder: Path, digest: str) -> None:
    """Drop the state of another call from a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _CALL
    if not path.exists() or path.read_text(encoding="utf-8") != digest:
        for left in folder.iterdir():
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
        write_text(path, digest)


def digest_call(
    settings: TrainSettings, weights: Mapping[str, Tensor], memory: Mapping[str, Tensor], *samples: Samples
) -> str:
    """Hash all that a call is given, but for functions."""
    digest = hashlib.sha256(repr(settings).encode())
    for named in (weights, memory, *(part for each in samples for part in _columns(each))):
        for name, tensor in named.items():
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _copy(state: RunState) -> RunState:
    """A state with tensors of its own: those of a model and an optimizer move on."""
    groups = {name: _clone(getattr(state.train, name)) for name in ("model", "optimizer", "best")}
    return replace(state, train=replace(state.train, **groups), method=_clone(state.method))


def _clone(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in tensors.items()}


def _columns(samples: Samples) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    assert samples.labels is not None
    return samples.inputs, {"labels": samples.labels, "sources": samples.sources}
