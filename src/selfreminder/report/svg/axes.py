"""Axes of charts: where a value lies, and which values are written beside the axis."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from selfreminder._base.errors import SelfReminderError
from selfreminder.report.html.markup import decimal

_ZERO, _AFTER_ZERO = 0.04, 0.14
"""on a logarithmic axis, where zero stands and where the positive values begin"""


@dataclass(frozen=True)
class Axis:
    """A range of values with its ticks: pairs of a value and its label."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    logarithmic: bool = False
    has_zero: bool = False
    """a logarithmic axis with a place of its own for zero, before the others"""

    def share(self, value: float) -> float:
        """How far along the axis a value lies, from 0 to 1."""
        if not self.logarithmic:
            return (value - self.low) / (self.high - self.low)
        if value == 0 and self.has_zero:
            return _ZERO
        start = _AFTER_ZERO if self.has_zero else 0.0
        return start + (1 - start) * math.log(value / self.low) / math.log(self.high / self.low)

    def thinned(self, length: float, size: Callable[[str], float]) -> "Axis":
        """With so few ticks, evenly left out, that their labels of that size do not touch on that length."""
        for every in range(1, len(self.ticks) + 1):
            kept = self.ticks[::every]
            centres = [self.share(value) * length for value, _ in kept]
            sizes = [size(label) for _, label in kept]
            gaps = (b - a - (s + t) / 2 for a, b, s, t in zip(centres, centres[1:], sizes, sizes[1:]))
            if all(gap >= 0 for gap in gaps):
                return replace(self, ticks=kept)
        return self


def linear(
    values: Iterable[float],
    *,
    limits: tuple[float, float] | None = None,
    margin: float = 0.0,
    whole: bool = False,
    count: int = 5,
) -> Axis:
    """An axis over all values, with about `count` ticks at 1, 2 or 5 times a power of ten.

    It ends at `limits`, or `margin` of its length beyond the values, or without both at a tick. There are no ticks
    beyond the values but those; with `whole`, none between whole numbers.

    >>> [label for _, label in linear([0.03, 0.97]).ticks]
    ['0', '.2', '.4', '.6', '.8', '1']
    """
    values = list(values)
    low, high = limits or (min(values), max(values))
    if low == high:
        low, high = low - 0.5, high + 0.5
    step = _nice_step((high - low) / count)
    if whole:
        step = max(step, 1.0)
    if limits is None and not margin:
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    if limits is None:
        low, high = low - margin * (high - low), high + margin * (high - low)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return Axis(low, high, tuple((i * step, _label(i * step, digits)) for i in range(first, last + 1)))


def logarithmic(values: Iterable[float], show: Callable[[float], str] = lambda value: f"{value:,g}") -> Axis:
    """A logarithmic axis over positive values, with ticks at powers of ten; zero has a place of its own before them.

    >>> [label for _, label in logarithmic([0, 30, 2000]).ticks]
    ['0', '100', '1,000']
    """
    values = list(values)
    positive = [value for value in values if value > 0]
    if not positive or min(values) < 0:
        raise SelfReminderError("a logarithmic axis needs a value above 0, and none below it")
    low, high = min(positive) / 1.25, max(positive) * 1.25
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)):
        ticks = [factor * 10.0**power for power in powers for factor in factors]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= 2:
            break
    zero = [0.0] if 0 in values else []
    labelled = tuple((tick, show(tick) if tick else "0") for tick in zero + ticks)
    return Axis(low, high, labelled, logarithmic=True, has_zero=bool(zero))


def _nice_step(step: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that is not far below a step."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if 1.25 * factor * power >= step)


def _label(value: float, digits: int) -> str:
    rounded = round(value, digits)
    return f"{rounded:,.0f}".replace("-", "−") if rounded == int(rounded) else decimal(rounded, digits)
