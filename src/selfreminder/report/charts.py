"""Charts as SVG elements: lines, bars, heatmaps. `page.css` colours them, `page.js` makes them answer to a pointer.

Without the script they are whole: every mark has a <title> that says its value.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from selfreminder._base.errors import SelfReminderError
from selfreminder.report.html import decimal, element, in_words
from selfreminder.report.panels import Axis, BarPanel, Bars, HeatPanel, LinePanel, Series, linear
from selfreminder.report.results import Estimate
from selfreminder.report.style import blend, on_dark

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
HEAT = ("#eef4fb", "#0a2a78")
"""the colours of 0 and 1 in a heatmap, of one hue; `page.css` has them too, and those of a dark page"""
HEAT_TURN = 0.62
"""the share above which a number in a heatmap is written in the other colour"""
_MOST_BARS = 25
"""with more points than that, errors are drawn as a band"""
_SMALLEST_WITH_NUMBER = 20.0
"""the side of a heatmap's cell in which a number can be read"""
_TITLE = 19.0
"""the room of a title below an axis"""
_LEAN = 35
"""degrees by which labels lean that have no room side by side"""


@dataclass(frozen=True)
class Area:
    """The part of a chart that data is drawn in."""

    x_axis: Axis
    y_axis: Axis
    left: float
    bottom: float
    top: float = 26.0
    right: float = WIDTH - 8.0

    def x(self, value: float) -> float:
        return self.left + self.x_axis.share(value) * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom - self.y_axis.share(value) * (self.bottom - self.top)


def line_chart(panel: LinePanel, label: str, size: tuple[float, float] = (WIDTH, HEIGHT)) -> Element:
    """Draw lines, with error bars or where there are many points with a band."""
    width, height = size
    ends = [end for each in panel.series for _, y in each.points for end in y.ends]
    if not ends:
        raise SelfReminderError(f"the chart '{label}' has no points")
    y_axis = linear(ends, limits=panel.limits)
    left = _left(y_axis)
    area = Area(panel.x_axis.thinned(width - left, text_width), y_axis, left, bottom=height - 41, right=width - 8)
    as_band = max(len(each.points) for each in panel.series) > _MOST_BARS
    drawn = [frame(area, panel.y_title), x_frame(area, panel.x_title)]
    drawn += [_mark(x, word, area) for x, word in panel.marks]
    for each in reversed(panel.series):
        errors = _band(each, area) if as_band else _error_bars(each, area)
        dots = [_point(each, x, y, area, f"{panel.x_title}: {panel.show_x(x)}") for x, y in each.points]
        drawn.append(_group(each, errors, _line(each, area) if panel.joined else None, *dots))
    return svg(drawn, label, "lines", width, height, data_top=area.top, data_bottom=area.bottom)


def bar_chart(panel: BarPanel, label: str, size: tuple[float, float] = (WIDTH, HEIGHT)) -> Element:
    """Draw groups of bars; their names lean where there is no room for them side by side."""
    groups, bars = panel.groups, panel.bars
    width_of_all, height = size
    ends = [end for each in bars for value in each.values if value is not None for end in value.ends]
    if not ends:
        raise SelfReminderError(f"the chart '{label}' has no bars")
    y_axis = linear([0.0, *ends], limits=panel.limits)
    left, below, lean = _left(y_axis), 24.0, math.radians(_LEAN)
    widest = max(map(text_width, groups))
    leaning = widest > (width_of_all - left) / len(groups)
    if leaning:
        left = max(left, widest * math.cos(lean) - 0.5 * (width_of_all - left) / len(groups))
        below = 18 + widest * math.sin(lean)
    below += _TITLE if panel.x_title else 0.0
    area = Area(Axis(0, len(groups), ()), y_axis, left, bottom=height - below, right=width_of_all - 8)
    width = min(0.8 * (area.right - left) / len(groups) / len(bars), 36.0)
    zero = area.y(min(max(0.0, y_axis.low), y_axis.high))
    drawn = [frame(area, panel.y_title)]
    for place, each in enumerate(bars):
        marks: list[Element] = []
        for group, value in enumerate(each.values):
            if value is None:
                continue
            centre = area.x(group + 0.5) + (place - (len(bars) - 1) / 2) * width
            top = area.y(value.mean)
            tip = element("title", f"{groups[group]}, {each.name}: {in_words(value)}")
            box = {"x": centre - 0.45 * width, "width": 0.9 * width, "y": min(top, zero), "height": abs(top - zero)}
            marks.append(element("rect", tip, class_="bar", **box))
            if value.stderr:
                marks.append(element("path", class_="error over", d=error_bar(centre, value, area)))
        drawn.append(_group(each, *marks))
    drawn.append(element("path", class_="axis", d=f"M{left:.2f} {zero:.2f}H{area.right:.2f}"))
    for group, name in enumerate(groups):
        x, y = area.x(group + 0.5), area.bottom + 15
        if leaning:
            drawn.append(text(name, x + 3, y - 3, "end", transform=f"rotate(-{_LEAN} {x + 3:.2f} {y - 3:.2f})"))
        else:
            drawn.append(text(name, x, y))
    if panel.x_title:
        drawn.append(text(panel.x_title, (left + area.right) / 2, height - 4, "middle", "axis-title"))
    return svg(drawn, label, "bars", width_of_all, height)


