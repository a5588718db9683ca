import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreminder import methods, report
from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks import HEAD_PER_TASK_METHODS, ONE_HEAD_METHODS
from selfreminder.report.charts import HEAT, HEAT_TURN, bar_chart, heat_scale, heatmap, legend, line_chart, marker_path
from selfreminder.report.html import element, to_html
from selfreminder.report.panels import BarPanel, Bars, HeatPanel, LinePanel, Series, linear, logarithmic
from selfreminder.report.results import Estimate
from selfreminder.report.style import _linear, blend, look, on_dark

CSS = (Path(report.__file__).parent / "page.css").read_text(encoding="utf-8")
VALUES = st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 3)), min_size=1, max_size=8)
HOSTILE = '<script>alert("1")</script>&\x00'


def of_method(name: str, x: Sequence[float], y: Sequence[Estimate | None], names: list[str]) -> Series:
    """In the look of a method; `names` are all that are drawn."""
    return Series(name, *look(name, names), x, y)


def parsed(tree: Element) -> Element:
    """As a browser gets it: well-formed, or this raises."""
    return ElementTree.fromstring(to_html(tree))


def of_class(tree: Element, name: str) -> list[Element]:
    return [found for found in tree.iter() if name in found.get("class", "").split()]


def titles(tree: Element) -> list[str]:
    return [found.text or "" for found in tree.iter("title")]


def variables(mode: str) -> dict[str, str]:
    """The colours of the style sheet on a light or a dark page."""
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6});", part)) for part in CSS.split("dark) {")[:2])
    return light if mode == "light" else dark


def contrast(one: str, other: str) -> float:
    """WCAG's contrast of two colours, from 1 to 21."""
    dim, bright = sorted(sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), _linear(each))) for each in (one, other))
    return (bright + 0.05) / (dim + 0.05)


@given(VALUES, st.sampled_from([0.0, 0.03]), st.booleans())
def test_ticks_are_round_and_inside(values: list[float], margin: float, whole: bool) -> None:
    axis = linear(values, margin=margin, whole=whole)
    ticks = [value for value, _ in axis.ticks]
    labels = [label for _, label in axis.ticks]
    assert len(ticks) <= 12
    assert len(set(labels)) == len(labels)
    assert all(-1e-6 <= axis.share(value) <= 1 + 1e-6 for value in (*values, *ticks))
    steps = [b - a for a, b in pairwise(ticks)]
    if steps:
        assert max(steps) == pytest.approx(min(steps))
        assert f"{steps[0]:e}"[0] in "1259"  # 9: of 9.99…e-1
    if whole:
        assert all(value == int(value) for value in ticks)
    if not margin:
        assert (ticks[0], ticks[-1]) == pytest.approx((axis.low, axis.high))


@given(st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=6), st.booleans())
def test_a_logarithmic_axis_is_in_order(values: list[float], with_zero: bool) -> None:
    values = sorted([0.0, *values] if with_zero else values)
    axis = logarithmic(values)
    assert all(0 <= axis.share(value) <= 1 for value in values)
    for a, b in pairwise(values):
        assert axis.share(a) <= axis.share(b)
    assert len(axis.ticks) >= 1 + with_zero
    if with_zero:
        assert axis.ticks[0] == (0.0, "0")


def test_what_a_logarithmic_axis_cannot_show() -> None:
    for values in ([0.0], [-1.0, 1.0]):
        with pytest.raises(SelfReminderError, match="needs a value above 0"):
            logarithmic(values)


@given(st.integers(2, 60), st.floats(20, 600))
def test_labels_do_not_touch(count: int, length: float) -> None:
    axis = linear(range(count), whole=True, count=count).thinned(length, lambda label: 8.0 * len(label))
    for (a, one), (b, other) in pairwise(axis.ticks):
        assert (axis.share(b) - axis.share(a)) * length >= 4.0 * (len(one) + len(other))


