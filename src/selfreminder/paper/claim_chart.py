"""A claim as a small chart: each difference that its rule looks at, with its interval, beside what is asked for."""

from collections.abc import Sequence
from textwrap import wrap
from xml.etree.ElementTree import Element

from selfreminder.paper.claims.checks import Check
from selfreminder.report.charts import svg, text
from selfreminder.report.html import element
from selfreminder.report.panels import linear

_WIDTH, _ROW, _TOP, _LEFT = 400.0, 30.0, 4.0, 8.0
_LINE, _LETTERS = 13.0, 66
"""of a row's words: the height of a line, and how many letters of the widest usual font are in it"""
_MOST = 6
"""checks that are drawn; a rule with more has them as a list"""


def claim_chart(checks: Sequence[Check], label: str) -> Element | None:
    """Draw a row for each check: its mean difference, the interval of that, and the line that the rule draws.

    None where there is nothing to draw, or differences of several units.
    """
    if not checks or len(checks) > _MOST or len({check.above.points for check in checks}) > 1:
        return None
    unit = 100.0 if checks[0].above.points else 1.0
    ends = [unit * end for check in checks for end in (*check.interval, check.margin, check.least or 0.0)]
    axis = linear([0.0, *ends], margin=0.05, count=4)
    named = [_name(check) for check in checks]
    heights = [_ROW + _LINE * (len(lines) - 1) for lines in named]
    bottom = _TOP + sum(heights)

    def across(value: float) -> float:
        return _LEFT + axis.share(value) * (_WIDTH - 2 * _LEFT)

    lines = "".join(f"M{across(value):.2f} {_TOP:.2f}V{bottom:.2f}" for value, _ in axis.ticks)
    drawn = [element("path", class_="grid", d=lines)]
    drawn.append(element("path", class_="axis", d=f"M{across(0):.2f} {_TOP:.2f}V{bottom:.2f}"))
    y = _TOP - 0.28 * _ROW  # of the row's mark, under its words
    for check, lines, height in zip(checks, named, heights):
        y += height
        drawn += [text(line, _LEFT, y - 8 - _LINE * above, "start") for above, line in enumerate(reversed(lines))]
        low, high = (across(unit * end) for end in check.interval)
        said = f"{check.above.label} − {check.below.label}: {check.difference(check.margin)}; asked for: {check.rule}"
        drawn.append(
            element(
                "g",
                element("title", said),
                element("path", class_="line", d=f"M{low:.2f} {y:.2f}H{high:.2f}"),
                element("circle", class_="dot", cx=across(unit * check.margin), cy=y, r=4.0),
                class_=f"check {check.outcome.replace(' ', '-')}",
            )
        )
        if check.least is not None:
            asked = across(unit * check.least)
            drawn.append(element("path", class_="place", d=f"M{asked:.2f} {y - 7:.2f}V{y + 7:.2f}"))
    drawn += [text(name, across(value), bottom + 14) for value, name in axis.ticks]
    what = "Difference in points" if unit > 1 else "Difference"
    drawn.append(text(what, _WIDTH - _LEFT, bottom + 29, "end", "axis-title"))
    return svg(drawn, label, "claim-chart", _WIDTH, bottom + 34)


def _name(check: Check) -> list[str]:
    """Say what a check compares, in lines that are no wider than the chart."""
    above, below = check.above.label, f"− {check.below.label}"
    whole = f"{above} {below}"
    return [whole] if len(whole) <= _LETTERS else [*wrap(above, _LETTERS), *wrap(below, _LETTERS)]
