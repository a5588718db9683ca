"""How a model is called on what a memory keeps, and where in its output the logits are."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from selfreminder._base.errors import SelfReminderError

LogitsOf = Callable[[nn.Module, Any, Tensor | int], Tensor]
"""(model, inputs, task) -> logits (n, K); `task` is one number for all items, or a tensor with one for each"""

Head = int | str | Mapping[int, int | str]
"""which output: its place in a tuple, its name in a dict or an object, or one of these for each task"""


def named(inputs: Any) -> dict[str, Tensor]:
    """Inputs as a memory keeps them: "x" for a tensor, "0", "1", … for a tuple, a dict by its own names."""
    if isinstance(inputs, Tensor):
        given: Any = {"x": inputs}
    elif isinstance(inputs, tuple | list):
        given = {str(place): x for place, x in enumerate(inputs)}
    else:
        given = inputs
    if not isinstance(given, Mapping) or not given or not all(isinstance(x, Tensor) for x in given.values()):
        raise SelfReminderError(f"inputs are a tensor, a tuple of tensors or tensors by name, not {_kind(inputs)}")
    if len({len(x) if x.ndim else None for x in given.values()}) > 1:
        raise SelfReminderError("the inputs are not of one length")
    return dict(given)


def as_given(inputs: dict[str, Tensor]) -> Any:
    """The inverse of `named`."""
    if inputs.keys() == {"x"}:
        return inputs["x"]
    places = [str(place) for place in range(len(inputs))]
    return tuple(inputs[place] for place in places) if inputs.keys() == set(places) else inputs


def logits_of(model: nn.Module, inputs: Any, task: Tensor | int) -> Tensor:
    """Call a model the way its inputs were given, and find its logits."""
    output = _call(model, inputs)
    return output if isinstance(output, Tensor) else _find(output, None)


def logits_at(head: Head, model: nn.Module, inputs: Any, task: Tensor | int) -> Tensor:
    """The same at a head."""
    output = _call(model, inputs)
    return _of_tasks(output, head, task) if isinstance(head, Mapping) else _find(output, head)


def _call(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if not isinstance(inputs, tuple):
        return model(inputs)
    try:
        return model(*inputs)
    except TypeError as error:
        raise SelfReminderError(
            f"the model does not take {len(inputs)} inputs ({error}): a tuple is what it is called with, labels come "
            "beside that"
        ) from error


def _of_tasks(output: Any, heads: Mapping[int, int | str], task: Tensor | int) -> Tensor:
    """Each item's logits at the head of its own task, padded to the widest."""
    if not isinstance(task, Tensor):
        return _find(output, _head_of(heads, task))
    of_task = {number: _find(output, head) for number, head in heads.items()}
    widest = max(logits.shape[1] for logits in of_task.values())
    logits = next(iter(of_task.values())).new_zeros(len(task), widest)
    for number, ours in of_task.items():
        padded = nn.functional.pad(ours, (0, widest - ours.shape[1]))
        logits = torch.where((task == number)[:, None], padded, logits)
    return logits


def _head_of(heads: Mapping[int, int | str], task: int) -> int | str:
    if task not in heads:
        raise SelfReminderError(f"task {task} has no head: head= names those of the tasks {sorted(heads)}")
    return heads[task]


def _find(output: Any, head: int | str | None) -> Tensor:
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
        f"the model gives {_kind(output)} with {wanted} in it: pass head=…, its place or name, "
        "or logits_of=(model, inputs, task) -> logits"
    )


def check_logits(logits: object) -> None:
    """Refuse what is not one row of class scores an item."""
    if isinstance(logits, Tensor) and logits.ndim == 2 and logits.is_floating_point():
        if logits.shape[1] > 1:
            return
        raise SelfReminderError(
            "the model gives one number an item: a reminder matches the logits of a classifier, not a regression; "
            "of a classifier with one logit z, give both by logits_of=…: torch.cat([torch.zeros_like(z), z], 1)"
        )
    what = _kind(logits)
    if isinstance(logits, Tensor) and logits.ndim == 3:
        what += " (one prediction a token?)"
    raise SelfReminderError(
        f"a reminder matches the logits of a classifier, (items, classes); the model gives {what}: "
        "pass head=… or logits_of=… to say where they are"
    )


def unwrapped(model: nn.Module) -> nn.Module:
    """The network inside a data-parallel wrapper.

    The wrapper's forward synchronises buffers and expects one backward for each forward: neither is wanted for old
    items. The parameters are the same, so are their gradients.
    """
    while isinstance(model, DistributedDataParallel | DataParallel):
        model = model.module
    if not isinstance(model, nn.Module):
        raise SelfReminderError(f"the model is {_kind(model)}, it should be a torch.nn.Module: it comes first")
    return model


def device_of(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def fitted(inputs: Any, model: nn.Module) -> Any:
    """Floating tensors, alone or in a tuple or dict, in the dtype that a model's weights have.

    A model in single precision gets what is half as it is: autocast may be on.
    """
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    return inputs if dtype is None else _cast(inputs, dtype)


def _cast(inputs: Any, dtype: torch.dtype) -> Any:
    if isinstance(inputs, Tensor):
        wanted = inputs.is_floating_point() and (dtype != torch.float32 or inputs.dtype == torch.float64)
        return inputs.to(dtype) if wanted else inputs
    if isinstance(inputs, Mapping):
        return {name: _cast(x, dtype) for name, x in inputs.items()}
    return tuple(_cast(x, dtype) for x in inputs) if isinstance(inputs, tuple) else inputs


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} of {', '.join(map(str, value)) or 'nothing'}"
    return f"a {type(value).__name__}"
