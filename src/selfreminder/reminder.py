"""Few-Shot Self Reminder for anybody's own training loop.

When a task has been learned, keep a few of its samples and the logits z_t that the model gave them. While the
next one is learned, hold the logits z on those samples where they were (Eq. 1 of the paper):

    mean over new data of L(f(x), y)  +  λ · Σ_t mean_j ‖z_j − z_j^(t)‖²

The first term is your loss. `Reminder.penalty` is the second. `Reminder.remember` keeps the samples.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from selfreminder import codec as codecs
from selfreminder import losses
from selfreminder.errors import SelfReminderError, unknown
from selfreminder.memory import Memory, MemoryBatch
from selfreminder.memory_file import open_memory, save_memory
from selfreminder.modes import depends_on_mode, eval_mode
from selfreminder.per_sample import Inputs, rows
from selfreminder.recall import Report, TaskReport
from selfreminder.seeds import seed_for
from selfreminder.selection import find
from selfreminder.selection.base import Candidates, Selection, choose, shares
from selfreminder.sizes import Size

ItemLoss = Callable[[Tensor, MemoryBatch], Tensor]
"""(logits now, remembered items) -> one penalty an item"""

LogitsOf = Callable[[nn.Module, Any, Tensor | int], Tensor]

ITEM_LOSSES: dict[str, ItemLoss] = {
    "logit": lambda z, kept: losses.logit_match(z, kept.logits, kept.mask),
    "distill": lambda z, kept: losses.distill(z, kept.logits, kept.mask),
    "logit+label": lambda z, kept: losses.logit_and_label(z, kept.logits, kept.labels, kept.mask),
}


class Reminder:
    """A memory and a penalty.

    >>> from torch import nn
    >>> model, old, new = nn.Linear(4, 3), torch.rand(90, 4), torch.rand(32, 4)
    >>> reminder = Reminder(strength=1.0)
    >>> reminder.remember(model, old, labels=torch.arange(90) % 3, per_class=10)  # when the old is learned
    >>> loss = nn.functional.cross_entropy(model(new), torch.zeros(32).long())
    >>> loss = loss + reminder.penalty(model)  # while the new is learned
    """

    def __init__(
        self,
        memory: Memory | None = None,
        *,
        strength: float = 1.0,
        loss: str | ItemLoss = "logit",
        over_tasks: Literal["sum", "mean"] = "sum",
        batch_size: int = 128,
        codec: str = "auto",
        logit_codec: str = "float32",
        transform: Callable[[Any], Any] | None = None,
        logits_of: LogitsOf | None = None,
        mode: Literal["eval", "train"] = "eval",
        seed: int = 0,
    ) -> None:
        """
        Args:
            memory: what is remembered already.
            strength: λ.
            loss: "logit", "distill", "logit+label", or a function of (logits, MemoryBatch) giving (n,).
            over_tasks: "sum" is the paper's; with "mean" a hundred tasks do not weigh a hundredfold.
            batch_size: the most items that one penalty looks at.
            codec: how inputs are kept, see `selfreminder.codec`; "auto" and "compressed" lose nothing.
            logit_codec: how logits are kept: "float32", "float16" or "int8".
            transform: from what is kept (say, raw uint8 images) to what the model takes.
            logits_of: how to call the model: (model, inputs, task) -> logits (n, K), where `task` is one number
                for all items, or a tensor with one for each; say, to choose an output head.
            mode: "eval" runs batch norm and dropout in eval mode on old items and leaves running statistics
                and your random numbers alone; "train" does not.
            seed: of the reminder's own random numbers.
        """
        if isinstance(loss, str) and loss not in ITEM_LOSSES:
            raise unknown("loss", loss, ITEM_LOSSES)
        if over_tasks not in ("sum", "mean"):
            raise unknown("over_tasks", over_tasks, ("sum", "mean"))
        if mode not in ("eval", "train"):
            raise unknown("mode", mode, ("eval", "train"))
        if memory is not None and not isinstance(memory, Memory):
            raise SelfReminderError(f"memory is a {type(memory).__name__}: open a file with Reminder.load(path)")
        if not isinstance(batch_size, int) or batch_size < 1:
            raise SelfReminderError(f"batch_size is {batch_size}: a penalty looks at one item at least")
        if not isinstance(strength, int | float) or not 0 <= strength < float("inf"):
            raise SelfReminderError(f"strength is {strength}: it is a number from 0 on")
        if codec not in codecs.NAMES:
            raise unknown("codec", codec, codecs.NAMES)
        if logit_codec not in codecs.LOGIT_NAMES:
            raise unknown("logit codec", logit_codec, codecs.LOGIT_NAMES)
        self.memory = Memory() if memory is None else memory
        self.strength = strength
        self.loss = ITEM_LOSSES[loss] if isinstance(loss, str) else loss
        self.over_tasks = over_tasks
        self.batch_size = batch_size
        self.codec, self.logit_codec = codec, logit_codec
        self.transform = transform
        self.logits_of = logits_of or _call
        self.mode = mode
        self.seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __repr__(self) -> str:
        return f"Reminder({self.memory!r}, strength={self.strength:g})"

    # While the new is learned -------------------------------------------------------------------------

    def penalty(self, model: nn.Module, *, generator: torch.Generator | None = None) -> Tensor:
        """λ · Σ_t mean_j of the loss on remembered items: add it to yours. 0, without a pass, while empty."""
        device = _device(model)
        if not len(self.memory):
            return torch.zeros((), device=device)
        kept = self._draw(device, generator)
        with self._mode(model):
            logits = self.logits_of(model, self._transformed(kept.inputs), kept.tasks)
        return self._weigh(logits, kept)

    def forward(
        self, model: nn.Module, x: Tensor, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """(model(x), penalty) from one pass over both, which is faster than two.

        A model with batch norm or dropout in train mode, or a layer of yours that looks at `self.training`, gets
        two passes, because old items are to see those in eval mode; so does one that needs `logits_of`.
        """
        two_passes = self.mode == "eval" and any(map(depends_on_mode, model.modules()))
        if not len(self.memory) or two_passes or self.logits_of is not _call or "x" not in self.memory.inputs:
            return model(x), self.penalty(model, generator=generator)
        kept = self._draw(x.device, generator)
        logits = model(torch.cat([x, self._transformed(kept.inputs)]))
        new, old = logits[: len(x)], logits[len(x) :]
        return new, self._weigh(old, kept)

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> RemovableHandle:
        """Add the penalty's gradient at every `optimizer.step()`, so that the loop stays as it is.

        Once per step, whatever gradients were accumulated, after your own clipping; scaled as yours are under
        a GradScaler. `remove()` of the handle ends it. A closure is refused: it would overwrite the gradient.
        """

        def add_gradient(optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict[str, Any]) -> None:
            if kwargs.get("closure") is not None or any(callable(argument) for argument in args[1:]):
                raise SelfReminderError(
                    "an attached reminder cannot serve optimizer.step(closure): "
                    "add reminder.penalty(model) to the loss inside the closure"
                )
            if not len(self.memory):
                return
            parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
            with torch.enable_grad():
                penalty = self.penalty(model)
                # With a fused optimiser the GradScaler leaves the gradients scaled until the step itself.
                scale = getattr(optimizer, "grad_scale", None)
                penalty = penalty if scale is None else penalty * scale
                gradients = torch.autograd.grad(penalty, parameters, allow_unused=True)
            for parameter, gradient in zip(parameters, gradients):
                if gradient is not None:
                    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)

        return optimizer.register_step_pre_hook(add_gradient)

    # When it has been learned -------------------------------------------------------------------------

    @torch.inference_mode(False)  # what is kept takes part in a backward pass later
    @torch.no_grad()
    def remember(
        self,
        model: nn.Module,
        inputs: Inputs,
        labels: Tensor | None = None,
        *,
        task: int | None = None,
        per_class: int | None = None,
        per_task: int | None = None,
        budget: str | int | None = None,
        select: str | Selection = "random",
        validation: tuple[Inputs, Tensor] | None = None,
        gradients: Tensor | None = None,
        sources: Tensor | None = None,
        time: int | None = None,
    ) -> None:
        """Choose a few of these samples, record the model's logits on them, and keep both.

        Args:
            model: as it is at the task's end.
            inputs: a tensor, or several by name: what is kept, before `transform`.
            labels: (n,) classes; without them the model's own predictions stratify the choice.
            task: a new one by default; or the number of one that these items join.
            per_class, per_task, budget: how much, by exactly one of the three. A budget ("2MB") is a total:
                each new task shrinks the others evenly.
            select: which, by name (`selfreminder list` has them), or a function of `selection.base.Candidates`.
            validation: inputs and labels that the model was not trained on; "influence" looks at them.
            gradients: (n,) mean gradient norms early in training, for "gradient": see
                `selfreminder.per_sample.gradient_norms`; without them it takes the norms now.
            sources: (n,) where each sample came from, if its index in `inputs` does not say.
            time: when, in seconds since 1970.
        """
        size = Size(per_class, per_task, budget)
        given = _named(inputs)
        n = len(next(iter(given.values())))
        if labels is not None and not (isinstance(labels, Tensor) and labels.ndim == 1):
            raise SelfReminderError("labels are a tensor of classes, one an item: (n,)")
        task = max(self.memory.counts, default=-1) + 1 if task is None else task
        strata = self.record(model, given, task).argmax(1).cpu() if labels is None else labels.cpu()
        if len(strata) != n:
            raise SelfReminderError(f"{n} inputs, but {len(strata)} labels")
        device = _device(model)

        def remembered(index: Tensor) -> Memory:
            chosen = _named(rows(given, index))
            if not all(bool(x.isfinite().all()) for x in chosen.values() if x.is_floating_point()):
                raise SelfReminderError("the inputs hold values that are not finite")
            return Memory.of(
                chosen,
                self.record(model, _read_back(chosen, self.codec), task),
                task=task,
                labels=None if labels is None else strata[index],
                sources=index if sources is None else sources.cpu()[index],
                codecs=self.codec,
                logit_codec=self.logit_codec,
                selection=select if isinstance(select, str) else getattr(select, "__name__", "given"),
                time=time,
            ).to(device)

        memory = self.memory.to(device)
        if size.budget_bytes is None:
            wanted = shares(strata, per_class=size.per_class, total=size.per_task)
        else:
            least = remembered(torch.zeros(1, dtype=torch.long)).least_item_nbytes
            wanted = shares(strata, total=min(n, max(1, size.budget_bytes // least)))
        candidates = Candidates(
            inputs=inputs,
            labels=strata,
            count=max(wanted.values(), default=0),
            generator=torch.Generator().manual_seed(seed_for(self.seed, "selection", task, memory.next_id)),
            model=model,
            logits_of=lambda model, part: self.logits_of(model, self._transformed(_on(part, device)), task),
            validation=validation,
            gradients=gradients,
        )
        ranked = (find(select) if isinstance(select, str) else select)(candidates)
        merged = memory + remembered(choose(ranked.cpu(), strata, wanted))
        if size.budget_bytes is not None:
            if task in memory.counts:
                merged = merged.interleave(task, memory.counts[task])
            merged = merged.shrink(size.budget_bytes)
        self.memory = merged

    @torch.no_grad()
    def record(self, model: nn.Module, inputs: Inputs, task: int) -> Tensor:
        """The model's logits (n, K) on inputs as they are read back from a memory, in eval mode."""
        given = _named(inputs)
        n, device, parts = len(next(iter(given.values()))), _device(model), []
        with eval_mode(model):
            for start in range(0, n, self.batch_size):
                part = _on(rows(given, slice(start, start + self.batch_size)), device)
                logits = self.logits_of(model, self._transformed(part), task)
                _check_logits(logits)
                parts.append(logits.float())
        return torch.cat(parts)

    # What is remembered -------------------------------------------------------------------------------

    @torch.no_grad()
    def report(self, model: nn.Module) -> Report:
        """How well the model still does what it did, task by task. Print it."""
        rows = []
        for task in self.memory.counts:
            rows.append(self._report_task(model, self.memory.take(self.memory.tasks == task), task))
        return Report(tuple(rows), self.strength, self.over_tasks)

    def _report_task(self, model: nn.Module, memory: Memory, task: int) -> TaskReport:
        kept = memory.to(_device(model)).draw(len(memory))
        now = self.record(model, kept.inputs, task)
        width = int(memory.widths.max())
        if now.shape[1] != kept.logits.shape[1]:  # heads of other tasks are wider, or outputs have grown since
            self._check_fit(now, kept, width)
            now = F.pad(now, (0, kept.logits.shape[1] - width))
        mask = torch.ones_like(now, dtype=torch.bool) if kept.mask is None else kept.mask
        before, after = (z.masked_fill(~mask, float("-inf")).argmax(1) for z in (kept.logits, now))
        labelled = kept.labels >= 0
        correct = (after == kept.labels)[labelled].float().mean().item() if labelled.any() else None
        return TaskReport(
            task=task,
            items=len(kept),
            agreement=(before == after).float().mean().item(),
            drift=(now - kept.logits)[mask].abs().mean().item(),
            penalty=self.loss(now, kept).mean().item(),
            accuracy=correct,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the memory to one file, whole or not at all."""
        save_memory(self.memory, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **settings: Any) -> Reminder:
        """A reminder with the memory of a file; `settings` are those of `Reminder`."""
        return cls(open_memory(path), **settings)

    # ---------------------------------------------------------------------------------------------------

    def _draw(self, device: torch.device, generator: torch.Generator | None) -> MemoryBatch:
        if self.memory.device != device:
            self.memory = self.memory.to(device)
        if generator is None:
            if device not in self._generators:
                self._generators[device] = torch.Generator(device).manual_seed(seed_for(self.seed, "draws"))
            generator = self._generators[device]
        return self.memory.draw(self.batch_size, generator)

    def _transformed(self, inputs: dict[str, Tensor]) -> Any:
        if self.transform is not None:  # it may work in place, and the memory must stay as it is
            inputs = {name: x.clone() for name, x in inputs.items()}
        plain = inputs["x"] if inputs.keys() == {"x"} else inputs
        return plain if self.transform is None else self.transform(plain)

    def _mode(self, model: nn.Module) -> AbstractContextManager[None]:
        return eval_mode(model) if self.mode == "eval" else nullcontext()

    def _weigh(self, logits: Tensor, kept: MemoryBatch) -> Tensor:
        _check_logits(logits)
        self._check_fit(logits, kept)
        strength = self.strength / (len(self.memory.counts) if self.over_tasks == "mean" else 1)
        return strength * torch.dot(kept.weight, self.loss(logits.float(), kept))

    def _check_fit(self, logits: Tensor, kept: MemoryBatch, width: int | None = None) -> None:
        width = kept.logits.shape[1] if width is None else width
        if logits.shape != (len(kept), width):
            raise SelfReminderError(
                f"the memory holds {width} logits an item, the model gives "
                f"{tuple(logits.shape)[-1]}: use the model that the memory was made with, or pass logits_of=… "
                "to choose the outputs that match"
            )


def _named(inputs: Inputs) -> dict[str, Tensor]:
    named = {"x": inputs} if isinstance(inputs, Tensor) else inputs
    if not isinstance(named, Mapping) or not named or not all(isinstance(x, Tensor) for x in named.values()):
        raise SelfReminderError(f"inputs are a tensor, or tensors by name, not a {type(inputs).__name__}")
    if len({len(x) if x.ndim else None for x in named.values()}) > 1:
        raise SelfReminderError("the inputs are not of one length")
    return dict(named)


def _check_logits(logits: object) -> None:
    if isinstance(logits, Tensor) and logits.ndim == 2 and logits.is_floating_point():
        return
    what = f"a tensor of shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
    raise SelfReminderError(
        f"a reminder matches the logits of a classifier, (items, classes); the model gives {what}: pass logits_of=…"
    )


def _call(model: nn.Module, inputs: Any, task: Tensor | int) -> Tensor:
    return model(**inputs) if isinstance(inputs, Mapping) else model(inputs)


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def _on(inputs: Inputs, device: torch.device) -> dict[str, Tensor]:
    return {name: x.to(device) for name, x in _named(inputs).items()}


def _read_back(inputs: dict[str, Tensor], codec: str) -> dict[str, Tensor]:
    """Inputs as they will be read back from the memory: whatever is recorded is what will be fed again."""
    return {name: codecs.encode(codecs.resolve(codec, x), x).decode() for name, x in inputs.items()}
