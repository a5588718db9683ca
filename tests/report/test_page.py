import base64
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import Size, show_bytes
from selfreminder.cli import app, grid_command, main
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.folder import Origin, read_origin, run_folders, with_command, write_grid
from selfreminder.experiment.pool.grid import Grid
from selfreminder.experiment.records import RECORDS, read_records
from selfreminder.experiment.spec import Experiment
from selfreminder.report.folder_results import read_folder_results
from selfreminder.report.html import in_words
from selfreminder.report.page import render_comparison
from selfreminder.report.results import describe_unlearned, describe_unseen_moments, group_runs
from selfreminder.report.style import look

RESULTS = sorted((Path(__file__).parents[2] / "results").glob("permuted-mnist-*"))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SHARE = {"joint": 0.97, "fsr-logit": 0.9, "ewc": 0.8, "sgd": 0.7, "adam": 0.6}
"""of its accuracy that a made-up run keeps at every task"""
VERSIONS = {"selfreminder": "1.2", "torch": "9"}


def write_run(folder: Path, experiment: Experiment, done: bool = True, versions: dict[str, str] = VERSIONS) -> None:
    """Made-up records; a run that is not done has all tasks but the last, and half a line."""
    events: list[dict[str, Any]] = [{"event": "start", "experiment": experiment.as_dict(), "versions": versions}]
    for task in range(experiment.tasks):
        first = 0.9 - 0.02 * task + 0.01 * experiment.seed
        test = [round(first * SHARE[experiment.method] ** (task - old), 4) for old in range(task + 1)]
        more = {"next": 0.2, "next_untrained": 0.1} if task + 1 < experiment.tasks else {}
        flips = [0.1] * task + [0.0]
        events.append(
            {"event": "task", "task": task, "test": test, "validation": test, "flips": flips, "chance": 0.1}
            | {"bytes": 847 * (task + 1)}
            | more
        )
    text = "".join(json.dumps(event) + "\n" for event in [*events[: None if done else -1], {"event": "done"}])
    (folder / experiment.key).mkdir(parents=True)
    (folder / experiment.key / RECORDS).write_text(text if done else text[:-8], encoding="utf-8")


def made_up(folder: Path, **changes: Any) -> list[Experiment]:
    """A comparison of all that the page can show: an upper bound, fine-tuning, two seeds, four tasks."""
    asked = {"benchmark": "permuted-mnist", "methods": tuple(SHARE), "seeds": 2, "tasks": 4} | changes
    experiments = Comparison(**asked).experiments
    for experiment in experiments:
        write_run(folder, experiment)
    return experiments


def write_comparison(folder: Path, comparison: Comparison) -> None:
    """What `selfreminder compare` writes of itself."""
    write_grid(folder, comparison.experiments, {"comparison": comparison.as_dict()})


