"""The one training loop. It can stop after any step and go on from there, bit for bit."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from selfreminder._base import optimizers
from selfreminder._base.denormals import without_denormals
from selfreminder._base.errors import SelfReminderError, TrainingDivergedError, unknown
from selfreminder._base.layout import lay_out_as
from selfreminder._base.seeds import seed_for, step_seed
from selfreminder._base.together import Together, default_generator
from selfreminder.benchmarks.models import set_outputs
from selfreminder.benchmarks.stream import Split, Task
from selfreminder.methods import OPTIMIZERS, SCHEDULES
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
_WARMUP = 0.1
"""the part of a task over which the step size rises"""


@dataclass(frozen=True, kw_only=True)
class Training:
    """How to train on one task.

    >>> Training(epochs=5, optimizer="sgd", lr=0.05).batch_size
    128
    """

    epochs: int = 20
    batch_size: int = 128
    optimizer: str = "adam"
    """adam, adamw or sgd"""
    lr: float | None = None
    """step size; None: the paper's, 1e-4 for adam (and adamw), 1e-3 for sgd"""
    momentum: float = 0.0
    """of sgd"""
    weight_decay: float = 1e-4
    """coupled L2; with adamw, decoupled"""
    plateau: bool = False
    """HAT's protocol: divide the step size by 3 after 5 epochs without a better validation loss, stop below 1e-4,
    clip gradients, and end with the best weights; `epochs` is then the most there can be"""
    schedule: str = "constant"
    """of the step size within the task, see `selfreminder.methods.SCHEDULES`"""
    seed: int = 0
    device: str = "cpu"
    precision: str = "fp32"
    """fp32, or bf16: the loss and its gradient by autocast; weights and the optimizer's state stay in fp32"""
    boundaries: bool = True
    """whether the method is told when a task begins; without, the optimizer goes on from the state, too"""

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise unknown("optimizer", self.optimizer, OPTIMIZERS)
        if self.schedule not in SCHEDULES:
            raise unknown("schedule", self.schedule, SCHEDULES)
        for name, value in (("epochs", self.epochs), ("batch_size", self.batch_size)):
            if value < 1:
                raise SelfReminderError(f"{name} is {value}: it must be at least 1")
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise SelfReminderError(f"lr is {self.lr}: it must be above 0")
        if not 0 <= self.momentum < 1:
            raise SelfReminderError(f"momentum is {self.momentum}: it must be from 0 to below 1")
        if self.momentum and self.optimizer != "sgd":
            raise SelfReminderError(f"momentum is {self.momentum}: {self.optimizer} has its own, it is of sgd only")
        if not 0 <= self.weight_decay < math.inf:
            raise SelfReminderError(f"weight_decay is {self.weight_decay}: it must be 0 or above")
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise SelfReminderError(f"device {self.device}: torch finds no CUDA here; use the device cpu")
        if self.device == "mps" and not torch.backends.mps.is_available():
            raise SelfReminderError("device mps: torch finds none here; use the device cpu")

    def autocast(self) -> torch.autocast:
        """Give the context in which a loss is computed."""
        return torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=self.precision == "bf16")

    def make_optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Make a fresh, fused optimizer of parameter groups."""
        lr = OPTIMIZERS[self.optimizer] if self.lr is None else self.lr
        if self.optimizer == "sgd":
            return optimizers.SGD(groups, lr, self.momentum, weight_decay=self.weight_decay, fused=True)
        kind = optimizers.Adam if self.optimizer == "adam" else optimizers.AdamW
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
    steps: int = 0
    """that the optimizer has made on the task, in whole epochs"""
    new_items: int = 0
    """of the task's own data in those epochs; a method may have trained on more"""
    passes: int = 0
    """items that went forward through the network for it, as who watches counts them"""


def scale_step(schedule: str, done: float) -> float:
    """Give the factor of the step size when a part of a task is done.

    >>> scale_step("cosine", 0.5), scale_step("linear", 0.25), scale_step("warmup-cosine", 0.05)
    (0.5, 0.75, 0.5)
    """
    if schedule == "linear":
        return 1.0 - done
    if schedule == "warmup-cosine":
        return done / _WARMUP if done < _WARMUP else scale_step("cosine", (done - _WARMUP) / (1 - _WARMUP))
    return 0.5 + 0.5 * round(math.cos(math.pi * done), 12) if schedule == "cosine" else 1.0


class StoppedError(Exception):
    """Training was asked to stop; its state has been saved."""


@dataclass(frozen=True)
class Watcher:
    """Functions that are called between steps while a task is trained."""

    begin: Callable[[TrainState], None] = lambda state: None
    """all is ready for the next step"""
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
    look: Callable[[int], None] = lambda steps: None
    """so many steps of the task are done: look at the model"""
    look_every: int = 0
    """steps between two looks; 0: there are none"""


