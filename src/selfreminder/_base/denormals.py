"""Numbers below 1.2e-38, denormal ones, which a CPU computes many times slower than others."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def without_denormals() -> Iterator[None]:
    """Take denormal numbers for 0 in what this thread computes, and after it again as before.

    Runs of commands have one thread each. Where torch has more in a process, those that were there before go on as
    they were.

    Weight decay drives weights that nothing depends on below any bound, and the averages of a gradient that has become
    0 fall the same way: few in a hundred make matrix products and optimizer steps several times slower.
    """
    was = flushes_denormals()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was)


def flushes_denormals() -> bool:
    """Tell whether this thread takes denormal numbers for 0."""
    return not (torch.full((), 1e-40) * 1.0).item()