class Page(HTMLParser):
    """What a browser makes of a page: its text, its tables, and what it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source = text
        self.open: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in ("meta", "link"):
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data
        elif not {"style", "script"} & set(self.open):
            self.text += data.replace("\N{NO-BREAK SPACE}", " ")

    def values(self, name: str) -> list[str]:
        return [value for _, key, value in self.attributes if key == name]

    @property
    def charts(self) -> list[ElementTree.Element]:
        return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", self.source, re.DOTALL)]


def page_of(folder: Path) -> Page:
    return Page(render_comparison(read_folder_results(folder)))


def class_text(page: Page, name: str) -> str:
    found = re.search(rf'<p class="{name}">(.*?)</p>', page.source)
    assert found
    return re.sub("<.*?>", "", found[1]).replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize("folder", RESULTS, ids=lambda path: path.name)
def test_numbers_are_those_of_the_records(folder: Path) -> None:
    page = page_of(folder)
    runs = [read_records(path) for path in run_folders(folder)]
    expected = {result.method: result for result in group_runs(run for run in runs if run)}
    rows = {row[0]: row[1:] for row in page.tables[0][1:]}
    assert list(rows) == sorted(expected, key=lambda name: -expected[name].task_average.mean)
    for name, row in rows.items():
        r = expected[name]
        numbers = [in_words(estimate) for estimate in (r.task_average, r.first_task, r.forgetting)]
        assert row == [*numbers, show_bytes(r.bytes)]
    assert page.values("data-toggle") == 3 * list(rows)  # of the picture that is the answer, the first task, and costs
    ends = [f"{in_words(replace(expected[name].task_average, stderr=None))} · {row[-1]}" for name, row in rows.items()]
    assert re.findall(r"<small>(\.\d+ · .*?)</small>", page.source) == ends
    wide, narrow, first, *heats, costs = [chart for chart in page.charts if chart.get("role") == "img"]
    for chart, curves in (
        (wide, {name: r.average_curve for name, r in expected.items()}),
        (narrow, {name: r.average_curve for name, r in expected.items()}),
        (first, {name: r.first_curve for name, r in expected.items()}),
    ):
        marks = {mark.attrib["data-series"]: mark for mark in chart.findall("g[@data-series]")}
        assert set(marks) == set(rows)
        for name, curve in curves.items():
            points = marks[name].findall("path[@class='point']")
            assert [point.get("data-value") for point in points] == [in_words(estimate) for estimate in curve]
            assert f"--light:{look(name, list(rows))[0]};" in marks[name].attrib["style"]
    said = [point.get("data-value") for point in costs.iter("path") if point.get("class") == "point"]
    assert sorted(map(str, said)) == sorted(in_words(r.task_average) for r in expected.values())
    # The last row of a matrix has the task average as its mean, and its first cell is the first task's accuracy.
    assert len(heats) == 1 + len(rows)
    for chart, r in zip(heats[1:], (expected[name] for name in rows)):
        tasks = len(r.average_curve)
        said = [title.text or "" for title in chart.iter("title")]
        last = [text for text in said if text.startswith(f"After task {tasks},")]
        assert len(said) == tasks * (tasks + 1) // 2
        assert last[0] == f"After task {tasks}, On task 1: {in_words(r.first_task)}"
        means = [float(text.split(": ")[1].split(" ")[0]) for text in last]
        assert sum(means) / tasks == pytest.approx(r.task_average.mean, abs=1e-3)


def test_everything_that_there_can_be(tmp_path: Path) -> None:
    made_up(tmp_path)
    page = page_of(tmp_path)
    assert class_text(page, "answer") == (
        "fsr-logit keeps an accuracy of .726 over 4 tasks; fine-tuning by sgd .535, by adam .460; "
        "joint training on all data, .808; 2 seeds."
    )
    assert class_text(page, "status") == "All 10 runs are done."
    head, *rows = page.tables[0]
    assert head == ["Method", "Task average", "First task", "Forgetting", "ρ", "Bytes kept"]
    assert [row[0] for row in rows] == list(SHARE)
    assert rows[0][4] == ".000 ± .000"
    more, costs, of_methods = page.tables[1:4]
    assert costs[0][:2] == ["Method", "Bytes kept"] and len(costs) == 1 + len(SHARE)
    assert more[0] == ["Method", "Backward transfer", "Forward transfer", "Negative flips", "Intransigence"]
    assert "".join(of_methods[1][:1]).startswith("jointAll data of all tasks")
    assert [[name, *row[1:]] for name, row in zip(SHARE, of_methods[1:])] == [
        ["joint", "adam", "0.0001", "–"],
        ["fsr-logit", "adam", "0.0001", "0.003"],
        ["ewc", "adam", "0.0001", "30"],
        ["sgd", "sgd", "0.1", "–"],
        ["adam", "adam", "0.0001", "–"],
    ]
    assert "Forgetting ratio" in page.text
    assert page.values("data-toggle") == [*SHARE, *SHARE, *list(SHARE)[1:], *SHARE]
    for said in (
        "Tasks4",
        "Epochs5 on each task",
        "Memory10 per class and task",
        "Run with selfreminder 1.2, torch 9.",
    ):
        assert said in page.text
    labels = [chart.get("aria-label") for chart in page.charts if chart.get("role") == "img"]
    assert all(labels)
    assert len(set(labels)) == 3 + 1 + len(SHARE) + 1


def test_nothing_is_loaded_and_nothing_else_is_run(tmp_path: Path) -> None:
    made_up(tmp_path)
    page = page_of(tmp_path)
    loading = {(tag, name, value) for tag, name, value in page.attributes if name in ("src", "href", "action", "data")}
    within = {value for tag, _, value in loading if tag == "a"}
    assert within and all(value.startswith("#") and value[1:] in page.values("id") for value in within)
    assert {each for each in loading if each[0] != "a"} == {("link", "href", "data:,")}
    assert not re.search(r"url\(|@import|//(?!www\.w3\.org/2000/svg)\w", page.source)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    (script,) = re.findall(r"<script>(.*?)</script>", page.source, re.DOTALL)
    ours = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{ours}'" in page.values("content")[0]


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    for experiment in reversed(made_up(tmp_path / "one")):
        write_run(tmp_path / "other", experiment)
    one, other = (render_comparison(read_folder_results(tmp_path / name)) for name in ("one", "other"))
    assert one == other
    assert one == render_comparison(read_folder_results(tmp_path / "one"))


def test_text_of_records_is_text(tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=alert(1)>'\"&\x00"
    one, *_ = made_up(tmp_path, seeds=1)
    write_run(tmp_path, replace(one, seed=1, options={hostile: hostile}), versions={hostile: hostile})
    page = page_of(tmp_path)
    assert ("img", "src", "x") not in page.attributes
    assert "<img" not in page.source
    shown = hostile.replace("\x00", "\ufffd")
    assert f"{shown} {shown}" in page.text
    assert escape(shown, quote=False) in page.source


def test_a_comparison_that_is_running(tmp_path: Path) -> None:
    experiments = Comparison(benchmark="permuted-mnist", methods=("adam", "fsr-logit"), seeds=2, tasks=4).experiments
    write_grid(tmp_path, experiments, {})
    page = page_of(tmp_path)
    assert class_text(page, "answer") == "No run is done yet."
    assert class_text(page, "status") == "0 of 4 runs have begun."
    assert "adam seed 0, fsr-logit seed 0, adam seed 1, fsr-logit seed 1" in page.text
    write_run(tmp_path, experiments[0], done=False)
    assert class_text(page_of(tmp_path), "status") == "1 of 4 runs has begun."
    write_run(tmp_path, experiments[1])
    (tmp_path / experiments[2].key).mkdir()
    failure = {"reason": "<diverged>", "kind": "diverged"}
    (tmp_path / experiments[2].key / "failure.json").write_text(json.dumps(failure))
    page = page_of(tmp_path)
    assert class_text(page, "answer") == "So far, fsr-logit keeps an accuracy of .722 over 4 tasks; one seed."
    assert class_text(page, "status") == "1 of 4 runs is done: this page shows it. 1 failed: see below."
    assert [row[0] for row in page.tables[0][1:]] == ["fsr-logit"]
    assert [["adam", "0", "3 of 4", ""], ["adam", "1", "0 of 4", "<diverged>"]] in [t[1:] for t in page.tables]
    assert "Not begun: fsr-logit seed 1." in page.text
    # Without a list of its runs, a folder knows those that have begun.
    (tmp_path / "grid.json").unlink()
    assert class_text(page_of(tmp_path), "status").startswith("1 of 2 runs is done")


def test_seeds_that_tell_nothing_are_said_to(tmp_path: Path) -> None:
    for experiment in Comparison(benchmark="permuted-mnist", methods=("adam", "ewc"), seeds=3, tasks=2).experiments:
        write_run(tmp_path, experiment)
        if experiment.method == "ewc":  # better by .02 with one seed, worse by .01 with another
            path = tmp_path / experiment.key / RECORDS
            adams = replace(experiment, method="adam", strength=None).seed
            test = [0.88 + 0.01 * adams, 0.528 + [0.06, 0.02, -0.01][adams]]
            lines = path.read_text().splitlines()
            lines[2] = json.dumps(json.loads(lines[2]) | {"test": test})
            path.write_text("\n".join(lines) + "\n")
    assert class_text(page_of(tmp_path), "answer").endswith("; 3 seeds, which do not tell the first two apart.")


def test_a_method_that_has_not_learned_is_named(tmp_path: Path) -> None:
    """Five points below fine-tuning on tasks just learned are too many; joint training is not measured."""
    for experiment in Comparison(benchmark="permuted-mnist", methods=("adam", "ewc", "fsr-logit"), tasks=2).experiments:
        write_run(tmp_path, experiment)
        if experiment.method == "ewc":
            path = tmp_path / experiment.key / RECORDS
            lines = path.read_text().splitlines()
            lines[2] = json.dumps(json.loads(lines[2]) | {"test": [0.88, 0.6]})
            path.write_text("\n".join(lines) + "\n")
    text = " ".join(page_of(tmp_path).text.split())
    assert "Has not learned its newest tasks as well as fine-tuning: ewc (0.755, adam 0.900)." in text
    others = [each for each in read_folder_results(tmp_path).results if each.method != "adam"]
    said = "Has not learned its newest tasks as well as others: ewc (0.755, fsr-logit 0.900)."
    assert describe_unlearned(others) == said


def test_moments_that_there_were_none_of_are_said(tmp_path: Path) -> None:
    (experiment,) = Comparison(benchmark="permuted-mnist", methods=("adam",), seeds=1, tasks=2).experiments
    write_run(tmp_path, replace(experiment, evaluate_every=5000))
    assert describe_unseen_moments(read_folder_results(tmp_path).results) == (
        "No task has 5000 steps: nothing was evaluated while tasks were learned."
    )
    write_run(tmp_path / "other", experiment)
    assert describe_unseen_moments(read_folder_results(tmp_path / "other").results) is None


def test_one_method_with_several_settings(tmp_path: Path) -> None:
    experiments = made_up(tmp_path, methods=("adam", "ewc"), seeds=1)
    write_run(tmp_path, replace(experiments[1], strength=7.0))
    found = read_folder_results(tmp_path)
    names = [entry.name for entry in found.results]
    assert names == ["ewc (λ 30)", "ewc (λ 7)", "adam"]
    one, other, _ = found.results
    assert one.colour == other.colour
    assert one.marker != other.marker
    page = Page(render_comparison(found))
    assert page.values("data-toggle") == 3 * names
    write_comparison(tmp_path, Comparison(benchmark="permuted-mnist", methods=("adam", "ewc"), seeds=1, tasks=4))
    # No command gives λ = 7.
    assert "other strengths, step sizes or the like than these runs" in page_of(tmp_path).text


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        ({}, ""),
        ({"scale": "small", "tasks": 4}, " --tasks 4"),
        ({"scale": "medium", "size": Size(per_class=3)}, " --per-class 3"),
        ({"scale": "paper", "size": Size(budget="64KB"), "epochs": 2}, " --epochs 2 --budget 64000"),
        ({"width": 0.06, "select": "herding"}, " --select herding --width 0.06"),
    ],
)
def test_the_command_gives_the_same_runs(
    asked: dict[str, Any], options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page shows the command that made a folder as it was typed; typed again, it asks for the same runs."""
    comparison = Comparison(benchmark="permuted-mnist", methods=("adam", "fsr-logit"), seeds=2, **asked)
    scale = f"--scale {comparison.scale} --methods adam,fsr-logit --seeds 2"
    typed = f"compare permuted-mnist {scale}{options} --out x"
    asked_for: list[Grid] = []

    def run_live(grid: Grid) -> Iterator[None]:
        """Write what is known of the runs, and run none."""
        asked_for.append(grid)
        grid.write_list()
        yield

    monkeypatch.setattr(grid_command, "fetch", lambda name, data_dir: None)
    monkeypatch.setattr(grid_command, "run_live", run_live)
    monkeypatch.chdir(tmp_path)
    assert main(typed.split()) == 1
    (grid,) = asked_for
    assert {job.experiment.key for job in grid.all} == {e.key for e in comparison.experiments}
    for experiment in comparison.experiments:
        write_run(tmp_path / "x", experiment, done=False)
    found = read_folder_results(tmp_path / "x")
    assert found.origin.commands == (f"selfreminder {typed}",)
    assert found.origin.scale == comparison.scale
    assert found.origin.gives(found.experiments)
    assert found.origin.comparison is not None
    assert {e.key for e in found.origin.comparison.experiments} == {e.key for e in comparison.experiments}
    _, bound, _ = app.parse_args(typed.split(), exit_on_error=False, print_error=False)
    given = bound.arguments
    assert (given["benchmark"], given["scale"], given["seeds"]) == ("permuted-mnist", comparison.scale, 2)
    assert f"selfreminder {typed}" in page_of(tmp_path / "x").text


