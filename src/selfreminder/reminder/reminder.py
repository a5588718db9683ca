"""Few-Shot Self Reminder for anybody's own training loop.

When a task has been learned, keep a few of its samples and the logits z_t that the model gave them. While the
next one is learned, hold the logits z on those samples where they were (Eq. 1 of the paper):

    mean over new data of L(f(x), y)  +  λ · Σ_t mean_j ‖z_j − z_j^(t)‖²

The first term is your loss. `Reminder.penalty` is the second. `Reminder.remember` keeps the samples.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from selfreminder._base import distributed
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.eval_mode import depends_on_mode
from selfreminder._base.sizes import Size, as_index
from selfreminder.memory import Memory, MemoryBatch, open_memory, save_memory
from selfreminder.memory.sampling import DrawGenerators
from selfreminder.reminder.checkpointing import hand_on, uses_checkpoints
from selfreminder.reminder.drop import Drop
from selfreminder.reminder.fitting import FitCheck
from selfreminder.reminder.giving_way import GivingWay, weigh_gradient
from selfreminder.reminder.gradient import add_gradient, call_before_step, check_belongs
from selfreminder.reminder.joined_pass import JoinedPass
from selfreminder.reminder.losses import ITEM_LOSSES, ItemLoss, choose_strength, match_items_and_labels
from selfreminder.reminder.model_call import Head, LogitsOf, ModelCall, check_logits, find_device, unwrap_model
from selfreminder.reminder.own_loss import check_loss
from selfreminder.reminder.passes import Passes
from selfreminder.reminder.recall_report import ALLOWED, Report, report_tasks
from selfreminder.reminder.remember import MemoryBuilder, Remembered, record_anew
from selfreminder.reminder.settings import check_settings, choose_settings
from selfreminder.reminder.tolerance import Tolerance
from selfreminder.samples import read_samples
from selfreminder.samples.columns import is_text
from selfreminder.selection.base import Selection


def ride_along(reminder: Callable[[], Reminder | None], x: Tensor) -> tuple[Tensor, MemoryBatch] | None:
    """Old inputs that can be appended to new ones, with what is known of them."""
    ours = reminder()
    if ours is None or not len(ours.memory):
        return None
    kept = ours._draw(x.device, None)
    inputs = ours.call.apply_transform(kept.inputs)
    fits = isinstance(inputs, Tensor) and inputs.shape[1:] == x.shape[1:]
    return (inputs.to(x.dtype), kept) if fits else None


def _weight_of_new(reminder: Callable[[], Reminder | None]) -> Tensor | None:
    """What the new weighs, as long as there is a reminder with a tolerance."""
    ours = reminder()
    return None if ours is None or ours.tolerance is None else ours.tolerance.weight_of_new


def _setting_of_call(name: str) -> Any:
    """An attribute of a reminder that is a setting of its `call`."""

    def get(reminder: Reminder) -> Any:
        return getattr(reminder.call, name)

    def put(reminder: Reminder, value: Any) -> None:
        reminder.call = replace(reminder.call, **{name: value})
        reminder._fit.forget()

    return property(get, put)


class Reminder:
    """A memory and a penalty.

    The settings of `__init__` are attributes; `memory` is what is remembered, and `call` how a model is called on it.

    >>> model, old, new = nn.Linear(4, 3), torch.rand(90, 4), torch.rand(32, 4)
    >>> reminder = Reminder()
    >>> reminder.remember(model, old, labels=torch.arange(90) % 3, per_class=10)  # when the old is learned
    Remembered(task=0, items=30, witnesses=6, classes={0: 10, 1: 10, 2: 10}, nbytes=1320)
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
        max_drop: float | None = None,
        loss: str | ItemLoss = "logit",
        label_weight: float | None = None,
        draws: Literal["shared", "separate"] = "shared",
        over_tasks: Literal["sum", "mean"] = "sum",
        batch_size: int = 128,
        codec: str = "auto",
        logit_codec: str = "float32",
        transform: Callable[[Any], Any] | None = None,
        head: Head | None = None,
        logits_of: LogitsOf | None = None,
        mode: Literal["joint", "eval", "train"] = "joint",
        grow: bool = False,
        witnesses: float = 0.2,
        tasks: Literal["keep", "merge"] = "keep",
        stale: Literal["error", "warn"] = "error",
        seed: int = 0,
    ) -> None:
        """
        Args:
            memory: what is remembered already.
            strength: λ; "auto" takes one that suits the remembered logits, see `selfreminder.reminder.losses`.
            max_drop: instead of a strength, how much accuracy on the old may be lost, say .01: the new then weighs
                less in training where more would be lost; see `selfreminder.reminder.tolerance`.
            loss: "logit", "distill", "logit+label" (‖z − z_t‖² + CE(z, y): λ weighs both), or a function of
                (logits, MemoryBatch) giving (n,).
            label_weight: of CE(z, y) in "logit+label", where λ is to weigh ‖z − z_t‖² alone.
            draws: with "separate" the two terms of "logit+label" look at a draw of their own each, as in DER++.
            over_tasks: "sum" is the paper's; with "mean" a hundred tasks do not weigh a hundredfold.
            batch_size: the most items that one penalty looks at; of several processes, each at so many.
            codec: how inputs are kept, see `selfreminder.memory.codec`; "auto" and "compressed" lose nothing.
            logit_codec: how logits are kept: "float32", "float16" or "int8".
            transform: from what is kept (say, raw uint8 images) to what the model takes.
            head: which of several outputs has the logits: its place or its name, or a dict with one for each task.
            logits_of: how to call the model, where that does not do: (model, inputs, task) -> logits (n, K), where
                `task` is one number for all items, or a tensor with one for each.
            mode: of layers that differ in training. With "joint" dropout is off for old items, and batch norm sees
                them together with the new, see `selfreminder.reminder.joined_pass`; with "eval" both are in eval mode
                for old items, and running statistics are left alone; "train" leaves the mode as it is.
            grow: the model may have more classes than it had, at the end: old items are recorded anew by the wider
                model when it is first met, see `refresh`.
            witnesses: the share of what is kept that no penalty holds, so that `report` can judge by it; of a class
                with fewer than three, none.
            tasks: "merge" makes one of the two oldest tasks where a budget has no room for an item of each.
            stale: what to do where model or transform are not those that recorded the logits.
            seed: of the reminder's own random numbers.
        """
        check_settings(locals())
        self.memory = Memory() if memory is None else memory
        self.call = ModelCall(transform, head, logits_of, grow, batch_size)
        self.strength: float | Literal["auto"] = strength
        self.loss = ITEM_LOSSES[loss] if isinstance(loss, str) else check_loss(loss)
        self.label_weight, self.draws = label_weight, draws
        self.over_tasks = over_tasks
        self.codec, self.logit_codec = codec, logit_codec
        self.mode = mode
        self.witnesses, self.tasks = witnesses, tasks
        self.tolerance = None if max_drop is None else Tolerance(max_drop)
        self.stale: Literal["error", "warn"] = stale
        self.seed = seed
        self.classes: list[str] | None = self.memory.settings.get("classes")
        self._draws = DrawGenerators(seed)
        self._gives_tensors = True
        self._fit = FitCheck()
        self._passes = Passes()
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
        With batch norm, call it after your own forward pass, in which old items ride along.
        """
        way = self._give_way(unwrap_model(model)) if len(self.memory) else None
        gives_way = way is not None and way.take(unwrap_model(model))
        return self._penalty(model, generator, items, gives_way=gives_way)

    def _penalty(
        self, model: nn.Module, generator: torch.Generator | None, items: int | None, *, gives_way: bool
    ) -> Tensor:
        given, model = model, unwrap_model(model)
        device = find_device(model)
        if not len(self.memory):
            return torch.zeros((), device=device)
        self._check(model)
        again = uses_checkpoints(given)
        joined = self._join(model) if not again and generator is None and items is None else None
        if joined is not None and (found := joined.take()) is not None:
            return self._weigh(*found, model, gives_way=gives_way)
        kept = self._draw(device, generator, items)
        alone = self._passes.old_pass(model, joint=self.mode == "joint" and not again and joined is None)
        with self._passes.unweighed(), nullcontext() if self.mode == "train" else alone:
            logits = self.call(model, kept.inputs, kept.tasks, self.memory.counts)
            penalty = self._weigh(logits, kept, model, gives_way=gives_way)
            # What is computed again must be so in the same mode: here.
            return hand_on(penalty, given, half=logits.dtype == torch.float16) if again else penalty

    def forward(
        self, model: nn.Module, x: Tensor, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """(model(x), penalty) from one pass over both, which is faster than two.

        A model without batch norm that has dropout in train mode, or a layer of yours that looks at `self.training`,
        gets two passes, because old items are to see those as `mode` says; so does one that needs `head` or
        `logits_of`, or whose output is more than a tensor.
        """
        plain = bool(len(self.memory)) and self._is_plain
        if plain and generator is None and not uses_checkpoints(model):
            self._join(unwrap_model(model))  # where there is batch norm
        if len(self.memory):
            self._give_way(unwrap_model(model))
        if plain and (self.mode == "train" or not any(map(depends_on_mode, model.modules()))):
            self._check(unwrap_model(model))
            kept = self._draw(x.device, generator)
            with self._passes.unweighed():
                logits = model(torch.cat([x, self.call.apply_transform(kept.inputs).to(x.dtype)]))
            self._gives_tensors = isinstance(logits, Tensor)
            if self._gives_tensors:
                new = logits[: len(x)]
                new = new if self.tolerance is None else weigh_gradient(new, self.tolerance.weight_of_new)
                return new, self._weigh(logits[len(x) :], kept, unwrap_model(model), gives_way=True)
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
        # The graph of the user's own pass is gone by now: old items cannot have been part of it.
        self._passes.stay()  # nor can what it gave have weighed less
        compute = partial(self._penalty, unwrap_model(model), None, self.call.batch_size, gives_way=True)
        return add_gradient(compute, optimizer, loss_scale, partial(_weight_of_new, weakref.ref(self)))

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> RemovableHandle:
        """Add the penalty's gradient at every `optimizer.step()`, so that the loop stays as it is.

        Once per step, whatever gradients were accumulated, after your own clipping. `remove()` of the handle ends
        it. A closure is refused: it would overwrite the gradient.
        """
        model = unwrap_model(model)
        if self.logits_of is None:  # which may know of other parameters
            check_belongs(model, optimizer)
        return call_before_step(self.add_gradient, model, optimizer)

    # When it has been learned -------------------------------------------------------------------------

    @torch.inference_mode(False)  # what is kept takes part in a backward pass later
    @torch.no_grad()
    def remember(
        self,
        model: nn.Module,
        data: Any,
        labels: Any = None,
        *,
        classes: Sequence[str] | None = None,
        task: int | None = None,
        per_class: int | None = None,
        per_task: int | None = None,
        budget: str | int | None = None,
        items: int | None = None,
        select: str | Selection = "random",
        validation: tuple[Any, Tensor] | None = None,
        gradients: Tensor | None = None,
        sources: Tensor | Sequence[int] | None = None,
        time: float | None = None,
    ) -> Remembered:
        """Choose a few of these samples, record the model's logits on them, keep both, and say what was kept.

        Of several processes each gives its own part of the data, or all give the same.

        Args:
            model: as it is at the task's end.
            data: a tensor, a tuple of tensors or tensors by name; a Dataset, a DataLoader or a Hugging Face data
                set. It is what is kept, before `transform`: the view for evaluation, not an augmented one.
            labels: (n,) classes, where `data` has none; without any, the model's predictions stratify the choice.
                Several an item, rows of 0 and 1, and fractions stratify it too, and are not kept.
            classes: the names of the model's outputs in order, where labels are names; said once, they are kept.
            task: a new one by default; or the number of one that these items join.
            per_class, per_task, items, budget: how much, by exactly one of the four. `items` and a budget ("2MB")
                are totals: each new task shrinks the others evenly.
            select: which, by name (`selfreminder list` has them), or a function of `selection.base.Candidates`.
            validation: inputs and labels that the model was not trained on; "influence" looks at them.
            gradients: (n,) mean gradient norms early in training, for "gradient": see
                `selfreminder.gradients.per_sample.gradient_norms`; without them it takes the norms now.
            sources: (n,) where each sample came from, if its index in `data` does not say. Of a DataLoader that
                changes the order that is not known, unless it is given here, in the loader's order.
            time: when, in seconds since 1970.
        """
        model, size = unwrap_model(model), Size(per_class, per_task, budget, items)
        if self.transform is not None:  # an object, say, whose mean was changed since
            self._fit.forget()
        self._check(model)
        number = self._next_task if task is None else as_index("task", task)
        self.classes = self.classes if classes is None else list(classes)
        builder = self._builder(model, number, size, None if time is None else _whole_seconds(time))
        self.memory = builder.remember(
            data, labels, sources, classes=self.classes, select=select, validation=validation, gradients=gradients
        )
        if self.tolerance is not None:
            self.tolerance.begin_task()
        return Remembered.of(self.memory, number)

    @torch.inference_mode(False)
    @torch.no_grad()
    def observe(
        self,
        model: nn.Module,
        inputs: Any,
        labels: Any = None,
        *,
        classes: Sequence[str] | None = None,
        per_task: int | None = None,
        per_class: int | None = None,
        budget: str | int | None = None,
        logits: Tensor | None = None,
    ) -> None:
        """Keep a uniform sample of all that comes along a stream without tasks, in constant memory.

        Call it with each batch. Which items enter is chosen by chance; the model's logits on those are recorded then,
        in eval mode, on the inputs as they are given: after the step, those of the model that has seen the batch;
        before it, those of the model that had not. `logits` (n, K) are recorded instead where they are given: those of
        your own pass over the batch, as DER has them, which costs no further pass. `per_task` is how many are kept of
        the whole stream, `classes` the names of the outputs where labels are names, as in `remember`. The memory's
        file has all that is needed to go on.
        """
        model, size = unwrap_model(model), Size(per_class, per_task, budget)
        self._check(model)
        task = max(self.memory.reservoirs, default=self._next_task)
        self.classes = self.classes if classes is None else list(classes)
        names = self._names_for(labels, classes)
        self.memory = self._builder(model, task, size).observe(read_samples(inputs, labels, classes=names), logits)

    # What is remembered -------------------------------------------------------------------------------

    @torch.inference_mode(False)
    @torch.no_grad()
    def refresh(self, model: nn.Module) -> None:
        """Record the logits of all that is kept anew: by a wider model, an adapted one, an average of weights.

        From then on the penalty holds what this model says. A model that has forgotten says what it remembers.
        """
        self.memory = record_anew(self.memory, self.call, unwrap_model(model))

    @torch.no_grad()
    def report(
        self,
        model: nn.Module,
        new: Any = None,
        *,
        old: Any = None,
        old_accuracy: float | None = None,
        classes: Sequence[str] | None = None,
        task: int | None = None,
    ) -> Report:
        """How well the model still does what it did, task by task, and whether λ is too weak or too strong. Print it.

        It judges by witnesses, items that no penalty holds; without any it is optimistic, and says so.

        Args:
            new: (inputs, labels) or a data set of what it learns now: then it can see that λ is too strong.
            old: the same of the old, to judge by instead of witnesses.
            old_accuracy: on `old`, before; without it, the accuracy on remembered items when they were recorded.
            classes: the names of the outputs, where labels are names and `remember` was not told them.
            task: the number of the new, where it is not one after those remembered.
        """
        model = unwrap_model(model)
        rows = tuple(report_tasks(self.memory, self.call, self.loss, model))
        number = self._next_task if task is None else task
        right = None if new is None else self._accuracy(model, "new", new, number, classes)[0]
        allowed = ALLOWED if self.tolerance is None else max(self.tolerance.max_drop, 0.0)
        history = [] if self.tolerance is None else self.tolerance.history
        moved, gave_way = tuple(self._base_strength * each for each, _ in history), tuple(each for _, each in history)
        found = Report(rows, self.current_strength, self.over_tasks, right, None, allowed, moved, gave_way)
        if old is None:
            return found
        now, n = self._accuracy(model, "old", old, min(self.memory.counts, default=number), classes)
        then, n_then = (found.accuracy_then, len(self.memory)) if old_accuracy is None else (old_accuracy, n)
        if then is None:
            raise SelfReminderError("remembered items have no labels to compare old with: pass old_accuracy=…")
        return replace(found, old=Drop.between(then, n_then, now, n))

    def _accuracy(
        self, model: nn.Module, name: str, data: Any, task: int, classes: Sequence[str] | None
    ) -> tuple[float, int]:
        given = data if isinstance(data, tuple) and len(data) == 2 else (data,)
        samples = read_samples(*given, classes=self._names_for(given[-1], classes))
        if samples.labels is None:
            raise SelfReminderError(f"{name} has no labels: pass {name}=(inputs, labels)")
        predicted = self.call.predict(model, samples.inputs, task)
        return (predicted == samples.labels).float().mean().item(), len(samples)

    def _names_for(self, labels: Any, classes: Sequence[str] | None) -> Sequence[str] | None:
        """The names of classes that are said for these labels; those said before, where labels are names."""
        return self.classes if classes is None and is_text(labels) else classes

    @property
    def current_strength(self) -> float:
        """λ, as it is for what is remembered now."""
        return self._base_strength * (1.0 if self.tolerance is None else self.tolerance.factor)

    @property
    def _base_strength(self) -> float:
        if self.strength != "auto":
            return self.strength
        return choose_strength(self.loss, self.memory, over_tasks=self.over_tasks)

    # Files ---------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the memory and the settings of the penalty to one file, whole or not at all."""
        save_memory(replace(self.memory, settings=self._settings), path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **settings: Any) -> Reminder:
        """A reminder with the memory and the settings of a file; `settings` are those of `Reminder`, said anew.

        Where one of them is not what the file has, a warning says so.
        """
        memory = open_memory(path)
        return cls(memory, **choose_settings(path, memory, settings))

    def state_dict(self) -> dict[str, Any]:
        """The memory and the state of the draws, for a checkpoint; `torch.load(weights_only=True)` reads it."""
        return {
            "columns": self.memory.columns,
            "facts": self.memory.facts,
            "draws": self._draws.state_dict(),
            **self._passes.state_dict(),
            "tolerance": {} if self.tolerance is None else self.tolerance.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any], model: nn.Module | None = None) -> None:
        """Go on from a checkpoint; with batch norm or a tolerance to the bit, if the `model` is given here."""
        if missing := {"columns", "facts", "draws"} - state.keys():
            raise SelfReminderError(f"this is no state of a reminder: it lacks {', '.join(sorted(missing))}")
        self.memory = Memory.from_columns(state["columns"], state["facts"])
        self._draws.load_state_dict(state["draws"])
        self._passes = Passes(state.get("norms"))
        if self.tolerance is not None and state.get("tolerance"):
            self.tolerance.load_state_dict(state["tolerance"])
        if model is not None:
            ours = weakref.ref(self)
            self._passes.go_on(state, unwrap_model(model), partial(ride_along, ours), partial(_weight_of_new, ours))

    # ---------------------------------------------------------------------------------------------------

    @property
    def _settings(self) -> dict[str, Any]:
        """What a file says of the penalty beside the memory."""
        names = [name for name, loss in ITEM_LOSSES.items() if loss is self.loss]
        return {
            "loss": names[0] if names else None,
            "strength": None if self.strength == "auto" else self.strength,
            "max_drop": None if self.tolerance is None else self.tolerance.max_drop,
            "over_tasks": self.over_tasks,
            "classes": self.classes,
            # Only where it is said: files without it are those of earlier versions, hashes included.
            **({} if self.label_weight is None else {"label_weight": self.label_weight}),
        }

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
            witnesses=self.witnesses,
            merge=self.tasks == "merge",
        )

    def _draw(self, device: torch.device, generator: torch.Generator | None, items: int | None = None) -> MemoryBatch:
        if self.memory.device != device:
            with torch.inference_mode(False):  # what is kept takes part in a backward pass later
                self.memory = self.memory.to(device)
        generator = self._draws.get(device) if generator is None else generator
        kept = self.memory.draw(items or self.call.batch_size, generator, part=distributed.get_ranks())
        if len(kept) < self.memory.items_held:
            if self.draws == "shared":
                return kept
            return kept.add_draw(self.memory.draw(len(kept), generator, part=distributed.get_ranks()))
        # A copy, because a whole draw is the memory's own, and transform and model may work in place.
        return replace(kept, inputs={name: x.clone() for name, x in kept.inputs.items()})

    def _join(self, model: nn.Module) -> JoinedPass | None:
        """Let old items ride along in the model's own passes, from the next one on, where that can be."""
        if self.mode != "joint" or not self._is_plain:
            return None
        return self._passes.join(model, partial(ride_along, weakref.ref(self)))

    def _give_way(self, model: nn.Module) -> GivingWay | None:
        """Let the new weigh less in the model's own passes, from the next one on, where there is a tolerance."""
        if self.tolerance is None or not torch.is_grad_enabled():
            return None
        return self._passes.give_way(model, partial(_weight_of_new, weakref.ref(self)))

    @property
    def _is_plain(self) -> bool:
        """Whether a model is called with one tensor, and gives logits."""
        return self.call.is_plain and self._gives_tensors and self.memory.inputs.keys() == {"x"}

    def _weigh(self, logits: Tensor, kept: MemoryBatch, model: nn.Module, *, gives_way: bool) -> Tensor:
        check_logits(logits, len(kept), self.call.one_will_do)
        tasks = self.memory.tasks_held if self.over_tasks == "mean" else 1
        logits = self.call.match_width(logits, kept.logits.shape[1]).float()
        if self.label_weight is None:
            penalty = self._base_strength / tasks * torch.dot(kept.weight, self.loss(logits, kept))
        else:
            weights = {"logit_weight": self._base_strength, "label_weight": self.label_weight}
            penalty = torch.dot(kept.weight, match_items_and_labels(logits, kept, **weights)) / tasks
        if self.tolerance is None or not torch.is_grad_enabled():
            return penalty
        seen = partial(self.memory.draw_witnesses, generator=self._draws.get(self.memory.device))
        drawn = logits.detach(), kept
        return self.tolerance.follow(self.memory, self.call, model, drawn, seen, gives_way) * penalty

    def _check(self, model: nn.Module) -> None:
        self.memory = self._fit(self.memory, model, self.call, self.loss, self.stale)


def _whole_seconds(time: float) -> int:
    if not 0 <= time < 2**63:  # nor is nan
        raise SelfReminderError(f"time is {time:g}: it is in seconds since 1970")
    return int(time)
