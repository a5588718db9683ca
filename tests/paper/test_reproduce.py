"""`selfreminder reproduce` on made-up records: every number in them is invented, so that each figure has its lines."""

import base64
import hashlib
import json
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from html import escape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfreminder._base.errors import DataError
from selfreminder.cli import grid_command, main
from selfreminder.cli import reproduce as command
from selfreminder.experiment.folder import GRID
from selfreminder.experiment.pool.grid import Grid, Job
from selfreminder.experiment.pool.process import Done
from selfreminder.experiment.records import RECORDS, TIMINGS, Records
from selfreminder.experiment.spec import Experiment
from selfreminder.metrics import task_average
from selfreminder.paper import reproduction
from selfreminder.paper.claim_chart import claim_chart
from selfreminder.paper.claims import judge, list_claims, summarize, summarize_read_again
from selfreminder.paper.figures import draw, make_drawing, title
from selfreminder.paper.figures_memory import compare_bytes, compare_bytes_with_heads, where_equal
from selfreminder.paper.page import render_paper
from selfreminder.paper.reproduction import read_reproduction
from selfreminder.paper.scales import CLAIMS, PAGE, find_other_scales
from selfreminder.paper.specs import FIGURES, FigureResults, experiments, figure, gather
from selfreminder.report.html import in_words
from selfreminder.report.panels import BarPanel, HeatPanel, LinePanel, Series, fit_limits
from selfreminder.report.results import Estimate

SCALE = "small"
IDS = [claim.id for claim in list_claims()]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
KEPT = {"joint": 0.99, "fsr-logitlab": 0.98, "fsr-logit": 0.97, "fsr-distill": 0.96, "icarl": 0.95, "hat": 0.94}
"""share of an accuracy that is left after every further task; of the others .85"""
BYTES = {"ewc": 3_200_000, "lwf": 1_600_000, "generative-replay": 5_000_000}


def made_up(e: Experiment) -> list[dict[str, Any]]:
    """The events of a run that nobody has done."""
    noise = random.Random(e.key)
    events: list[dict[str, Any]] = [
        {"event": "start", "experiment": e.as_dict(), "versions": {"selfreminder": "1.2", "torch": "9"}}
    ]
    kept = KEPT.get(e.method, 0.85) - (0.01 if e.per_class == 1 else 0)
    for t in range(e.tasks):
        test = [round(0.9 * kept ** (t - old) - 0.02 * noise.random(), 4) for old in range(t + 1)]
        event = {"event": "task", "task": t, "test": test, "validation": test, "flips": [0.1] * t + [0.0]}
        event |= {"chance": 0.1, "bytes": kept_bytes(e, t + 1)}
        event |= {"next": 0.2, "next_untrained": 0.1} if t + 1 < e.tasks else {}
        event |= {"probe": probe(e, t, noise)} if t < e.probe else {}
        events.append(event)
    return [*events, {"event": "done"}]


def kept_bytes(e: Experiment, tasks: int) -> int:
    if "fsr" not in e.method and e.method != "icarl":
        return BYTES.get(e.method, 0)
    item = {"float32": 3136, "compressed": 200}.get(e.codec, 784) + {"float16": 20}.get(e.logit_codec, 40)
    return (e.per_class or 0) * 10 * tasks * item


def probe(e: Experiment, t: int, noise: random.Random) -> dict[str, Any]:
    right = 95 - 40 * t * (e.method == "adam") - 5 * t
    return {
        "logit_mean": [[(9.0 if j == k else -2.0) + noise.random() for j in range(10)] for k in range(10)],
        "logit_deviation": [[1.5] * 10] * 10,
        "confusion": [[right if j == k else (100 - right) / 9 for j in range(10)] for k in range(10)],
    }


def as_records(e: Experiment) -> Records:
    start, *tasks, _ = made_up(e)
    return Records(e, start["versions"], (), tuple(tasks), done=True)


@cache
def world(scale: str = SCALE) -> tuple[Records, ...]:
    return tuple(as_records(e) for e in experiments(FIGURES.values(), scale))


@cache
def the_page() -> str:
    return render_paper(gather(world(), SCALE), judge(world(), SCALE))


def shown_of(name: str, records: Iterable[Records] | None = None, scale: str = SCALE) -> FigureResults:
    found = gather(world(scale) if records is None else records, scale)
    return next(each for each in found if each.figure.name == name)


def test_more_seeds_count_when_all_their_runs_are_done() -> None:
    """Lines, missing runs and verdicts are of the usual seeds until then."""
    more = [as_records(e) for e in figure("nonlinear").experiments(SCALE, 7)]
    for without, seeds in ((0, 7), (1, 6), (10, 5)):
        found = shown_of("nonlinear", more[: len(more) - without])
        assert {len(line.runs) for line in found.lines} == {seeds} and not found.missing
        (verdict,) = (v for v in judge(more[: len(more) - without], SCALE) if v.id == "C5")
        assert verdict.seeds == seeds
    assert shown_of("nonlinear", more[1:]).missing == 1


def write_run(folder: Path, e: Experiment) -> None:
    (folder / e.key).mkdir(parents=True)
    text = "".join(json.dumps(event) + "\n" for event in made_up(e))
    (folder / e.key / RECORDS).write_text(text, encoding="utf-8")


