"""Batch norm that normalises new and old items together, though they come in two passes.

Where old items cannot ride along with the new ones (see `joined_pass`), both passes go by the statistics of both,

    μ = ½ μ_new + ½ μ_old,    σ² = ½ (σ²_new + (μ_new − μ)²) + ½ (σ²_old + (μ_old − μ)²),

each with its own part fresh and the other's from the pass before, and the running averages follow these.
"""

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils.hooks import RemovableHandle

from selfreminder._base.eval_mode import eval_mode

_OWN = 0.5
"""the weight of a pass's own statistics"""
PATIENCE = 64
"""passes of new data without a penalty after which a layer is as ever: nobody reminds any more"""
_LEAST_MOMENTUM = 0.1
"""of running averages while a reminder is at work, torch's default: with .01, as of networks for ImageNet, or with an
average over all batches ever, those of a short update are still those of the old data when it ends"""


class Statistics(NamedTuple):
    """Mean and variance of each channel, and how many values they are of."""

    mean: Tensor
    variance: Tensor
    items: int


class JointNorm:
    """The batch norms of a model, made to go by new and old items together as long as this lives."""

    def __init__(self, model: nn.Module, state: Mapping[str, Tensor] = MappingProxyType({})) -> None:
        self._layers = {name: _Layer(norm) for name, norm in model.named_modules() if takes_part(norm)}
        for name in self._layers.keys() & state.keys():
            mean, variance, count = state[name].unbind()
            self._layers[name].old = Statistics(mean, variance, int(count[0]))
        weakref.finalize(self, remove_handles, [handle for layer in self._layers.values() for handle in layer.handles])

    @property
    def is_training(self) -> bool:
        """Whether there is a layer that a new batch changes."""
        return any((norm := layer.norm()) is not None and norm.training for layer in self._layers.values())

    def state_dict(self) -> dict[str, Tensor]:
        """What the layers saw of old items last, by name."""
        seen = {name: layer.old for name, layer in self._layers.items() if layer.old is not None}
        return {
            name: torch.stack([old.mean, old.variance, torch.full_like(old.mean, old.items)])
            for name, old in seen.items()
        }

    @contextmanager
    def old_pass(self, model: nn.Module) -> Iterator[None]:
        """Eval mode for a pass of old items, but for batch norms in train mode: these go by both."""
        training = [
            (layer, norm) for layer in self._layers.values() if (norm := layer.norm()) is not None and norm.training
        ]
        with eval_mode(model):
            for layer, norm in training:
                norm.training = layer.is_old = True
            try:
                yield
            finally:
                for layer, norm in training:
                    norm.training = layer.is_old = False


