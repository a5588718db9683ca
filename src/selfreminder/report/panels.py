"""What charts show, as values: axes, lines, bars and heatmaps. `charts` draws them on pages, `figures` as files."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import show_bytes
from selfreminder.report.html import decimal
from selfreminder.report.results import Estimate, Result

AVERAGE = "Average of the tasks so far"
AVERAGE_AT_END = "Average of all tasks"
RHO = "ρ (0: as joint training)"
_UPPER_HALF = 0.5
_MOST_MARKS = 30
"""of ends of tasks on an axis of steps"""
_MARGIN = 0.25
"""between points and the ends of an axis, in steps"""
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
        """Say how far along the axis a value lies, from 0 to 1."""
        if not self.logarithmic:
            return (value - self.low) / (self.high - self.low)
        if value == 0 and self.has_zero:
            return _ZERO
        start = _AFTER_ZERO if self.has_zero else 0.0
        return start + (1 - start) * math.log(value / self.low) / math.log(self.high / self.low)

    def thinned(self, length: float, size: Callable[[str], float]) -> "Axis":
        """Leave out ticks, evenly, until their labels of that size do not touch on that length."""
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
    """Make an axis over all values, with about `count` ticks at 1, 2 or 5 times a power of ten.

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
    """Make a logarithmic axis over positive values, with ticks at powers of ten; zero has a place of its own before.

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
    """Find the least of 1, 2 and 5 times a power of ten that is not far below a step."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if 1.25 * factor * power >= step)


def _label(value: float, digits: int) -> str:
    rounded = round(value, digits)
    return f"{rounded:,.0f}".replace("-", "−") if rounded == int(rounded) else decimal(rounded, digits)


@dataclass(frozen=True)
class Series:
    """Points of one name: `y` is None where there is no value."""

    name: str
    colour: str
    marker: str
    """one of matplotlib's; empty: none"""
    x: Sequence[float]
    y: Sequence[Estimate | None]
    dash: str = ""
    """lengths of strokes and gaps, such as "4 2"; empty: a whole line"""

    @property
    def points(self) -> list[tuple[float, Estimate]]:
        return [(x, y) for x, y in zip(self.x, self.y) if y is not None]


@dataclass(frozen=True)
class Bars:
    """One bar in each group, of one name and colour: None where there is none."""

    name: str
    colour: str
    values: Sequence[Estimate | None]


@dataclass(frozen=True)
class LinePanel:
    """Means with their standard errors against x, the first series on top."""

    title: str
    series: Sequence[Series]
    x_title: str = "Tasks learned"
    y_title: str = "Test accuracy"
    limits: tuple[float, float] | None = (0.0, 1.0)
    """of y; None: as far as the values reach"""
    log: bool = False
    ticks: Sequence[float] = ()
    """values of x that are written below it; empty: they are chosen, without a log axis whole numbers"""
    marks: Sequence[tuple[float, str]] = ()
    """places on x with a word to each"""
    show_x: Callable[[float], str] = "{:,g}".format
    joined: bool = True
    """False: a scatter plot, without lines"""

    @property
    def x_axis(self) -> Axis:
        xs = [x for series in self.series for x, _ in series.points]
        axis = logarithmic(xs, self.show_x) if self.log else linear(xs, margin=0.03, whole=True, count=10)
        ticks = tuple((tick, self.show_x(tick)) for tick in self.ticks)
        return replace(axis, ticks=ticks) if ticks else axis


@dataclass(frozen=True)
class BarPanel:
    """Groups of bars side by side, with standard errors; they stand on zero."""

    title: str
    groups: Sequence[str]
    bars: Sequence[Bars]
    x_title: str
    y_title: str
    limits: tuple[float, float] | None = None


@dataclass(frozen=True)
class HeatPanel:
    """A matrix of shares from 0 to 1; a row may be shorter than the others, and have places without a value."""

    title: str
    matrix: Sequence[Sequence[Estimate | None]]
    rows: Sequence[str]
    columns: Sequence[str]
    row_title: str
    column_title: str