def test_commands_add_up(tmp_path: Path) -> None:
    """A comparison may be added to by another command: both are shown; the same one is shown once."""
    small, other = ["compare", "permuted-mnist"], ["compare", "permuted-mnist", "--seeds", "7"]
    for words, known in ((small, [small]), (small, [small]), (other, [small, other])):
        about = with_command(tmp_path, words, {"comparison": {}})
        assert about["commands"] == known
        write_grid(tmp_path, [], about)
    # The grid of a file is that of the last command alone.
    assert with_command(tmp_path, ["run", "g.toml"], {"spec": "spec.toml"})["commands"] == [["run", "g.toml"]]
    write_grid(tmp_path, [], {"commands": [7, ["list", 7]], "comparison": {"benchmark": 7}})
    assert read_origin(tmp_path) == Origin(("selfreminder list 7",))


def test_a_table_of_the_users_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder has a copy of it: what was chosen is known, wherever the folder is by then."""
    monkeypatch.chdir(tmp_path)
    chosen = "strength = 5.0\nweight_decay = 0.5\nby = 'me'\n"
    Path("mine.toml").write_text(f"[mixture.demo.ewc]\n{chosen}[permuted-mnist.demo.ewc]\n{chosen}")
    small = ["--methods", "adam,ewc", "--seeds", "1", "--tasks", "1", "--epochs", "1", "--width", "0.05"]
    assert main(["compare", "permuted-mnist", *small, "--tuned", "mine.toml", "--out", "x", "--jobs", "1"]) == 0
    Path("mine.toml").unlink()
    Path("x").rename("moved")
    found = read_folder_results(Path("moved"))
    assert found.origin.gives(found.experiments)
    (typed,) = found.origin.commands
    assert typed.endswith(" --tasks 1 --epochs 1 --width 0.05 --tuned mine.toml --out x --jobs 1")
    text = page_of(Path("moved")).text
    assert "with tuned.toml, which is beside the runs" in text
    assert "Not tuned" not in text
    assert "than these runs" not in text
    Path("moved/tuned.toml").unlink()
    assert not read_folder_results(Path("moved")).origin.gives(found.experiments)


def test_a_grid_with_a_table_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text("[permuted-mnist.demo.ewc]\nstrength = 5.0\n")
    spec = 'benchmark = "permuted-mnist"\nscale = "demo"\nmethod = "ewc"\ntasks = 1\nepochs = 1\nwidth = 0.05\n'
    Path("g.toml").write_text(f"{spec}[grid]\nimages = [200, 300]\n")
    assert main(["run", "g.toml", "--tuned", "mine.toml", "--out", "x", "--jobs", "1"]) == 0
    found = read_folder_results(Path("x")).origin
    assert found.commands == ("selfreminder run g.toml --tuned mine.toml --out x --jobs 1",)
    assert found.file == ("spec.toml", Path("g.toml").read_text())
    assert "with tuned.toml, which is beside the runs" in page_of(Path("x")).text
    assert Path("x/tuned.toml").read_bytes() == Path("mine.toml").read_bytes()


def test_a_grid_from_a_file(tmp_path: Path) -> None:
    one, *_ = Comparison(benchmark="permuted-mnist", methods=("adam",), seeds=1, tasks=2).experiments
    runs = [replace(one, seed=7), replace(one, seed=7, weight_decay=0.5)]
    for run in runs:
        write_run(tmp_path, run)
    assert "The command that made these runs is not stored here" in page_of(tmp_path).text
    typed = ["run", "g.toml", "--set", "tasks=2", "--sweep", "weight_decay=1e-4,0.5"]
    about = {"spec": "spec.toml", "set": ["tasks=2"], "sweep": ["weight_decay=1e-4,0.5"]}
    write_grid(tmp_path, runs, with_command(tmp_path, typed, about))
    (tmp_path / "spec.toml").write_text('benchmark = "<b>"\n')
    page = page_of(tmp_path)
    assert "selfreminder run g.toml --set tasks=2 --sweep weight_decay=1e-4,0.5" in page.text
    assert "beside the runs as spec.toml" in page.text
    assert "--tuned" not in page.text
    assert 'benchmark = "<b>"' in page.text
    assert "Weight decay0.0001 or 0.5" in page.text
    assert [row[0] for row in page.tables[0][1:]] == ["adam (weight decay 0.0001)", "adam (weight decay 0.5)"]


def test_a_grid_that_has_changed_has_no_runs_of_the_earlier_one(tmp_path: Path) -> None:
    earlier = made_up(tmp_path, methods=("adam", "ewc"), tasks=2)
    (tmp_path / "spec.toml").write_text("")
    write_grid(tmp_path, earlier[:2], {"spec": "spec.toml", "set": [], "sweep": []})
    assert read_folder_results(tmp_path).experiments == sorted(earlier[:2], key=lambda run: run.method)
    write_grid(tmp_path, earlier[:2], {})  # a comparison is added to
    assert len(read_folder_results(tmp_path).runs) == len(earlier)


def test_a_damaged_record_does_not_hide_the_others(tmp_path: Path) -> None:
    runs = made_up(tmp_path, methods=("adam", "ewc"), seeds=1, tasks=2)
    (tmp_path / runs[0].key / RECORDS).write_text("{\n")
    write_grid(tmp_path, runs, {})
    page = page_of(tmp_path)
    assert "1 failed: see below" in page.text
    assert [row[0] for row in page.tables[0][1:]] == ["ewc"]
    assert any("is damaged" in cell for table in page.tables for row in table for cell in row)
    (tmp_path / "grid.json").unlink()
    with pytest.raises(SelfReminderError, match="is damaged"):
        read_folder_results(tmp_path)


def test_a_page_takes_no_file_from_outside_its_folder(tmp_path: Path) -> None:
    """A folder of somebody else's may name any; what it says may be damaged, too."""
    one, *_ = Comparison(benchmark="permuted-mnist", methods=("adam",), seeds=1, tasks=2).experiments
    (tmp_path / "secret").write_text("a private key")
    run = replace(one, seed=7, weight_decay=0.5)
    write_run(tmp_path / "theirs", run)
    for spec in ("../secret", str(tmp_path / "secret"), 7, ["spec.toml"]):
        write_grid(tmp_path / "theirs", [run], {"spec": spec, "set": [], "sweep": []})
        assert "a private key" not in page_of(tmp_path / "theirs").text
    (tmp_path / "theirs" / "spec.toml").write_bytes(b"\xff")
    for about in ({"spec": "spec.toml", "set": [], "sweep": []}, {"spec": "spec.toml"}):
        write_grid(tmp_path / "theirs", [run], about)
        assert "The command that made these runs is not stored here" in page_of(tmp_path / "theirs").text
        assert read_folder_results(tmp_path / "theirs").origin.file is None


