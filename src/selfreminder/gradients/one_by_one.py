"""Each sample's own gradient of any parameters, whatever they are used for: by torch.func, some samples at a time."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from selfreminder.gradients.per_sample import chunks


def gradients_of_each(
    model: nn.Module,
    parameters: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    losses: Callable[[Tensor, Tensor], Tensor],
    head: int | None = None,
) -> Iterator[dict[str, Tensor]]:
    """Some samples at a time, their gradients (m, …) of parameters that have the shape …, by name.

    Args:
        model: in eval mode, so that samples do not mix; as it is called for one sample, it is for many.
        parameters: those asked for, by their names in the model.
        x: (n, …) samples.
        y: (n,) their targets.
        losses: of logits (n, K) and targets, (n,).
        head: called as model(x, head), where the model has several.

    >>> model, loss = nn.LayerNorm(4), lambda logits, y: logits.square().sum(1)
    >>> (each,) = gradients_of_each(model, dict(model.named_parameters()), torch.rand(3, 4), torch.zeros(3), loss)
    >>> each["weight"].shape
    torch.Size([3, 4])
    """

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        args = (x[None],) if head is None else (x[None], head)
        return losses(functional_call(model, parameters, args), y[None]).sum()

    values = {name: value.detach() for name, value in parameters.items()}
    gradients = grad(loss)
    together = vmap(gradients, in_dims=(None, 0, 0))
    fast_path = torch.backends.mha.get_fastpath_enabled()
    for part in chunks(len(x), sum(map(Tensor.numel, values.values()))):
        torch.backends.mha.set_fastpath_enabled(False)  # which has no derivative
        try:
            found = _found(gradients, together, values, x[part], y[part])
        finally:
            torch.backends.mha.set_fastpath_enabled(fast_path)
        yield found


@torch.no_grad()  # of other parameters: torch.func takes its own gradients all the same
def _found(
    one: Callable[..., dict[str, Tensor]], together: Callable[..., dict[str, Tensor]], *args: Any
) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():  # of operators that go over samples one by one: slower, no less exact
            warnings.simplefilter("ignore")
            return together(*args)
    except RuntimeError:  # an operator that cannot, as a choice by a value
        values, x, y = args
        each = [one(values, *sample) for sample in zip(x, y)]
        return {name: torch.stack([gradients[name] for gradients in each]) for name in values}
