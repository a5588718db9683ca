"""What charts show, as values: lines, bars and heatmaps. `charts` draws them on pages, `figures` as files."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from selfreminder.report.results import Estimate, Result

AVERAGE = "Average of the tasks so far"
RHO = "ρ (0: as joint training)"
_MARGIN = 0.25
"""between points and the ends of an axis, in steps"""


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
    """A matrix of shares from 0 to 1; a row may be shorter than the others."""

    title: str
    matrix: Sequence[Sequence[Estimate]]
    rows: Sequence[str]
    columns: Sequence[str]
    row_title: str
    column_title: str


Panel = LinePanel | BarPanel | HeatPanel


def trace(result: Result, values: Sequence[Estimate | None], name: str | None = None, **look: str) -> Series:
    """Make a line over tasks of a result's values; `look` may be a colour, a marker, a dash."""
    given = {"colour": result.colour, "marker": result.marker} | look
    return Series(name or result.name, x=range(1, len(values) + 1), y=values, **given)


def accuracy_panels(results: Sequence[Result], x_title: str = "Tasks learned") -> tuple[LinePanel, LinePanel]:
    """Show the accuracy on the first task, and over all tasks so far: the paper's two panels."""
    first = [trace(result, result.first_curve) for result in results]
    average = [trace(result, result.average_curve) for result in results]
    return LinePanel("First task", first, x_title), LinePanel(AVERAGE, average, x_title)


def fit_limits(
    series: Iterable[Series], *more: float, step: float = 0.1, least: float = -math.inf, most: float = math.inf
) -> tuple[float, float]:
    """Choose ends of an axis that has room for all points with their errors, and for other values."""
    points = [point for each in series for _, point in each.points]
    ends = [point.mean + side * (point.stderr or 0.0) for point in points for side in (-1, 1)]
    low = math.floor(min([*ends, *more]) / step - _MARGIN) * step
    high = math.ceil(max([*ends, *more]) / step + _MARGIN) * step
    return round(max(low, least), 9), round(min(high, most), 9)
