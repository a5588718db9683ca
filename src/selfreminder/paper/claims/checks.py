"""What "above", "far above" and "equal" mean: conditions on differences paired by seed.

| word | the rule, d the mean difference, interval its 95 % t interval |
|---|---|
| above, significantly | the interval is above 0 |
| noticeably | d is at least 3 points (ρ: .03), and the interval is above 0 |
| far, severely, remarkably | d is at least 10 points, and the interval is above 0 |
| at least equal | d is no less than −1 point, and the interval is above −3 |
| equal, indistinguishable | d is within ±1 point, and the interval within ±3 |
| above, by standard errors | d is larger than the standard errors of both together: bars that do not overlap |

A check that does not hold is *contradicted* where the whole interval lies outside of what is asked of d (for "above":
below 0; for "at least 10 points": below 10; for "equal": beyond ±1 point), else there are *too few to tell*: then it
says how many seeds would tell, one way or the other, if mean and spread stay as they are.

Differences are rounded to nine digits first, so that a difference of ten points is one.
"""

import math
from dataclasses import dataclass
from typing import Literal

from selfreminder.metrics import mean_and_stderr, student_quantile
from selfreminder.paper.claims.runs import Measurement, NotEnoughDataError
from selfreminder.report.html import decimal

FAR = 0.1
NOTICEABLE = 0.03
EQUAL = 0.01
_EQUAL_INTERVAL = 0.03
_CONFIDENCE = 0.95
_INTERVAL, _ERRORS = "95 % interval", "with both standard errors"
_MOST_SEEDS = 1000
"""that anybody would run"""
_Bounds = tuple[float, float]
_ANY: _Bounds = (-math.inf, math.inf)
_ABOVE_ZERO: _Bounds = (0.0, math.inf)
Outcome = Literal["held", "contradicted", "too few to tell"]


@dataclass(frozen=True)
class Check:
    """A difference of two measurements, and whether a rule holds for it."""

    above: Measurement
    below: Measurement
    margin: float
    interval: tuple[float, float]
    rule: str
    slack: float
    """by how much the rule holds, or if negative does not"""
    outcome: Outcome
    seeds_to_tell: int | None = None
    """where there are too few: how many would tell, if mean and spread stay as they are; None: more than 1,000"""
    is_on_its_side: bool = True
    """the mean difference is as the rule asks: with seeds enough it holds; else it is contradicted"""
    least: float | None = None
    """the mean difference that is asked for at least, if one is"""
    is_limit: bool = False
    """a difference may be there, but no larger one: the numbers alone do not tell what was asked for"""
    measure: str = _INTERVAL
    """what the interval is"""

    @property
    def holds(self) -> bool:
        return self.outcome == "held"

    @property
    def seeds(self) -> int:
        return len(self.above.values)

    @property
    def sentence(self) -> str:
        """Say what was measured, by how much it differs, and the interval of that."""
        if self.above.is_bound or self.below.is_bound:
            return self._beside_a_bound()
        if self.above.who == self.below.who:
            return self._over_time()
        a, b = self.above, self.below
        said = f"{a.when} {a.who} is at {decimal(a.mean)}, {b.who} at {decimal(b.mean)}".strip()
        by = self.difference(self.margin)
        by = f"{by} above" if self.margin >= 0 else f"a difference of {by}"
        return f"{said}: {by}, {self._between(*self.interval)}"

    @property
    def asked(self) -> str:
        """Say what the rule asks of what the sentence says."""
        if self.above.is_bound or self.below.is_bound:
            return self._asked_of_a_number()
        if self.above.who == self.below.who and (self.above.after or 0) < (self.below.after or 0):
            return f"a fall {'of' if self.rule.startswith('at ') else 'with'} {self.rule}"
        return self.rule

    def _asked_of_a_number(self) -> str:
        bound, side, than, where = self.below, 1, "at least", "above"
        if self.above.is_bound:
            bound, side, than, where = self.above, -1, "at most", "below"
        said = [] if self.least is None else [f"{than} {decimal(bound.mean + side * self.least)}"]
        said += [f"an interval {where} {decimal(bound.mean)}"] if not self.is_limit else []
        return f"{' and '.join(said) or self.rule}, {bound.who}"

    def end(self, value: float) -> str:
        """Write an end of the interval, in points where people count in those; one that is not 0 does not look it.

        >>> a, b = Measurement("a", (0.9, 0.7)), Measurement("b", (0.8, 0.5))
        >>> above(a, b).end(0.1234), above(a, b).end(0.0000752)
        ('12.3', '.008')
        """
        value, digits = (100 * value, 1) if self.above.points else (value, 3)
        return decimal(value, digits + 2 if value and abs(value) < 0.5 * 10**-digits else digits)

    def difference(self, value: float) -> str:
        """Write a difference with its unit."""
        return f"{decimal(100 * value, 1)} points" if self.above.points else decimal(value)

    def _beside_a_bound(self) -> str:
        found, bound = self.above, self.below
        low, high = (bound.mean + end for end in self.interval)
        if found.is_bound:
            found, bound = bound, found
            low, high = (bound.mean - end for end in reversed(self.interval))
        interval = "" if low == high else f", {self.measure} {decimal(low)} to {decimal(high)}"
        return f"{found.when} {found.who} is at {decimal(found.mean)}{interval}".strip()

    def _over_time(self) -> str:
        """Say a fall or a rise, from the earlier of the two to the later."""
        first, last = sorted((self.above, self.below), key=lambda series: series.after or 0)
        fall, (low, high) = self.margin, self.interval
        if first is self.below:
            fall, low, high = -fall, -high, -low
        went = "falls"
        if fall < 0:
            went, low, high = "rises", -high, -low
        said = f"{first.who} {went} from {decimal(first.mean)} {first.when} to {decimal(last.mean)} {last.when}"
        return f"{said}, by {self.difference(abs(fall))}, {self._between(low, high)}"

    def _between(self, low: float, high: float) -> str:
        return f"{self.measure} {self.end(low)} to {self.end(high)}"