def test_streams_of_other_tasks_are_not_compared(tmp_path: Path) -> None:
    """Each has its own order, table and charts, and settings: nothing says that one task's 90% beats another's 80%."""
    long = made_up(tmp_path, methods=("adam", "ewc", "joint"), seeds=1, tasks=4)
    short = made_up(tmp_path, methods=("adam", "ewc"), seeds=1, tasks=2)
    other = Comparison(benchmark="mixture", methods=("adam",), seeds=1).experiments[0]
    write_grid(tmp_path, [*long, *short, other], {})
    page = page_of(tmp_path)
    assert class_text(page, "answer").startswith("These runs learned 3 different streams of tasks: ")
    assert "permuted-mnist and mixture" in page.text
    overview, two, _, _, _, four, *_ = page.tables
    assert [row[:2] + row[3:] for row in overview[1:]] == [
        ["mixture", "–", "0 of 1"],
        ["permuted-mnist, 2 tasks", "ewc", "2 of 2"],
        ["permuted-mnist, 4 tasks", "ewc", "3 of 3"],
    ]
    assert [row[0] for row in two[1:]] == ["ewc", "adam"]
    assert [row[0] for row in four[1:]] == ["joint", "ewc", "adam"]
    assert "ρ" in four[0]
    assert "ρ" not in two[0]
    answers = [re.sub("<.*?>", "", text) for text in re.findall(r'<p class="answer">(.*?)</p>', page.source)]
    assert [re.findall(r"over (\d)", text) for text in answers] == [[], ["2"], ["4"]]
    links = [value.removeprefix("#") for value in page.values("href") if value.startswith("#")]
    assert len(links) == 5 + 2  # of the contents, and of the overview
    assert set(links) <= set(page.values("id"))
    assert len(set(page.values("id"))) == len(page.values("id"))


