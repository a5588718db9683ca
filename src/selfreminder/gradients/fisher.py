"""The diagonal Fisher information of a classifier: exact, over all samples, without a loop over them.

    F_i = mean over x of (∂ log p(y|x) / ∂θ_i)²

From the gradients g of a linear layer's outputs and its inputs a (see `per_sample`), its weight's sum over samples
is (g²)ᵀ(a²).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder.gradients.per_sample import WatchedLayers, bias_gradients, weight_gradients


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
        model: in eval mode; its trained layers are Linear, Conv2d or BatchNorm, each used once in a forward.
        x: (n, …) all samples.
        labels: (n,) the data's, for the "empirical" Fisher; without them, each y is drawn once from p(·|x).
        head: called as model(x, head), where the model has several.
        generator: for the draws; they do not depend on `batch_size`.
        batch_size: samples in a pass.

    >>> diagonal_fisher(nn.Linear(4, 3).eval(), torch.rand(100, 4))["weight"].shape
    torch.Size([3, 4])
    """
    layers = WatchedLayers(model, "Fisher")
    if not len(x) or (labels is not None and len(labels) != len(x)):
        raise SelfReminderError(f"no Fisher of {len(x)} samples with {0 if labels is None else len(labels)} labels")
    if not layers.names:
        return {}
    sums = {p: torch.zeros_like(p) for p in model.parameters() if p.requires_grad}
    device = next(iter(sums)).device
    generator = torch.Generator() if generator is None else generator
    targets = torch.rand(len(x), generator=generator, device=generator.device) if labels is None else labels
    with torch.enable_grad(), layers.watch():
        for start in range(0, len(x), batch_size):
            part = slice(start, start + batch_size)
            inputs, y = x[part].to(device), targets[part].to(device)
            logits = model(inputs) if head is None else model(inputs, head)
            if labels is None:
                y = _draw(logits.detach(), y)
            loss = F.cross_entropy(logits, y, reduction="sum")
            for layer, a, g in layers.gradients(loss, len(inputs)):
                own = {key: sums.get(p) for key, p in layer.named_parameters(recurse=False)}
                _add(layer, a, g, own.get("weight"), own.get("bias"))
    return {name: sums[p].div_(len(x)) for name, p in model.named_parameters() if p.requires_grad}


def _draw(logits: Tensor, uniform: Tensor) -> Tensor:
    """(n,) classes, each drawn from its row's softmax by its uniform number."""
    cumulated = logits.softmax(1).cumsum(1)
    return torch.searchsorted(cumulated, uniform[:, None], right=True)[:, 0].clamp_(max=logits.shape[1] - 1)


def _add(layer: nn.Module, a: Tensor, g: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    """Add sums over samples of squared gradients to those of a layer's weight and bias, None where not trained."""
    if bias is not None:
        bias += bias_gradients(layer, g).square().sum(0)
    if weight is None:
        return
    if isinstance(layer, nn.Linear) and g.ndim == 2:
        weight.addmm_(g.square().T, a.square())
        return
    for _, gradient in weight_gradients(layer, a, g):
        weight += gradient.square_().sum(0)
