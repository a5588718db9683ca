"""Charts as SVG elements: lines, bars, heatmaps. `page.css` colours them, `page.js` makes them answer to a pointer.

Without the script they are whole: every mark has a <title> that says its value.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from xml.etree.ElementTree import Element

from selfreminder._base.errors import SelfReminderError
from selfreminder.report.axes import (
    HEIGHT,
    WIDTH,
    Area,
    Axis,
    colours,
    error_bar,
    frame,
    linear,
    logarithmic,
    marker_path,
    svg,
    text,
    text_width,
    x_frame,
)
from selfreminder.report.html import decimal, element, in_words
from selfreminder.report.panels import BarPanel, Bars, HeatPanel, LinePanel, Series
from selfreminder.report.results import Estimate
from selfreminder.report.style import blend

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


def line_chart(panel: LinePanel, label: str) -> Element:
    """Draw lines, with error bars or where there are many points with a band."""
    points = [point for each in panel.series for point in each.points]
    if not points:
        raise SelfReminderError(f"the chart '{label}' has no points")
    xs = [x for x, _ in points]
    x_axis = logarithmic(xs, panel.show_x) if panel.log else linear(xs, margin=0.03, whole=True, count=10)
    if panel.ticks:
        x_axis = replace(x_axis, ticks=tuple((tick, panel.show_x(tick)) for tick in panel.ticks))
    y_axis = linear(_ends([y for _, y in points]), limits=panel.limits)
    left = _left(y_axis)
    area = Area(x_axis.thinned(WIDTH - left, text_width), y_axis, left, bottom=HEIGHT - 41)
    as_band = max(len(each.points) for each in panel.series) > _MOST_BARS
    drawn = [frame(area, panel.y_title), x_frame(area, panel.x_title)]
    drawn += [_mark(x, word, area) for x, word in panel.marks]
    for each in reversed(panel.series):
        errors = _band(each, area) if as_band else _error_bars(each, area)
        dots = [_point(each, x, y, area, f"{panel.x_title}: {panel.show_x(x)}") for x, y in each.points]
        line = element("path", class_="line", d=_line(each, area), **_dashed(each)) if panel.joined else None
        drawn.append(element("g", errors, line, *dots, **_of(each.name, each.colour)))
    return svg(drawn, label, "lines", WIDTH, HEIGHT, data_top=area.top, data_bottom=area.bottom)


def bar_chart(panel: BarPanel, label: str, size: tuple[float, float] = (WIDTH, HEIGHT)) -> Element:
    """Draw groups of bars; their names lean where there is no room for them side by side."""
    groups, bars = panel.groups, panel.bars
    width_of_all, height = size
    values = [value for each in bars for value in each.values if value is not None]
    if not values:
        raise SelfReminderError(f"the chart '{label}' has no bars")
    y_axis = linear([0.0, *_ends(values)], limits=panel.limits)
    left, below, lean = _left(y_axis), 24.0, math.radians(_LEAN)
    widest = max(map(text_width, groups))
    leaning = widest > (width_of_all - left) / len(groups)
    if leaning:
        left = max(left, widest * math.cos(lean) - 0.5 * (width_of_all - left) / len(groups))
        below = 18 + widest * math.sin(lean)
    below += _TITLE if panel.x_title else 0.0
    area = Area(None, y_axis, left, bottom=height - below, right=width_of_all - 8)
    slot = area.width / len(groups)
    width = min(0.8 * slot / len(bars), 36.0)
    zero = area.y(min(max(0.0, y_axis.low), y_axis.high))
    drawn = [frame(area, panel.y_title)]
    for place, each in enumerate(bars):
        marks: list[Element] = []
        for group, value in enumerate(each.values):
            if value is None:
                continue
            centre = left + (group + 0.5) * slot + (place - (len(bars) - 1) / 2) * width
            top = area.y(value.mean)
            tip = element("title", f"{groups[group]}, {each.name}: {in_words(value)}")
            box = {"x": centre - 0.45 * width, "width": 0.9 * width, "y": min(top, zero), "height": abs(top - zero)}
            marks.append(element("rect", tip, class_="bar", **box))
            if value.stderr:
                marks.append(element("path", class_="error over", d=error_bar(centre, value, area)))
        drawn.append(element("g", *marks, **_of(each.name, each.colour)))
    drawn.append(element("path", class_="axis", d=f"M{left:.2f} {zero:.2f}H{area.right:.2f}"))
    for group, name in enumerate(groups):
        x, y = left + (group + 0.5) * slot, area.bottom + 15
        if leaning:
            drawn.append(text(name, x + 3, y - 3, "end", transform=f"rotate(-{_LEAN} {x + 3:.2f} {y - 3:.2f})"))
        else:
            drawn.append(text(name, x, y))
    if panel.x_title:
        drawn.append(text(panel.x_title, left + area.width / 2, height - 4, "middle", "axis-title"))
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


def legend(entries: Sequence[Series | Bars]) -> Element:
    """List names and looks; each is a button by which `page.js` hides its marks in the same figure."""
    return element("ul", *(element("li", _key(entry)) for entry in entries), class_="legend")


def swatch(entry: Series | Bars) -> Element:
    """Draw a small picture of how something looks in the charts, to stand beside its name."""
    lines = isinstance(entry, Series)
    line = element("path", class_="line", d="M-11 0H11", **_dashed(entry)) if lines else None
    dot = element("path", class_="point", d=_shape(entry.marker, 3.6) if lines else _shape("s", 5.0))
    size = {"viewBox": "-12 -6 24 12", "width": "24", "height": "12"}
    return element("svg", line, dot, class_="mark", style=colours(entry.colour), aria_hidden="true", **size)


def _key(entry: Series | Bars) -> Element:
    name = element("span", entry.name)
    return element("button", swatch(entry), name, type="button", aria_pressed="true", data_toggle=entry.name)


def _of(name: str, colour: str) -> dict[str, str]:
    return {"class_": "mark", "data_series": name, "style": colours(colour)}


def _dashed(series: Series) -> dict[str, str]:
    return {"stroke_dasharray": series.dash} if series.dash else {}


def _mark(x: float, word: str, area: Area) -> Element:
    """Draw a line down at x, with its word beside it where there is room."""
    across = area.x(x)
    line = element("path", class_="place", d=f"M{across:.2f} {area.top:.2f}V{area.bottom:.2f}")
    right = across + 5 + text_width(word) < area.right
    return element("g", line, text(word, across + (5 if right else -5), area.bottom - 6, "start" if right else "end"))


def _ends(values: Sequence[Estimate]) -> list[float]:
    return [value.mean + side * (value.stderr or 0.0) for value in values for side in (-1, 1)]


def _left(axis: Axis) -> float:
    """Give the room that the labels of y need."""
    return max(text_width(label) for _, label in axis.ticks) + 4


def _line(series: Series, area: Area) -> str:
    path = ""
    pen = "M"
    for x, y in zip(series.x, series.y):
        if y is not None:
            path += f"{pen}{area.x(x):.2f} {area.y(y.mean):.2f}"
        # The axis is broken after a zero that has a place of its own.
        apart = area.x_axis is not None and area.x_axis.has_zero and x == 0
        pen = "M" if y is None or apart else "L"
    return path


def _point(series: Series, x: float, y: Estimate, area: Area, where: str) -> Element:
    across, down = area.x(x), area.y(y.mean)
    tip = element("title", f"{series.name}, {where}: {in_words(y)}")
    place = {"transform": f"translate({across:.2f} {down:.2f})", "data_x": across, "data_y": down}
    said = {"data_where": where, "data_value": in_words(y)}
    return element("path", tip, class_="point", d=_shape(series.marker), **place, **said)


def _shape(marker: str, radius: float = 3.2) -> str:
    return marker_path(marker, radius) if marker else ""


def _error_bars(series: Series, area: Area) -> Element | None:
    bars = [error_bar(area.x(x), y, area) for x, y in series.points if y.stderr]
    return element("path", class_="error", d="".join(bars)) if bars else None


def _band(series: Series, area: Area) -> Element | None:
    edge: list[str] = []
    for side, points in ((-1, series.points), (1, series.points[::-1])):
        edge += [f"{area.x(x):.2f} {area.y(y.mean + side * (y.stderr or 0.0)):.2f}" for x, y in points]
    return element("path", class_="band", d=f"M{'L'.join(edge)}Z") if edge else None


def _cell(x: float, y: float, width: float, height: float, share: float, tip: Element | None = None) -> Element:
    box = {"x": x, "y": y, "width": width, "height": height}
    return element("rect", tip, class_="cell", fill=blend(*HEAT, share), style=f"--share:{100 * share:.1f}%", **box)