class _Layer:
    """One batch norm: what it has seen of both kinds, and the hooks around its forward."""

    def __init__(self, norm: nn.Module | None = None) -> None:
        self.norm = (lambda: None) if norm is None else weakref.ref(norm)
        self.is_old = False
        self.handles: list[RemovableHandle] = []
        self.old: Statistics | None = None
        self._new: Statistics | None = None
        self._unreminded = 0
        self._running: tuple[Tensor, Tensor] | None = None
        """the layer's own statistics, while others stand in their place; of its type where it is in train mode"""
        if norm is not None:
            self.handles = [
                norm.register_forward_pre_hook(self._begin),
                norm.register_forward_hook(self._end, always_call=True),
            ]

    def __reduce__(self) -> tuple[type["_Layer"], tuple[()]]:
        return _Layer, ()  # a copy of the model is somebody else's: there it does nothing

    def _begin(self, norm: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if torch.compiler.is_compiling() or norm is not self.norm():
            return None
        if not norm.training or not torch.is_grad_enabled():
            return None
        x: Tensor = args[0]
        found = measure(x, norm.eps)
        if self.is_old:
            self.old, self._unreminded = found, 0
        else:
            self._new, self._unreminded = found, self._unreminded + 1
            if self._unreminded > PATIENCE:
                self._new = self.old = None
        other = self._new if self.is_old else self.old
        if other is not None and other.mean.device != x.device:  # the model was moved, or is resumed
            other = Statistics(other.mean.to(x.device), other.variance.to(x.device), other.items)
        if other is None and not self.is_old:
            return None
        self._running = norm.running_mean, norm.running_var
        norm.training = False
        if other is None:  # the first old items: as they were recorded
            return None
        joint = combine(found, other)
        if self.is_old:
            self._follow(norm, joint)
        norm._buffers["running_mean"], norm._buffers["running_var"] = joint.mean, joint.variance
        return (_NormGradient.apply(x, joint.mean, (joint.variance + norm.eps).rsqrt(), norm.eps), *args[1:])

    def _end(self, norm: Any, args: tuple[Any, ...], output: Any) -> None:
        if not torch.compiler.is_compiling() and self._running is not None and norm is self.norm():
            norm._buffers["running_mean"], norm._buffers["running_var"] = self._running
            norm.training, self._running = True, None

    def _follow(self, norm: Any, joint: Statistics) -> None:
        """Move the running statistics as the layer itself does."""
        assert self._running is not None
        norm.num_batches_tracked.add_(1)
        mean, variance = self._running
        factor = choose_momentum(norm)
        mean.lerp_(joint.mean.to(mean.dtype), factor)
        variance.lerp_((joint.variance * (joint.items / max(joint.items - 1, 1))).to(variance.dtype), factor)


class _NormGradient(torch.autograd.Function):
    """The input itself; on the way back, what goes through the statistics is added to its gradient.

    What follows normalises by given statistics, whose gradient G lacks that: batch norm's own backward has it,
    s (G − mean G − x̂ mean(G x̂)) with x̂ = (x − μ) s. It is taken whole, as if the statistics were the input's own:
    the other half moves with the same weights.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, mean: Tensor, scale: Tensor, eps: float) -> Tensor:
        ctx.save_for_backward(x, mean, scale)
        ctx.eps = eps
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        x, mean, scale = ctx.saved_tensors
        (given,) = gradients
        whole, *_ = torch.ops.aten.native_batch_norm_backward(
            given.to(scale.dtype), x.to(scale.dtype), None, None, None, mean, scale, True, ctx.eps, [True, False, False]
        )
        return (whole / scale.view([1, -1, *[1] * (x.ndim - 2)])).to(given.dtype), None, None, None


@torch.no_grad()
def measure(x: Tensor, eps: float = 1e-5) -> Statistics:
    """Mean and variance of each channel of a batch (n, channels, …).

    >>> measure(torch.tensor([[1.0], [3.0]])).mean
    tensor([2.])
    """
    wide = x.detach() if x.dtype in (torch.float32, torch.float64) else x.detach().float()
    # Batch norm's own kernel: several times as fast as torch.var_mean over these dimensions.
    _, mean, scale = torch.native_batch_norm(wide, None, None, None, None, True, 0.0, eps)
    return Statistics(mean, (scale.pow(-2) - eps).clamp_(min=0), x.numel() // x.shape[1])


def combine(own: Statistics, other: Statistics) -> Statistics:
    """The statistics of both kinds together, each half of it however many it has.

    >>> one, three = (Statistics(torch.tensor([m]), torch.tensor([0.0]), 4) for m in (1.0, 3.0))
    >>> combine(one, three)
    Statistics(mean=tensor([2.]), variance=tensor([1.]), items=8)
    """
    mean = torch.lerp(other.mean, own.mean, _OWN)
    theirs, ours = (each.variance + (each.mean - mean).square() for each in (other, own))
    return Statistics(mean, torch.lerp(theirs, ours, _OWN), own.items + other.items)


def choose_momentum(norm: Any) -> float:
    """How far the running averages of a layer follow a batch of new and old items.

    >>> choose_momentum(nn.BatchNorm1d(3, momentum=0.01)), choose_momentum(nn.BatchNorm1d(3, momentum=0.5))
    (0.1, 0.5)
    """
    return _LEAST_MOMENTUM if norm.momentum is None else max(norm.momentum, _LEAST_MOMENTUM)


def is_compiled(model: nn.Module) -> bool:
    """Whether a model is compiled, or about to be: its hooks are not run then, and old items go by running averages."""
    wrapped = isinstance(getattr(model, "_orig_mod", None), nn.Module)
    return wrapped or getattr(model, "_compiled_call_impl", None) is not None or torch.compiler.is_compiling()


def takes_part(module: nn.Module) -> bool:
    """Whether a module is a batch norm with running statistics of its own process."""
    known = isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm | LazyModuleMixin)
    return known and module.running_mean is not None


def remove_handles(handles: list[RemovableHandle]) -> None:
    """Remove hooks."""
    for handle in handles:
        handle.remove()
