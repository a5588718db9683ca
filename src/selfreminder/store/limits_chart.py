"""A chart of checks: what was measured with its bounds, one row each, and the limit as a dashed line."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from selfreminder.report.charts import WIDTH, Area, colours, marker_path, svg, text, text_width, x_frame
from selfreminder.report.html import element
from selfreminder.report.panels import linear
from selfreminder.store.judgement import FAILED, PASSED, Check, share

_ROW = 24.0
_LOOK = {PASSED: ("#007355", "o"), FAILED: ("#b34700", "X")}
_UNSURE = ("#777777", "D")
_LONGEST = 22
"""letters of a row's name"""


def limits_chart(rows: Sequence[tuple[str, Check]], title: str) -> Element:
    """Draw named checks of one rule under each other."""
    names = [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name, _ in rows]
    checks = [check for _, check in rows]
    x_axis = linear([0.0, *(end for check in checks for end in (check.low, check.high, check.limit))], count=4)
    left, top = max(map(text_width, names)), 8.0
    bottom = top + _ROW * len(rows)
    area = Area(x_axis.thinned(WIDTH - left, text_width), linear([0.0, 1.0]), left, bottom, top)
    zero = area.x(0.0)
    drawn = [x_frame(area, title), element("path", class_="grid", d=f"M{zero:.2f} {top:.2f}V{bottom:.2f}")]
    for place, (name, check) in enumerate(zip(names, checks)):
        y = top + _ROW * (place + 0.5)
        limit = area.x(check.limit)
        colour, marker = _LOOK.get(check.verdict, _UNSURE)
        drawn += [
            element("path", class_="place", d=f"M{limit:.2f} {y - _ROW / 2:.2f}v{_ROW:.2f}"),
            text(name, left - 7, y + 4, "end"),
            element(
                "g",
                element("title", str(check)),
                element("path", class_="line", d=f"M{area.x(check.low):.2f} {y:.2f}H{area.x(check.high):.2f}"),
                element(
                    "path",
                    class_="point",
                    d=marker_path(marker, 4.0),
                    transform=f"translate({area.x(check.estimate):.2f} {y:.2f})",
                ),
                class_="mark",
                style=colours(colour),
            ),
        ]
    found = "; ".join(f"{name} {share(check.estimate)}, {check.verdict}" for name, check in rows)
    return svg(drawn, f"{title}: {found}", "limits", WIDTH, bottom + 41)
