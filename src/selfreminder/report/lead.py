"""The answer as a picture: the accuracy over all tasks so far, every method with where it ends and what it keeps."""

from collections.abc import Sequence
from dataclasses import replace
from xml.etree.ElementTree import Element

from selfreminder._base.sizes import show_bytes
from selfreminder.report.charts import legend, line_chart
from selfreminder.report.html import decimal, element, note
from selfreminder.report.panels import accuracy_panels
from selfreminder.report.results import Result

_WIDE, _NARROW = (620.0, 330.0), (400.0, 280.0)
"""of the chart on a screen and on a phone, so that its words have the same size on both"""


def lead_block(results: Sequence[Result], caption: str) -> Element:
    """Show the accuracy over all tasks so far, large; beside it the methods, where they end, and their bytes."""
    average = replace(accuracy_panels(results)[1], y_title="Test accuracy over all tasks so far")
    names = ", ".join(each.name for each in average.series)
    label = f"Test accuracy over all tasks so far against tasks learned, of {names}"
    charts = [
        element("div", line_chart(average, label, size), class_=kind)
        for kind, size in (("wide", _WIDE), ("narrow", _NARROW))
    ]
    ends = [f"{decimal(result.task_average.mean)} · {show_bytes(result.bytes)}" for result in results]
    return element("figure", *charts, legend(average.series, ends), note(caption), class_="lead")