def write_world(folder: Path, *figures: str, scale: str = SCALE) -> list[Experiment]:
    wanted = experiments((figure(name) for name in figures), scale)
    for e in wanted:
        write_run(folder, e)
    return wanted


# Figures ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn(name: str, tmp_path: Path) -> None:
    shown = shown_of(name)
    drawn = make_drawing(shown)
    assert drawn is not None and shown.missing == 0
    png, svg, pdf = draw(shown, drawn, tmp_path / name)
    assert png.read_bytes().startswith(b"\x89PNG") and pdf.read_bytes().startswith(b"%PDF")
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.pdf", f"{name}.png", f"{name}.svg"]
    if name in ("memory-sizes", "logit-bars", "heatmaps", "bytes"):  # one of each kind
        shown = shown_of(name, reversed(world()))
        again = make_drawing(shown)
        assert again is not None
        for path, other in zip((png, svg, pdf), draw(shown, again, tmp_path / "again")):
            assert path.read_bytes() == other.read_bytes(), "the same records give the same bytes"


@pytest.mark.parametrize("scale", ["demo", "medium", "paper"])
@pytest.mark.parametrize("name", FIGURES)
def test_plates_at_other_scales(name: str, scale: str) -> None:
    shown = shown_of(name, scale=scale)
    drawn = make_drawing(shown)
    assert drawn is not None
    for panel in drawn.panels:
        if isinstance(panel, LinePanel):
            names = [series.name for series in panel.series if series.marker]
            assert len(set(names)) == len(names)
            looks = [(series.colour, series.marker, series.dash) for series in panel.series]
            assert len(set(looks)) == len(looks), "two lines cannot be told apart"


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_that_is_not_finished(name: str) -> None:
    """Whatever run is the only one, what there is of the figure can be drawn; with none, it is left out."""
    wanted = figure(name).experiments(SCALE)
    assert make_drawing(shown_of(name, [])) is None
    by_method = {e.method: e for e in wanted}
    for e in by_method.values():
        shown = shown_of(name, [as_records(e)])
        drawn = make_drawing(shown)
        assert shown.missing == len(wanted) - 1
        assert (drawn is None) == (name == "rho"), "ρ needs joint training"
        if drawn is not None:
            said = title(shown, drawn)
            assert f"{len(wanted) - 1} of {len(wanted)} runs missing" in said and "one seed" in said
    assert all(v.verdict == "not enough data" for v in judge([as_records(wanted[0])], SCALE))


def test_runs_that_are_not_done_are_not_shown() -> None:
    one, *others = (as_records(e) for e in figure("heatmaps").experiments(SCALE))
    assert shown_of("heatmaps", [replace(one, done=False), *others]).missing == 1
    # Where a run is there twice, one of them is taken, and wherever it was run.
    elsewhere = replace(one, experiment=replace(one.experiment, device="cuda"))
    assert shown_of("heatmaps", [replace(one, done=False), elsewhere, one, *others]).missing == 0
    assert shown_of("heatmaps", [elsewhere, *others]).missing == 0


def test_what_the_lines_are_called() -> None:
    names = {line.name for line in shown_of("bytes").lines}
    assert {"ewc", "lwf", "fsr-logit (10 per class, uint8, float16 logits)"} <= names
    assert {line.name for line in shown_of("selection").lines} >= {"fsr-logit (3 per class, influence+)"}
    panels = make_drawing(shown_of("rho"))
    assert panels is not None
    assert [key.name for key in panels.legend][-2:] == ["hat, 1/2 of the width", "hat, 1/4 of the width"]


def test_heatmaps_and_bars_are_means_of_the_records() -> None:
    drawn = make_drawing(shown_of("heatmaps"))
    assert drawn is not None
    titles = [panel.title for panel in drawn.panels]
    assert titles == [
        "After task 1: adam",
        "After task 2: adam",
        "After task 1: logit, distill",  # these have another step size
        "After task 2: fsr-logit, 1 per class",
        "After task 2: fsr-distill, 1 per class",
    ]
    assert "a method keeps: adam .53, fsr-logit " in drawn.note
    one_step_size = make_drawing(shown_of("heatmaps", scale="demo"))
    assert one_step_size is not None and one_step_size.panels[0].title == "After task 1: adam, logit, distill"
    before, adam, *_ = drawn.panels
    assert isinstance(before, HeatPanel) and isinstance(adam, HeatPanel)
    for panel, diagonal in ((before, 0.95), (adam, 0.5)):
        assert all(sum(cell.mean for cell in row) == pytest.approx(1) for row in panel.matrix)
        assert all(panel.matrix[k][k].mean == pytest.approx(diagonal) for k in range(10))
    bars = make_drawing(shown_of("logit-bars"))
    assert bars is not None
    runs = [run for run in world() if run.experiment in figure("logit-bars").experiments(SCALE)]
    for k, panel in enumerate(bars.panels):
        assert isinstance(panel, BarPanel)
        for task, of_task in enumerate(panel.bars):
            means = [run.tasks[task]["probe"]["logit_mean"][k][3] for run in runs]
            assert of_task.values[3] == Estimate(pytest.approx(sum(means) / len(runs)), 1.5)  # pyright: ignore