def test_runs_of_the_papers_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [*made_up(tmp_path, methods=("adam",), tasks=4), *made_up(tmp_path, methods=("adam",), tasks=2)]
    write_grid(tmp_path, runs, {"figure": "all", "scale": "small"})
    page = page_of(tmp_path)
    assert "permuted-mnist at scale small" in page.text
    assert "not stored here" not in page.text
    assert main(["report", str(tmp_path)]) == 0
    command = "selfreminder reproduce all --scale small"
    assert f"{command} --draw-only --out {tmp_path}" in capsys.readouterr().out
    assert page.text.count(command) == 2  # where it leads, and how to do it again
    write_grid(tmp_path, runs, {"figure": ["all"], "scale": "tiny"})
    assert read_folder_results(tmp_path).origin == Origin()


def test_made_up_images_are_said_to_be(tmp_path: Path) -> None:
    one, *_ = Comparison(benchmark="color-cifar10", methods=("adam",), seeds=1).experiments
    write_run(tmp_path, one)
    assert "Made-up data" in page_of(tmp_path).text


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made_up(tmp_path / "x")
    assert main(["report", "x"]) == 0
    assert capsys.readouterr().out == "Report: x/report.html, 10 of 10 runs done\n"
    text = (tmp_path / "x/report.html").read_text(encoding="utf-8")
    assert text == render_comparison(read_folder_results(Path("x")))
    assert main(["report", "x", "--out", "page.html"]) == 0
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == text


