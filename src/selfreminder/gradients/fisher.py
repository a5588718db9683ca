"""How much each weight matters to a classifier: exact over all samples, where possible without a loop over them.

    the diagonal Fisher information   F_i = mean over x of (∂ log p(y|x) / ∂θ_i)²
    the sensitivity of the outputs    Ω_i = mean over x of |∂ ‖f(x)‖² / ∂θ_i|

From the gradients g of a linear layer's outputs and its inputs a (see `per_sample`), its weight's sum over samples
is (g²)ᵀ(a²), or |g|ᵀ|a|. Where a layer has no such form, each sample has a gradient of its own (see `one_by_one`).
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder.gradients.one_by_one import gradients_of_each
from selfreminder.gradients.per_sample import InexactLayerError, WatchedLayers, bias_gradients, weight_gradients

Losses = Callable[[Tensor, Tensor], Tensor]
"""(n,) of logits (n, K) and targets (n,)"""


def diagonal_fisher(
    model: nn.Module,
    x: Tensor,
    labels: Tensor | None = None,
    *,
    head: int | None = None,
    generator: torch.Generator | None = None,
    batch_size: int = 256,
) -> dict[str, Tensor]:
    """Mean squared gradients of log p(y|x), by the names of the parameters that require a gradient.

    Parameters that have no part in the logits, as those of other heads, get zeros.

    Args:
        model: in eval mode. Fast where its trained layers are Linear, Conv2d or BatchNorm, each used once in a forward.
        x: (n, …) all samples.
        labels: (n,) the data's, for the "empirical" Fisher; without them, each y is drawn once from p(·|x).
        head: called as model(x, head), where the model has several.
        generator: for the draws; they do not depend on `batch_size`.
        batch_size: samples in a pass.

    >>> diagonal_fisher(nn.Linear(4, 3).eval(), torch.rand(100, 4))["weight"].shape
    torch.Size([3, 4])
    """
    if not len(x) or (labels is not None and len(labels) != len(x)):
        raise SelfReminderError(f"no Fisher of {len(x)} samples with {0 if labels is None else len(labels)} labels")
    generator = torch.Generator() if generator is None else generator
    targets = torch.rand(len(x), generator=generator, device=generator.device) if labels is None else labels

    def losses(logits: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(logits, y, reduction="none")

    draw = _draw if labels is None else None
    return _mean_over_samples(model, x, targets, losses, "Fisher", torch.square, draw, head, batch_size)


def output_sensitivity(
    model: nn.Module, x: Tensor, *, head: int | None = None, batch_size: int = 256
) -> dict[str, Tensor]:
    """Mean absolute gradients of ‖f(x)‖², the squared norm of the logits: as `diagonal_fisher`, but without labels.

    >>> output_sensitivity(nn.Linear(4, 3).eval(), torch.rand(100, 4))["bias"].shape
    torch.Size([3])
    """
    if not len(x):
        raise SelfReminderError("no sensitivity of 0 samples")

    def losses(logits: Tensor, y: Tensor) -> Tensor:
        return logits.square().sum(1)

    return _mean_over_samples(model, x, x.new_zeros(len(x)), losses, "sensitivity", torch.abs, None, head, batch_size)


def _mean_over_samples(
    model: nn.Module,
    x: Tensor,
    targets: Tensor,
    losses: Losses,
    purpose: str,
    change: Callable[[Tensor], Tensor],
    draw: Callable[[Tensor, Tensor], Tensor] | None,
    head: int | None,
    batch_size: int,
) -> dict[str, Tensor]:
    """The mean of each sample's gradient under a `change` of every number, one that commutes with products."""
    layers = WatchedLayers(model, purpose, set_aside=True)
    sums = {p: torch.zeros_like(p) for p in model.parameters() if p.requires_grad}
    if not sums:
        return {}
    device = next(iter(sums)).device

    def add(part: slice, probe: bool = False) -> None:
        inputs, y = x[part].to(device), targets[part].to(device)
        with layers.watch():
            logits = model(inputs) if head is None else model(inputs, head)
            if draw is not None:
                y = draw(logits.detach(), y)
            for layer, a, g in layers.gradients(losses(logits, y).sum(), len(inputs)):
                if not probe:
                    own = {key: sums.get(p) for key, p in layer.named_parameters(recurse=False)}
                    _add(layer, a, g, own.get("weight"), own.get("bias"), change)
        named = {name: p for name, p in model.named_parameters() if p in layers.aside}
        for gradients in gradients_of_each(model, named, inputs, y, losses, head) if named and not probe else ():
            for name, gradient in gradients.items():
                sums[named[name]] += change(gradient).sum(0)

    with torch.enable_grad():
        while True:  # until all layers that are watched can be
            try:
                add(slice(0, 1), probe=True)
                break
            except InexactLayerError as error:
                layers.leave(error.layer)
        for start in range(0, len(x), batch_size):
            add(slice(start, start + batch_size))
    return {name: sums[p].div_(len(x)) for name, p in model.named_parameters() if p.requires_grad}


def _draw(logits: Tensor, uniform: Tensor) -> Tensor:
    """(n,) classes, each drawn from its row's softmax by its uniform number."""
    cumulated = logits.softmax(1).cumsum(1)
    return torch.searchsorted(cumulated, uniform[:, None], right=True)[:, 0].clamp_(max=logits.shape[1] - 1)


def _add(
    layer: nn.Module,
    a: Tensor,
    g: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    change: Callable[[Tensor], Tensor],
) -> None:
    """Add sums over samples of changed gradients to those of a layer's weight and bias, None where not trained."""
    if bias is not None:
        bias += change(bias_gradients(layer, g)).sum(0)
    if weight is None:
        return
    if isinstance(layer, nn.Linear) and g.ndim == 2:
        weight.addmm_(change(g).T, change(a))
        return
    for _, gradient in weight_gradients(layer, a, g):
        weight += change(gradient).sum(0)