def test_how_far_ahead_fsr_logit_is_by_size() -> None:
    drawn = make_drawing(shown_of("memory-sizes"))
    assert drawn is not None
    (ahead,) = (panel for panel in drawn.panels if panel.title == "fsr-logit above the others")
    assert isinstance(ahead, LinePanel) and [series.name for series in ahead.series] == ["fsr-distill", "icarl"]
    of = {
        (run.experiment.method, run.experiment.per_class, run.experiment.seed): run
        for run in world()
        if run.experiment in figure("memory-sizes").experiments(SCALE)
    }
    for series in ahead.series:
        assert list(series.x) == [1, 3, 5, 10, 50]
        for size, lead in series.points:
            pairs = [
                [task_average(of[name, int(size), seed].test)[-1] for name in ("fsr-logit", series.name)]
                for seed in range(5)
            ]
            assert lead == Estimate.of([own - other for own, other in pairs])


def bytes_world(ewc: float, logit: dict[int, float]) -> FigureResults:
    """fsr-logit and ewc at invented accuracies, by images per class."""
    changed = []
    for e in figure("bytes").experiments(SCALE):
        run = as_records(e)
        level = {"ewc": ewc, "fsr-logit": logit.get(e.per_class or 0)}.get(e.method)
        if level is not None and e.codec == "auto" and e.logit_codec == "float32":
            changed.append(replace(run, tasks=tuple({**t, "test": [level] * len(t["test"])} for t in run.tasks)))
    return shown_of("bytes", changed)


@settings(max_examples=25)
@given(st.floats(0.51, 0.89))
def test_where_fsr_equals_ewc_lies_between_two_sizes(level: float) -> None:
    sizes = {1: 0.5, 3: 0.6, 5: 0.7, 10: 0.8, 50: 0.9}
    shown = bytes_world(level, sizes)
    ((where, word),), note = where_equal({"uint8": shown.of("fsr-logit")}, shown.of("ewc"))
    below = max(line.bytes for line in shown.of("fsr-logit") if line.task_average.mean <= level)
    above = min(line.bytes for line in shown.of("fsr-logit") if line.task_average.mean >= level)
    assert below * 0.999 <= where <= above * 1.001
    share = re.fullmatch(r"([\d.]+) % of EWC's bytes", word)
    assert share and word in note
    assert float(share[1]) == pytest.approx(100 * where / 3_200_000, rel=0.06)


def test_codecs_that_lose_nothing_are_level() -> None:
    """Of codecs there are fewer seeds: where accuracy depends on the seed alone, all lines have one height."""
    runs = []
    for e in figure("bytes").experiments(SCALE):
        run, level = as_records(e), 0.5 + 0.1 * e.seed
        runs.append(replace(run, tasks=tuple({**t, "test": [level] * len(t["test"])} for t in run.tasks)))
    assert len({run.experiment.seed for run in runs if run.experiment.codec == "auto"}) == 5
    shown = shown_of("bytes", runs)
    drawn = compare_bytes(shown)
    assert title(shown, drawn).endswith("standard error, 3 seeds") and shown.seeds == "3 to 5 seeds"
    (panel,) = drawn.panels
    assert isinstance(panel, LinePanel)
    assert {round(point.mean, 9) for series in panel.series for _, point in series.points} == {0.6}


def test_with_heads_every_method_stands_at_its_bytes() -> None:
    shown = shown_of("bytes-split")
    (panel,) = compare_bytes_with_heads(shown).panels
    assert isinstance(panel, LinePanel)
    *points, level = panel.series
    assert {series.name for series in points} == {"fsr-logit", "fsr-logitlab", "hat", "ewc", "joint"}
    for series in points:
        (line,) = shown.of(series.name)
        assert series.points == [(line.bytes, line.task_average)]
    assert level.name == "ewc" and {y.mean for _, y in level.points} == {shown.of("ewc")[0].task_average.mean}


@pytest.mark.parametrize("name", ["bytes", "bytes-split"])
def test_a_name_has_one_value_at_each_number_of_bytes(name: str) -> None:
    drawn = make_drawing(shown_of(name))
    assert drawn is not None
    for panel in drawn.panels:
        assert isinstance(panel, LinePanel)
        places = [(series.name, x) for series in panel.series for x, _ in series.points]
        assert len(set(places)) == len(places), "a reader who points there is told of it twice"


def test_where_fsr_equals_ewc_at_the_ends() -> None:
    sizes = {1: 0.5, 3: 0.6, 5: 0.7, 10: 0.8, 50: 0.9}
    better = bytes_world(0.4, sizes)
    own, ewc = better.of("fsr-logit"), better.of("ewc")
    ((where, word),), note = where_equal({"some": own[1:], "all": own}, ewc)
    assert (where, word) == (82_400, "≤ 2.6 % of EWC's bytes"), "of two ways the one with fewer bytes"
    assert note == "As good as EWC: all, with the smallest memory measured, 82.4 kB, 2.6 % of EWC's bytes (marked)."
    worse = bytes_world(0.95, sizes)
    assert where_equal({"uint8": worse.of("fsr-logit")}, worse.of("ewc"))[0] == ()
    assert where_equal({"uint8": worse.of("fsr-logit")}, []) == where_equal({}, ewc) == ((), "")


