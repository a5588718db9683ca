"""The diagonal Fisher information of a classifier: exact, over all samples, without a loop over them.

    F_i = mean over x of (∂ log p(y|x) / ∂θ_i)²

One backward gives the gradients g of all layers' outputs, a row for each sample, because in eval mode samples do
not mix. With the layers' inputs a, a linear layer's sum over samples is (g²)ᵀ(a²).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from selfreminder.errors import SelfReminderError

_CHUNK = 1 << 20
"""the most numbers in one piece of per-sample gradients, unless one sample's are more"""

_Seen = dict[nn.Module, tuple[Tensor, GradientEdge]]
"""what a layer got, and where the gradient of what it gave can be asked for"""


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
    layers = _layers(model)
    if not len(x) or (labels is not None and len(labels) != len(x)):
        raise SelfReminderError(f"no Fisher of {len(x)} samples with {0 if labels is None else len(labels)} labels")
    if not layers:
        return {}
    sums = {p: torch.zeros_like(p) for p in model.parameters() if p.requires_grad}
    device = next(iter(sums)).device
    generator = torch.Generator() if generator is None else generator
    targets = torch.rand(len(x), generator=generator, device=generator.device) if labels is None else labels
    with torch.enable_grad(), _watched(layers) as seen:
        for start in range(0, len(x), batch_size):
            part = slice(start, start + batch_size)
            inputs, y = x[part].to(device), targets[part].to(device)
            logits = model(inputs) if head is None else model(inputs, head)
            if labels is None:
                y = _draw(logits.detach(), y)
            _add_batch(F.cross_entropy(logits, y, reduction="sum"), len(inputs), layers, seen, sums)
            seen.clear()
    return {name: sums[p].div_(len(x)) for name, p in model.named_parameters() if p.requires_grad}


def _draw(logits: Tensor, uniform: Tensor) -> Tensor:
    """(n,) classes, each drawn from its row's softmax by its uniform number."""
    cumulated = logits.softmax(1).cumsum(1)
    return torch.searchsorted(cumulated, uniform[:, None], right=True)[:, 0].clamp_(max=logits.shape[1] - 1)


def _layers(model: nn.Module) -> dict[nn.Module, str]:
    """The layers that have parameters to train, with their names; refuses what would not be exact."""
    layers: dict[nn.Module, str] = {}
    owners: dict[nn.Parameter, str] = {}
    for name, module in model.named_modules():
        what = f"layer '{name}' ({type(module).__name__})"
        if module.training:
            raise SelfReminderError(f"{what} is in train mode: call model.eval() before the Fisher is taken")
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
            raise SelfReminderError(f"{what} has no running statistics: it mixes samples, also in eval mode")
        trained = {key: p for key, p in module.named_parameters(recurse=False) if p.requires_grad}
        if not trained:
            continue
        # A subclass may compute something else, and a reparametrised layer has parameters of other names.
        if type(module) not in _ADD or not trained.keys() <= {"weight", "bias"}:
            raise SelfReminderError(
                f"no exact Fisher for {what} with parameters {', '.join(trained)}: it is known for "
                f"{', '.join(kind.__name__ for kind in _ADD)}; freeze the layer with requires_grad_(False)"
            )
        for parameter in trained.values():
            if parameter in owners:
                raise SelfReminderError(f"{what} shares a parameter with '{owners[parameter]}': no exact Fisher")
            owners[parameter] = name
        layers[module] = name
    return layers


