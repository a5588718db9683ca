"""What charts are drawn of: an area, its frame, text and markers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from selfreminder.report.curves import Estimate
from selfreminder.report.html.markup import element
from selfreminder.report.style import on_dark
from selfreminder.report.svg.axes import Axis

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
    """Where on a chart the data is drawn."""

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
    """A chart with its name for those who cannot see it."""
    box = f"0 0 {width:g} {height:.6g}"
    return element("svg", *children, class_=f"chart {kind}", viewBox=box, role="img", aria_label=label, **more)


def text_width(text: str) -> float:
    """An upper estimate at the charts' largest font size: there is nothing to measure text with."""
    return 7.0 * len(text) + 4


def text(content: str, x: float, y: float, anchor: str = "middle", class_: str = "tick", **more: str) -> Element:
    return element("text", content, class_=class_, x=float(x), y=float(y), text_anchor=anchor, **more)


def frame(area: Area, title: str) -> Element:
    """Lines across at the ticks of y, their labels, and y's title on top."""
    heights = [(area.y(value), name) for value, name in area.y_axis.ticks]
    lines = "".join(f"M{area.left:.2f} {y:.2f}H{area.right:.2f}" for y, _ in heights)
    labels = [text(name, area.left - 7, y + 4, "end") for y, name in heights]
    return element("g", element("path", class_="grid", d=lines), *labels, text(title, 0, 12, "start", "axis-title"))


def x_frame(area: Area, title: str) -> Element:
    """The line below, the labels of x, and its title."""
    axis = area.x_axis
    assert axis is not None
    start = area.x(axis.low)  # where an axis has a place for zero, it begins after it
    line = element("path", class_="axis", d=f"M{start:.2f} {area.bottom:.2f}H{area.right:.2f}")
    labels = [text(name, area.x(value), area.bottom + 16) for value, name in axis.ticks]
    middle = (area.left + area.right) / 2
    return element("g", line, *labels, text(title, middle, area.bottom + 35, "middle", "axis-title"))


def error_bar(x: float, value: Estimate, area: Area) -> str:
    """A path: two short strokes a standard error above and below the mean, and one between them."""
    low, high = (area.y(value.mean + side * (value.stderr or 0.0)) for side in (-1, 1))
    return f"M{x - 2:.2f} {high:.2f}h4m-2 0V{low:.2f}m-2 0h4"


def colours(colour: str) -> str:
    """A style: the colour on a light page and on a dark one."""
    return f"--light:{colour};--dark:{on_dark(colour)}"


def marker_path(marker: str, radius: float = 3.2) -> str:
    """One of matplotlib's markers as a path around (0, 0)."""
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
