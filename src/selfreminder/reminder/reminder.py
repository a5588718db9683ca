"""Few-Shot Self Reminder for anybody's own training loop.

When a task has been learned, keep a few of its samples and the logits z_t that the model gave them. While the
next one is learned, hold the logits z on those samples where they were (Eq. 1 of the paper):

    mean over new data of L(f(x), y)  +  λ · Σ_t mean_j ‖z_j − z_j^(t)‖²

The first term is your loss. `Reminder.penalty` is the second. `Reminder.remember` keeps the samples.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from selfreminder._base import distributed
from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder._base.eval_mode import depends_on_mode, eval_mode
from selfreminder._base.sizes import Size, as_index
from selfreminder.memory import Memory, MemoryBatch, open_memory, save_memory
from selfreminder.memory import codec as codecs
from selfreminder.memory.fingerprint import find_staleness
from selfreminder.memory.sampling import DrawGenerators
from selfreminder.reminder.gradient import add_gradient, call_before_step
from selfreminder.reminder.losses import ITEM_LOSSES, ItemLoss, choose_strength, match_items_and_labels
from selfreminder.reminder.model_call import Head, LogitsOf, ModelCall, check_logits, find_device, unwrap_model
from selfreminder.reminder.recall_report import Report, report_tasks
from selfreminder.reminder.remember import MemoryBuilder, missing_logit
from selfreminder.samples import read_samples
from selfreminder.selection.base import Selection


def _setting_of_call(name: str) -> Any:
    """An attribute of a reminder that is a setting of its `call`."""

    def get(reminder: Reminder) -> Any:
        return getattr(reminder.call, name)

    def put(reminder: Reminder, value: Any) -> None:
        reminder.call = replace(reminder.call, **{name: value})
        reminder._checked = Memory(), None

    return property(get, put)


class Reminder:
    """A memory and a penalty.

    The settings of `__init__` are attributes; `memory` is what is remembered, and `call` how a model is called on it.

    >>> model, old, new = nn.Linear(4, 3), torch.rand(90, 4), torch.rand(32, 4)
    >>> reminder = Reminder()
    >>> reminder.remember(model, old, labels=torch.arange(90) % 3, per_class=10)  # when the old is learned
    >>> loss = nn.functional.cross_entropy(model(new), torch.zeros(32).long())
    >>> loss = loss + reminder.penalty(model)  # while the new is learned
    """

    transform: Callable[[Any], Any] | None = _setting_of_call("transform")
    head: Head | None = _setting_of_call("head")
    logits_of: LogitsOf | None = _setting_of_call("logits_of")
    grow: bool = _setting_of_call("grow")
    batch_size: int = _setting_of_call("batch_size")

    def __init__(
        self,
        memory: Memory | None = None,
        *,
        strength: float | Literal["auto"] = "auto",
        loss: str | ItemLoss = "logit",
        over_tasks: Literal["sum", "mean"] = "sum",
        batch_size: int = 128,
        codec: str = "auto",
        logit_codec: str = "float32",
        transform: Callable[[Any], Any] | None = None,
        head: Head | None = None,
        logits_of: LogitsOf | None = None,
        mode: Literal["eval", "train"] = "eval",
        grow: bool = False,
        stale: Literal["error", "warn"] = "error",
        seed: int = 0,
    ) -> None:
        """
        Args:
            memory: what is remembered already.
            strength: λ; "auto" takes one that suits the remembered logits, see `selfreminder.reminder.losses`.
            loss: "logit", "distill", "logit+label" (‖z − z_t‖² + CE(z, y): λ weighs both), or a function of
                (logits, MemoryBatch) giving (n,).
            over_tasks: "sum" is the paper's; with "mean" a hundred tasks do not weigh a hundredfold.
            batch_size: the most items that one penalty looks at; of several processes, each at so many.
            codec: how inputs are kept, see `selfreminder.memory.codec`; "auto" and "compressed" lose nothing.
            logit_codec: how logits are kept: "float32", "float16" or "int8".
            transform: from what is kept (say, raw uint8 images) to what the model takes.
            head: which of several outputs has the logits: its place or its name, or a dict with one for each task.
            logits_of: how to call the model, where that does not do: (model, inputs, task) -> logits (n, K), where
                `task` is one number for all items, or a tensor with one for each.
            mode: "eval" runs batch norm and dropout in eval mode on old items and leaves running statistics
                and your random numbers alone; "train" does not.
            grow: the model may have more classes than it had, at the end: old items match the logits they have.
            stale: what to do where model or transform are not those that recorded the logits.
            seed: of the reminder's own random numbers.
        """
        for what, value, known in (
            ("loss", loss, ITEM_LOSSES),
            ("over_tasks", over_tasks, ("sum", "mean")),
            ("mode", mode, ("eval", "train")),
            ("stale", stale, ("error", "warn")),
            ("codec", codec, codecs.NAMES),
            ("logit codec", logit_codec, codecs.LOGIT_NAMES),
        ):
            if not callable(value) and value not in known:
                raise unknown(what, str(value), known)
        if memory is not None and not isinstance(memory, Memory):
            raise SelfReminderError(f"memory is a {type(memory).__name__}: open a file with Reminder.load(path)")
        if not isinstance(batch_size, int) or batch_size < 1:
            raise SelfReminderError(f"batch_size is {batch_size}: a penalty looks at one item at least")
        number = isinstance(strength, int | float) and not isinstance(strength, bool)
        if strength != "auto" and not (number and 0 <= strength < float("inf")):
            raise SelfReminderError(f'strength is {strength!r}: it is a number from 0 on, or "auto"')
        if head is not None and logits_of is not None:
            raise SelfReminderError("head= and logits_of= both say where the logits are: pass one of them")
        self.memory = Memory() if memory is None else memory
        self.call = ModelCall(transform, head, logits_of, grow, batch_size)
        self.strength: float | Literal["auto"] = strength
        self.loss = ITEM_LOSSES[loss] if isinstance(loss, str) else loss
        self.over_tasks = over_tasks
        self.codec, self.logit_codec = codec, logit_codec
        self.mode = mode
        self.stale = stale
        self.seed = seed
        self._draws = DrawGenerators(seed)
        self._gives_tensors = True
        self._checked: tuple[Memory, weakref.ref[nn.Module] | None] = Memory(), None
        if strength == "auto":
            choose_strength(self.loss, self.memory)  # a loss of one's own has no automatic strength

    def __repr__(self) -> str:
        return f"Reminder({self.memory!r}, strength={self.strength})"

    # While the new is learned -------------------------------------------------------------------------

    def penalty(
        self, model: nn.Module, *, generator: torch.Generator | None = None, items: int | None = None
    ) -> Tensor:
        """λ · Σ_t mean_j of the loss on remembered items: add it to yours. 0, without a pass, while empty.

        `items` is how many it looks at, if not `batch_size`: more give a less noisy estimate of the same number.
        With batch norm, call it after your own forward pass, which changes the statistics that this one uses.
        """
        model = unwrap_model(model)
        device = find_device(model)
        if not len(self.memory):
            return torch.zeros((), device=device)
        self._check(model)
        kept = self._draw(device, generator, items)
        with eval_mode(model) if self.mode == "eval" else nullcontext():
            logits = self.call(model, kept.inputs, kept.tasks, self.memory.counts)
        return self._weigh(logits, kept)

    def forward(
        self, model: nn.Module, x: Tensor, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """(model(x), penalty) from one pass over both, which is faster than two.

        A model with batch norm or dropout in train mode, or a layer of yours that looks at `self.training`, gets
        two passes, because old items are to see those in eval mode; so does one that needs `head` or `logits_of`, or
        whose output is more than a tensor.
        """
        plain = self.call.is_plain and self._gives_tensors and self.memory.inputs.keys() == {"x"}
        if len(self.memory) and plain and (self.mode == "train" or not any(map(depends_on_mode, model.modules()))):
            self._check(unwrap_model(model))
            kept = self._draw(x.device, generator)
            logits = model(torch.cat([x, self.call.apply_transform(kept.inputs).to(x.dtype)]))
            self._gives_tensors = isinstance(logits, Tensor)
            if self._gives_tensors:
                return logits[: len(x)], self._weigh(logits[len(x) :], kept)
        return model(x), self.penalty(model, generator=generator)

    def add_gradient(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, *, loss_scale: Tensor | None = None
    ) -> Tensor:
        """Add the penalty's gradient to that of the optimizer's parameters, and return the penalty.

        For a trainer's hook that comes once before each step. Scaled as yours are under a GradScaler; of several
        processes, every one gets their mean. `loss_scale` is for gradients that are not scaled any more, of a model
        that computes in half precision: with it small ones do not vanish on the way, and what is not finite is left
        out.
        """
        if not len(self.memory):
            return torch.zeros((), device=find_device(model))
        return add_gradient(partial(self.penalty, model), optimizer, loss_scale)

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> RemovableHandle:
        """Add the penalty's gradient at every `optimizer.step()`, so that the loop stays as it is.

        Once per step, whatever gradients were accumulated, after your own clipping. `remove()` of the handle ends
        it. A closure is refused: it would overwrite the gradient.
        """
        return call_before_step(partial(self.add_gradient, model), optimizer)

    # When it has been learned -------------------------------------------------------------------------

    @torch.inference_mode(False)  # what is kept takes part in a backward pass later
    @torch.no_grad()
    def remember(
        self,
        model: nn.Module,
        data: Any,
        labels: Any = None,
        *,
        task: int | None = None,
        per_class: int | None = None,
        per_task: int | None = None,
        budget: str | int | None = None,
        select: str | Selection = "random",
        validation: tuple[Any, Tensor] | None = None,
        gradients: Tensor | None = None,
        sources: Tensor | Sequence[int] | None = None,
        time: float | None = None,
    ) -> None:
        """Choose a few of these samples, record the model's logits on them, and keep both.

        Of several processes each gives its own part of the data, or all give the same.

        Args:
            model: as it is at the task's end.
            data: a tensor, a tuple of tensors or tensors by name; a Dataset, a DataLoader or a Hugging Face data
                set. It is what is kept, before `transform`: the view for evaluation, not an augmented one.
            labels: (n,) classes, where `data` has none; without any, the model's predictions stratify the choice.
            task: a new one by default; or the number of one that these items join.
            per_class, per_task, budget: how much, by exactly one of the three. A budget ("2MB") is a total:
                each new task shrinks the others evenly.
            select: which, by name (`selfreminder list` has them), or a function of `selection.base.Candidates`.
            validation: inputs and labels that the model was not trained on; "influence" looks at them.
            gradients: (n,) mean gradient norms early in training, for "gradient": see
                `selfreminder.gradients.per_sample.gradient_norms`; without them it takes the norms now.
            sources: (n,) where each sample came from, if its index in `data` does not say. Of a DataLoader that
                changes the order that is not known, unless it is given here, in the loader's order.
            time: when, in seconds since 1970.
        """
        model, size = unwrap_model(model), Size(per_class, per_task, budget)
        self._check(model)
        number = self._next_task if task is None else as_index("task", task)
        builder = self._builder(model, number, size, None if time is None else int(time))
        self.memory = builder.remember(data, labels, sources, select=select, validation=validation, gradients=gradients)

    @torch.inference_mode(False)
    @torch.no_grad()
    def observe(
        self,
        model: nn.Module,
        inputs: Any,
        labels: Tensor | None = None,
        *,
        per_task: int | None = None,
        per_class: int | None = None,
        budget: str | int | None = None,
    ) -> None:
        """Keep a uniform sample of all that comes along a stream without tasks, in constant memory.

        Call it with each batch, after the step. Which items enter is chosen by chance; the model's logits on those
        are recorded then, in eval mode, on the inputs as they are given. `per_task` is how many are kept of the
        whole stream. The memory's file has all that is needed to go on.
        """
        model, size = unwrap_model(model), Size(per_class, per_task, budget)
        self._check(model)
        task = max(self.memory.reservoirs, default=self._next_task)
        self.memory = self._builder(model, task, size).observe(read_samples(inputs, labels))

    # What is remembered -------------------------------------------------------------------------------

    @torch.no_grad()
    def report(self, model: nn.Module, new: Any = None, *, task: int | None = None) -> Report:
        """How well the model still does what it did, task by task, and whether λ is too weak or too strong.

        With `new`, (inputs, labels) or a data set of what it learns now, it can see that λ is too strong; `task` is the
        number of that, where it is not one after those remembered. Print it. It looks at remembered items, which the
        penalty holds: other old data will have changed somewhat more.
        """
        model, right = unwrap_model(model), None
        rows = tuple(report_tasks(self.memory, self.call, self.loss, model))
        if new is not None:
            samples = read_samples(*new) if isinstance(new, tuple) and len(new) == 2 else read_samples(new)
            if samples.labels is None:
                raise SelfReminderError("new has no labels: pass new=(inputs, labels)")
            predicted = self.call.predict(model, samples.inputs, self._next_task if task is None else task)
            right = (predicted == samples.labels).float().mean().item()
        return Report(rows, self.current_strength, self.over_tasks, right)

    @property
    def current_strength(self) -> float:
        """λ, as it is for what is remembered now."""
        return choose_strength(self.loss, self.memory) if self.strength == "auto" else self.strength

    # Files ---------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the memory to one file, whole or not at all."""
        save_memory(self.memory, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **settings: Any) -> Reminder:
        """A reminder with the memory of a file; `settings` are those of `Reminder`."""
        return cls(open_memory(path), **settings)

    def state_dict(self) -> dict[str, Any]:
        """The memory and the state of the draws, for a checkpoint; `torch.load(weights_only=True)` reads it."""
        return {"columns": self.memory.columns, "facts": self.memory.facts, "draws": self._draws.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        if missing := {"columns", "facts", "draws"} - state.keys():
            raise SelfReminderError(f"this is no state of a reminder: it lacks {', '.join(sorted(missing))}")
        self.memory = Memory.from_columns(state["columns"], state["facts"])
        self._draws.load_state_dict(state["draws"])

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_checked": (Memory(), None)}  # no reference to the model

    # ---------------------------------------------------------------------------------------------------

    @property
    def _next_task(self) -> int:
        return max(self.memory.counts, default=-1) + 1

    def _builder(self, model: nn.Module, task: int, size: Size, time: int | None = None) -> MemoryBuilder:
        return MemoryBuilder(
            memory=self.memory,
            model=model,
            call=self.call,
            task=task,
            size=size,
            seed=self.seed,
            codec=self.codec,
            logit_codec=self.logit_codec,
            needs_labels=self.loss is match_items_and_labels,
            time=time,
        )

    def _draw(self, device: torch.device, generator: torch.Generator | None, items: int | None = None) -> MemoryBatch:
        if self.memory.device != device:
            with torch.inference_mode(False):  # what is kept takes part in a backward pass later
                self.memory = self.memory.to(device)
        generator = self._draws.get(device) if generator is None else generator
        kept = self.memory.draw(items or self.call.batch_size, generator, part=distributed.get_ranks())
        if len(kept) < len(self.memory):
            return kept
        # A copy, because a whole draw is the memory's own, and transform and model may work in place.
        return replace(kept, inputs={name: x.clone() for name, x in kept.inputs.items()})

    def _weigh(self, logits: Tensor, kept: MemoryBatch) -> Tensor:
        check_logits(logits)
        strength = self.current_strength / (len(self.memory.counts) if self.over_tasks == "mean" else 1)
        logits = self.call.match_width(logits, kept.logits.shape[1]).float()
        return strength * torch.dot(kept.weight, self.loss(logits, kept))

    def _check(self, model: nn.Module) -> None:
        """Refuse a model or a transform that did not give the logits: once for each model and memory."""
        memory, checked = self._checked
        known = checked is not None and checked() is model
        if known and memory is self.memory:
            return
        if self.loss is match_items_and_labels and bool((beyond := self.memory.labels >= self.memory.widths).any()):
            columns = self.memory.labels, self.memory.tasks, self.memory.widths
            raise missing_logit(*(int(column[beyond][0]) for column in columns))
        if not known or memory.fingerprints != self.memory.fingerprints:
            self._check_fingerprints(model)
        self._checked = self.memory, weakref.ref(model)

    def _check_fingerprints(self, model: nn.Module) -> None:
        if isinstance(self.head, Mapping) and (missing := self.memory.counts.keys() - self.head.keys()):
            raise SelfReminderError(f"head= names no head of task {min(missing)}, which the memory has")
        stale = find_staleness(self.memory, model, self.transform, grown=self.grow)
        if stale and self.stale == "error":
            raise SelfReminderError(
                f"{stale}. If classes were added behind the old ones, pass grow=True; "
                'if it is meant otherwise, stale="warn"'
            )
        if stale:
            warnings.warn(stale, stacklevel=6)
