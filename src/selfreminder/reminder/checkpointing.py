"""Models that compute parts of their forward pass again in the backward pass (gradient checkpointing).

The second time a layer is in the mode that the model has then. Old items are in eval mode only during their own pass,
so that their gradient is taken within it, and handed on when somebody asks for it.
"""

from collections.abc import Iterator
from functools import cache, partial
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from selfreminder._base.errors import SelfReminderError

_FLAGS = ("gradient_checkpointing", "grad_checkpointing", "use_checkpoint")
"""by which modules of Hugging Face, timm and others say whether they do it"""
_HALF_SCALE = 1024.0
"""what a penalty is multiplied by on the way back through float16, in which small gradients vanish"""


def uses_checkpoints(model: nn.Module) -> bool:
    """Whether a module of the model computes something again in the backward pass, as far as can be seen.

    >>> class Block(nn.Linear):
    ...     def forward(self, x: Tensor) -> Tensor:
    ...         return torch.utils.checkpoint.checkpoint(super().forward, x, use_reentrant=False)
    >>> uses_checkpoints(nn.Sequential(Block(2, 2))), uses_checkpoints(nn.Linear(2, 2))
    (True, False)
    """
    return any(_says_so(module) for module in model.modules())


def hand_on(penalty: Tensor, model: nn.Module, *, half: bool = False) -> Tensor:
    """The same number, whose gradient is there already; `half` where it is to come through float16.

    The model is as the user has it: in a wrapper, or not.
    """
    if not penalty.requires_grad:
        return penalty
    leaves, reentrant = _find_leaves(penalty)
    if reentrant and isinstance(model, DistributedDataParallel):
        raise SelfReminderError(
            "a reentrant checkpoint has a backward pass of its own for old items, and DistributedDataParallel expects "
            "one for all: pass use_reentrant=False to checkpoint, or attach the reminder to the optimizer"
        )
    leaves |= dict.fromkeys(p for p in model.parameters() if p.requires_grad)  # a reentrant part hides its own
    scale = _HALF_SCALE if half else 1.0
    if reentrant or any(hasattr(leaf, "full_tensor") for leaf in leaves):  # shards, too, come together in a backward
        found = _run_backward(penalty * scale, list(leaves))
    else:
        found = torch.autograd.grad(penalty * scale, list(leaves), allow_unused=True)
    reached = {leaf: gradient / scale for leaf, gradient in zip(leaves, found) if gradient is not None}
    return _HandOn.apply(penalty.detach(), len(reached), *reached.values(), *reached)


def _run_backward(penalty: Tensor, leaves: list[Tensor]) -> list[Tensor | None]:
    """Gradients by a backward, for what `torch.autograd.grad` refuses; those that are there stay as they are."""
    before = [leaf.grad for leaf in leaves]
    try:
        for leaf in leaves:
            leaf.grad = None
        penalty.backward()
        return [leaf.grad for leaf in leaves]
    finally:
        for leaf, gradient in zip(leaves, before):
            leaf.grad = gradient


def _find_leaves(penalty: Tensor) -> tuple[dict[Tensor, None], bool]:
    """What a penalty's gradient reaches, and whether there is a reentrant checkpoint on the way."""
    left, seen, leaves, reentrant = [penalty.grad_fn], set[Any](), dict[Tensor, None](), False
    while left:
        node: Any = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaves |= {node.variable: None} if hasattr(node, "variable") else {}
        reentrant = reentrant or "CheckpointFunction" in node.name()
        left += [following for following, _ in node.next_functions]
    return leaves, reentrant


class _HandOn(torch.autograd.Function):
    """A number, and its gradients of some leaves."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, count: int, *gradients_and_leaves: Tensor) -> Tensor:
        ctx.save_for_backward(*gradients_and_leaves[:count])
        return value.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *factors: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        gradients = ctx.saved_tensors
        return None, None, *[None] * len(gradients), *(factors[0] * gradient for gradient in gradients)


# Which modules do it ----------------------------------------------------------------------------------------


def _says_so(module: nn.Module) -> bool:
    own = vars(module)
    for flag in _FLAGS:
        if flag in own:
            return bool(own[flag])
    return _class_says_so(type(module)) or ("forward" in own and _leads_there(type(module), [own["forward"]]))


@cache  # a penalty asks it of every module
def _class_says_so(kind: type[nn.Module]) -> bool:
    said = [bool(getattr(kind, flag)) for flag in _FLAGS if hasattr(kind, flag)]
    return said[0] if said else _leads_there(kind, [kind.forward, kind.__call__])


def _leads_there(kind: type[nn.Module], left: list[Any]) -> bool:
    """Whether functions, or those that they call of their class or file, have a name of checkpointing in them."""
    seen = set[CodeType]()
    while left:
        function: Any = left.pop()
        if _is_torchs(function):
            return True
        if isinstance(function, partial):
            left += [function.func, *function.args]
        code = getattr(function, "__code__", None)
        if not isinstance(code, CodeType) or code in seen:
            continue
        seen.add(code)
        names = {name for part in _all_parts(code) for name in part.co_names}
        if any("checkpoint" in name for name in names):
            return True
        left.append(getattr(function, "__wrapped__", None))
        if not function.__module__.startswith("torch."):
            known: dict[str, Any] = getattr(function, "__globals__", {})
            left += [found for name in names for found in (getattr(kind, name, None), known.get(name))]
    return False


def _all_parts(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all_parts(constant)


def _is_torchs(value: Any) -> bool:
    """Whether this is torch's checkpoint under another name."""
    return getattr(value, "__module__", None) == "torch.utils.checkpoint"
