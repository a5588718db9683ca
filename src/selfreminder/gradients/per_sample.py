"""Each sample's own gradient, exact, without a loop over samples.

One backward gives the gradients g of all layers' outputs, a row for each sample, because in eval mode samples do
not mix. With a layer's input a, a sample's gradient of a linear layer's weight is g aᵀ, and its norm ‖g‖·‖a‖.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.eval_mode import eval_mode, is_eval

Inputs = Tensor | Mapping[str, Tensor]
"""a tensor, or several by name; one row an item"""

LogitFunction = Callable[[nn.Module, Inputs], Tensor]
"""logits (n, K) of a batch of inputs"""

_CHUNK = 1 << 20
"""the most numbers in one piece of per-sample gradients, unless one sample's are more"""

_KNOWN = (nn.Linear, nn.Conv2d, nn.BatchNorm1d, nn.BatchNorm2d)


def take_rows(inputs: Inputs, index: Tensor | slice) -> Inputs:
    """Some of the items."""
    if isinstance(inputs, Tensor):
        return inputs[index.to(inputs.device) if isinstance(index, Tensor) else index]
    return {name: x[index.to(x.device) if isinstance(index, Tensor) else index] for name, x in inputs.items()}


def gradient_norms(
    model: nn.Module, logits_of: LogitFunction, inputs: Inputs, labels: Tensor, *, batch_size: int = 256
) -> Tensor:
    """(n,) norms of each sample's gradient of cross entropy, over all parameters that require one; on the CPU.

    The model is taken in eval mode, and left as it was. Its trained layers are Linear, Conv2d or BatchNorm, each
    used once in a forward.

    >>> x, y = torch.rand(100, 4), torch.zeros(100, dtype=torch.long)
    >>> gradient_norms(nn.Linear(4, 3), lambda model, x: model(x), x, y).shape
    torch.Size([100])
    """
    squares = []
    with torch.enable_grad(), eval_mode(model):
        layers = WatchedLayers(model, "gradient norm")
        with layers.watch():
            for start in range(0, len(labels), batch_size):
                part = slice(start, start + batch_size)
                logits = logits_of(model, take_rows(inputs, part))
                total = torch.zeros(len(logits), dtype=logits.dtype, device=logits.device)
                gradient = _logit_gradient(logits.detach(), labels[part])
                for layer, a, g in layers.gradients(logits, len(logits), gradient):
                    total += _squared_norms(layer, a, g)
                squares.append(total.cpu())
    return torch.cat(squares).sqrt_() if squares else torch.zeros(0)


def _logit_gradient(logits: Tensor, labels: Tensor) -> Tensor:
    """(n, K) softmax − one-hot, exact also where a sample is so well known that its probability rounds to 1."""
    gradient, own = logits.softmax(1), labels.to(logits.device)[:, None]
    gradient.scatter_(1, own, 0)
    return gradient.scatter_(1, own, -gradient.sum(1, keepdim=True))


def _squared_norms(layer: nn.Module, a: Tensor, g: Tensor) -> Tensor:
    squares = g.new_zeros(len(g))
    trained = [key for key, p in layer.named_parameters(recurse=False) if p.requires_grad]
    if "bias" in trained:
        squares += bias_gradients(layer, g).square().sum(1)
    if "weight" in trained and isinstance(layer, nn.Linear) and g.ndim == 2:
        squares += g.square().sum(1) * a.square().sum(1)
    elif "weight" in trained:
        for part, gradient in weight_gradients(layer, a, g):
            squares[part] += gradient.flatten(1).square().sum(1)
    return squares


class InexactLayerError(SelfReminderError):
    """A layer whose gradients of single samples do not follow from its input and its output's gradient."""

    def __init__(self, message: str, layer: nn.Module) -> None:
        super().__init__(message)
        self.layer = layer