def heatmap(panel: HeatPanel, label: str) -> Element:
    """Draw a matrix in one hue, with its numbers where there is room."""
    rows, columns = panel.rows, panel.columns
    width, top = 300.0, 22.0
    left = max(map(text_width, rows)) + 4
    wide = min((width - left) / len(columns), max(48.0, *map(text_width, columns)))
    high = min(wide, 48.0)
    bottom = top + high * len(rows)
    drawn: list[Element] = []
    for r, values in enumerate(panel.matrix):
        for c, value in enumerate(values):
            if value is None:
                continue
            share = min(max(value.mean, 0.0), 1.0)
            x, y = left + c * wide, top + r * high
            tip = element("title", f"{panel.row_title} {rows[r]}, {panel.column_title} {columns[c]}: {in_words(value)}")
            drawn.append(_cell(x, y, wide - 1, high - 1, share, tip))
            if wide >= _SMALLEST_WITH_NUMBER:
                tone = "number high" if share > HEAT_TURN else "number"
                number = decimal(value.mean, 2)
                drawn.append(text(number, x + (wide - 1) / 2, y + (high - 1) / 2, class_=tone, dy="0.35em"))
    down = Axis(0, len(rows), tuple((i + 0.5, name) for i, name in enumerate(rows)))
    across = Axis(0, len(columns), tuple((i + 0.5, name) for i, name in enumerate(columns)))
    for place, name in down.thinned(bottom - top, lambda name: 13.0).ticks:
        drawn.append(text(name, left - 6, top + place * high + 4, "end"))
    for place, name in across.thinned(wide * len(columns), text_width).ticks:
        drawn.append(text(name, left + place * wide, bottom + 14))
    drawn.append(text(panel.row_title, 0, 12, "start", "axis-title"))
    drawn.append(text(panel.column_title, left + wide * len(columns) / 2, bottom + 31, "middle", "axis-title"))
    return svg(drawn, label, "heat", width, bottom + 37)


def heat_scale(steps: int = 24) -> Element:
    """Draw what the colours of a heatmap mean."""
    width = 192.0
    wide = width / steps
    cells = [_cell(i * wide, 0.0, wide + 0.3, 10.0, i / (steps - 1)) for i in range(steps)]
    places = (("0", 0.0, "start"), (".5", width / 2, "middle"), ("1", width, "end"))
    labels = [text(name, x, 24, anchor) for name, x, anchor in places]
    return svg([*cells, *labels], "Colour scale from 0 to 1", "scale", width, 28)


def legend(entries: Sequence[Series | Bars], values: Sequence[str] = ()) -> Element:
    """List names and looks; each is a button by which `page.js` hides its marks in the same figure.

    Args:
        entries: what is listed.
        values: what is said beside each name, if anything.
    """
    shown = {"type": "button", "aria_pressed": "true"}
    keys = []
    for place, entry in enumerate(entries):
        value = element("small", values[place]) if values else None
        keys.append(
            element("button", swatch(entry), element("span", entry.name), value, **shown, data_toggle=entry.name)
        )
    return element("ul", *(element("li", key) for key in keys), class_="legend")