def old_records(folder: Path) -> None:
    (experiment,) = Comparison(benchmark="permuted-mnist", methods=("adam",), seeds=1, tasks=1).experiments
    write_run(folder, experiment)
    path = folder / experiment.key / RECORDS
    path.write_text(path.read_text().replace('"chance"', '"chanse"').replace('"flips"', '"flops"'))


@pytest.mark.parametrize(
    ("prepare", "asked", "message"),
    [
        (lambda path: (path / "runs-1").mkdir(), "runs-2", "did you mean 'runs-1'?"),
        (lambda path: None, "no/where", "no/where does not exist"),
        (lambda path: (path / "x").mkdir(), "x", "x holds no records of runs: give the folder of a comparison"),
        (lambda path: (path / "x").write_text(""), "x", "x is a file"),
        (lambda path: made_up(path / "x/inner"), "x", "give one of the folders in it, inner"),
        (
            lambda path: old_records(path / "x"),
            "x",
            "records.jsonl is of an earlier version, without 'flips': remove its folder",
        ),
    ],
)
def test_mistakes(
    prepare: Callable[[Path], object], asked: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path)
    with pytest.raises(SelfReminderError, match=re.escape(message)):
        read_folder_results(Path(asked))


def test_the_folder_of_a_run_and_a_page_that_is_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, *_ = made_up(tmp_path / "x")
    assert main(["report", str(tmp_path / "x" / one.key)]) == 2
    assert f"give the one around it, {tmp_path / 'x'}" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "x"), "--out", str(tmp_path)]) == 2
    assert "is a folder: name a file" in capsys.readouterr().err


