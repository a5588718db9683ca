"""Several processes that train one model together: what each does of a reminder's work.

Where torch.distributed has a group of more than one process, it is taken to be data-parallel training. Every process
holds the same memory. Items are drawn by all alike, each looks at its slice of them, and the mean over the
processes is what one process would have had.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")

_alike: ContextVar[bool] = ContextVar("alike", default=False)


@contextmanager
def alike() -> Iterator[None]:
    """Let each process work as if it were alone: what they share, another shares out, see `together`."""
    token = _alike.set(True)
    try:
        yield
    finally:
        _alike.reset(token)


def get_ranks() -> tuple[int, int]:
    """(this process's number, how many there are): (0, 1) where it is alone."""
    if not _alike.get() and dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def average(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Average each tensor over the processes, in one exchange for each dtype."""
    _, world = get_ranks()
    means = list(tensors)
    if world == 1:
        return means
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):  # a set has another order in each process
        places = [place for place, tensor in enumerate(tensors) if tensor.dtype == dtype]
        flat = torch.cat([tensors[place].flatten() for place in places])
        dist.all_reduce(flat)
        parts = (flat / world).split([tensors[place].numel() for place in places])
        for place, part in zip(places, parts):
            means[place] = part.view_as(tensors[place])
    return means


def all_gather(value: T) -> list[T]:
    """Gather the values of all processes, in the order of their numbers."""
    _, world = get_ranks()
    if world == 1:
        return [value]
    values: list[Any] = [None] * world
    dist.all_gather_object(values, value)
    return values


def broadcast(value: T) -> T:
    """Broadcast the value of rank 0 to all processes."""
    _, world = get_ranks()
    if world == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]