def swatch(entry: Series | Bars) -> Element:
    """Draw a small picture of how something looks in the charts, to stand beside its name."""
    line, shape = None, marker_path("s", 5.0)
    if isinstance(entry, Series):
        line = element("path", class_="line", d="M-11 0H11", stroke_dasharray=entry.dash or None)
        shape = marker_path(entry.marker, 3.6)
    dot = element("path", class_="point", d=shape)
    size = {"viewBox": "-12 -6 24 12", "width": "24", "height": "12"}
    return element("svg", line, dot, class_="mark", style=colours(entry.colour), aria_hidden="true", **size)


def _group(entry: Series | Bars, *marks: Element | None) -> Element:
    """Put the marks of one name together, for `page.js` to find."""
    return element("g", *marks, class_="mark", data_series=entry.name, style=colours(entry.colour))


def _mark(x: float, word: str, area: Area) -> Element:
    """Draw a line down at x, with its word beside it where there is room."""
    across = area.x(x)
    line = element("path", class_="place", d=f"M{across:.2f} {area.top:.2f}V{area.bottom:.2f}")
    right = across + 5 + text_width(word) < area.right
    return element("g", line, text(word, across + (5 if right else -5), area.bottom - 6, "start" if right else "end"))


def _left(axis: Axis) -> float:
    """Give the room that the labels of y need."""
    return max(text_width(label) for _, label in axis.ticks) + 4


def _line(series: Series, area: Area) -> Element:
    path = ""
    pen = "M"
    for x, y in zip(series.x, series.y):
        if y is not None:
            path += f"{pen}{area.x(x):.2f} {area.y(y.mean):.2f}"
        # The axis is broken after a zero that has a place of its own.
        pen = "M" if y is None or (area.x_axis.has_zero and x == 0) else "L"
    return element("path", class_="line", d=path, stroke_dasharray=series.dash or None)


def _point(series: Series, x: float, y: Estimate, area: Area, where: str) -> Element:
    across, down = area.x(x), area.y(y.mean)
    tip = element("title", f"{series.name}, {where}: {in_words(y)}")
    place = {"transform": f"translate({across:.2f} {down:.2f})", "data_x": across, "data_y": down}
    said = {"data_where": where, "data_value": in_words(y)}
    return element("path", tip, class_="point", d=marker_path(series.marker), **place, **said)


def _error_bars(series: Series, area: Area) -> Element | None:
    bars = [error_bar(area.x(x), y, area) for x, y in series.points if y.stderr]
    return element("path", class_="error", d="".join(bars)) if bars else None


def _band(series: Series, area: Area) -> Element | None:
    low, high = ([f"{area.x(x):.2f} {area.y(y.ends[side]):.2f}" for x, y in series.points] for side in (0, 1))
    edge = low + high[::-1]
    return element("path", class_="band", d=f"M{'L'.join(edge)}Z") if edge else None


def _cell(x: float, y: float, width: float, height: float, share: float, tip: Element | None = None) -> Element:
    box = {"x": x, "y": y, "width": width, "height": height}
    return element("rect", tip, class_="cell", fill=blend(*HEAT, share), style=f"--share:{100 * share:.1f}%", **box)


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
    start = area.x(area.x_axis.low)  # where an axis has a place for zero, it begins after it
    line = element("path", class_="axis", d=f"M{start:.2f} {area.bottom:.2f}H{area.right:.2f}")
    labels = [text(name, area.x(value), area.bottom + 16) for value, name in area.x_axis.ticks]
    middle = (area.left + area.right) / 2
    return element("g", line, *labels, text(title, middle, area.bottom + 35, "middle", "axis-title"))


def error_bar(x: float, value: Estimate, area: Area) -> str:
    """Make a path of two short strokes a standard error above and below the mean, and one between them."""
    low, high = map(area.y, value.ends)
    return f"M{x - 2:.2f} {high:.2f}h4m-2 0V{low:.2f}m-2 0h4"


def colours(colour: str) -> str:
    """Make a style of a colour: as it is on a light page, and on a dark one."""
    return f"--light:{colour};--dark:{on_dark(colour)}"


def marker_path(marker: str, radius: float = 3.2) -> str:
    """Make a path around (0, 0) of one of matplotlib's markers; empty for none."""
    if not marker:
        return ""
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