def test_limits_have_room() -> None:
    series = [Series("a", "", "", (1, 2), (Estimate(0.42, 0.05), Estimate(0.6, None)))]
    assert fit_limits(series) == (0.3, 0.7)
    assert fit_limits(series, 0.99, most=1.0) == (0.3, 1.0)
    assert fit_limits(series, -0.7, least=0.0) == (0.0, 0.7)


# The page -----------------------------------------------------------------------------------------------------


def charts() -> dict[str, ElementTree.Element]:
    found = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", the_page(), re.DOTALL)]
    named = [chart for chart in found if chart.get("role") == "img"]
    return {chart.attrib["aria-label"]: chart for chart in named}


def test_every_claim_and_every_figure_is_on_the_page() -> None:
    page = the_page()
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(set(ids)) == len(ids)
    others = {"claims", "what-scale-small-is", "do-it-all-again"}  # parts in the table of contents
    assert {f"figure-{name}" for name in FIGURES} | {f"claim-{name}" for name in IDS} | others == set(ids)
    links = re.findall(r'href="#([^"]+)">(C\d[\w.]*)</a>', page)
    assert sorted(name for _, name in links) == sorted(IDS)
    assert {name: target for target, name in links} == {c.id: f"figure-{c.figure}" for c in list_claims()}
    found = judge(world(), SCALE)
    assert {v.id for v in found if v.verdict == "not enough data"} == {"C6.2"}
    text = re.sub("<[^>]*>", "", page).replace("\N{NO-BREAK SPACE}", " ")
    assert summarize(found, SCALE) in text
    for v in found:
        assert text.count(escape(v.sentence, quote=False)) >= 2
        rule = next(claim.rule for claim in list_claims() if claim.id == v.id)
        assert escape(rule, quote=False) in text
    for name in FIGURES:
        assert f"selfreminder reproduce {name} --scale small" in text
    drawn = [len(v.checks) for v in found if claim_chart(v.checks, "") is not None]
    assert len(drawn) > len(found) / 2
    assert page.count('<g class="check ') == sum(drawn)
    assert "The seed draws the order of the data sets" in text
    assert "339 runs with selfreminder 1.2, torch 9." in text


@pytest.mark.parametrize("name", FIGURES)
def test_charts_show_the_numbers_of_the_figure(name: str) -> None:
    drawn = make_drawing(shown_of(name))
    assert drawn is not None
    for panel in drawn.panels:
        start = f"{figure(name).summary}, {panel.title}: "
        (chart,) = [chart for label, chart in charts().items() if label.startswith(start)]
        match panel:
            case LinePanel():
                for series, mark in zip(reversed(panel.series), chart.findall("g[@data-series]"), strict=True):
                    assert mark.get("data-series") == series.name
                    points = [point.get("data-value") for point in mark.findall("path[@class='point']")]
                    assert points == [in_words(y) for _, y in series.points] and points
            case BarPanel():
                said = [element.text or "" for element in chart.iter("title")]
                values = [in_words(value) for bars in panel.bars for value in bars.values]
                assert [text.split(": ")[1] for text in said] == values
            case HeatPanel():
                said = [element.text or "" for element in chart.iter("title")]
                assert [text.split(": ")[1] for text in said] == [in_words(c) for row in panel.matrix for c in row]


def test_nothing_is_loaded() -> None:
    page = the_page()
    assert set(re.findall(r'(?:src|href|action)="([^"#][^"]*)"', page)) == {"data:,"}
    assert not re.search(r"url\(|@import|//(?!www\.w3\.org/2000/svg)\w", page)


def test_other_scales_are_a_link_away_and_side_by_side(tmp_path: Path) -> None:
    small, again = ({"verdict": "held"}, {"verdict": "contradicted", "read_again": {}})
    for name, scale, claims in (
        ("own", SCALE, {"C1": small}),
        ("the paper's", "paper", {"C1": small, "C2": {"verdict": "not enough data"}, "C12.2": again}),
        ("demo 1", "demo", {"C1": {"verdict": "contradicted"}}),
        ("demo 2", "demo", {}),
        ("hostile", "medium", {"C1": {"verdict": "<script>"}}),
        ("damaged", "medium", []),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / CLAIMS).write_text(json.dumps(claims))
        (tmp_path / name / GRID).write_text(json.dumps({"scale": scale}))
        (tmp_path / name / PAGE).touch()
    (tmp_path / "demo 2" / PAGE).unlink()
    demo, paper = others = find_other_scales(tmp_path / "own", SCALE)
    assert (demo.name, paper.name) == ("demo", "paper")
    assert paper.answer == "1 of 1 judged claims holds" and paper.link == "../the%20paper%27s/index.html"
    found = judge(world(), SCALE)
    page = render_paper(gather(world(), SCALE), found, others=others)
    (switch,) = re.findall('<nav class="scales".*?</nav>', page)
    assert re.findall(r">(demo|small|paper)</(\w+)>", switch) == [("demo", "a"), ("small", "span"), ("paper", "a")]
    (rows,) = re.findall(r"<table><caption>Claims that were judged.*?</table>", page)
    said = [re.sub("<[^>]*>", "|", row) for row in re.findall(r"<tr><th scope=.row.*?</tr>", rows)]
    verdicts = [re.findall("held|contradicted|too few to tell|not enough data", row) for row in said]
    own = {v.id: v.verdict for v in found}
    assert verdicts == [[own["C1"], "contradicted", "held"], [own["C12.2"], "not enough data", "contradicted"]]
    assert 'class="scales"' not in the_page(), "with no other scale there is nothing to switch"