class WatchedLayers:
    """The layers of a model that have parameters to train; refuses what would not be exact, or sets it aside."""

    def __init__(self, model: nn.Module, purpose: str, *, set_aside: bool = False) -> None:
        """`purpose` is what is being taken, for the messages."""
        self._refused = f"no exact {purpose}"
        self.names: dict[nn.Module, str] = {}
        self.aside: set[nn.Parameter] = set()
        """parameters to train of layers that are not watched, with `set_aside`"""
        self._seen: dict[nn.Module, tuple[Tensor, GradientEdge]] = {}
        owners: dict[nn.Parameter, nn.Module] = {}
        for name, module in model.named_modules():
            what = f"layer '{name}' ({type(module).__name__})"
            if not is_eval(module):
                raise SelfReminderError(f"{what} is in train mode: call model.eval() before the {purpose} is taken")
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
                raise SelfReminderError(f"{what} has no running statistics: it mixes samples, also in eval mode")
            trained = {key: p for key, p in module.named_parameters(recurse=False) if p.requires_grad}
            if not trained:
                continue
            # A subclass may compute something else, and a reparametrised layer has parameters of other names.
            if type(module) not in _KNOWN or not trained.keys() <= {"weight", "bias"}:
                if set_aside:
                    self.aside.update(trained.values())
                    continue
                raise SelfReminderError(
                    f"{self._refused} for {what} with parameters {', '.join(trained)}: it is known for "
                    f"{', '.join(kind.__name__ for kind in _KNOWN)}; freeze the layer with requires_grad_(False)"
                )
            self.names[module] = name
            for parameter in trained.values():
                owner = owners.setdefault(parameter, module)
                if owner is not module and not set_aside:
                    shared = self.names[owner]
                    raise SelfReminderError(f"{what} shares a parameter with '{shared}': {self._refused}")
        for module in [*self.names]:
            shares = any(owners[p] is not module for p in module.parameters(recurse=False) if p.requires_grad)
            if shares or self.aside & {*module.parameters(recurse=False)}:
                self.leave(module)

    def leave(self, layer: nn.Module) -> None:
        """Set a layer aside, and those that share a parameter with it."""
        if self.names.pop(layer, None) is None:
            return
        own = {p for p in layer.parameters(recurse=False) if p.requires_grad}
        self.aside |= own
        for other in [*self.names]:
            if own & {*other.parameters(recurse=False)}:
                self.leave(other)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Note what each layer is given in a forward, and the place of its output in the graph."""

        def note(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            if module in self._seen:
                raise self._refusal(module, "is used twice in a forward")
            if not output.requires_grad:
                raise self._refusal(module, "is run under torch.no_grad")
            # The edge, not the tensor: an activation may change that in place.
            self._seen[module] = args[0].detach(), get_gradient_edge(output)

        # First of all hooks: another one might give a new output.
        handles = [layer.register_forward_hook(note, prepend=True) for layer in self.names]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self._seen = {}

    def gradients(
        self, output: Tensor, samples: int, gradient: Tensor | None = None
    ) -> Iterator[tuple[nn.Module, Tensor, Tensor]]:
        """Each layer in the last forward, its input a, and the gradient g of its output; a row a sample.

        `output` is the sum of the samples' losses, or anything else with its `gradient`. Layers that have no part
        in it are left out.
        """
        seen, self._seen = self._seen, {}
        if not output.requires_grad:
            if seen:
                raise SelfReminderError(f"the logits are detached from the model's layers: {self._refused}")
            return
        edges = [edge for _, edge in seen.values()]
        unseen = [
            (layer, get_gradient_edge(p))
            for layer in self.names
            if layer not in seen
            for p in layer.parameters(recurse=False)
            if p.requires_grad
        ]
        # Of outputs only: the gradients of the layers' weights would be a third of the work, and are of no use.
        places = [*edges, *(edge for _, edge in unseen)]
        if not places:
            return
        gradients = torch.autograd.grad(output, places, gradient, allow_unused=True)
        for (layer, _), g in zip(unseen, gradients[len(edges) :]):
            if g is not None:
                why = f"a parameter of layer '{self.names[layer]}' is used without the layer: {self._refused}"
                raise InexactLayerError(why, layer)
        for (layer, (a, _)), g in zip(seen.items(), gradients):
            if g is None:
                continue
            if len(g) != samples:
                raise self._refusal(layer, f"gives {len(g)} rows for {samples} samples")
            yield layer, a, g

    def _refusal(self, layer: nn.Module, why: str) -> InexactLayerError:
        return InexactLayerError(f"layer '{self.names[layer]}' {why}: {self._refused}", layer)


# Gradients of a layer's weight and bias, a row a sample, from its input a and the gradient g of its output. ------


def bias_gradients(layer: nn.Module, g: Tensor) -> Tensor:
    """(n, outputs)"""
    if isinstance(layer, nn.Linear):
        return g.flatten(1, -2).sum(1) if g.ndim > 2 else g
    return g.flatten(2).sum(2) if g.ndim > 2 else g


def weight_gradients(layer: nn.Module, a: Tensor, g: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Some samples at a time, and their gradients (m, …) of the weight, which has the shape … ."""
    if isinstance(layer, nn.Linear):
        a, g = (t.reshape(len(t), -1, t.shape[-1]) for t in (a, g))  # a linear layer may be used at many positions
        for part in chunks(len(g), layer.weight.numel()):
            yield part, g[part].mT @ a[part]
    elif isinstance(layer, nn.Conv2d):
        g, mode = g.flatten(2), "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        unfolded = layer.weight[0].numel() * layer.groups * g.shape[2]
        for part in chunks(len(g), max(layer.weight.numel(), unfolded)):
            padded = F.pad(a[part], layer._reversed_padding_repeated_twice, mode)
            columns = F.unfold(padded, layer.kernel_size, layer.dilation, stride=layer.stride)
            grouped, columns = (t.unflatten(1, (layer.groups, -1)) for t in (g[part], columns))
            yield part, (grouped @ columns.mT).reshape(-1, *layer.weight.shape)
    else:
        layer = cast(nn.BatchNorm1d | nn.BatchNorm2d, layer)
        normal = F.batch_norm(a, layer.running_mean, layer.running_var, eps=layer.eps)
        yield slice(None), bias_gradients(layer, normal.mul_(g))


def chunks(samples: int, numbers: int) -> Iterator[slice]:
    """Samples in parts of `_CHUNK` numbers at most, if each has so many."""
    size = max(1, _CHUNK // numbers)
    return (slice(start, start + size) for start in range(0, samples, size))