PAPERS_METHODS = {*ONE_HEAD_METHODS, *HEAD_PER_TASK_METHODS, "joint", "generative-replay"}


def test_every_method_has_a_look_of_its_own() -> None:
    names = list(methods.names())
    looks = {name: look(name, names) for name in names}
    assert len({colour for colour, _ in looks.values()}) == len(names)
    # There are more methods than markers: those of the paper's figures have one each.
    of_paper = {marker for name, (_, marker) in looks.items() if name in PAPERS_METHODS}
    assert len({marker_path(marker) for marker in of_paper}) == len(PAPERS_METHODS)
    for colour, _ in looks.values():
        assert contrast(on_dark(colour), variables("dark")["paper"]) > 3


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_numbers_can_be_read_on_every_colour_of_a_heatmap(mode: str) -> None:
    colours = variables(mode)
    low, high = colours["heat-low"], colours["heat-high"]
    if mode == "light":
        assert (low, high) == HEAT
    for share in (i / 200 for i in range(201)):
        text = colours["on-high"] if share > HEAT_TURN else colours["on-low"]
        assert contrast(blend(low, high, share), text) > 4.5
    assert contrast("#000000", "#ffffff") == 21.0
    assert contrast(colours["ink"], colours["paper"]) > 7
    assert contrast(colours["soft"], colours["paper"]) > 4.5


def test_lines_are_where_their_values_are() -> None:
    curve = [Estimate(0.9, 0.02), None, Estimate(0.5, None), Estimate(0.25, 0.1)]
    series = [of_method("adam", (1, 2, 3, 4), curve, ["adam"]), of_method("ewc", (1, 4), curve[2:], ["ewc"])]
    chart = parsed(line_chart(LinePanel("", series, "Tasks", "y"), "x"))
    top, bottom = (float(chart.attrib[f"data-{side}"]) for side in ("top", "bottom"))
    ewc, adam = of_class(chart, "mark")  # the first is drawn last, on top
    points = of_class(adam, "point")
    assert [point.get("data-value") for point in points] == [".900 ± .020", ".500", ".250 ± .100"]
    heights = [(bottom - float(point.attrib["data-y"])) / (bottom - top) for point in points]
    assert heights == pytest.approx([0.9, 0.5, 0.25], abs=1e-3)
    assert [point.get("data-where") for point in points] == ["Tasks: 1", "Tasks: 3", "Tasks: 4"]
    # A line is broken where there is no value, and there is an error bar for each standard error.
    assert of_class(adam, "line")[0].attrib["d"].count("M") == 2
    assert of_class(adam, "error")[0].attrib["d"].count("M") == 2
    assert titles(ewc) == ["ewc, Tasks: 1: .500", "ewc, Tasks: 4: .250 ± .100"]
    assert (chart.get("role"), chart.get("aria-label")) == ("img", "x")


def test_many_points_have_a_band_and_a_scatter_plot_has_no_line() -> None:
    long = of_method("adam", range(1, 31), [Estimate(0.5, 0.1)] * 30, ["adam"])
    chart = parsed(line_chart(LinePanel("", [long], "x", "y", limits=None, joined=False), "x"))
    assert len(of_class(chart, "band")) == 1
    assert of_class(chart, "error") == of_class(chart, "line") == []
    assert len(of_class(chart, "point")) == 30


def test_zero_on_a_logarithmic_axis_stands_apart() -> None:
    one = of_method("adam", (0, 1000, 100_000), [Estimate(0.5, None)] * 3, ["adam"])
    chart = parsed(line_chart(LinePanel("", [one], "Bytes", "y", limits=None, log=True), "x"))
    assert re.fullmatch(r"M[\d. ]+M[\d. ]+L[\d. ]+", of_class(chart, "line")[0].attrib["d"])
    assert [text.text for text in of_class(chart, "tick")][-3:] == ["1,000", "10,000", "100,000"]