def test_the_answer_in_a_sentence() -> None:
    found = judge(world(), SCALE)
    given = [replace(v, verdict="held") for v in found]
    assert summarize(given, "small") == "23 of 23 claims of the paper hold at scale small."
    assert summarize_read_again(given) == "Of the text read again: 28 of 28 rules hold."
    assert summarize_read_again([]) == ""
    first = [v for v in given if v.read_again is None]
    kinds = ("contradicted", "too few to tell", "not enough data")
    one = [*(replace(v, verdict=kind) for v, kind in zip(first, kinds)), first[3]]
    assert summarize(one, "demo") == (
        "1 of 4 claims of the paper holds at scale demo; 1 is contradicted; 1 has too few seeds to tell; "
        "1 cannot be judged."
    )


# The command --------------------------------------------------------------------------------------------------


def refuse(*_: object) -> None:
    raise PermissionError("read-only")


def draw_only(folder: Path, capsys: pytest.CaptureFixture[str], name: str = "all") -> dict[str, Any]:
    assert main(["reproduce", name, "--scale", SCALE, "--draw-only", "--out", str(folder), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_draw_only_and_a_record_less(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = write_world(tmp_path, "logit-bars", "heatmaps")
    said = draw_only(tmp_path, capsys)
    figures = {each["figure"]: each for each in said["figures"]}
    assert [name for name, each in figures.items() if each["done"]] == ["logit-bars", "heatmaps"]
    files = {Path(path) for each in figures.values() for path in each["files"]}
    assert files == set((tmp_path / "figures").iterdir()) and len(files) == 6
    verdicts = json.loads((tmp_path / "claims.json").read_text(encoding="utf-8"))
    assert list(verdicts) == IDS
    assert said["results"] == [{"id": name, **verdict} for name, verdict in verdicts.items()]
    judged = [name for name, verdict in verdicts.items() if verdict["verdict"] != "not enough data"]
    assert judged == ["C11", "C11.2", "C12", "C12.2"]
    before = {path: path.read_bytes() for path in files}
    one = next(e for e in wanted if e.method == "adam")
    shutil.rmtree(tmp_path / one.key)
    for e in figure("logit-bars").experiments(SCALE):
        shutil.rmtree(tmp_path / e.key)
    draw_only(tmp_path, capsys, "heatmaps")
    verdicts = json.loads((tmp_path / "claims.json").read_text(encoding="utf-8"))
    assert {verdict["verdict"] for verdict in verdicts.values()} == {"not enough data"}
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "1 of its 15 runs is missing." in page and "None of its 5 runs is here." in page
    left = {path: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    assert {path.stem for path in left} == {"heatmaps"}
    assert all(content != before[path] for path, content in left.items())


@pytest.mark.slow
def test_draw_only_of_folders_in_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place, name in (("one", "logit-bars"), ("two", "heatmaps")):
        write_world(tmp_path / place, name)
    (damaged,) = [path for path in (tmp_path / "one").iterdir() if "seed3" in path.name]
    (damaged / RECORDS).write_text("{}\n")
    assert main(["reproduce", "all", "--scale", SCALE, "--draw-only", "--out", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert "C12" in out and f"Page: {tmp_path}/index.html" in " ".join(out.split())
    assert f"{damaged / RECORDS} is damaged" in err
    assert re.search(r"logit-bars\s+4 of 5 runs", out) and re.search(r"heatmaps\s+15 of 15 runs", out)
    old = next(path for path in (tmp_path / "two").glob(f"*/{RECORDS}"))
    old.write_text(old.read_text().replace('"flips"', '"flops"'))
    assert main(["reproduce", "all", "--scale", SCALE, "--draw-only", "--out", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert f"{old} is of an earlier version, without 'flips': remove its folder" in err
    assert re.search(r"heatmaps\s+14 of 15 runs", out)


def test_records_that_are_there_twice_and_differ(tmp_path: Path) -> None:
    """One is taken whatever the order, and a person is told."""
    wanted = write_world(tmp_path, "logit-bars")
    before = read_reproduction(tmp_path, SCALE)
    one = tmp_path / wanted[0].key
    shutil.copytree(one, tmp_path / "copy")
    again = read_reproduction(tmp_path, SCALE)
    assert (again.verdicts, again.troubles) == (before.verdicts, [])
    text = (one / RECORDS).read_text(encoding="utf-8")
    start, first, *rest = map(json.loads, text.splitlines())
    lines = (start, {**first, "test": [0.0]}, *rest)
    (tmp_path / "copy" / RECORDS).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    again = read_reproduction(tmp_path, SCALE)
    assert again.verdicts == before.verdicts and again.folders[wanted[0].key] == one
    (trouble,) = again.troubles
    assert trouble.startswith(f"{tmp_path / 'copy'} and {one} are of one run and differ: the latter is taken")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["index.html", "figures/color.png"])
def test_what_somebody_else_has_made_is_not_drawn_over(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_world(tmp_path / "runs", "logit-bars")
    own = tmp_path / name
    own.parent.mkdir(exist_ok=True)
    own.write_text("mine")
    arguments = ["reproduce", "all", "--scale", SCALE, "--draw-only", "--out"]
    assert main([*arguments, str(tmp_path)]) == 2
    assert f"{tmp_path / Path(name).parts[0]} is none of `selfreminder reproduce`" in capsys.readouterr().err
    assert own.read_text() == "mine" and not (tmp_path / "claims.json").exists()
    with pytest.MonkeyPatch.context() as patch:  # its own it draws again, whole or not
        patch.setattr(reproduction, "draw", refuse)
        assert main([*arguments, str(tmp_path / "runs")]) == 2
    assert (tmp_path / "runs/figures").is_dir() and not (tmp_path / "runs/index.html").exists()
    for _ in range(2):
        assert main([*arguments, str(tmp_path / "runs")]) == 0


@pytest.mark.slow
def test_drawn_in_its_own_style(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_world(tmp_path, "logit-bars")
    drawn = []
    for style in ({}, {"font.size": 20, "axes.facecolor": "red", "savefig.dpi": 20}):
        with mpl.rc_context(style):
            draw_only(tmp_path, capsys)
        drawn.append({path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()})
    assert len(drawn[0]) == 3 and drawn[0] == drawn[1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda tasks: tasks[1]["test"].pop(),
        lambda tasks: tasks[1]["test"].clear(),
        lambda tasks: tasks[1].update(test=[0.9, float("nan")]),
        lambda tasks: tasks[1].update(test=[0.9, 9.0]),
        lambda tasks: tasks[1].update(test=[0.9, "9"]),
        lambda tasks: tasks[1].pop("test"),
        lambda tasks: tasks[1].pop("probe"),
        lambda tasks: tasks[1]["probe"].pop("logit_deviation"),
        lambda tasks: tasks[1]["probe"].update(confusion=[]),
        lambda tasks: tasks[1]["probe"].update(confusion=[[0] * 10] * 10),
        lambda tasks: tasks[1]["probe"]["confusion"][0].pop(),
        lambda tasks: tasks[1]["probe"]["confusion"][0].__setitem__(0, float("nan")),
        lambda tasks: tasks[1].update(bytes=float("nan")),
        lambda tasks: tasks[1].update(bytes=None),
        lambda tasks: tasks[1].update(chance=float("nan")),
        lambda tasks: tasks.pop(),
        lambda tasks: tasks.reverse(),
    ],
)
def test_numbers_that_no_run_writes_are_damage(tmp_path: Path, damage: Callable[[list[dict[str, Any]]], Any]) -> None:
    """A claim is not judged by them, and the others are as they were."""
    wanted = write_world(tmp_path, "logit-bars", "heatmaps")
    one = next(e for e in wanted if e.method == "adam")
    start, *tasks, end = made_up(one)
    damage(tasks)
    text = "".join(json.dumps(event) + "\n" for event in (start, *tasks, end))
    (tmp_path / one.key / RECORDS).write_text(text, encoding="utf-8")
    found = read_reproduction(tmp_path, SCALE)
    assert len(found.troubles) == 1 and f"{one.key}/{RECORDS} is damaged" in found.troubles[0]
    verdicts = {v.id: v.verdict for v in found.verdicts}
    assert verdicts["C12"] == "not enough data" != verdicts["C11"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["heatmap"], "unknown figure 'heatmap': did you mean 'heatmaps'? Known: all, permuted"),
        (["rho", "--scale", "tiny"], "unknown scale 'tiny'"),
        (["rho", "--jobs", "0"], "jobs is 0: it must be at least 1"),
        (["rho", "--seeds", "0"], "seeds is 0: it must be at least 1"),
        (["rho", "--draw-only"], "runs/paper-demo is no folder: selfreminder reproduce rho --scale demo makes it"),
        (["rho", "--draw-only", "--out", "."], ". holds no run of the figures at scale demo that is done"),
        (["rho", "--out", "full"], "full exists and holds no grid"),
        (["rho", "--out", "full/x"], "full/x is a file: choose a folder"),
        (["rho", "--out", "compared", "--draw-only"], "compared holds a comparison: choose another folder"),
        (["rho", "--out", "small"], "small holds the paper's figures at scale small: choose another folder"),
        (["rho", "--out", "grid"], "grid holds another grid: choose another folder"),
    ],
)
def test_mistakes(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("full/x", ""),
        ("small/grid.json", '{"scale": "small"}'),
        ("grid/grid.json", "{}"),
        ("compared/comparison.json", ""),
    ):
        Path(name).parent.mkdir()
        Path(name).write_text(text)
    assert main(["reproduce", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_damaged_list_of_runs_is_no_obstacle(tmp_path: Path) -> None:
    for damaged in (b"[]", b"\xff"):
        (tmp_path / "grid.json").write_bytes(damaged)
        command._check_folder(tmp_path, SCALE)


def test_data_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fetch(name: str, data_dir: Path | None) -> None:
        raise DataError(f"{name} is not at hand")

    monkeypatch.setattr(command, "fetch", fetch)
    assert main(["reproduce", "color", "--scale", "small", "--out", str(tmp_path / "x")]) == 2
    said = "cifar10 is not at hand; figures that do without cifar10: permuted, nonlinear, memory-sizes"
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_figures_on_mnist_come_first() -> None:
    names = [each.name for each in command._figures("all")]
    assert names[:3] == ["permuted", "nonlinear", "memory-sizes"]
    assert names[-4:] == ["color", "rho", "bytes-split", "mixture"]


def test_a_dry_run_says_what_is_left_and_what_it_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "x"
    arguments = ["reproduce", "mixture", "--out", str(folder), "--jobs", "2", "--dry-run"]
    assert main(arguments) == 0
    assert re.search(r"mixture\s+5 of 5\s+0\.\d\d", out := capsys.readouterr().out)
    said = r"5 of 5 runs are left: about 0\.0\S+ core-hours, .+ with 2 workers \(5 by a step timed here"
    assert re.search(said, out) and "will be written" in out
    assert not folder.exists(), "nothing is run, fetched or written"
    sgd, *_ = runs = figure("mixture").experiments("demo")
    write_run(folder, sgd)
    write_run(folder, more := replace(sgd, seed=7))
    (folder / more.key / TIMINGS).write_text(json.dumps({"task": 0, "epoch": 0, "seconds": 1800.0, "done": 1.0}) + "\n")
    (folder / "grid.json").write_text('{"scale": "demo"}')
    before = {path: path.read_bytes() for path in folder.rglob("*.*")}
    assert main([*arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["left"], said["by_times"], said["workers"]) == (len(runs) - 1, 0, 2), "that of sgd is done"
    shutil.rmtree(folder / sgd.key)
    assert main([*arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["left"], said["by_times"]) == (len(runs), 1)
    assert said["core_hours"] == pytest.approx(0.5, abs=0.1), "sgd takes as long as it did with another seed"
    assert said["days"] == pytest.approx(0.5 / 24, abs=0.001), "one run has one worker"
    assert {path: path.read_bytes() for path in folder.rglob("*.*")}.items() <= before.items()


@pytest.mark.slow
def test_a_figure_is_run_and_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "x"
    arguments = ["reproduce", "mixture", "--out", str(folder), "--jobs", "1"]
    runs = figure("mixture").experiments("demo")
    write_run(folder, runs[0])
    (folder / "grid.json").write_text('{"scale": "demo"}')
    (folder / runs[1].key).mkdir()
    (folder / runs[1].key / RECORDS).write_text("{}\n")
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert "mixture: fsr-logit seed 0: done" in err and "is damaged" in err
    assert re.search(r"mixture\s+4 of 5 runs", out)
    shutil.rmtree(folder / runs[1].key)
    assert main([*arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["failures"] == []
    assert {each["figure"]: each["done"] for each in said["figures"]}["mixture"] == 5
    assert {each["verdict"] for each in said["results"]} == {"not enough data"}, "its images are made up"
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "What is kept" in page and "Made-up images in color, rho, bytes-split, mixture" in page
    assert main(["status", str(folder)]) == 0
    assert "5 of 5 runs done" in capsys.readouterr().out
    assert main([*arguments, "--draw-only"]) == 0
    assert (folder / "index.html").read_text(encoding="utf-8") == page
    # Nor does it need to be written into an archive.
    with monkeypatch.context() as patch:
        patch.setattr(reproduction, "save_memory", refuse)
        assert main([*arguments, "--draw-only"]) == 0
    assert "What is kept" in (folder / "index.html").read_text(encoding="utf-8")
    # A memory may be too large to be kept with its records: what the page shows of it stays.
    for memory in folder.rglob("memory.safetensors"):
        memory.unlink()
    assert main([*arguments, "--draw-only"]) == 0
    assert (folder / "index.html").read_text(encoding="utf-8") == page


def test_a_figure_is_drawn_when_its_last_run_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = [figure("heatmaps"), figure("logit-bars")]
    grid = Grid(experiments(figures, "demo"), tmp_path)
    written: list[tuple[int, list[str]]] = []

    class Found:
        def write(self, only: list[str]) -> None:
            written.append((sum(isinstance(job.answer, Done) for job in grid.all), only))
            raise OSError("no space left")  # which is said, and stops no run

    monkeypatch.setattr(command, "_read", lambda folder, scale: Found())
    note = command._draw_early(grid, figures, "demo", None)
    for job in grid.all:
        job.answer = Done()
        note(None)
        note(job)
    assert written == [(6, ["heatmaps"])]  # what is drawn at the end is not drawn just before
    assert "no space left" in capsys.readouterr().err and all(isinstance(job.answer, Done) for job in grid.all)


def test_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run_live(grid: Grid) -> Iterator[Job | None]:
        yield None
        raise KeyboardInterrupt

    monkeypatch.setattr(grid_command, "run_live", run_live)
    assert main(["reproduce", "rho", "--seeds", "1", "--out", str(tmp_path / "x")]) == 130
    said = f"To go on: selfreminder reproduce rho --seeds 1 --out {tmp_path / 'x'}"
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_all_figures_from_data_that_comes_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "all", "--scale", "demo", "--out", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert all(each["done"] == each["runs"] for each in said["figures"])
    drawn = {each["figure"] for each in said["figures"] if len(each["files"]) == 3}
    assert drawn >= FIGURES.keys() - {"rho"}  # of made-up images joint training may be no better than guessing
    verdicts = {each["id"]: each["verdict"] for each in said["results"]}
    made_up_images = {claim.id for claim in list_claims() if claim.figure in ("color", "rho", "mixture")}
    assert {verdicts[name] for name in made_up_images} == {"not enough data"}
    assert sum(verdict != "not enough data" for verdict in verdicts.values()) >= 8
    assert verdicts["C11"] == "held"
    assert (tmp_path / "index.html").stat().st_size > 100_000


# In a browser -------------------------------------------------------------------------------------------------

BEFORE = """
const errors = [];
for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"])
  addEventListener(kind, (event) => errors.push(kind + " " + (event.message || event.violatedDirective || "")), true);
console.error = console.warn = (...words) => errors.push(words.join(" "));
"""
CHECK = """
addEventListener("load", () => {
  const all = (query) => [...document.querySelectorAll(query)];
  const seen = { errors, overflow: document.documentElement.scrollWidth - innerWidth, figures: {}, toggled: [] };
  for (const section of all("section[id]")) {
    const charts = [...section.querySelectorAll(":scope > figure .chart")];
    seen.figures[section.id] = charts.map((chart) => chart.getBoundingClientRect().height > 20);
  }
  for (const button of all("[data-toggle]")) {
    const marks = [...button.closest("figure").querySelectorAll("[data-series]")].filter(
      (mark) => mark.dataset.series === button.dataset.toggle);
    const shown = () => marks.filter((mark) => getComputedStyle(mark).display !== "none").length;
    const counts = [shown()];
    button.click();
    counts.push(shown());
    button.click();
    counts.push(shown());
    seen.toggled.push(counts);
  }
  const both = ["fsr-logit", "1 per class"].map((name) =>
    document.querySelector(`#figure-memory-sizes [data-toggle="${name}"]`));
  const of_both = document.querySelector('#figure-memory-sizes [data-of="fsr-logit"] [data-series="1 per class"]');
  seen.of_both = [0, 1, 1, 0].map((which) => {
    both[which].click();
    return getComputedStyle(of_both).display !== "none";
  });
  const tip = document.querySelector(".tip");
  const hover = (target) => {
    const box = target.getBoundingClientRect();
    const where = { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2, bubbles: true };
    target.dispatchEvent(new PointerEvent("pointermove", where));
    return tip.hidden ? "" : tip.innerText;
  };
  seen.line = hover(document.querySelector("#figure-bytes .chart.lines"));
  seen.bar = hover(document.querySelector("#figure-logit-bars .bar"));
  seen.cell = hover(document.querySelector("#figure-heatmaps > figure .cell[data-tip]"));
  document.querySelector("#figure-logit-bars .bar").dispatchEvent(new PointerEvent("pointerleave"));
  seen.place = all("#figure-bytes .place").length;
  const result = document.createElement("script");
  result.type = "application/json";
  result.id = "seen";
  result.textContent = JSON.stringify(seen);
  document.body.append(result);
});
"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
@pytest.mark.parametrize("width", [1200, 500])
def test_in_a_browser(width: int, tmp_path: Path) -> None:
    text = the_page()
    for script, place in ((BEFORE, "<title>"), (CHECK, "</body>")):
        # The page's own policy stays: its script has to match its hash.
        hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        text = text.replace("script-src ", escape(f"script-src 'sha256-{hashed}' "), 1)
        text = text.replace(place, f"<script>{script}</script>{place}", 1)
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000"]
    options += [f"--window-size={width},900", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    address = (tmp_path / "page.html").as_uri()
    done = subprocess.run([str(CHROMIUM), *options, address], capture_output=True, text=True, timeout=600, check=True)
    found = re.search(r'<script type="application/json" id="seen">(.*?)</script>', done.stdout)
    assert found
    seen = json.loads(found[1])
    assert seen["errors"] == []
    assert seen["overflow"] <= 0
    figures = {
        name: drawn for name, drawn in seen["figures"].items() if name.startswith("figure-")
    }  # not other sections
    assert set(figures) == {f"figure-{name}" for name in FIGURES}
    assert all(drawn and all(drawn) for drawn in figures.values())
    assert seen["toggled"]
    assert all(before > 0 and hidden == 0 and after == before for before, hidden, after in seen["toggled"])
    assert seen["of_both"] == [False, False, False, True], "shown while no button that it belongs to is off"
    assert seen["line"].startswith("Bytes kept: ") and seen["bar"] and seen["place"] == 1
    assert seen["cell"].startswith("True class 0, Predicted class 0: .9")
