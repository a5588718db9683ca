"""What runs cost, in records, tables, figures and exports."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from selfreminder import records
from selfreminder.cli import main
from selfreminder.experiment.records import TIMINGS, Records, pack_records, read_packed, read_records
from selfreminder.experiment.run import run
from selfreminder.experiment.spec import Experiment
from selfreminder.report.figures import draw_accuracy, draw_costs
from selfreminder.report.panels import cost_panels
from selfreminder.report.results import describe_over_budget, group_runs

TINY = Experiment(
    benchmark="flights",
    method="fsr-logit",
    data="generated-flights",
    tasks=2,
    epochs=2,
    width=0.1,
    batch_size=16,
    per_class=3,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a comparison of three methods."""
    out = tmp_path_factory.mktemp("costs") / "runs"
    command = [
        "compare",
        "flights",
        "--methods",
        "adam,fsr-logit,ewc",
        "--tasks",
        "2",
        "--epochs",
        "2",
        "--budget",
        "30KB",
    ]
    assert main([*command, "--width", "0.1", "--seeds", "1", "--jobs", "1", "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Records]:
    found = [read_records(path.parent) for path in folder.glob("*/records.jsonl")]
    return {run.experiment.method: run for run in found if run is not None}


def test_fine_tuning_passes_each_new_item_once(runs: dict[str, Records]) -> None:
    for task in runs["adam"].tasks:
        assert task["new_items"] == task["passes"] == 2 * 108
        assert task["steps"] == 2 * 7
        assert len(task["calibration_error"]) == task["task"] + 1


def test_a_memory_and_the_fisher_information_take_passes(runs: dict[str, Records]) -> None:
    first, second = runs["fsr-logit"].tasks
    assert 2 * 108 < first["passes"] < second["passes"]
    assert all(3 * 108 <= task["passes"] < 3 * 108 + 16 for task in runs["ewc"].tasks)  # and a look at its layers


def test_seconds_and_memory_are_of_each_task(runs: dict[str, Records], tmp_path: Path) -> None:
    timings = runs["adam"].timings
    assert len(timings) == 2 and all(task["seconds"] > 0 for task in timings)
    assert all(task.get("peak_bytes", 1e8) > 1e7 for task in timings)
    lines = [
        {"task": 0, "epoch": 0, "seconds": 5.0},
        {"task": 0, "epoch": 0, "seconds": 1.0},  # done again after an interruption
        {"task": 0, "epoch": 1, "seconds": 2.0},
        {"task": 0, "after_task_seconds": 0.5, "peak_bytes": 7},
        {"task": 0, "evaluation_seconds": 9.0},
    ]
    (tmp_path / TIMINGS).write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"task": 1, "ep')
    assert replace(runs["adam"], folder=tmp_path).timings == [{"seconds": 3.5, "peak_bytes": 7}, {}]


def test_costs_are_kept_by_packed_runs(tmp_path: Path) -> None:
    run(TINY, tmp_path / TINY.key)
    before = records(tmp_path / TINY.key)
    assert all(row["loss"] > 0 and row["seconds"] > 0 and row["passes"] for row in before)
    assert [row["forward_transfer"] is None for row in before] == [False, True, True]
    pack_records(tmp_path)
    for path in (tmp_path / TINY.key).iterdir():
        path.unlink()
    assert records(tmp_path / TINY.key) == before


def test_what_is_over_the_budget_is_said(folder: Path, runs: dict[str, Records]) -> None:
    results = group_runs(runs.values())
    said = describe_over_budget(results)
    assert said is not None and "ewc" in said and "fsr-logit" not in said and "adam" not in said
    assert describe_over_budget([result for result in results if result.method != "ewc"]) is None
    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    assert "What it costs" in page and "More than the budget" in page


def test_costs_as_figures(runs: dict[str, Records], tmp_path: Path) -> None:
    results = group_runs(runs.values())
    of_bytes, of_time = cost_panels(results)
    assert {series.name: series.x[0] for series in of_bytes.series} == {r.name: r.bytes for r in results}
    assert len(of_time.series) == 3
    once, again = (draw_costs(results, "made", tmp_path / name, ("svg",))[0].read_bytes() for name in ("a", "b"))
    assert once == again
    untimed = group_runs(replace(run, folder=None, rest={}) for run in runs.values())
    assert [panel.title for panel in cost_panels(untimed)] == ["Bytes kept"]


def test_exports(folder: Path, runs: dict[str, Records], tmp_path: Path) -> None:
    assert main(["report", str(folder), "--out", str(tmp_path / "page.html"), "--csv", "--latex", "--pdf"]) == 0
    written = {"accuracy.pdf", "costs.pdf", "records.csv", "results.csv", "results.tex"}
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", *written}
    with (tmp_path / "results.csv").open() as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"adam", "fsr-logit", "ewc"}
    for method, found in runs.items():
        assert float(rows[method]["task_average"]) == pytest.approx(sum(found.test[-1]) / 2)
        assert float(rows[method]["bytes"]) == found.tasks[-1]["bytes"]
        assert rows[method]["rho"] == rows[method]["task_average_stderr"] == ""
    with (tmp_path / "records.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 3 * 3
    lines = (tmp_path / "results.tex").read_text().splitlines()
    assert lines[0] == r"\begin{tabular}{lrrrrrr}" and lines[-1] == r"\end{tabular}"
    assert {line.count("&") for line in lines if "&" in line} == {6}
    assert sum("textbf" in line for line in lines) == 1


def test_many_methods_have_room_for_their_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All are inside of the figure; accuracies that are all high have an axis that begins higher."""
    drawn: list[Figure] = []
    monkeypatch.setattr("selfreminder.report.figures.save", lambda figure, *_: drawn.append(figure) or [])
    results = group_runs(read_packed(Path(__file__).parents[2] / "results" / "spam").values())
    assert len(results) == 24
    draw_accuracy(results, "made", tmp_path / "accuracy")
    draw_costs(results, "made", tmp_path / "costs")
    for figure in drawn:
        figure.draw_without_rendering()
        keys = figure.legends[0].get_window_extent()
        assert figure.bbox.y0 <= keys.y0 and keys.y1 <= figure.bbox.y1
    low, high = drawn[0].axes[0].get_ylim()
    assert low == 0.8 and high == 1.0
