"""Axes of charts, and what charts are drawn of: an area, its frame, text and markers."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from xml.etree.ElementTree import Element

from selfreminder._base.errors import SelfReminderError
from selfreminder.report.html import decimal, element
from selfreminder.report.results import Estimate
from selfreminder.report.style import on_dark

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


WIDTH, HEIGHT = 400.0, 260.0
"""of a chart, in the units in which its text is 11 high"""
_POLYGONS = {
    "^": (3, 0),
    "v": (3, 180),
    "<": (3, -90),
    ">": (3, 90),
    "s": (4, 45),
    "D": (4, 0),
    "p": (5, 0),
    "h": (6, 0),
}
"""corners of a marker, and by how many degrees it is turned"""


@dataclass(frozen=True)
class Area:
    """The part of a chart that data is drawn in."""

    x_axis: Axis | None
    y_axis: Axis
    left: float
    bottom: float
    top: float = 26.0
    right: float = WIDTH - 8.0

    @property
    def width(self) -> float:
        return self.right - self.left

    def x(self, value: float) -> float:
        assert self.x_axis is not None
        return self.left + self.x_axis.share(value) * self.width

    def y(self, value: float) -> float:
        return self.bottom - self.y_axis.share(value) * (self.bottom - self.top)


def svg(children: Sequence[Element], label: str, kind: str, width: float, height: float, **more: float) -> Element:
    """Make a chart of its parts; `label` is its name for those who cannot see it."""
    box = f"0 0 {width:g} {height:.6g}"
    return element("svg", *children, class_=f"chart {kind}", viewBox=box, role="img", aria_label=label, **more)


def text_width(text: str) -> float:
    """Estimate the width of text from above, at the charts' largest font size: there is nothing to measure it with."""
    return 7.0 * len(text) + 4


def text(content: str, x: float, y: float, anchor: str = "middle", class_: str = "tick", **more: str) -> Element:
    return element("text", content, class_=class_, x=float(x), y=float(y), text_anchor=anchor, **more)


def frame(area: Area, title: str) -> Element:
    """Draw lines across at the ticks of y, their labels, and y's title on top."""
    heights = [(area.y(value), name) for value, name in area.y_axis.ticks]
    lines = "".join(f"M{area.left:.2f} {y:.2f}H{area.right:.2f}" for y, _ in heights)
    labels = [text(name, area.left - 7, y + 4, "end") for y, name in heights]
    return element("g", element("path", class_="grid", d=lines), *labels, text(title, 0, 12, "start", "axis-title"))


def x_frame(area: Area, title: str) -> Element:
    """Draw the line below, the labels of x, and its title."""
    axis = area.x_axis
    assert axis is not None
    start = area.x(axis.low)  # where an axis has a place for zero, it begins after it
    line = element("path", class_="axis", d=f"M{start:.2f} {area.bottom:.2f}H{area.right:.2f}")
    labels = [text(name, area.x(value), area.bottom + 16) for value, name in axis.ticks]
    middle = (area.left + area.right) / 2
    return element("g", line, *labels, text(title, middle, area.bottom + 35, "middle", "axis-title"))


def error_bar(x: float, value: Estimate, area: Area) -> str:
    """Make a path of two short strokes a standard error above and below the mean, and one between them."""
    low, high = (area.y(value.mean + side * (value.stderr or 0.0)) for side in (-1, 1))
    return f"M{x - 2:.2f} {high:.2f}h4m-2 0V{low:.2f}m-2 0h4"


def colours(colour: str) -> str:
    """Make a style of a colour: as it is on a light page, and on a dark one."""
    return f"--light:{colour};--dark:{on_dark(colour)}"


def marker_path(marker: str, radius: float = 3.2) -> str:
    """Make a path around (0, 0) of one of matplotlib's markers."""
    if marker in ("o", "."):
        r = radius if marker == "o" else 0.6 * radius
        return f"M{-r:.2f} 0a{r:.2f} {r:.2f} 0 1 0 {2 * r:.2f} 0a{r:.2f} {r:.2f} 0 1 0 {-2 * r:.2f} 0Z"
    if marker in ("P", "X"):
        long, short = 1.15 * radius, 0.42 * radius
        arm = [(long, -short), (long, short), (short, short)]
        corners = [_turned(x, y, 90 * i + (45 if marker == "X" else 0)) for i in range(4) for x, y in arm]
    elif marker == "*":
        corners = [_turned(0, -radius * (0.55 if i % 2 else 1.35), 36 * i) for i in range(10)]
    else:
        sides, turn = _POLYGONS.get(marker, (8, 22.5))
        corners = [_turned(0, -1.2 * radius, turn + 360 * i / sides) for i in range(sides)]
    return "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in corners) + "Z"


def _turned(x: float, y: float, degrees: float) -> tuple[float, float]:
    angle = math.radians(degrees)
    return x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)