def test_bars_stand_on_zero() -> None:
    bars = [Bars("a", "#0072B2", [Estimate(-0.5, 0.1), None]), Bars("b", "#D55E00", [Estimate(0.25, None)] * 2)]
    chart = parsed(bar_chart(BarPanel("", ["one", "two"], bars, "", "ρ"), "x"))
    down, up, up_too = ({k: float(v) for k, v in bar.items() if k in "xywidtheight"} for bar in of_class(chart, "bar"))
    assert down["y"] == pytest.approx(up["y"] + up["height"], abs=0.02)
    assert down["height"] == pytest.approx(2 * up["height"], abs=0.05)
    assert (up_too["y"], up_too["height"]) == (up["y"], up["height"])
    assert down["x"] + down["width"] <= up["x"]
    assert len(of_class(chart, "error")) == 1
    assert titles(chart) == ["one, a: −.500 ± .100", "one, b: .250", "two, b: .250"]


def test_long_names_under_bars_lean_and_stay_inside() -> None:
    names = [f"a-rather-long-name-{i}" for i in range(8)]
    bars = [Bars("a", "#0072B2", [Estimate(1.0, None)] * 8)]
    chart = parsed(bar_chart(BarPanel("", names, bars, "", "y"), "x"))
    leaning = [text for text in of_class(chart, "tick") if text.get("transform")]
    assert [text.text for text in leaning] == names
    assert min(float(text.attrib["x"]) for text in leaning) > 0.8 * 7 * len(names[0])


def test_a_heatmap_says_its_numbers() -> None:
    rows = [[Estimate(0.9, 0.01)], [Estimate(0.126, 0.02), Estimate(1.0, 0.0)]]
    chart = parsed(heatmap(HeatPanel("", rows, ["1", "2"], ["1", "2"], "After", "On"), "x"))
    assert titles(chart) == ["After 1, On 1: .900 ± .010", "After 2, On 1: .126 ± .020", "After 2, On 2: 1.000 ± .000"]
    assert [text.text for text in of_class(chart, "number")] == [".90", ".13", "1.00"]
    assert [text.text for text in of_class(chart, "high")] == [".90", "1.00"]
    assert [cell.get("style") for cell in of_class(chart, "cell")] == [
        "--share:90.0%",
        "--share:12.6%",
        "--share:100.0%",
    ]
    # With twenty tasks there is no room for numbers, nor for a label at each column.
    many = [str(i) for i in range(1, 21)]
    chart = parsed(heatmap(HeatPanel("", [[Estimate(0.5, None)] * 20] * 20, many, many, "After", "On"), "x"))
    assert of_class(chart, "number") == []
    assert len(of_class(chart, "cell")) == 400
    assert len(of_class(chart, "tick")) < 40
    assert [text.text for text in parsed(heat_scale()).iter("text")] == ["0", ".5", "1"]


def test_whatever_a_name_is_it_is_text() -> None:
    series = [of_method(HOSTILE, [1], [Estimate(0.5, 0.1)], [HOSTILE])]
    bars = [Bars(HOSTILE, "#000000", [Estimate(1.0, 0.1)])]
    charts = [
        line_chart(LinePanel(HOSTILE, series, HOSTILE, HOSTILE, limits=None), HOSTILE),
        bar_chart(BarPanel(HOSTILE, [HOSTILE], bars, "", HOSTILE), HOSTILE),
        legend(series),
        element("p", HOSTILE, "\ud800", title=HOSTILE),
    ]
    for chart in charts:
        tree = parsed(chart)
        assert not list(tree.iter("script"))
        assert '<script>alert("1")</script>&\ufffd' in "".join(tree.itertext())
        to_html(chart).encode()


def test_a_chart_of_nothing() -> None:
    with pytest.raises(SelfReminderError, match="'x' has no points"):
        line_chart(LinePanel("", [of_method("adam", [1], [None], ["adam"])]), "x")
    with pytest.raises(SelfReminderError, match="'x' has no bars"):
        bar_chart(BarPanel("", ["a"], [], "", ""), "x")