@contextmanager
def _watched(layers: dict[nn.Module, str]) -> Iterator[_Seen]:
    """Notes what each layer is given in a forward, and the place of its output in the graph."""
    seen: _Seen = {}

    def note(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        if module in seen:
            raise SelfReminderError(f"layer '{layers[module]}' is used twice in a forward: no exact Fisher")
        # The edge, not the tensor: an activation may change that in place.
        seen[module] = args[0].detach(), get_gradient_edge(output)

    # First of all hooks: another one might give a new output.
    handles = [layer.register_forward_hook(note, prepend=True) for layer in layers]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _add_batch(
    loss: Tensor, samples: int, layers: dict[nn.Module, str], seen: _Seen, sums: dict[nn.Parameter, Tensor]
) -> None:
    """Add a batch's squared gradients to `sums`. `loss` is the sum of the samples' losses."""
    edges = [edge for _, edge in seen.values()]
    unseen = [
        (name, get_gradient_edge(p))
        for layer, name in layers.items()
        if layer not in seen
        for p in layer.parameters(recurse=False)
        if p.requires_grad
    ]
    # Of outputs only: the gradients of the layers' weights would be a third of the work, and are of no use.
    gradients = torch.autograd.grad(loss, [*edges, *(edge for _, edge in unseen)], allow_unused=True)
    for (name, _), gradient in zip(unseen, gradients[len(edges) :]):
        if gradient is not None:
            raise SelfReminderError(f"a parameter of layer '{name}' is used without the layer: no exact Fisher")
    for (layer, (a, _)), g in zip(seen.items(), gradients):
        if g is None:
            continue
        if len(g) != samples:
            raise SelfReminderError(
                f"layer '{layers[layer]}' gives {len(g)} rows for {samples} samples: no exact Fisher"
            )
        own = {key: sums.get(p) for key, p in layer.named_parameters(recurse=False)}
        _ADD[type(layer)](layer, a, g, own.get("weight"), own.get("bias"))


# What a kind of layer adds: sums over samples of its squared gradients, to the sums of its weight and its bias
# (None where they are not trained), from its input a and the gradient g of its output. ------------------------


def _add_linear(layer: nn.Linear, a: Tensor, g: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    if g.ndim > 2:  # several positions a sample, as convolutions have
        a, g = a.flatten(1, -2).mT, g.flatten(1, -2).mT
        _add_bias(g, bias)
        if weight is not None:
            for part in _chunks(len(g), weight.numel()):
                weight += (g[part] @ a[part].mT).square_().sum(0)
        return
    squared = g.square()
    if weight is not None:
        weight.addmm_(squared.T, a.square())
    if bias is not None:
        bias += squared.sum(0)


def _add_conv(layer: nn.Conv2d, a: Tensor, g: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    g = g.flatten(2)
    _add_bias(g, bias)
    if weight is None:
        return
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    unfolded = weight[0].numel() * layer.groups * g.shape[2]
    for part in _chunks(len(g), max(weight.numel(), unfolded)):
        padded = F.pad(a[part], layer._reversed_padding_repeated_twice, mode)
        columns = F.unfold(padded, layer.kernel_size, layer.dilation, stride=layer.stride)
        grouped, columns = (t.unflatten(1, (layer.groups, -1)) for t in (g[part], columns))
        weight += (grouped @ columns.mT).square_().sum(0).view_as(weight)


def _add_batch_norm(
    layer: nn.BatchNorm1d | nn.BatchNorm2d, a: Tensor, g: Tensor, weight: Tensor | None, bias: Tensor | None
) -> None:
    g = g.reshape(*g.shape[:2], -1)
    _add_bias(g, bias)
    if weight is not None:
        normal = F.batch_norm(a, layer.running_mean, layer.running_var, eps=layer.eps)
        _add_bias(normal.reshape(g.shape).mul_(g), weight)


def _add_bias(g: Tensor, bias: Tensor | None) -> None:
    if bias is not None:
        bias += g.sum(2).square_().sum(0)


def _chunks(samples: int, numbers: int) -> Iterator[slice]:
    """Samples in parts of `_CHUNK` numbers at most, if each has so many."""
    size = max(1, _CHUNK // numbers)
    return (slice(start, start + size) for start in range(0, samples, size))


_ADD = {
    nn.Linear: _add_linear,
    nn.Conv2d: _add_conv,
    nn.BatchNorm1d: _add_batch_norm,
    nn.BatchNorm2d: _add_batch_norm,
}
