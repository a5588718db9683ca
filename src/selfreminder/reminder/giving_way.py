"""New data that give way: their part of the gradient is made smaller, whoever computes their loss."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as trees
from torch.utils.hooks import RemovableHandle

from selfreminder.reminder.batch_norm import PATIENCE, remove_handles

Weigh = Callable[[], Tensor | None]
"""gives what the new weighs now; None where nobody reminds any more"""


class GivingWay:
    """Makes the gradient of all that a model gives smaller, as long as this lives."""

    def __init__(self, model: nn.Module, weigh: Weigh) -> None:
        self._hook = _Hook(model, weigh)
        self._is_first = True
        self._handles = [model.register_forward_hook(self._hook)]
        weakref.finalize(self, remove_handles, self._handles)

    def take(self, model: nn.Module) -> bool:
        """Whether the new of this step weigh less: there was a pass since this was asked last, or it is the first.

        The pass of the first step had begun before there was a hook on the model. Its penalty is about 0, so that the
        whole gradient may be made smaller instead, where it comes to the parameters.
        """
        passes, self._hook.passes = self._hook.passes, 0
        is_first, self._is_first = self._is_first, False
        if is_first and not passes:
            self._handles += [_weigh_once(p, self._hook.weigh) for p in model.parameters() if p.requires_grad]
        return is_first or passes > 0

    @contextmanager
    def old_pass(self) -> Iterator[None]:
        """While old items go through the model, whose gradient stays."""
        self._hook.is_old = True
        try:
            yield
        finally:
            self._hook.is_old = False


class _Hook:
    """All that the model refers to."""

    def __init__(self, model: nn.Module | None = None, weigh: Weigh | None = None) -> None:
        self._model = (lambda: None) if model is None else weakref.ref(model)
        self._weigh = weigh
        self.passes = 0
        self.is_old = False

    def __reduce__(self) -> tuple[type["_Hook"], tuple[()]]:
        return _Hook, ()  # a copy of the model is somebody else's: there it does nothing

    def weigh(self) -> Tensor | None:
        """What the new weighs."""
        return None if self._weigh is None else self._weigh()

    def __call__(self, model: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if torch.compiler.is_compiling() or model is not self._model():
            return None
        if self.is_old or not torch.is_grad_enabled() or self.passes >= PATIENCE:
            return None
        self.passes += 1
        weight = self.weigh()
        if weight is None:
            return None
        if isinstance(output, Tensor):  # a walk over a tree takes longer than what is done here
            return weigh_gradient(output, weight)
        return trees.tree_map(lambda each: weigh_gradient(each, weight), output)


def weigh_gradient(output: Any, weight: Tensor) -> Any:
    """The same tensor, whose gradient is made smaller on its way to what it came from.

    >>> x = torch.ones(1, requires_grad=True)
    >>> weigh_gradient(x * 2, torch.tensor(0.1)).sum().backward()
    >>> x.grad
    tensor([0.2000])
    """
    if not isinstance(output, Tensor) or not output.requires_grad:
        return output
    copied = output.clone()  # another one: a loss among the outputs may have come from the logits among them
    copied.register_hook(lambda gradient: gradient * weight.to(gradient))
    return copied


def _weigh_once(parameter: Tensor, weigh: Weigh) -> RemovableHandle:
    """Make the next gradient of a parameter smaller."""

    def hook(gradient: Tensor) -> Tensor | None:
        handle.remove()
        weight = weigh()
        return None if weight is None else gradient * weight.to(gradient)

    handle = parameter.register_hook(hook)
    return handle
