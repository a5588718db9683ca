"""The history of a store as an HTML page: what is right of every slice over versions, as a plot and a table."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from selfreminder import __version__
from selfreminder.report.charts import legend, line_chart
from selfreminder.report.html import decimal, document, element, note, panel, plot, section, table
from selfreminder.report.panels import LinePanel, Series, fit_limits
from selfreminder.report.results import Estimate
from selfreminder.report.style import MARKERS
from selfreminder.store.history import HistoryRow

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#882255")
_HEAD, _TAIL = ("Version", "State"), ("Kind", "Parent", "Made (UTC)", "Data")


def render_history(rows: Sequence[HistoryRow], title: str = "History") -> str:
    """Write the history of a store as a page that needs nothing beside it."""
    current = next(row for row in rows if row.state == "current")
    right = ", ".join(f"{decimal(share)} on {name}" for name, share in current.right.items())
    strong = element("strong", f"Version {current.version}")
    answer = element("p", strong, f" is current{': ' if right else ''}{right}.", class_="answer")
    header = element("header", element("h1", title), answer)
    slices = _name_slices(rows)
    cells = [
        [
            str(row.version),
            row.state or "was current",
            *(decimal(row.right[name]) if name in row.right else "–" for name in slices),
            row.kind if row.verdict is None else f"{row.kind}, {row.verdict}",
            "–" if row.parent is None else str(row.parent),
            row.created.replace("T", " ").replace("+00:00", ""),
            row.data or "–",
        ]
        for row in rows
    ]
    said = "Share that is right of every held-out slice"
    made = table([*_HEAD, *slices, *_TAIL], cells, said, words=("State", "Kind", "Data"))
    named = note("A slice is named like the version that brought it.")
    footer = element("footer", note(f"Made by selfreminder {__version__}."))
    blocks = [header, plot_block(rows), section("Versions", made, named), footer]
    return document(title, [block for block in blocks if block is not None])


def plot_block(rows: Sequence[HistoryRow]) -> Element | None:
    """Show what is right of every slice over the versions that were promoted; None where nothing was measured."""
    promoted = [row for row in rows if row.state != "aside"]
    numbers = [row.version for row in promoted]
    series = []
    for place, name in enumerate(_name_slices(promoted)):
        values = [Estimate(row.right[name], None) if name in row.right else None for row in promoted]
        colour, marker = _COLOURS[place % len(_COLOURS)], MARKERS[place % len(MARKERS)]
        series.append(Series(name, colour, marker, numbers, values))
    if not series:
        return None
    limits = fit_limits(series, least=0.0, most=1.0)
    shown = LinePanel("Right", series, "Version", "Share that is right", limits, ticks=numbers)
    chart = panel("On held-out items", line_chart(shown, "Share that is right of every slice over versions"))
    said = note("Versions that were kept aside are in the table alone.") if len(promoted) < len(rows) else None
    return section("Each slice over versions", plot([chart], legend(series), said))


def _name_slices(rows: Sequence[HistoryRow]) -> list[str]:
    """Names of all slices, oldest first."""
    return list(dict.fromkeys(name for row in rows for name in row.right))
