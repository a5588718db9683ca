"""The base classes of methods: a loss, and what is done between tasks. Most methods write `loss` and `after_task`."""

import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import Size
from selfreminder.benchmarks.stream import Split, Task
from selfreminder.gradients.per_sample import gradient_norms
from selfreminder.memory.memory import Memory, MemoryBatch
from selfreminder.reminder.remember import widen_logits
from selfreminder.reminder.reminder import Reminder
from selfreminder.selection import find, parse
from selfreminder.selection.base import count_per_class

EARLY = 0.1
"""the share of epochs, one at least, whose gradients selection by gradient looks at"""
_VALIDATION_ITEMS = 500
"""of a memory, looked at beside validation data"""


class Batch(NamedTuple):
    """A mini-batch of the training set."""

    x: Tensor
    y: Tensor
    head: Tensor | int | None
    """None with a single head; else one number for all items, or one for each"""
    rows: Tensor
    """the items' places in the training set"""


class Step(NamedTuple):
    """Where training is. `generator` is seeded anew at every step: use it for all random choice."""

    task: int
    epoch: int
    fraction_of_epoch: float
    generator: torch.Generator


@dataclass(kw_only=True)
class Method:
    """Fine-tuning: the defaults of every method.

    Its class variables are facts that the catalogue shows, its dataclass fields are its settings and options. All
    that a method carries to the next task is in `state_dict`, so that a run can be resumed from it.
    """

    optimizer: ClassVar[str] = "adam"
    """what it is trained by unless an experiment says otherwise"""
    is_fine_tuning: ClassVar[bool] = False
    """it is a baseline that does nothing about forgetting, and is named by its optimizer"""
    is_reference: ClassVar[bool] = False
    """it looks at all data of all tasks so far: others are measured by it"""
    heads: ClassVar[Literal["any", "one", "per task"]] = "any"
    """the output heads that it applies to: one that all tasks share, one per task, or either"""
    needs_boundaries: ClassVar[bool] = False
    """it does something when a task ends, and so cannot learn from a stream that does not say when"""
    acts_within_tasks: ClassVar[bool] = False
    """it is not fine-tuning while it learns the first task"""
    holds_old_outputs: ClassVar[bool] = False
    """while it learns a task it trains the heads of old ones, too"""
    clip: ClassVar[float] = 1e4
    """the largest gradient norm, in protocols that clip"""

    def check_above_0(self, *options: str) -> None:
        """Raise if one of these options is not above 0."""
        for option in options:
            if not getattr(self, option) > 0:
                raise SelfReminderError(f"{option} is {getattr(self, option)}: it must be above 0")

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        """Called once, before the first task and before a resumed state is loaded; may wrap the model."""
        return model

    def start_task(self, model: nn.Module, task: Task) -> None:
        """Called before a task's first step; again if the run is resumed from there."""

    def training_set(self, task: Task) -> Split:
        """Give what to train on during a task."""
        return task.train

    def validation_set(self, task: Task) -> Split:
        """Give what a protocol with early stopping looks at."""
        return task.validation

    def parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Give the optimizer's parameter groups."""
        return [{"params": list(model.parameters())}]

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """Compute the loss of one step."""
        return F.cross_entropy(self.predict(model, batch.x, batch.head), batch.y)

    def after_backward(self, model: nn.Module, batch: Batch, step: Step) -> None:
        """Called between the gradient and the optimizer's step; may change gradients."""

    def after_step(self, model: nn.Module, batch: Batch, step: Step) -> None:
        """Called after the optimizer's step, with the batch that it was made for."""

    def after_epoch(self, model: nn.Module, task: Task, epoch: int, epochs: int) -> None:
        """Called when an epoch, counted from 0, of so many `epochs` is done."""

    def after_task(self, model: nn.Module, task: Task) -> None:
        """Called when a task has been learned: the place to keep what later tasks need."""

    def predict(self, model: nn.Module, x: Tensor, head: Tensor | int | None) -> Tensor:
        """Compute logits, at a head where the model has several."""
        return model(x) if head is None else model(x, head)

    def nbytes(self) -> int:
        """Count the bytes carried to the next task beside the model itself: all of the state but `….facts`."""
        return sum(tensor.nbytes for name, tensor in self.state_dict().items() if not name.endswith(".facts"))

    def measures(self) -> dict[str, float]:
        """Give numbers of the method's own for a task's record."""
        return {}

    def state_dict(self) -> dict[str, Tensor]:
        """Give all that changes while training, by name."""
        return {}

    def snapshot(self) -> Callable[[], dict[str, Tensor]]:
        """Give what gives the `state_dict` of this moment later, whatever is changed meanwhile."""
        kept = {name: tensor.clone() for name, tensor in self.state_dict().items()}
        return lambda: kept

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from a `state_dict`; called before the model gets its weights back, so that one that grew can grow."""

    def save(self, folder: Path) -> None:
        """Write what a person may want to look at when the run is done."""

    @classmethod
    def work(cls, task: int) -> float:
        """Estimate the cost of a task, counted from 0, relative to the first: for the time left."""
        return 1.0


@dataclass(kw_only=True)
class KeepingMethod(Method):
    """Methods that keep a few samples with their logits."""

    needs_boundaries = True
    holds_old_outputs = True

    strength: float = 1.0
    """λ"""
    size: Size = field(default_factory=lambda: Size(per_class=50))
    """how much is kept"""
    select: str = "random"
    """which samples are kept"""
    codec: str = "auto"
    """how samples are kept"""
    logit_codec: str = "float32"
    """how logits are kept"""
    seed: int = 0

    def __post_init__(self) -> None:
        self.reminder = self.make_reminder()
        self._early: Tensor | None = None
        """per training item, the sum of its gradient norms over the early epochs"""

    def make_reminder(self) -> Reminder:
        """Make what selects and keeps."""
        # No witnesses: a comparison has test data.
        return Reminder(codec=self.codec, logit_codec=self.logit_codec, witnesses=0.0, seed=self.seed)

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        # A memory larger than the data, or an unknown selection, should not come to light after hours.
        find(self.select)
        if stream[0].outputs == 1:
            self.reminder.call = replace(self.reminder.call, one_will_do=True)
        some, budget = Memory(), self.size.budget_bytes
        for task in stream:
            train = task.parts.train
            if self.size.items is not None:
                if self.size.items < len(stream):
                    raise SelfReminderError(
                        f"a memory of {self.size.items} items has fewer than one for each of the {len(stream)} tasks"
                    )
            elif budget is None:
                count_per_class(train.y, per_class=self.size.per_class, total=self.size.per_task)
            else:
                x = task.transform(train.x[:100])
                logits, kind = torch.zeros(len(x), task.outputs or task.classes), self.logit_codec
                some = some + Memory.of({"x": x}, logits, task=task.index, codecs=self.codec, logit_codec=kind)
        if budget is not None and budget // some.item_nbytes < len(stream):
            raise SelfReminderError(
                f"a budget of {self.size.budget} holds {budget // some.item_nbytes} items of {some.item_nbytes} bytes, "
                f"fewer than one for each of the {len(stream)} tasks: raise the budget"
            )
        return model

    def after_epoch(self, model: nn.Module, task: Task, epoch: int, epochs: int) -> None:
        if parse(self.select)[0] == "gradient" and epoch < max(1, round(EARLY * epochs)):
            data = task.train

            def logits_of(model: nn.Module, x: Any) -> Tensor:
                return Method.predict(self, model, x.to(next(model.parameters()).device), task.head)

            norms = gradient_norms(model, logits_of, data.x, data.y)
            self._early = norms if self._early is None else self._early + norms

    def after_task(self, model: nn.Module, task: Task) -> None:
        self.reminder.remember(
            model,
            task.train.x,
            task.train.y,
            task=task.index,
            select=self.select,
            validation=(task.validation.x, task.validation.y),
            gradients=self._early,
            **vars(self.size),
        )
        self._early = None

    def nbytes(self) -> int:
        return self.reminder.memory.nbytes

    def state_dict(self) -> dict[str, Tensor]:
        return list_memory_state(self.reminder.memory, self._early)

    def snapshot(self) -> Callable[[], dict[str, Tensor]]:
        if type(self).state_dict is not KeepingMethod.state_dict:
            return super().snapshot()
        # A memory is never changed, but for another one. To list it takes time in proportion to the tasks so far.
        return partial(list_memory_state, self.reminder.memory, self._early)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.reminder.memory = load_memory_state(state)
        self._early = state["early"].cpu() if "early" in state else None

    def save(self, folder: Path) -> None:
        self.reminder.save(folder / "memory.safetensors")


@dataclass(kw_only=True)
class MemoryMethod(KeepingMethod):
    """Methods that penalise a change of the logits of what they keep."""

    memory_batch: int = 128
    """the most remembered items in a step"""
    over_tasks: Literal["sum", "mean"] = "sum"
    """the paper's sum over tasks, or their mean"""
    mode: Literal["eval", "train"] = "eval"
    """of batch norm and dropout for remembered items"""

    def make_reminder(self) -> Reminder:
        return Reminder(
            strength=self.strength,
            loss=self.item_loss,
            over_tasks=self.over_tasks,
            mode=self.mode,
            batch_size=self.memory_batch,
            codec=self.codec,
            logit_codec=self.logit_codec,
            witnesses=0.0,
            seed=self.seed,
        )

    @abstractmethod
    def item_loss(self, logits: Tensor, kept: MemoryBatch) -> Tensor:
        """Compute the penalties (n,) of n remembered items whose logits are now `logits` (n, classes)."""

    def logits_of(self, model: nn.Module, x: Tensor, task: Tensor | int) -> Tensor:
        """Compute each item's logits at its own task's head. Heads of tasks to come take no part."""
        return model(x, task, list(self.reminder.memory.counts)) if isinstance(task, Tensor) else model(x, task)

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        if stream[0].head is not None:
            self.reminder.logits_of = self.logits_of
        return super().prepare(model, stream)

    def start_task(self, model: nn.Module, task: Task) -> None:
        if task.outputs is not None and len(self.reminder.memory):
            # Where the output grows, the new classes' logits on old items are held where they are before training.
            self.reminder.memory = widen_logits(self.reminder.memory, self.reminder.call, model, trusted=True)

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        if batch.head is None and model.training:
            logits, penalty = self.reminder.forward(model, batch.x, generator=step.generator)
        else:
            # Early stopping would fit the weights to the few items of a step.
            items = self.memory_batch if model.training else max(self.memory_batch, _VALIDATION_ITEMS)
            logits = self.predict(model, batch.x, batch.head)
            penalty = self.reminder.penalty(model, generator=step.generator, items=items)
        return F.cross_entropy(logits, batch.y) + penalty


def load_memory_state(state: dict[str, Tensor]) -> Memory:
    """Make the memory of what `list_memory_state` listed."""
    return Memory.from_columns(state, json.loads(bytes(state["memory.facts"].cpu().numpy())))


def list_memory_state(memory: Memory, early: Tensor | None = None) -> dict[str, Tensor]:
    """List what a state has of a memory, and of gradients that were looked at early."""
    facts = torch.frombuffer(bytearray(json.dumps(memory.facts).encode()), dtype=torch.uint8)
    return {"memory.facts": facts, **memory.columns, **({} if early is None else {"early": early})}
