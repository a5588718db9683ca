"""The one training loop. It can stop after any step and go on from there, bit for bit."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError, TrainingDivergedError, unknown
from selfreminder._base.seeds import seed_for, step_seed
from selfreminder.benchmarks.stream import Split, Task
from selfreminder.methods import OPTIMIZERS
from selfreminder.methods.base import Batch, Method, Step

_CHECK_EVERY = 50
"""steps between two looks at the losses: each look waits for the device"""
_LARGEST_LOSS = 1e6
"""beyond it training has diverged: the best weights of early stopping would hide that"""
_EVALUATION_BATCH = 1000
_IMAGES_BATCH = 200
"""of images with rows and columns: the maps of more do not stay in a processor's cache, half as slow again"""
_PATIENCE, _LOWER_BY, _LEAST_LR = 5, 3.0, 1e-4
"""HAT's protocol"""


@dataclass(frozen=True, kw_only=True)
class Training:
    """How to train on one task.

    >>> Training(epochs=5, optimizer="sgd", lr=0.05).batch_size
    128
    """

    epochs: int = 20
    batch_size: int = 128
    optimizer: str = "adam"
    """adam or sgd (without momentum)"""
    lr: float | None = None
    """step size; None: the paper's, 1e-4 for adam, 1e-3 for sgd"""
    weight_decay: float = 1e-4
    """coupled L2"""
    plateau: bool = False
    """HAT's protocol: divide the step size by 3 after 5 epochs without a better validation loss, stop below 1e-4,
    clip gradients, and end with the best weights; `epochs` is then the most there can be"""
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise unknown("optimizer", self.optimizer, OPTIMIZERS)
        for name, value in (("epochs", self.epochs), ("batch_size", self.batch_size)):
            if value < 1:
                raise SelfReminderError(f"{name} is {value}: it must be at least 1")
        if self.lr is not None and not self.lr > 0:
            raise SelfReminderError(f"lr is {self.lr}: it must be above 0")

    def make_optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Make a fresh, fused optimizer of parameter groups."""
        lr = OPTIMIZERS[self.optimizer] if self.lr is None else self.lr
        kind = torch.optim.Adam if self.optimizer == "adam" else torch.optim.SGD
        return kind(groups, lr=lr, weight_decay=self.weight_decay, fused=True)


@dataclass
class TrainState:
    """Where training on a task is: two integers, and the tensors that training changes."""

    epoch: int = 0
    step: int = 0
    model: dict[str, Tensor] = field(default_factory=dict)
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    losses: Tensor | None = None
    """of this epoch's steps so far"""
    lowered: float = 1.0
    """the factor by which plateaus have lowered the step size"""
    best: dict[str, Tensor] = field(default_factory=dict)
    """the weights with the lowest validation loss"""
    best_loss: float = math.inf
    since_best: int = 0
    """epochs since then, or since the step size was lowered"""


class StoppedError(Exception):
    """Training was asked to stop; its state has been saved."""


@dataclass(frozen=True)
class Watcher:
    """Functions that are called between steps while a task is trained."""

    epoch: Callable[[int, float, float], None] = lambda epoch, mean_loss, seconds: None
    """an epoch is done: its number from 0, its mean loss, its seconds"""
    tick: Callable[[int, float], None] = lambda epoch, fraction: None
    """every now and then: the epoch, and how much of it is done"""
    save: Callable[[TrainState], None] = lambda state: None
    """take this state away, now: it is not a copy"""
    stop: Callable[[], bool] = lambda: False
    """whether to save and raise `StoppedError`"""
    save_every: float = 30.0
    """seconds between two saves"""


