"""Old items that ride along in the forward pass of the new ones, so that batch norm normalises all as one batch.

While a model learns, batch norm normalises a batch by its own mean and variance; the deployed model goes by running
averages of those. A penalty that goes by the running averages, too, comes apart from the new data: the weights move
to where old items fit the averages, the averages follow the weights, and so on, until the model is right on new
batches and wrong when it is deployed. In one pass there is nothing that could come apart, and one pass is faster
than two. Dropout is off for the old items, and running averages follow at least as fast as they do by torch's default.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from selfreminder._base.eval_mode import depends_on_mode
from selfreminder.memory.memory import MemoryBatch
from selfreminder.reminder.batch_norm import PATIENCE, choose_momentum, remove_handles, takes_part

Draw = Callable[[Tensor], tuple[Tensor, MemoryBatch] | None]
"""new inputs -> old ones as the model takes them, and what is known of them; None where they do not fit"""


class JoinedPass:
    """Appends old items to what a model is called with in train mode, and takes their logits out of its output."""

    def __init__(self, model: nn.Module, draw: Draw) -> None:
        self._pass = _Pass(model, draw)
        weakref.finalize(self, remove_handles, self._pass.handles)

    @staticmethod
    def serves(model: nn.Module) -> bool:
        """Whether batch norm and dropout are all that depends on the mode of a model, as far as can be seen."""
        modes = [module for module in model.modules() if depends_on_mode(module)]
        return all(takes_part(module) or isinstance(module, _DropoutNd) for module in modes)

    def take(self) -> tuple[Tensor, MemoryBatch] | None:
        """The logits of the old items of the last pass, once; None where there was none."""
        found, self._pass.found, self._pass.unreminded = self._pass.found, None, 0
        return found


class _Pass:
    """The hooks: all that the model refers to."""

    def __init__(self, model: nn.Module | None = None, draw: Draw | None = None) -> None:
        self._model = (lambda: None) if model is None else weakref.ref(model)
        self._draw = draw
        self._riding: tuple[int, MemoryBatch] | None = None
        self._momenta: list[tuple[Any, float | None]] = []
        """layers whose momentum is another one for this pass, and their own"""
        self.found: tuple[Tensor, MemoryBatch] | None = None
        self.unreminded = 0
        self.handles = []
        self._norms = []
        if model is not None:
            self._norms = [weakref.ref(module) for module in model.modules() if takes_part(module)]
            dropouts = [module for module in model.modules() if isinstance(module, _DropoutNd)]
            self.handles = [
                model.register_forward_pre_hook(self._begin, with_kwargs=True),
                # Before others: what those see of the output is the new alone.
                model.register_forward_hook(self._end, prepend=True, always_call=True),
                *(module.register_forward_hook(self._keep) for module in dropouts),
            ]

    def __reduce__(self) -> tuple[type["_Pass"], tuple[()]]:
        return _Pass, ()  # a copy of the model is somebody else's: there it does nothing

    def _begin(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if torch.compiler.is_compiling() or model is not self._model() or self._draw is None:
            return None
        self.found = self._riding = None
        if not (model.training and torch.is_grad_enabled()) or kwargs or len(args) != 1:
            return None
        learning: list[Any] = [norm for found in self._norms if (norm := found()) is not None and norm.training]
        if not learning:  # all are frozen
            return None
        self.unreminded += 1
        if self.unreminded > PATIENCE or not isinstance(args[0], Tensor):
            return None
        drawn = self._draw(args[0])
        if drawn is None:
            return None
        old, kept = drawn
        self._riding = len(args[0]), kept
        for norm in learning:
            self._momenta.append((norm, norm.momentum))
            norm.momentum = choose_momentum(norm)
        return (torch.cat([args[0], old]),), kwargs

    def _end(self, model: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if torch.compiler.is_compiling() or model is not self._model() or self._riding is None:
            return None
        while self._momenta:
            norm, momentum = self._momenta.pop()
            norm.momentum = momentum
        (new, kept), self._riding = self._riding, None
        if isinstance(output, Tensor) and len(output) == new + len(kept):
            self.found = output[new:], kept
            return output[:new]
        if output is None:  # it failed
            return None
        self._draw = None  # a model of another kind: never again
        return model(args[0][:new])

    def _keep(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        if self._riding is None or not module.training or len(output) != self._riding[0] + len(self._riding[1]):
            return None
        return torch.cat([output[: self._riding[0]], args[0][self._riding[0] :]])
