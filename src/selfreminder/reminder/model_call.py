"""How a model is called on what a memory keeps, and where in its output the logits are."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.eval_mode import eval_mode
from selfreminder.samples import name_inputs, restore_structure
from selfreminder.samples.columns import show_kind

LogitsOf = Callable[[nn.Module, Any, Tensor | int], Tensor]
"""(model, inputs, task) -> logits (n, K); `task` is one number for all items, or a tensor with one for each"""

Head = int | str | Mapping[int, int | str]
"""which output: its place in a tuple, its name in a dict or an object, or one of these for each task"""


@dataclass(frozen=True, eq=False)
class ModelCall:
    """From inputs as a memory keeps them to the logits that count, whatever the model is.

    Args:
        transform: from what is kept to what the model takes.
        head: which of several outputs has the logits.
        logits_of: how to call the model, where that does not do.
        grow: the model may have more classes than it had, at the end.
        batch_size: items in a pass of `compute_logits`.
        one_will_do: one logit is a classifier's too, of which more classes are to come.

    >>> call = ModelCall(transform=lambda x: x / 255)
    >>> call.compute_logits(nn.Linear(4, 3), torch.rand(9, 4), task=0).shape
    torch.Size([9, 3])
    """

    transform: Callable[[Any], Any] | None = None
    head: Head | None = None
    logits_of: LogitsOf | None = None
    grow: bool = False
    batch_size: int = 128
    one_will_do: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether logits are where a model has them by custom: nobody said how to find them."""
        return self.head is None and self.logits_of is None

    def __call__(
        self, model: nn.Module, inputs: dict[str, Tensor], task: Tensor | int, tasks: Iterable[int] = ()
    ) -> Tensor:
        """Logits of inputs that may be changed in place, on the model's device.

        `tasks` are all that the memory has, where `task` is a tensor with a number for each item.
        """
        given = match_dtype(self.apply_transform(inputs), model)
        if self.logits_of is not None:
            return self.logits_of(model, given, task)
        return self.find_logits(_call_model(model, given), task, tasks)

    def find_logits(self, output: Any, task: Tensor | int, tasks: Iterable[int] = ()) -> Tensor:
        """The logits in what a model gave."""
        if isinstance(self.head, Mapping):
            # No other heads: a gradient of zeros would let an optimiser decay them.
            return _find_task_logits(output, self.head, task, tasks)
        return output if isinstance(output, Tensor) and self.head is None else _find_logits(output, self.head)

    def apply_transform(self, inputs: dict[str, Tensor]) -> Any:
        """Inputs as the model takes them, but for their dtype."""
        given = restore_structure(inputs)
        return given if self.transform is None else self.transform(given)

    def compute_logits(self, model: nn.Module, inputs: Any, task: int, *, apart: Tensor | None = None) -> Tensor:
        """The model's logits (n, K), float32, on inputs as they are read back from a memory, in eval mode.

        Items that are `apart` (n,) have passes of their own, as witnesses are to have: what a model gives for an item
        may differ in the last bit by how many others are beside it, and a penalty has those that are held alone.
        """
        named, parts = name_inputs(inputs), []
        if apart is not None and bool(apart.any()) and not bool(apart.all()):
            rows = [each.nonzero().flatten() for each in (~apart, apart)]
            found = [self.compute_logits(model, {k: x[i.to(x.device)] for k, x in named.items()}, task) for i in rows]
            return torch.cat(found)[torch.cat(rows).argsort().to(found[0].device)]
        with torch.no_grad(), eval_mode(model):
            for start in range(0, len(next(iter(named.values()))), self.batch_size):
                rows = slice(start, start + self.batch_size)
                logits = self.call_on_copies(model, {name: x[rows] for name, x in named.items()}, task)
                check_logits(logits, len(next(iter(named.values()))[rows]), self.one_will_do)
                parts.append(logits.float())
        return torch.cat(parts)

    def predict(self, model: nn.Module, inputs: Any, task: int) -> Tensor:
        """(n,) the model's classes, on the CPU."""
        return self.compute_logits(model, inputs, task).argmax(1).cpu()

    def call_on_copies(self, model: nn.Module, inputs: Any, task: int) -> Tensor:
        """Logits of inputs that belong to somebody, in the model's own mode: transform and model may work in place."""
        device = find_device(model)
        return self(model, {name: x.to(device, copy=True) for name, x in name_inputs(inputs).items()}, task)

    def match_width(self, logits: Tensor, width: int) -> Tensor:
        """Logits that are as many as a memory has."""
        if logits.shape[1] == width:
            return logits
        if logits.shape[1] > width and (self.grow or isinstance(self.head, Mapping)):
            return logits[:, :width]
        if isinstance(self.head, Mapping):  # the task with the widest is not here any more
            return nn.functional.pad(logits, (0, width - logits.shape[1]))
        raise SelfReminderError(
            f"the memory holds {width} logits an item, the model gives {logits.shape[1]}: use the model that the "
            "memory was made with, pass grow=True if classes were added behind those, or head=… or logits_of=… "
            "to choose the outputs that match"
        )


