"""Conceptor-aided backprop: a layer's weights change only in directions that its inputs of old tasks do not take.

A = R (R + α⁻² I)⁻¹,  R = Σ_{t<T} mean over x_t of h hᵀ,  h a layer's input with a 1 for its bias
∂/∂[W b]  is multiplied by  F = I − A  from the right

A is the conceptor of all old tasks: the disjunction of their conceptors, which have one aperture α, is the conceptor
of the sum of their correlations. A convolution's inputs are its patches.
He and Jaeger, Overcoming catastrophic interference using conceptor-aided backpropagation, 2018.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.eval_mode import eval_mode
from selfreminder.benchmarks.stream import Task
from selfreminder.methods.base import Batch, Method, Step

_CHUNK = 200


@dataclass(kw_only=True)
class Cab(Method):
    # Adam divides the gradient number by number: what is left of it has other directions.
    optimizer = "sgd"
    needs_boundaries = True

    aperture: float = 4.0
    """α: how little an input of old tasks must be to be held"""

    def __post_init__(self) -> None:
        self.check_above_0("aperture")
        self._set({})

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        for name, module in model.named_modules():
            grouped = isinstance(module, nn.Conv2d) and module.groups > 1
            if [*module.parameters(recurse=False)] and (not isinstance(module, nn.Linear | nn.Conv2d) or grouped):
                raise SelfReminderError(
                    f"cab holds linear layers and plain convolutions, not '{name}' ({type(module).__name__}): its "
                    "weights would change under earlier tasks; choose a model without it"
                )
        return model

    def parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        # Decay would move what is held.
        return [{"params": list(model.parameters()), **({"weight_decay": 0.0} if self._free else {})}]

    @torch.no_grad()
    def after_backward(self, model: nn.Module, batch: Batch, step: Step) -> None:
        for name, free in self._free.items():
            layer = model.get_submodule(name)
            assert isinstance(layer, nn.Linear | nn.Conv2d)
            if layer.weight.grad is None:  # a head that is not in use
                continue
            gradient = layer.weight.grad.flatten(1)
            if layer.bias is None:
                layer.weight.grad.copy_((gradient @ free).view_as(layer.weight))
                continue
            assert layer.bias.grad is not None
            held = torch.cat([gradient, layer.bias.grad[:, None]], 1) @ free
            layer.weight.grad.copy_(held[:, :-1].reshape(layer.weight.shape))
            layer.bias.grad.copy_(held[:, -1])

    @torch.no_grad()
    def after_task(self, model: nn.Module, task: Task) -> None:
        sums: dict[str, Tensor] = {}
        device = next(model.parameters()).device
        with eval_mode(model), _summing_inputs(model, sums):
            for x in task.train.x.split(_CHUNK):
                self.predict(model, x.to(device), task.head)
        old = self._correlation
        new = {name: total / len(task.train) for name, total in sums.items()}
        self._set(old | {name: old[name] + value if name in old else value for name, value in new.items()})

    def _set(self, correlation: dict[str, Tensor]) -> None:
        self._correlation = correlation
        self._free = {name: _free_directions(value, self.aperture) for name, value in correlation.items()}

    def measures(self) -> dict[str, float]:
        """The part of each layer's input directions that is held."""
        return {f"held in {name}": 1 - free.diagonal().mean().item() for name, free in self._free.items()}

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self._correlation)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._set(state)


def _free_directions(correlation: Tensor, aperture: float) -> Tensor:
    """I − R (R + α⁻² I)⁻¹ = (I + α² R)⁻¹."""
    whole = aperture**2 * correlation.double()
    whole.diagonal().add_(1)
    return torch.cholesky_inverse(torch.linalg.cholesky(whole)).to(correlation.dtype)


@contextmanager
def _summing_inputs(model: nn.Module, sums: dict[str, Tensor]) -> Iterator[None]:
    """Add each layer's sum over samples of h hᵀ to `sums`, a mean over the places of a sample."""
    layers = ((name, layer) for name, layer in model.named_modules() if isinstance(layer, nn.Linear | nn.Conv2d))
    names: dict[nn.Module, str] = {layer: name for name, layer in layers}

    def add(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        (x,) = args
        if isinstance(layer, nn.Conv2d):
            mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
            padded = F.pad(x, layer._reversed_padding_repeated_twice, mode)
            x = F.unfold(padded, layer.kernel_size, layer.dilation, stride=layer.stride).mT
        h = F.pad(x, (0, 1), value=1.0) if layer.bias is not None else x
        h = h.reshape(-1, h.shape[-1])
        name, total = names[layer], h.T @ h / (len(h) / len(args[0]))
        sums[name] = sums[name] + total if name in sums else total

    handles = [layer.register_forward_hook(add) for layer in names]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
