"""How much accuracy was lost, with an interval; and whether labels deny what a model is sure of."""

import math
from dataclasses import dataclass

_Z = 1.96


@dataclass(frozen=True)
class Drop:
    """How much accuracy was lost, with a 95 % interval.

    >>> print(Drop.of(lost=3, won=0, n=100))
    0.030 (-0.013 to 0.072)
    """

    mean: float
    low: float
    high: float
    items: int

    @classmethod
    def of(cls, lost: int, won: int, n: int) -> "Drop":
        """Of n items that were looked at twice, of which `lost` were right before only, and `won` now only.

        Bonett and Price's interval for a difference of paired shares, good for few items.
        """
        if not n:
            return cls(0.0, -1.0, 1.0, 0)
        p, q = (lost + 1) / (n + 2), (won + 1) / (n + 2)
        width = _Z * math.sqrt((p + q - (p - q) ** 2) / (n + 2))
        return cls((lost - won) / n, max(p - q - width, -1.0), min(p - q + width, 1.0), n)

    @classmethod
    def between(cls, then: float, n_then: int, now: float, n_now: int) -> "Drop":
        """Of two accuracies on different items (Agresti and Caffo's interval)."""
        p, q = ((share * n + 1) / (n + 2) for share, n in ((then, n_then), (now, n_now)))
        width = _Z * math.sqrt(p * (1 - p) / (n_then + 2) + q * (1 - q) / (n_now + 2))
        return cls(then - now, max(p - q - width, -1.0), min(p - q + width, 1.0), n_now)

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.low:.3f} to {self.high:.3f})"


def denies(accuracy: float | None, confidence: float, items: int) -> bool:
    """Whether labels deny what a model is sure of: it is right far less than half as often as it believes.

    >>> denies(0.02, confidence=0.97, items=50), denies(0.4, confidence=0.5, items=50)
    (True, False)
    """
    if accuracy is None or not items:
        return False
    return accuracy + 2 * math.sqrt(0.25 / items) < confidence / 2