def train(
    model: nn.Module,
    task: Task,
    method: Method,
    how: Training,
    state: TrainState | None = None,
    watcher: Watcher | None = None,
    together: Together | None = None,
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
        together: the processes that train it together, each of which calls this.
    """
    state, device = state or TrainState(), torch.device(how.device)
    with without_denormals():
        trainer = _Trainer(model, task, method, how, state, watcher or Watcher(), together or Together())
        trainer.watcher.begin(trainer.state)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            return trainer.train()


class _Trainer:
    """Training on one task while it lasts: what stays the same, and the state, which moves on."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        method: Method,
        how: Training,
        state: TrainState,
        watcher: Watcher,
        together: Together,
    ) -> None:
        self.model, self.task, self.method, self.how = model, task, method, how
        self.state, self.watcher, self.together = state, watcher, together
        model.train()
        set_outputs(model, task.outputs)
        if state.model:
            model.load_state_dict(state.model)
        if state.epoch == 0 and state.step == 0 and how.boundaries:
            method.start_task(model, task)
        self.data = method.training_set(task).to(how.device)
        if not len(self.data):
            raise SelfReminderError(f"task {task.index + 1} ({task.name}) has no training data")
        self.optimizer = how.make_optimizer(method.parameter_groups(model))
        if state.optimizer:
            load_optimizer(self.optimizer, state.optimizer)
        self._lower_step_size()
        self.paused = 0.0
        """seconds of this epoch in which the model was looked at"""
        # It outlives an epoch: many epochs may be shorter than the time between two saves.
        self.save_due = time.monotonic() + watcher.save_every

    def train(self) -> TrainState:
        """Train for the epochs that are left."""
        for epoch in range(self.state.epoch, self.how.epochs):
            started = time.monotonic()
            self.paused = 0.0
            mean_loss = self._epoch()
            self.state.steps += -(-len(self.data) // self.how.batch_size)
            self.state.new_items += len(self.task.parts.train)
            self.state = replace(self.state, epoch=epoch + 1, step=0, losses=None)
            if self.how.boundaries:
                self.method.after_epoch(self.model, self.task, epoch, self.how.epochs)
            self.watcher.epoch(epoch, mean_loss, time.monotonic() - started - self.paused)
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
        generator = default_generator(device)
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        losses, autocast, look_every = torch.zeros(steps, device=device), self.how.autocast(), self.watcher.look_every
        if self.state.losses is not None:
            losses[: self.state.step] = self.state.losses.to(device)
        for step in range(self.state.step, steps):
            batch = _batch(self.data, order[step * size : (step + 1) * size], task)
            # Dropout draws from the default generator: seeding that one covers both.
            generator.manual_seed(step_seed(noise_seed, step))
            if task.augment is not None:
                batch = batch._replace(x=task.augment(batch.x, generator))
            if self.how.schedule != "constant":
                self._set_step_size((epoch + step / steps) / self.how.epochs)
            where = Step(task.index, epoch, step / steps, generator)
            with autocast, self.together.sharded(model):
                loss = method.loss(model, batch, where)
            for parameter in parameters:
                parameter.grad = None
            loss.backward()
            stop = self.together.average(parameters, self.watcher.stop())
            method.after_backward(model, batch, where)
            if self.how.plateau:
                nn.utils.clip_grad_norm_(parameters, method.clip)
            self.optimizer.step()
            method.after_step(model, batch, where)
            losses[step] = loss.detach()
            done = step + 1
            if look_every and (self.state.steps + done) % look_every == 0:
                self._look(self.state.steps + done)
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

    def _look(self, steps: int) -> None:
        """Have the model looked at between two steps; it goes on in the mode that it was in."""
        started, training = time.monotonic(), [module for module in self.model.modules() if module.training]
        self.watcher.look(steps)
        for module in training:
            module.training = True
        self.paused += time.monotonic() - started

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
        self._set_step_size(0.0)

    def _set_step_size(self, done: float) -> None:
        """Set the step size of a moment, by what part of the task is done and how far plateaus have lowered it."""
        factor = self.state.lowered * scale_step(self.how.schedule, done)
        for group in self.optimizer.param_groups:
            group["lr"] = group.setdefault("initial_lr", group["lr"]) * factor

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
    generator = default_generator(data.x.device)
    # The same draw from a memory at every epoch: another would make a loss look better or worse by chance.
    generator.manual_seed(seed_for(how.seed, "validation", task.index))
    model.eval()
    total = 0.0
    for index in torch.arange(len(data), device=data.x.device).split(_EVALUATION_BATCH):
        with how.autocast():
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


def load_optimizer(optimizer: torch.optim.Optimizer, flat: dict[str, Tensor]) -> None:
    """Put a flattened state, `<parameter>.<name>`, into a fresh optimiser of the same kind."""
    entries: dict[int, dict[str, Tensor]] = {}
    for key, value in flat.items():
        index, _, name = key.partition(".")
        entries.setdefault(int(index), {})[name] = value.clone()
    optimizer.load_state_dict({"state": entries, "param_groups": optimizer.state_dict()["param_groups"]})
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if value.shape == parameter.shape and name != "step":
                state[name] = lay_out_as(parameter, value)


@torch.no_grad()
def predict_split(
    model: nn.Module, split: Split, method: Method, head: int | None, device: str
) -> tuple[Tensor, Tensor]:
    """Predict each item of a split in eval mode: whether it is right, (n,) of bool, and how sure it is, (n,)."""
    model.eval()
    right, sure, size = [], [], _EVALUATION_BATCH if split.x.dim() == 2 else _IMAGES_BATCH
    for x, y in zip(split.x.split(size), split.y.split(size)):
        logits = method.predict(model, x.to(device), head)
        right.append(logits.argmax(1) == y.to(device))
        sure.append(logits.softmax(1).amax(1))
    return torch.cat(right).cpu(), torch.cat(sure).cpu()


def predicted_right(model: nn.Module, split: Split, method: Method, head: int | None, device: str) -> Tensor:
    """Tell of each item of a split whether it is predicted right, in eval mode: (n,) of bool."""
    return predict_split(model, split, method, head, device)[0]


def accuracy(right: Tensor) -> float:
    """Give the share of True.

    >>> accuracy(torch.tensor([True, True, True, False]))
    0.75
    """
    return right.sum().item() / len(right)
