"""What "above", "far above" and "equal" mean: conditions on differences paired by seed.

| word | the rule, d the mean difference, interval its 95 % t interval |
|---|---|
| above, significantly | the interval is above 0 |
| noticeably | d is at least 3 points (ρ: .03), and the interval is above 0 |
| far, severely, remarkably | d is at least 10 points, and the interval is above 0 |
| at least equal | d is no less than −1 point, and the interval is above −3 |
| equal, indistinguishable | d is within ±1 point, and the interval within ±3 |

Differences are rounded to nine digits first, so that a difference of ten points is one.
"""

from dataclasses import dataclass

from selfreminder.metrics import t_interval
from selfreminder.report.claims.lines import NotEnoughDataError, Series

FAR = 0.1
NOTICEABLE = 0.03
_EQUAL, _EQUAL_INTERVAL = 0.01, 0.03


@dataclass(frozen=True)
class Check:
    """A difference of two series, and whether a rule holds for it."""

    above: Series
    below: Series
    margin: float
    interval: tuple[float, float]
    rule: str
    slack: float
    """by how much the rule holds, or if negative does not"""
    holds: bool

    @property
    def seeds(self) -> int:
        return len(self.above.values)

    @property
    def sentence(self) -> str:
        """The two numbers, their difference and its interval."""
        a, b = self.above, self.below
        also = b.who if a.when == b.when else f"{b.when} {b.who}"
        said = f"{a.when} {a.who} is at {_decimal(a.mean)}, {also} at {_decimal(b.mean)}".strip()
        low, high = (self._amount(end) for end in self.interval)
        unit, where = "points " if a.points else "", "above" if self.margin >= 0 else "below"
        margin = f"{self._amount(abs(self.margin))} {unit}{where}"
        return f"{said}: {margin}, 95 % interval {low} to {high}, {self.seeds} seeds"

    def _amount(self, value: float) -> str:
        return f"{100 * value:.1f}".replace("-", "−") if self.above.points else _decimal(value)


def above(a: Series, b: Series) -> Check:
    d, low, high = _difference(a, b)
    return Check(a, b, d, (low, high), "an interval above 0", low, low > 0)


def noticeably_above(a: Series, b: Series) -> Check:
    return above_by(NOTICEABLE, a, b)


def far_above(a: Series, b: Series) -> Check:
    return above_by(FAR, a, b)


def above_by(least: float, a: Series, b: Series) -> Check:
    d, low, high = _difference(a, b)
    rule = f"at least {_asked(a, least)} and an interval above 0"
    return Check(a, b, d, (low, high), rule, min(d - least, low), d >= least and low > 0)


def at_least(least: float, a: Series, b: Series) -> Check:
    """The mean difference alone."""
    d, low, high = _difference(a, b)
    return Check(a, b, d, (low, high), f"a mean of at least {_asked(a, least)}", d - least, d >= least)


def at_most(most: float, a: Series, b: Series) -> Check:
    """The mean difference alone."""
    d, low, high = _difference(a, b)
    return Check(a, b, d, (low, high), f"a mean of at most {_asked(a, most)}", most - d, d <= most)


def at_least_equal(a: Series, b: Series) -> Check:
    d, low, high = _difference(a, b)
    slack = min(d + _EQUAL, low + _EQUAL_INTERVAL)
    holds = d >= -_EQUAL and low > -_EQUAL_INTERVAL
    return Check(a, b, d, (low, high), "no more than 1 point below and an interval above −3", slack, holds)


def equal(a: Series, b: Series) -> Check:
    d, low, high = _difference(a, b)
    slack = min(_EQUAL - abs(d), low + _EQUAL_INTERVAL, _EQUAL_INTERVAL - high)
    holds = abs(d) <= _EQUAL and low > -_EQUAL_INTERVAL and high < _EQUAL_INTERVAL
    return Check(a, b, d, (low, high), "at most 1 point between them and an interval within 3", slack, holds)


def _difference(a: Series, b: Series) -> tuple[float, float, float]:
    """Mean, and the interval's ends."""
    mean, half_width = t_interval(a.minus(b).values)
    if half_width is None:
        raise NotEnoughDataError("an interval needs two seeds at least, there is one")
    return round(mean, 9), round(mean - half_width, 9), round(mean + half_width, 9)


def _asked(series: Series, amount: float) -> str:
    return f"{100 * amount:g} points" if series.points else _decimal(amount)


def _decimal(value: float) -> str:
    """Without the leading zero.

    >>> _decimal(0.885), _decimal(-0.0712), _decimal(1.5)
    ('.885', '−.071', '1.500')
    """
    return f"{value:.3f}".replace("0.", ".", 1 if abs(value) < 1 else 0).replace("-", "−")
