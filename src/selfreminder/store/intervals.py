"""Intervals for what two models answer on the same items. Every bound holds by itself with the confidence given.

Counts need not be whole: how wide an interval would be with more items is asked with the same shares of them.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

from selfreminder._base.errors import SelfReminderError


@lru_cache(maxsize=100_000)  # of a thousand classes, most have the same few counts
def paired(worse: float, better: float, n: float, confidence: float) -> tuple[float, float]:
    """Bounds for the drop in accuracy on n items, of which so many got worse and better.

    Tango's, but where all changes go one way: it may be that none goes the other, a drop is then a share of items, and
    for few of them Tango's are a little too narrow. There they are at least as wide as the exact ones of that share.

    >>> low, high = paired(0, 0, 300, 0.95)
    >>> round(low, 5), round(high, 5)
    (-0.00994, 0.00994)
    """
    low, high = tango(worse, better, n, confidence)
    if better == 0:
        exact = clopper_pearson(worse, n, confidence)
        low, high = min(low, exact[0]), max(high, exact[1])
    if worse == 0:
        exact = clopper_pearson(better, n, confidence)
        low, high = min(low, -exact[1]), max(high, -exact[0])
    return low, high


def tango(worse: float, better: float, n: float, confidence: float) -> tuple[float, float]:
    """Bounds for the drop Δ = P(right before only) − P(right after only) of n items: Tango's score interval (1998).

    They are the Δ at which T(Δ) = (worse − better − nΔ) / √(n (2q + Δ(1 − Δ))) is ±z, with q the likeliest
    P(right after only) if the drop is Δ: the larger root of 2n q² + (Δ(2n − worse + better) − worse − better) q
    − better Δ(1 − Δ) = 0. Unlike a Wald interval, it is right for few flips, and has a width for none.

    >>> low, high = tango(worse=1, better=7, n=21, confidence=0.975)  # an example of Fagerland et al. (2014)
    >>> f"{low:.3f} {high:.3f}"
    '-0.517 -0.026'
    """
    z = normal_quantile(confidence)

    def score(drop: float) -> float:
        """T(Δ), which falls with Δ."""
        by = drop * (2 * n - worse + better) - worse - better
        root = math.sqrt(max(by * by + 8 * n * better * drop * (1 - drop), 0.0))
        q = (root - by) / (4 * n)
        variance = n * (2 * q + drop * (1 - drop))
        excess = worse - better - n * drop
        return excess / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, excess) if excess else 0.0

    drop = (worse - better) / n
    return _solve(lambda x: score(x) > z, -1.0, drop), _solve(lambda x: score(x) > -z, drop, 1.0)


@lru_cache(maxsize=100_000)
def clopper_pearson(count: float, n: float, confidence: float) -> tuple[float, float]:
    """Bounds for the probability of what was seen `count` times among n: exact (Clopper and Pearson, 1934).

    >>> low, high = clopper_pearson(0, 300, 0.95)
    >>> low, round(high, 5)
    (0.0, 0.00994)
    """
    error = 1 - confidence
    low = _solve(lambda p: beta_cdf(p, count, n - count + 1) < error, 0.0, 1.0) if count > 0 else 0.0
    high = _solve(lambda p: beta_cdf(p, count + 1, n - count) < 1 - error, 0.0, 1.0) if count < n else 1.0
    return low, high


def normal_quantile(confidence: float) -> float:
    """The z below which a standard normal number is with probability `confidence`."""
    if not 0.5 < confidence < 1:
        raise SelfReminderError(f"confidence {confidence}: it must be above 0.5 and below 1, as 0.95")
    return NormalDist().inv_cdf(confidence)


def beta_cdf(x: float, a: float, b: float) -> float:
    """P(X ≤ x) of a beta distribution: Lentz's continued fraction of the incomplete beta function.

    >>> round(beta_cdf(0.3, 2, 5), 6)
    0.579825
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # beyond it the fraction converges slowly
        return 1 - beta_cdf(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x) - math.log(a)
    )
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 / (1 + term * d), 1 + term / c
            value *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return front * value


def _solve(is_below: Callable[[float], bool], low: float, high: float) -> float:
    """Find by halving the place up to which a condition holds."""
    while high - low > 1e-10:
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return (low + high) / 2