def unwrap_model(model: nn.Module) -> nn.Module:
    """The network inside a wrapper: data-parallel, or of averaged weights, which has a count beside the layers.

    A data-parallel wrapper's forward synchronises buffers and expects one backward for each forward: neither is wanted
    for old items. The parameters are the same, so are their gradients.
    """
    while isinstance(model, DistributedDataParallel | DataParallel | AveragedModel):
        model = model.module
    if not isinstance(model, nn.Module):
        raise SelfReminderError(f"the model is {show_kind(model)}, it should be a torch.nn.Module: it comes first")
    return model


def find_device(model: nn.Module) -> torch.device:
    """Where the model's parameters are."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def match_dtype(inputs: Any, model: nn.Module) -> Any:
    """Floating tensors, alone or in a tuple or dict, in the dtype that a model's weights have.

    A model in single precision gets what is half as it is: autocast may be on.
    """
    if isinstance(inputs, Mapping):
        return {name: match_dtype(x, model) for name, x in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(match_dtype(x, model) for x in inputs)
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    if dtype is None or not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        return inputs
    return inputs if dtype == torch.float32 and inputs.dtype != torch.float64 else inputs.to(dtype)


def check_logits(logits: object, items: int | None = None, one_will_do: bool = False) -> None:
    """Refuse what is not one row of class scores an item."""
    if isinstance(logits, Tensor) and logits.ndim == 2 and logits.is_floating_point():
        if items is not None and len(logits) != items:
            raise SelfReminderError(
                f"the model gives {len(logits)} rows of logits for {items} items: it is to give one row an item, "
                "in their order; where it does not, logits_of=… says which rows they are"
            )
        if logits.shape[1] > 1 or one_will_do:
            return
        raise SelfReminderError(
            "the model gives one number an item: a reminder matches the logits of a classifier, not a regression; "
            "of a classifier with one logit z, give both by logits_of=…: torch.cat([torch.zeros_like(z), z], 1)"
        )
    what = show_kind(logits)
    if isinstance(logits, Tensor) and logits.ndim == 3:
        what += " (one prediction a token?)"
    raise SelfReminderError(
        f"a reminder matches the logits of a classifier, (items, classes); the model gives {what}: "
        "pass head=… or logits_of=… to say where they are"
    )


def check_size(logits: Tensor, task: int) -> None:
    """Refuse logits to record that are too large for a penalty, which squares their differences."""
    if not bool((2 * logits).square().sum(1).isfinite().all()):
        raise SelfReminderError(
            f"the model gives logits of task {task} as large as {logits.abs().max().item():.1e}, whose squares float32 "
            "does not hold: mask by a smaller number such as -1e4, or go back to a model that has not diverged"
        )


def _call_model(model: nn.Module, inputs: Any) -> Any:
    """Call a model the way its inputs were given."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if not isinstance(inputs, tuple):
        return model(inputs)
    try:
        return model(*inputs)
    except TypeError as error:
        raise SelfReminderError(
            f"the model does not take {len(inputs)} inputs ({error}): a tuple is what it is called with, labels come "
            "beside that; a list of items is one input, torch.stack(items)"
        ) from error


def _find_task_logits(output: Any, heads: Mapping[int, int | str], task: Tensor | int, tasks: Iterable[int]) -> Tensor:
    """Each item's logits at the head of its own task, padded to the widest."""
    if not isinstance(task, Tensor):
        if task not in heads:
            raise SelfReminderError(f"task {task} has no head: head= names those of the tasks {sorted(heads)}")
        return _find_logits(output, heads[task])
    of_task = {number: _find_logits(output, heads[number]) for number in tasks}
    widest = max(logits.shape[1] for logits in of_task.values())
    logits = next(iter(of_task.values())).new_zeros(len(task), widest)
    for number, ours in of_task.items():
        padded = nn.functional.pad(ours, (0, widest - ours.shape[1]))
        logits = torch.where((task == number)[:, None], padded, logits)
    return logits


def _find_logits(output: Any, head: int | str | None) -> Tensor:
    found: Any = None
    if head is None:
        found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
        if found is None and isinstance(output, Sequence) and output:
            found = output[0]
        elif found is None and isinstance(output, Mapping) and len(output) == 1:
            found = next(iter(output.values()))
    elif isinstance(head, int):
        if isinstance(output, Sequence) and -len(output) <= head < len(output):
            found = output[head]
    else:
        found = output.get(head) if isinstance(output, Mapping) else getattr(output, head, None)
    if isinstance(found, Tensor):
        return found
    wanted = "no logits" if head is None else f"no head {head!r}"
    raise SelfReminderError(
        f"the model gives {show_kind(output)} with {wanted} in it: pass head=…, its place or name, "
        "or logits_of=(model, inputs, task) -> logits"
    )