def above(a: Measurement, b: Measurement) -> Check:
    return _check(a, b, "an interval above 0", interval=_ABOVE_ZERO)


def noticeably_above(a: Measurement, b: Measurement) -> Check:
    return above_by(NOTICEABLE, a, b)


def far_above(a: Measurement, b: Measurement) -> Check:
    return above_by(FAR, a, b)


def above_by(least: float, a: Measurement, b: Measurement) -> Check:
    rule = f"at least {_asked(a, least)} and an interval above 0"
    return _check(a, b, rule, mean=(least, math.inf), interval=_ABOVE_ZERO, least=least)


def at_least(least: float, a: Measurement, b: Measurement) -> Check:
    return _check(a, b, f"a mean of at least {_asked(a, least)}", mean=(least, math.inf), least=least)


def at_most(most: float, a: Measurement, b: Measurement) -> Check:
    return _check(a, b, f"a mean of at most {_asked(a, most)}", mean=(-math.inf, most))


def at_least_equal(a: Measurement, b: Measurement) -> Check:
    rule = "no more than 1 point below, less than 3 in the whole interval"
    return _check(a, b, rule, mean=(-EQUAL, math.inf), interval=(-_EQUAL_INTERVAL, math.inf))


def equal(a: Measurement, b: Measurement) -> Check:
    rule = "at most 1 point between them and an interval within 3"
    return _check(a, b, rule, mean=(-EQUAL, EQUAL), interval=(-_EQUAL_INTERVAL, _EQUAL_INTERVAL))


def above_by_standard_errors(a: Measurement, b: Measurement) -> Check:
    """As a reader of a figure sees it: means with bars of one standard error, each of its own seeds."""
    rule = "bars of one standard error that do not overlap"
    return _check(a, b, rule, interval=_ABOVE_ZERO, measure=_ERRORS)


def _check(
    a: Measurement,
    b: Measurement,
    rule: str,
    *,
    mean: _Bounds = _ANY,
    interval: _Bounds = _ANY,
    least: float | None = None,
    measure: str = _INTERVAL,
) -> Check:
    """Check that the mean difference is within bounds, which it may reach, and its interval inside others."""
    seeds = len(a.values)
    found, error = mean_and_stderr(a.minus(b).values)
    if error is None:
        raise NotEnoughDataError("an interval needs two seeds at least, there is one")
    if not math.isfinite(found):
        raise NotEnoughDataError(f"{a.label} and {b.label} are not numbers in every seed: training diverged")
    if measure == _ERRORS:
        error = sum(mean_and_stderr(series.values)[1] or 0.0 for series in (a, b))
    half_width = _half_width(error, seeds, seeds, measure)
    d, low, high = (round(value, 9) for value in (found, found - half_width, found + half_width))
    slack = min(d - mean[0], mean[1] - d, low - interval[0], interval[1] - high)
    is_on_its_side = mean[0] <= d <= mean[1] and interval[0] < d < interval[1]
    outcome: Outcome = "too few to tell"
    if mean[0] <= d <= mean[1] and interval[0] < low and high < interval[1]:
        outcome = "held"
    elif (mean == _ANY and (high <= interval[0] or low >= interval[1])) or high < mean[0] or low > mean[1]:
        outcome = "contradicted"
    needed = None
    if outcome == "too few to tell":
        # How far the mean is from where it would be decided the other way: the interval has to be as narrow as that.
        bounds = interval if is_on_its_side or mean == _ANY else mean
        needed = _count_seeds(error, seeds, min(abs(d - bound) for bound in bounds), measure)
    is_limit = interval != _ABOVE_ZERO
    margins = (d, (low, high), rule, slack)
    return Check(a, b, *margins, outcome, needed, is_on_its_side, least, is_limit=is_limit, measure=measure)


def _half_width(error: float, seeds: int, of: int, measure: str) -> float:
    """Compute the half width of an interval with `of` seeds, from the standard error of the mean of `seeds`."""
    quantile = student_quantile(_CONFIDENCE, of - 1) if measure == _INTERVAL else 1.0
    return quantile * error * math.sqrt(seeds / of)


def _count_seeds(error: float, seeds: int, within: float, measure: str) -> int | None:
    """Count the seeds with which an interval would be narrower than `within` to either side; None: too many."""
    low, high = seeds, _MOST_SEEDS  # the half width falls with every seed
    if _half_width(error, seeds, high, measure) >= within:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _half_width(error, seeds, middle, measure) < within else (middle, high)
    return high


def _asked(series: Measurement, amount: float) -> str:
    return f"{100 * amount:g} points" if series.points else decimal(amount)
