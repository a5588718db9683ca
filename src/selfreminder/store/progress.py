"""How far something is, for whoever watches."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far something is."""

    doing: str
    """in words: "epoch 1 of 2", "strength 2 of 3", "interpolation", "memory" """
    fraction: float
    """of the whole"""


Watch = Callable[[Progress], None]
"""is told how far something is"""


def ignore(progress: Progress) -> None:
    """Watch nothing."""