@pytest.mark.parametrize("folder", RESULTS, ids=lambda path: path.name)
def test_committed_figures_have_the_colours_of_the_page(folder: Path) -> None:
    drawn = (folder / "accuracy.svg").read_text(encoding="utf-8")
    assert all(result.colour.lower() in drawn for result in read_folder_results(folder).results)


CHECK = """
addEventListener("load", () => {
  const all = (query) => [...document.querySelectorAll(query)];
  const shown = (query) => all(query).filter((found) => found.getBoundingClientRect().width > 0).length;
  const adam = '.lines [data-series="adam"]';
  const seen = { errors, drawn: all(".chart").map((c) => c.getBoundingClientRect().height), adam: [shown(adam)] };
  seen.overflow = document.documentElement.scrollWidth - innerWidth;
  const button = document.querySelector('[data-toggle="adam"]');
  const chart = all(".chart.lines").find((found) => found.getBoundingClientRect().width > 0);
  const tip = document.querySelector(".tip");
  const hover = (target, x, y) => {
    target.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: y, bubbles: true }));
    return tip.hidden ? "" : tip.innerText;
  };
  const box = chart.getBoundingClientRect();
  seen.all = hover(chart, box.right - 12, box.top + box.height / 2);
  button.click();
  seen.adam.push(shown(adam));
  seen.pressed = button.getAttribute("aria-pressed");
  seen.others = hover(chart, box.right - 12, box.top + box.height / 2);
  button.click();
  seen.adam.push(shown(adam));
  chart.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
  seen.key = tip.innerText;
  seen.cell = hover(document.querySelector(".cell[data-tip]"), 9, 9);
  const result = document.createElement("script");
  result.type = "application/json";
  result.id = "seen";
  result.textContent = JSON.stringify(seen);
  document.body.append(result);
});
"""
BEFORE = """
const errors = [];
for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"])
  addEventListener(kind, (event) => errors.push(kind + " " + (event.message || event.violatedDirective || "")), true);
console.error = console.warn = (...words) => errors.push(words.join(" "));
"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
@pytest.mark.parametrize("width", [1200, 500])
def test_in_a_browser(width: int, tmp_path: Path) -> None:
    made_up(tmp_path / "x")
    text = render_comparison(read_folder_results(tmp_path / "x"))
    for script, place in ((BEFORE, "<title>"), (CHECK, "</body>")):
        # The page's own policy stays: its script has to match its hash.
        hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        text = text.replace("script-src ", escape(f"script-src 'sha256-{hashed}' "), 1)
        text = text.replace(place, f"<script>{script}</script>{place}", 1)
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=3000",
        f"--window-size={width},900",
    ]
    command = [str(CHROMIUM), *options, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    done = subprocess.run(
        [*command, (tmp_path / "page.html").as_uri()], capture_output=True, text=True, timeout=600, check=True
    )
    found = re.search(r'<script type="application/json" id="seen">(.*?)</script>', done.stdout)
    assert found
    seen = json.loads(found[1])
    assert seen["errors"] == []
    assert seen["overflow"] <= 0
    assert [height == 0 for height in seen["drawn"][:2]] == [width < 640, width > 640], "wide or narrow"
    heights = [height for height in seen["drawn"] if height]
    assert len(heights) == 3 + 1 + len(SHARE) + 1
    assert min(heights) > 20
    assert seen["adam"] == [4, 3, 4]  # hidden in its own figure; the first task, ρ and costs have legends of their own
    assert seen["pressed"] == "false"
    last = in_words(read_folder_results(tmp_path / "x").results[-1].task_average)
    assert seen["all"].startswith("Tasks learned: 4")
    assert re.search(rf"adam\s+{re.escape(last)}", seen["all"])
    assert "adam" not in seen["others"]
    assert "sgd" in seen["others"]
    assert seen["key"].startswith("Tasks learned: 1")
    assert seen["cell"].startswith("After task 1, On task 1: ")
