"""Several processes that train one network as one would: each takes a part of every batch through it.

Every process has the whole data, the same weights and the same method, draws the same and computes the same loss. What
is shared out is the passes through the network: each takes its rows of what the network is called with, and
all get the outputs of all. So a method needs to know nothing of it, and the result is that of one process up to
rounding. Gradients are averaged before the method looks at them. Batch norm goes by the statistics of all rows.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.layout import lay_out_as
from selfreminder._base.seeds import seed_for

_LARGEST_SEED = 2**62


class Together:
    """This process among those that train a network; alone, it changes nothing.

    Args:
        rank: of this process.
        world: how many there are; of more than one, torch.distributed has a group.
        unseen: is told how many items of a pass went through the networks of the others.
    """

    def __init__(self, rank: int = 0, world: int = 1, unseen: Callable[[int], None] = lambda items: None) -> None:
        self.rank, self.world, self.unseen = rank, world, unseen

    @contextmanager
    def sharded(self, model: nn.Module) -> Iterator[None]:
        """Share out the passes through a network while this lasts; all processes come to it with the same."""
        if self.world == 1:
            yield
            return
        shard = _Shard(self, model)
        handles = [
            model.register_forward_pre_hook(shard.begin, with_kwargs=True),
            model.register_forward_hook(shard.end, prepend=True),
        ]
        norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
        for norm in norms:
            norm.forward = partial(shard.normalise, norm)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            for norm in norms:
                del norm.forward

    def average(self, parameters: Sequence[Tensor], asked: bool) -> bool:
        """Average the gradients of parameters over the processes; tell whether one of them was asked for something.

        A parameter has a gradient where one of the processes has one.
        """
        if self.world == 1:
            return asked
        has = [parameter.grad is not None for parameter in parameters]
        parts = [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters]
        flags = torch.tensor([*has, asked], dtype=torch.float32, device=parts[0].device)
        both = torch.cat([*parts, flags])
        dist.all_reduce(both)
        *sums, flags = both.split([*(len(part) for part in parts), len(flags)])
        *has, asked = (flags > 0).tolist()
        for parameter, summed, found in zip(parameters, sums, has):
            if found:
                mean = (summed / self.world).view_as(parameter).to(parameter.dtype)
                parameter.grad = lay_out_as(parameter, mean) if parameter.grad is None else parameter.grad.copy_(mean)
        return asked

    def any(self, asked: bool) -> bool:
        """Tell whether one of the processes was asked for something."""
        if self.world == 1:
            return asked
        flag = torch.tensor(float(asked), device=_find_device())
        dist.all_reduce(flag)
        return bool(flag > 0)

    def check_same(self, what: str, tensors: Mapping[str, Tensor]) -> None:
        """Raise unless the processes have the same tensors: on GPUs sums may differ from one to the other."""
        if self.world == 1:
            return
        digest = hashlib.blake2b(digest_size=7)
        for name in sorted(tensors):
            digest.update(tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        own = torch.tensor(int.from_bytes(digest.digest()), device=_find_device())
        found = [torch.empty_like(own) for _ in range(self.world)]
        dist.all_gather(found, own)
        if len({int(each) for each in found}) > 1:
            raise SelfReminderError(f"the processes of this run have come apart in {what}: run it with processes = 1")

    def rows(self, items: int, rank: int | None = None) -> slice:
        """Give the rows of a batch that are this process's, or another's."""
        rank = self.rank if rank is None else rank
        return slice(items * rank // self.world, items * (rank + 1) // self.world)


class _Shard:
    """The hooks around a network's forward: its rows go in, those of all come out."""

    def __init__(self, together: Together, model: nn.Module) -> None:
        self._together = together
        self._is_random = any(isinstance(module, _DropoutNd) for module in model.modules())
        self._items: int | None = None
        """of the pass that is under way, where it is shared out"""

    def begin(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        items = len(given[0]) if given and given[0].dim() else 0
        self._items = items if items >= self._together.world else None
        if self._items is None:
            return None
        own = self._together.rows(items)
        self._together.unseen(items - (own.stop - own.start))
        generator = default_generator(given[0].device)
        if self._is_random:  # each row its own noise; what is drawn afterwards is the same everywhere
            seed = int(torch.randint(_LARGEST_SEED, (), generator=generator, device=given[0].device))
            self._state = generator.get_state()
            generator.manual_seed(seed_for(seed, "rows", self._together.rank))
        cut = partial(_cut, items=items, rows=own)
        return tuple(map(cut, args)), {name: cut(value) for name, value in kwargs.items()}

    def end(self, model: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if self._items is None:
            return None
        items, self._items = self._items, None
        own = self._together.rows(items)
        if not isinstance(output, Tensor) or len(output) != own.stop - own.start:
            raise SelfReminderError(
                "processes: the network does not give a row of logits for each item, whose rows cannot be shared out"
            )
        if self._is_random:
            default_generator(output.device).set_state(self._state)
        return _Gather.apply(output, own, items, self._together.world)

    def normalise(self, norm: _BatchNorm, input: Tensor) -> Tensor:
        """Batch norm's forward, by the statistics of all rows."""
        x = input
        if self._items is None or not (norm.training or norm.running_mean is None):
            return type(norm).forward(norm, x)
        dims = [dim for dim in range(x.dim()) if dim != 1]
        shape = (1, -1, *(1,) * (x.dim() - 2))
        values = self._items * x[0, 0].numel()
        mean = _sum(x.sum(dims)) / values
        variance = _sum((x - mean.view(shape)).square().sum(dims)) / values
        if norm.training and norm.running_mean is not None and norm.running_var is not None:
            assert norm.num_batches_tracked is not None
            norm.num_batches_tracked.add_(1)
            by = 1.0 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
            with torch.no_grad():
                norm.running_mean.lerp_(mean.to(norm.running_mean), by)
                norm.running_var.lerp_((variance * values / max(values - 1, 1)).to(norm.running_var), by)
        scale = (variance + norm.eps).rsqrt().view(shape)
        found = (x - mean.view(shape)) * scale
        return found if not norm.affine else found * norm.weight.view(shape) + norm.bias.view(shape)


class _Gather(torch.autograd.Function):
    """The rows of all processes; backward, the own rows' gradient, so many times that the mean is the sum."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, rows: slice, items: int, world: int) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.rows, ctx.world = rows, world
        whole = torch.zeros(
            items, *own.shape[1:], device=own.device, dtype=torch.promote_types(own.dtype, torch.float32)
        )
        whole[rows] = own.to(whole.dtype)
        dist.all_reduce(whole)
        return whole.to(own.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient[ctx.rows] * ctx.world, None, None, None


class _Sum(torch.autograd.Function):
    """A sum over the processes, whose gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        whole = own.to(torch.promote_types(own.dtype, torch.float32), copy=True)
        dist.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        whole = gradient.clone()
        dist.all_reduce(whole)
        return whole


def _sum(own: Tensor) -> Tensor:
    found: Any = _Sum.apply(own)
    return found


def _cut(value: Any, items: int, rows: slice) -> Any:
    """Take the rows of what has one for each item."""
    return value[rows] if isinstance(value, Tensor) and value.dim() and len(value) == items else value


def _find_device() -> torch.device:
    """Where the tensors are that the processes exchange."""
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def default_generator(device: torch.device) -> torch.Generator:
    """Give the generator that dropout on a device draws from."""
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index or 0]
    return torch.default_generator