def train(
    model: nn.Module,
    task: Task,
    method: Method,
    how: Training,
    state: TrainState | None = None,
    watcher: Watcher | None = None,
) -> TrainState:
    """Train a model on one task, from the start or from a state.

    Order and random choice are seeded by (seed, task, epoch, step) alone, so the same call gives the same
    weights, also when it is cut in two. The global random state is left as it was.

    Args:
        model: as `method.prepare` gave it.
        task: what to learn.
        method: how to learn it without forgetting the others.
        how: epochs, optimizer and the like.
        state: where an earlier call stopped; None: at the start.
        watcher: who is told of the progress, saves the state and may stop.
    """
    trainer = _Trainer(model, task, method, how, state or TrainState(), watcher or Watcher())
    device = torch.device(how.device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        return trainer.train()


class _Trainer:
    """Training on one task while it lasts: what stays the same, and the state, which moves on."""

    def __init__(
        self, model: nn.Module, task: Task, method: Method, how: Training, state: TrainState, watcher: Watcher
    ) -> None:
        self.model, self.task, self.method, self.how = model, task, method, how
        self.state, self.watcher = state, watcher
        model.train()
        if state.model:
            model.load_state_dict(state.model)
        if state.epoch == 0 and state.step == 0:
            method.start_task(model, task)
        self.data = method.training_set(task).to(how.device)
        if not len(self.data):
            raise SelfReminderError(f"task {task.index + 1} ({task.name}) has no training data")
        self.optimizer = how.make_optimizer(method.parameter_groups(model))
        if state.optimizer:
            load_optimizer(self.optimizer, state.optimizer)
        self._lower_step_size()
        # It outlives an epoch: many epochs may be shorter than the time between two saves.
        self.save_due = time.monotonic() + watcher.save_every

    def train(self) -> TrainState:
        """Train for the epochs that are left."""
        for epoch in range(self.state.epoch, self.how.epochs):
            started = time.monotonic()
            mean_loss = self._epoch()
            self.state = replace(self.state, epoch=epoch + 1, step=0, losses=None)
            self.method.after_epoch(self.model, self.task, epoch, self.how.epochs)
            self.watcher.epoch(epoch, mean_loss, time.monotonic() - started)
            if self.how.plateau and not self._go_on():
                break
        if self.state.best:
            self.model.load_state_dict(self.state.best)
        return self._with_tensors(self.state)

    def _epoch(self) -> float:
        """Train for the rest of the epoch that the state is in; gives the whole epoch's mean loss."""
        task, method, model, epoch, size = self.task, self.method, self.model, self.state.epoch, self.how.batch_size
        device, steps = self.data.x.device, -(-len(self.data) // size)
        order_seed = seed_for(self.how.seed, "order", task.index, epoch)
        order = torch.randperm(len(self.data), generator=torch.Generator().manual_seed(order_seed)).to(device)
        noise_seed = seed_for(self.how.seed, "noise", task.index, epoch)
        generator = _default_generator(device)
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        losses = torch.zeros(steps, device=device)
        if self.state.losses is not None:
            losses[: self.state.step] = self.state.losses.to(device)
        for step in range(self.state.step, steps):
            batch = _batch(self.data, order[step * size : (step + 1) * size], task)
            # Dropout draws from the default generator: seeding that one covers both.
            generator.manual_seed(step_seed(noise_seed, step))
            where = Step(task.index, epoch, step / steps, generator)
            loss = method.loss(model, batch, where)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            method.after_backward(model, where)
            if self.how.plateau:
                nn.utils.clip_grad_norm_(parameters, method.clip)
            self.optimizer.step()
            method.after_step(model, where)
            losses[step] = loss.detach()
            done = step + 1
            stop = self.watcher.stop()
            save = stop or time.monotonic() >= self.save_due
            if save or done % _CHECK_EVERY == 0 or done == steps:
                _check_sound(losses[:done], task, epoch)
                self.watcher.tick(epoch, done / steps)
                if save:
                    self.watcher.save(self._with_tensors(replace(self.state, step=done, losses=losses[:done])))
                    self.save_due = time.monotonic() + self.watcher.save_every
                if stop:
                    raise StoppedError
        return losses.mean(dtype=torch.float64).item()

    def _go_on(self) -> bool:
        """Look at the validation loss after an epoch: keep the best weights, or lower the step size, or end."""
        state = self.state
        loss = _validation_loss(self.model, self.task, self.method, self.how, state.epoch)
        if loss < state.best_loss:
            state.best_loss, state.since_best = loss, 0
            state.best = {name: value.clone() for name, value in self.model.state_dict().items()}
            return True
        state.since_best += 1
        if state.since_best < _PATIENCE:
            return True
        state.lowered, state.since_best = state.lowered / _LOWER_BY, 0
        self._lower_step_size()
        return self.optimizer.param_groups[0]["lr"] >= _LEAST_LR

    def _lower_step_size(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = group.setdefault("initial_lr", group["lr"]) * self.state.lowered

    def _with_tensors(self, state: TrainState) -> TrainState:
        """Put the tensors of model and optimizer, which are no copies, into a state."""
        state.model = self.model.state_dict()
        state.optimizer = {
            f"{index}.{name}": value
            for index, entry in self.optimizer.state_dict()["state"].items()
            for name, value in entry.items()
            if isinstance(value, Tensor)
        }
        return state


@torch.no_grad()
def _validation_loss(model: nn.Module, task: Task, method: Method, how: Training, epoch: int) -> float:
    """Compute the method's own loss, penalty and all, on validation data in eval mode."""
    data = method.validation_set(task).to(how.device)
    generator = _default_generator(data.x.device)
    # The same draw from a memory at every epoch: another would make a loss look better or worse by chance.
    generator.manual_seed(seed_for(how.seed, "validation", task.index))
    model.eval()
    total = 0.0
    for index in torch.arange(len(data), device=data.x.device).split(_EVALUATION_BATCH):
        loss = method.loss(model, _batch(data, index, task), Step(task.index, epoch, 1.0, generator))
        total += loss.item() * len(index)
    model.train()
    return total / len(data)


def _batch(data: Split, index: Tensor, task: Task) -> Batch:
    head = task.head if data.heads is None else data.heads.index_select(0, index)
    return Batch(data.x.index_select(0, index), data.y.index_select(0, index), head, index)


def _check_sound(losses: Tensor, task: Task, epoch: int) -> None:
    sound = losses.abs() < _LARGEST_LOSS
    if not bool(sound.all()):
        first = int((~sound).nonzero()[0])
        raise TrainingDivergedError(
            f"the loss was {losses[first].item():g} at task {task.index + 1}, epoch {epoch + 1}, step {first + 1}: "
            "lower the step size or the strength"
        )


def _default_generator(device: torch.device) -> torch.Generator:
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index or 0]
    return torch.default_generator


def load_optimizer(optimizer: torch.optim.Optimizer, flat: dict[str, Tensor]) -> None:
    """Put a flattened state, `<parameter>.<name>`, into a fresh optimiser of the same kind."""
    entries: dict[int, dict[str, Tensor]] = {}
    for key, value in flat.items():
        index, _, name = key.partition(".")
        entries.setdefault(int(index), {})[name] = value.clone()
    optimizer.load_state_dict({"state": entries, "param_groups": optimizer.state_dict()["param_groups"]})


@torch.no_grad()
def predicted_right(model: nn.Module, split: Split, method: Method, head: int | None, device: str) -> Tensor:
    """Tell of each item of a split whether it is predicted right, in eval mode: (n,) of bool."""
    model.eval()
    right, size = [], _EVALUATION_BATCH if split.x.dim() == 2 else _IMAGES_BATCH
    for x, y in zip(split.x.split(size), split.y.split(size)):
        right.append(method.predict(model, x.to(device), head).argmax(1) == y.to(device))
    return torch.cat(right).cpu()


def accuracy(right: Tensor) -> float:
    """Give the share of True.

    >>> accuracy(torch.tensor([True, True, True, False]))
    0.75
    """
    return right.sum().item() / len(right)