Panel = LinePanel | BarPanel | HeatPanel


@dataclass(frozen=True)
class Drawing:
    """What a figure shows: panels of one kind, and what is said of them."""

    panels: Sequence[Panel]
    legend: Sequence[Series | Bars] = ()
    note: str = ""
    """what a reader must know of it beside its axes"""
    errors: str = "standard error"
    """what error bars show"""
    seeds: str = ""
    """of how many it is, where not of all that its lines have"""


def trace(result: Result, values: Sequence[Estimate | None], name: str | None = None, **look: str) -> Series:
    """Make a line over tasks of a result's values; `look` may be a colour, a marker, a dash."""
    given = {"colour": result.colour, "marker": result.marker} | look
    return Series(name or result.name, x=range(1, len(values) + 1), y=values, **given)


def accuracy_panels(results: Sequence[Result], x_title: str = "Tasks learned") -> tuple[LinePanel, LinePanel]:
    """Show the accuracy on the first task, and over all tasks so far: the paper's two panels."""
    first = [trace(result, result.first_curve) for result in results]
    average = [trace(result, result.average_curve) for result in results]
    # From 0 on, unless all that there is to see would be in the upper half.
    near = fit_limits((*first, *average), least=0.0, most=1.0)
    limits = near if near[0] >= _UPPER_HALF else (0.0, 1.0)
    return LinePanel("First task", first, x_title, limits=limits), LinePanel(AVERAGE, average, x_title, limits=limits)


def steps_panel(results: Sequence[Result]) -> LinePanel | None:
    """Show how the average of the tasks so far goes while tasks are learned; None where nobody looked meanwhile."""
    drawn = [result for result in results if result.step_curve]
    if not drawn:
        return None
    series = [
        Series(result.name, result.colour, "", [x for x, _ in result.step_curve], [y for _, y in result.step_curve])
        for result in drawn
    ]
    of_runs = [accumulate(task["steps"] for task in run.tasks) for run in drawn[0].runs]
    ends = [fmean(ends) for ends in zip(*of_runs)]  # with each seed a task may be of another length
    marks = [(end, "") for end in ends[:-1]] if len(ends) <= _MOST_MARKS else []
    return LinePanel(AVERAGE, series, "Steps", limits=fit_limits(series, least=0.0, most=1.0), marks=marks)


def cost_panels(results: Sequence[Result]) -> list[LinePanel]:
    """Show the accuracy over all tasks at the end against what each method costs: bytes, and seconds where known."""
    panels = []
    for title, x_title, cost, show_x in (
        ("Bytes kept", "Bytes carried to the next task", lambda result: result.bytes, show_bytes),
        ("Time", "Seconds to learn all tasks", lambda result: result.seconds and result.seconds.mean, "{:,.3g}".format),
    ):
        known = [(result, found) for result in results if (found := cost(result)) is not None]
        if not any(found for _, found in known):
            continue
        series = [
            Series(result.name, result.colour, result.marker, (found,), (result.task_average,))
            for result, found in known
        ]
        panels.append(
            LinePanel(title, series, x_title, AVERAGE_AT_END, limits=None, log=True, show_x=show_x, joined=False)
        )
    return panels


def fit_limits(
    series: Iterable[Series], *more: float, step: float = 0.1, least: float = -math.inf, most: float = math.inf
) -> tuple[float, float]:
    """Choose ends of an axis that has room for all points with their errors, and for other values."""
    points = [point for each in series for _, point in each.points]
    ends = [end for point in points for end in point.ends]
    low = math.floor(min([*ends, *more]) / step - _MARGIN) * step
    high = math.ceil(max([*ends, *more]) / step + _MARGIN) * step
    return round(max(low, least), 9), round(min(high, most), 9)
