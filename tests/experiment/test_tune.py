import json
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import optuna
import pytest
import tomlkit
from hypothesis import given
from hypothesis import settings as with_settings
from hypothesis import strategies as st

from selfreminder import benchmarks, methods
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import Size
from selfreminder.cli.main import main
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.folder import read_grid
from selfreminder.experiment.pool.grid import Grid
from selfreminder.experiment.pool.progress import Done, Failed, Left, Progress
from selfreminder.experiment.records import RECORDS, STATE, TIMINGS, read_records
from selfreminder.experiment.run import run
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.status import status
from selfreminder.experiment.sweep import read_sweep
from selfreminder.experiment.tuning.candidates import STEP_SIZES, STRENGTHS, Tuning
from selfreminder.experiment.tuning.search import Choice, Search, describe_choice
from selfreminder.experiment.tuning.study import JOURNAL, Study, TrialResult, claimed, open_journal
from selfreminder.experiment.tuning.tuned import (
    TUNED,
    describe_untuned,
    find_tuned,
    locate_section,
    read_table,
    with_section,
    write_sections,
)
from selfreminder.report.figures import draw_tuning

TINY = ["permuted-mnist", "--tasks", "2", "--epochs", "1", "--width", "0.06"]


def tuning(*names: str, at: dict[str, Any] | None = None, **settings: Any) -> Tuning:
    return Tuning(comparison=Comparison(benchmark="permuted-mnist", methods=names, **(at or {})), **settings)


def make_records(
    folder: Path, run: Experiment, validation: Sequence[Sequence[float]], test: float = 0.5, *, done: bool = True
) -> None:
    """A run with these accuracies on validation data, and one on all of the test data."""
    events: list[dict[str, Any]] = [{"event": "start", "experiment": run.as_dict(), "versions": {}}]
    for task, row in enumerate(validation):
        events.append({"event": "task", "task": task, "test": [test] * len(row), "validation": list(row)})
    (folder / run.key).mkdir(parents=True)
    lines = (json.dumps(event) + "\n" for event in [*events, *[{"event": "done"}] * done])
    (folder / run.key / RECORDS).write_text("".join(lines))


def finish(search: Search) -> Search:
    for job in search.grid.run():
        search.take(job)
    return search


# What is chosen -------------------------------------------------------------------------------------------


def test_test_accuracy_has_no_influence(tmp_path: Path) -> None:
    """Test and validation data rank the candidates in opposite ways: validation data decides."""
    asked = tuning("fsr-logit", values={"strength": (1.0, 2.0, 3.0)}, at={"tasks": 2})
    (candidates,) = asked.candidates
    for settings, validation, test in zip(candidates.combine(), (0.2, 0.9, 0.4), (0.9, 0.1, 0.6)):
        for one in candidates.runs(settings):
            make_records(tmp_path, one, [[0.5], [validation, 0.5]], test)
    (choice,) = Search(asked, tmp_path).choose()
    assert [trial.value for trial in choice.results] == [0.35, 0.7, 0.45]
    assert choice.chosen == choice.results[1]
    entry = describe_choice(choice, asked)
    assert entry["strength"] == 2.0
    assert entry["validation"] == {"1": 0.35, "2": 0.7, "3": 0.45}


def test_the_value_is_the_mean_over_seeds_of_all_tasks_at_the_end(tmp_path: Path) -> None:
    asked = tuning("ewc", values={"strength": (1.0,)}, seeds=3, at={"tasks": 2})
    (candidates,) = asked.candidates
    assert [one.seed for one in candidates.runs({"strength": 1.0})] == [100, 101, 102]
    for one, last in zip(candidates.runs({"strength": 1.0}), ([0.1, 0.3], [0.2, 0.6], [0.3, 0.9])):
        make_records(tmp_path, one, [[1.0], last])
    (choice,) = Search(asked, tmp_path).choose()
    assert choice.chosen is not None
    assert choice.chosen.value == 0.4
    assert choice.chosen.by_seed == pytest.approx((0.2, 0.4, 0.6))
    assert choice.chosen.stderr == pytest.approx(0.2 / 3**0.5)


def test_sgds_step_size_is_judged_by_the_newest_task(tmp_path: Path) -> None:
    asked = tuning("sgd", values={"lr": (0.01, 0.1, 1.0)}, seeds=1, at={"tasks": 2})
    (candidates,) = asked.candidates
    (adam,) = candidates.reference_runs
    assert (adam.method, adam.seed, adam.tasks) == ("adam", 100, 2)
    make_records(tmp_path, adam, [[0.8], [0.1, 0.9]])
    # The last is best at the end, the first forgets nothing since it learns nothing.
    for settings, matrix in zip(candidates.combine(), ([[0.5], [0.5, 0.5]], [[0.8], [0.0, 0.87]], [[0.9], [0.9, 0.9]])):
        make_records(tmp_path, *candidates.runs(settings), matrix)
    (choice,) = (search := Search(asked, tmp_path)).choose()
    assert search.is_complete
    assert choice.adams_newest == 0.85
    assert [trial.value for trial in choice.results] == [0.5, 0.835, 0.9]
    assert choice.chosen == choice.results[1]
    assert describe_choice(choice, asked)["adams_newest"] == 0.85
    assert not Study(candidates, replace(asked, prune=True), open_journal(tmp_path)).prunes
    (tmp_path / adam.key / RECORDS).unlink()
    assert not Search(asked, tmp_path).is_complete  # there is nothing to measure by


def test_adams_step_size_is_judged_by_the_newest_task(tmp_path: Path) -> None:
    asked = tuning("adam", values={"lr": (0.01, 0.1)}, seeds=1, at={"tasks": 2})
    (candidates,) = asked.candidates
    assert candidates.reference_runs == []
    for settings, matrix in zip(candidates.combine(), ([[0.5], [0.5, 0.5]], [[0.8], [0.0, 0.6]])):
        make_records(tmp_path, *candidates.runs(settings), matrix)
    (choice,) = Search(asked, tmp_path).choose()
    assert [trial.value for trial in choice.results] == [0.5, 0.7]
    assert choice.chosen == choice.results[1]


(SGD,), (EWC,) = tuning("sgd").candidates, tuning("ewc").candidates
accuracies = st.lists(st.integers(0, 1000).map(lambda thousandths: thousandths / 1000), min_size=1, max_size=6)


@given(accuracies, st.integers(0, 1000))
def test_the_rule_for_sgd(values: list[float], thousandths: int) -> None:
    """The smallest step size within 2 points of adam; if none is, the largest."""
    tried = [TrialResult({"lr": 0.1 * (i + 1)}, "done", value) for i, value in enumerate(values)]
    chosen = Choice(SGD, tried[::-1], "", thousandths / 1000).chosen
    near = [i for i, value in enumerate(values) if round(value * 1000) >= thousandths - 20]
    assert chosen == tried[near[0] if near else -1]


@given(accuracies)
def test_of_equals_the_smallest_is_chosen(values: list[float]) -> None:
    tried = [TrialResult({"strength": float(i)}, "done", value) for i, value in enumerate(values)]
    assert Choice(EWC, tried, "").chosen == tried[values.index(max(values))]


def test_what_has_no_value_is_never_chosen() -> None:
    (candidates,) = tuning("ewc").candidates
    bad = [TrialResult({"strength": 1.0}, "diverged"), TrialResult({"strength": 2.0}, "pruned")]
    assert Choice(candidates, bad, "").chosen is None
    good = TrialResult({"strength": 3.0}, "done", 0.0)
    choice = Choice(candidates, [*bad, good], "study")
    assert choice.chosen == good
    entry = describe_choice(choice, tuning("ewc"))
    assert entry["validation"] == {"3": 0.0}
    assert entry["unfinished"] == {"1": "diverged", "2": "pruned"}


def test_a_choice_at_the_edge_is_said() -> None:
    (candidates,) = tuning("ewc", values={"strength": (1.0, 2.0, 3.0)}).candidates

    def edge(best: float) -> dict[str, str]:
        tried = [TrialResult({"strength": value}, "done", float(value == best)) for value in (1.0, 2.0, 2.5, 3.0)]
        return Choice(candidates, tried, "").at_edge

    assert [edge(best) for best in (1.0, 2.0, 3.0)] == [{"strength": "smallest"}, {}, {"strength": "largest"}]


# What is tuned --------------------------------------------------------------------------------------------


def test_usual_candidates() -> None:
    found = tuning("fsr-logit", "sgd", "adam", "ewc")
    assert {c.method: dict(c.values) for c in found.candidates} == {
        "fsr-logit": {"strength": STRENGTHS["fsr-logit"]},
        "sgd": {"lr": (0.001, 0.003, 0.01, 0.03, 0.1)},
        "ewc": {"strength": STRENGTHS["ewc"]},
    }
    assert found.skipped == ["adam"]
    both = tuning("ewc", "adam", "sgd", fields=("strength", "lr"))
    assert {c.method: list(c.values) for c in both.candidates} == {
        "ewc": ["strength", "lr"],
        "adam": ["lr"],
        "sgd": ["lr"],
    }
    assert both.candidates[1].values["lr"] == (0.0001, 0.0004, 0.0008, 0.0016)
    assert len(both.candidates[0].combine()) == len(STRENGTHS["ewc"]) * 4
    hats = Comparison(benchmark="split-cifar100", methods=("hat", "sgd", "ewc"))
    assert Tuning(comparison=hats).skipped == ["sgd"]  # its step size is that of the protocol
    assert {c.values["lr"] for c in Tuning(comparison=hats, fields=("lr",)).candidates} == {STEP_SIZES["plateau"]}
    with_strength = [name for name in methods.names() if "strength" in methods.method_class(name).__dataclass_fields__]
    assert sorted(with_strength) == sorted(STRENGTHS)


def test_by_default_the_methods_of_a_comparison() -> None:
    found = tuning()
    compared = dict.fromkeys(e.method for e in Comparison(benchmark="permuted-mnist").experiments)
    assert [c.method for c in found.candidates] + found.skipped == [m for m in compared if m != "adam"] + ["adam"]


def test_runs_are_those_of_a_comparison_but_for_what_is_tuned() -> None:
    """So that they are found again, whatever was tuned before."""
    (strength,) = tuning("fsr-logit").candidates
    (both,) = tuning("fsr-logit", fields=("strength", "lr")).candidates
    own = Comparison(benchmark="permuted-mnist", methods=("fsr-logit",)).experiments[0]
    (one, _) = strength.runs({"strength": 0.3})
    assert one == replace(own, seed=100, strength=0.3)
    assert one in both.runs({"strength": 0.3, "lr": 0.0001})  # adam's own step size
    assert one not in both.runs({"strength": 0.3, "lr": 0.0004})
    assert (own.seed, own.lr) == (0, None)


def test_the_study_does_not_depend_on_what_the_table_has_by_now(tmp_path: Path) -> None:
    table = tmp_path / "x.toml"
    table.write_text("[permuted-mnist.demo.ewc]\nstrength = 77\n")
    (one,), (other,) = (tuning("ewc", at={"tuned": path}).candidates for path in (None, table))
    assert one.digest() == other.digest()
    (more_seeds,) = tuning("ewc", seeds=3).candidates
    assert more_seeds.digest() != one.digest()


def test_other_sizes_have_sections_of_their_own() -> None:
    def section(method: str, size: Size) -> tuple[str, ...]:
        (candidates,) = tuning(method, at={"size": size}).candidates
        return candidates.section[2:]

    assert section("fsr-logit", Size(1)) == ("fsr-logit", "at_per_class", "1")
    assert section("fsr-logit", Size(budget="64KB")) == ("fsr-logit", "at_budget", "64000")
    assert section("fsr-logit", Size(10)) == ("fsr-logit",)  # the scale's own
    assert section("ewc", Size(1)) == ("ewc",)  # it keeps no items
    (own,), (other,) = (tuning("ewc", at={"size": size}).candidates for size in (None, Size(1)))
    assert own == other


# By Optuna ------------------------------------------------------------------------------------------------


def curve_of(strength: float) -> float:
    return round(1 / (1 + abs(strength - 0.02)), 4)


def tpe(folder: Path, trials: int, total: int = 6, **settings: Any) -> list[dict[str, Any]]:
    """What is asked when so many trials are run one after the other, at most, of a total."""
    asked = tuning("fsr-logit", sampler="tpe", trials=total, **settings)
    (candidates,) = asked.candidates
    study = Study(candidates, asked, open_journal(folder))
    found = []
    while len(found) < trials:
        trial = next(iter(study.open.values()), None) or study.ask()
        if trial is None:
            break
        found.append(trial.settings)
        study.tell(trial, TrialResult(trial.settings, "done", curve_of(trial.settings["strength"])))
    return found


def test_tpe_samples_beyond_the_candidates_and_goes_on_as_if_not_interrupted(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    whole = tpe(tmp_path / "a", 100, total=12)
    assert len(whole) == 12
    strengths = [settings["strength"] for settings in whole]
    low, high = min(STRENGTHS["fsr-logit"]) / 3, max(STRENGTHS["fsr-logit"]) * 3
    assert all(low <= value <= high for value in strengths)
    assert min(strengths) < 0.01 < max(strengths)  # over the logarithm
    assert len(set(strengths)) == 12
    parts = [tpe(tmp_path / "b", count, total=12) for count in (1, 4, 2, 100)]
    assert [settings for part in parts for settings in part] == whole
    assert len(tpe(tmp_path / "a", 100, total=14)) == 2  # two more


def test_trials_at_once_differ(tmp_path: Path) -> None:
    asked = tuning("ewc", sampler="tpe", trials=20, fields=("strength", "lr"))
    study = Study(asked.candidates[0], asked, open_journal(tmp_path))
    begun = [study.ask() for _ in range(21)]
    assert begun.pop() is None
    assert len({str(trial.settings) for trial in begun if trial}) == 20
    # All of them are taken up again.
    again = Study(asked.candidates[0], asked, open_journal(tmp_path))
    assert again.open == study.open


def test_whole_numbers_names_and_switches(tmp_path: Path) -> None:
    values = {
        "batch_size": (32, 64),
        "over_tasks": ("sum", "mean"),
        "memory_batch": (None, 16),
        "plateau": (True, False),
    }
    for sampler, count in (("grid", 16), ("tpe", 8)):
        asked = tuning("fsr-logit", sampler=sampler, values=values, trials=8 if sampler == "tpe" else None)
        study = Study(asked.candidates[0], asked, open_journal(tmp_path))
        while study.ask():
            pass
        again = Study(asked.candidates[0], asked, open_journal(tmp_path))
        assert len(again.open) == count
        for trial in again.open.values():
            assert isinstance(trial.settings["batch_size"], int)
            assert trial.settings["over_tasks"] in ("sum", "mean")
            assert trial.settings["memory_batch"] in (None, 16)
            assert {type(one.batch_size) for one in trial.runs} == {int}


def grid_study(folder: Path) -> Study:
    asked = tuning("ewc", values={"strength": (1.0, 2.0, 3.0)})
    return Study(asked.candidates[0], asked, open_journal(folder))


def test_a_journal_that_was_cut_anywhere_goes_on(tmp_path: Path) -> None:
    """A kill, or a power cut, leaves some first bytes of what was written, or garbage in place of the last."""
    study = grid_study(tmp_path)
    for value, trial in zip((0.1, 0.3, 0.2), list(study.open.values())):
        study.tell(trial, TrialResult(trial.settings, "done", value))
    whole = (tmp_path / JOURNAL).read_bytes()
    last_line = len(whole.rstrip(b"\n").rpartition(b"\n")[0]) + 1
    cuts = [*range(0, len(whole), 97), *range(last_line - 1, len(whole) + 1, 19)]
    for cut, garbage in zip(cuts, cycle((b"", b"\0" * 40, b'{"op_code": 4, "tri'))):
        (tmp_path / JOURNAL).write_bytes(whole[:cut] + garbage)
        again = grid_study(tmp_path)
        states = [trial.state for trial in again.results(tmp_path)]
        assert len(states) == 3
        assert states.count("unfinished") == len(again.open)
        for trial in list(again.open.values()):
            again.tell(trial, TrialResult(trial.settings, "done", 0.05))
        once_more = grid_study(tmp_path)
        assert [trial.settings["strength"] for trial in once_more.results(tmp_path)] == [1.0, 2.0, 3.0]
        assert not once_more.open
    # All but the last trial survive the loss of the last line.
    (tmp_path / JOURNAL).write_bytes(whole[:-1])
    assert [trial.value for trial in grid_study(tmp_path).results(tmp_path)] == [0.1, 0.3, None]


def test_a_journal_that_is_damaged_in_the_middle_is_said(tmp_path: Path) -> None:
    grid_study(tmp_path)
    lines = (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)
    (tmp_path / JOURNAL).write_bytes(b"".join([lines[0], b"nothing\n", *lines[1:]]))
    with pytest.raises(SelfReminderError, match=r"journal.jsonl is damaged .*remove it; runs that are done stay so"):
        grid_study(tmp_path)


def test_a_journal_of_something_else_is_said(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text('{"op_code": 99}\n')
    with pytest.raises(SelfReminderError, match=r"journal.jsonl is damaged"):
        grid_study(tmp_path)


def test_what_falls_behind_is_pruned(tmp_path: Path) -> None:
    """Averages go down from task to task: what counts is the median of others after the same task."""
    asked = tuning("ewc", prune=True, at={"tasks": 6})
    study = Study(asked.candidates[0], asked, open_journal(tmp_path))
    first, *others = study.open.values()
    assert not study.falls_behind(first, [0.1, 0.1, 0.1, 0.1])  # nothing to be compared with yet
    assert study.count_noted(first) == 4
    for level, trial in zip((0.0, 0.01, 0.02, 0.03), others):
        study.falls_behind(trial, [level + 0.9 - 0.1 * task for task in range(6)])
        study.tell(trial, TrialResult(trial.settings, "done", level + 0.4))
    last = others[4]
    curve = [0.9 - 0.1 * task for task in range(6)]
    assert not study.falls_behind(last, [0.1])  # too early
    assert not study.falls_behind(last, [0.1, 0.1])
    assert not study.falls_behind(last, [0.1, 0.1, curve[2] + 0.02])
    assert study.falls_behind(last, [0.9, 0.9, 0.9, curve[3] + 0.01])
    study.tell(last, TrialResult(last.settings, "pruned"))
    states = [trial.state for trial in study.results(tmp_path)]
    assert states == ["unfinished", "done", "done", "done", "done", "pruned"]


# In workers -----------------------------------------------------------------------------------------------

LONG = Experiment(
    benchmark="permuted-mnist",
    method="adam",
    data="embedded-mnist",
    images=2000,
    tasks=10,
    epochs=4,
    width=0.05,
    per_class=2,
)
SHORT = replace(LONG, images=300, tasks=2, epochs=1)


def children() -> list[int]:
    """Worker processes of this one."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        found += [int(pid) for pid in (task / "children").read_text().split()]
    return [pid for pid in found if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_run_that_nobody_wants_is_left_and_its_worker_goes_on(tmp_path: Path) -> None:
    for seed in (0, 2, 4):  # a run may be done before it hears that nobody wants it
        folder, long, waiting = tmp_path / str(seed), replace(LONG, seed=seed), replace(LONG, seed=seed + 1)
        more = iter([[SHORT], [replace(SHORT, seed=1)]])
        grid = Grid([long, waiting], folder, 1, more=lambda more=more: next(more, []))
        workers = set()
        for job in grid.run():
            workers |= set(children())
            if job is not None and job.experiment == long and job.progress is not None and job.progress.task > 1:
                for each in grid.all[:2]:
                    each.unwanted = True
        if grid.all[0].answer == Left():
            break
    assert len(workers) == 1
    assert [job.answer for job in grid.all] == [Left(), Left(), Done(), Done()]
    assert (folder / long.key / STATE).exists()
    assert not (folder / waiting.key).exists()
    assert read_grid(folder) == [job.experiment for job in grid.all[2:]]
    # What was left goes on as if it had not been.
    run(long, folder / long.key)
    run(long, folder / "whole")
    a, b = ((folder / name / RECORDS).read_bytes() for name in (long.key, "whole"))
    assert a == b


def test_a_trial_that_falls_behind_is_left(tmp_path: Path) -> None:
    at = {"tasks": 6, "epochs": 4, "width": 0.1}
    asked = tuning("adam", values={"lr": (0.1, 0.2, 0.3, 0.4, 1e-6)}, prune=True, seeds=2, at=at)
    (candidates,) = asked.candidates
    *better, behind = candidates.combine()
    for settings in better:
        for one in candidates.runs(settings):
            make_records(tmp_path, one, [[0.99] * (task + 1) for task in range(6)])
    first, _ = candidates.runs(behind)
    make_records(tmp_path, first, [[0.1] * (task + 1) for task in range(3)], done=False)
    search = Search(asked, tmp_path, 2)
    left = [job for job in search.grid.all if job.answer is None]
    assert [job.experiment for job in left] == candidates.runs(behind)
    left[0].progress = Progress(task=4, tasks=6, epoch=1, epochs=4, average=0.1, fraction=0.5)
    search.take(left[0])
    assert all(job.unwanted for job in left)
    (choice,) = search.choose()
    assert [trial.state for trial in choice.results] == ["done"] * 4 + ["pruned"]
    # Started again, what is done counts as done, and what was pruned is not left to be done.
    again = Search(asked, tmp_path, 2)
    finish(again)
    assert [job.answer for job in again.grid.all] == [Done()] * 8
    found = status(tmp_path)
    assert (found.count("done"), len(found.runs), found.others) == (8, 8, 1)


def test_status_knows_of_trials_to_come(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = tuning("ewc", sampler="tpe", trials=3, seeds=2, at={"tasks": 1})
    search = Search(asked, tmp_path, 1)
    first = search.grid.all[0].experiment
    make_records(tmp_path, first, [[0.5]])
    (tmp_path / first.key / TIMINGS).write_text('{"task": 0, "epoch": 0, "seconds": 10.0, "done": 1.0}\n')
    news = search.grid.run()
    with closing(news):
        next(news)
    assert main(["status", str(tmp_path)]) == 0
    line = "1 of 2 runs done, 0 running, 0 failed, 1 left, about 4 to come; 0:50 of work left"
    assert line in capsys.readouterr().out


def test_what_diverges_is_as_bad_as_can_be(tmp_path: Path) -> None:
    at = {"tasks": 1, "epochs": 1, "width": 0.05}
    asked = tuning("adam", values={"lr": (0.001, 1e30)}, seeds=1, at=at)
    search = finish(Search(asked, tmp_path, 1))
    assert search.is_complete
    (choice,) = search.choose()
    assert [trial.state for trial in choice.results] == ["done", "diverged"]
    assert choice.chosen == choice.results[0]
    assert describe_choice(choice, asked)["unfinished"] == {"1e+30": "diverged"}


def test_a_defect_leaves_a_trial_for_later(tmp_path: Path) -> None:
    asked = tuning("adam", values={"lr": (0.001,)}, seeds=1, at={"tasks": 1})
    search = Search(asked, tmp_path, 1)
    (job,) = search.grid.all
    job.answer = Failed("ZeroDivisionError", "error")
    assert search.take(job) == []
    assert not search.is_complete
    assert search.choose()[0].chosen is None
    job.answer = Failed("too large", "mistake")
    with pytest.raises(SelfReminderError, match="too large"):
        search.take(job)


# Tables ---------------------------------------------------------------------------------------------------


def test_a_table_goes_before_the_one_that_comes_with_selfreminder(tmp_path: Path) -> None:
    table = tmp_path / "x.toml"
    table.write_text(
        "[permuted-mnist.small.ewc]\nstrength = 7\nlr = 0.002\nvalidation = {}\n"
        "[permuted-mnist.small.icarl.at_per_class.1]\nstrength = 8\nvalidation = {}\n"
        "[mixture.demo.icarl]\nstrength = 3\nvalidation = {}\nwhere = { tasks = 3, epochs = 2 }\n"
        '[split-cifar10.small.fsr-logit.at_per_task.9]\nstrength = 9\nmemory_batch = "none"\nvalidation = {}\n'
    )

    def chosen(method: str, size: Size | None = None, benchmark: str = "permuted-mnist") -> dict[str, Any]:
        return find_tuned(benchmark, "small", method, size, table)

    assert chosen("ewc") == {"strength": 7, "lr": 0.002}
    assert chosen("fsr-logit") == find_tuned("permuted-mnist", "small", "fsr-logit")
    assert (
        chosen("fsr-logit", Size(1))
        == find_tuned("permuted-mnist", "small", "fsr-logit", Size(1))
        != chosen("fsr-logit")
    )
    assert chosen("icarl", Size(1))["strength"] == 8
    assert chosen("icarl", Size(77)) == chosen("icarl") == find_tuned("permuted-mnist", "small", "icarl")
    assert chosen("fsr-logit", Size(per_task=9), "split-cifar10") == {"strength": 9, "memory_batch": None}
    assert describe_untuned("split-cifar10", "small", "fsr-logit", Size(per_task=9), table) is None
    assert describe_untuned("mixture", "demo", "fsr-logit", None, table) == "fsr-logit: defaults"
    assert describe_untuned("mixture", "demo", "icarl", None, table) == "icarl: what was chosen with 3 tasks, 2 epochs"

    (run,) = Comparison(benchmark="permuted-mnist", scale="small", methods=("ewc",), seeds=1, tuned=table).experiments
    assert (run.strength, run.lr) == (7, 0.002)
    spec = tmp_path / "spec.toml"
    spec.write_text('benchmark = "permuted-mnist"\nscale = "small"\nmethod = "ewc"\nseeds = 1\n')
    assert read_sweep(spec, tuned=table).experiments == [run]
    spec.write_text('benchmark = "permuted-mnist"\nmethod = "ewc"\n')
    with pytest.raises(SelfReminderError, match="it names no scale"):
        read_sweep(spec, tuned=table)


def test_all_that_is_a_methods_own_comes_from_a_table(tmp_path: Path) -> None:
    table = tmp_path / "x.toml"
    table.write_text(
        '[permuted-mnist.demo.adam]\nlr = 0.1\nweight_decay = 0.0\nbatch_size = 7\noptimizer = "sgd"\nplateau = true\n'
    )
    with_table, without = (
        Comparison(benchmark="permuted-mnist", methods=("adam",), seeds=1, tuned=path) for path in (table, None)
    )
    (one,), (other,) = with_table.experiments, without.experiments
    assert one == replace(other, lr=0.1, weight_decay=0.0, batch_size=7, optimizer="sgd", plateau=True)
    assert with_table.identity == without.identity  # they may share a folder


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[permuted-mnist", "x.toml is no TOML"),
        ("[permutted-mnist.demo.ewc]", "x.toml: unknown benchmark 'permutted-mnist': did you mean 'permuted-mnist'"),
        ("[permuted-mnist.dmo.ewc]", r"x.toml: \[permuted-mnist\]: unknown scale 'dmo': did you mean 'demo'"),
        ("[permuted-mnist.demo.ewx]", r"x.toml: \[permuted-mnist.demo\]: unknown method 'ewx': did you mean 'ewc'"),
        ("[permuted-mnist.demo.ewc]\nstrenght = 1", r"\[permuted-mnist.demo.ewc\]: unknown field 'strenght': did you"),
        ("[permuted-mnist.demo.ewc]\nstrength = 'x'", r'\[permuted-mnist.demo.ewc\]: strength is "x": it must be a'),
        ("[permuted-mnist.demo.ewc]\nepochs = 3", "unknown field 'epochs'"),
        (
            "[permuted-mnist.demo.ewc.at_per_class.1]\nlr = true",
            r"ewc.at_per_class.1\]: lr is true: it must be a number",
        ),
        ("[default.ewx]", r"x.toml: \[default\]: unknown method 'ewx'"),
        ("[permuted-mnist.demo]\newc = 3", r"\[permuted-mnist.demo\] must hold tables"),
        ("permuted-mnist = 3", r"\[permuted-mnist\] must hold tables"),
    ],
)
def test_mistakes_in_a_table(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(SelfReminderError, match=message):
        read_table(tmp_path / "x.toml")


def test_a_table_that_changes_is_read_again(tmp_path: Path) -> None:
    table = tmp_path / "x.toml"
    for strength in (1, 22, 333):
        table.write_text(f"[permuted-mnist.demo.ewc]\nstrength = {strength}\n")
        assert find_tuned("permuted-mnist", "demo", "ewc", table=table) == {"strength": strength}


numbers = st.floats(1e-6, 1e6).map(lambda value: float(f"{value:.3g}"))
entries = st.fixed_dictionaries(
    {"strength": numbers, "validation": st.dictionaries(numbers.map(str), numbers, max_size=3)},
    optional={
        "lr": numbers,
        "by": st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=9),
        "seeds": st.just([100, 101]),
        "unfinished": st.just({"strength 3 lr 1": "pruned"}),
        "where": st.just({"tasks": 3}),
    },
)
lists = st.just({"strength": 1.0, "lr": 0.1, "validation": [{"strength": 1.0, "lr": 0.1, "validation": 0.5}] * 2})
places = st.tuples(
    st.sampled_from(benchmarks.names()),
    st.sampled_from(["demo", "small", "paper"]),
    st.sampled_from(methods.names()),
    st.sampled_from([None, Size(1), Size(7), Size(per_task=100), Size(budget="64KB")]),
)


@with_settings(max_examples=40)
@given(st.lists(st.tuples(places, st.one_of(entries, lists)), min_size=1, max_size=4))
def test_a_section_takes_the_place_of_its_like_and_nothing_else(changes: list[tuple[Any, dict[str, Any]]]) -> None:
    """Put into the committed table: all other values and all comments stay, and again it changes nothing."""
    text = TUNED.read_text(encoding="utf-8")
    expected = tomllib.loads(text)
    for (benchmark, scale, method, size), entry in changes:
        keys = locate_section(benchmark, scale, method, size)
        text = with_section(text, keys, entry)
        place = expected
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        of_sizes = {k: v for k, v in place.get(keys[-1], {}).items() if k.startswith("at_")}
        place[keys[-1]] = entry | of_sizes
        assert tomllib.loads(text) == expected
        assert with_section(text, keys, entry) == text
    comments = [line for line in TUNED.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert [line for line in text.splitlines() if line.startswith("#")] == comments


def test_comments_and_order_stay(tmp_path: Path) -> None:
    table = tmp_path / "x.toml"
    table.write_text(
        "# the first\n\n[permuted-mnist.demo.ewc]  # of ewc\nstrength = 1\n# within ewc\nlr = 1.0\n\n# of icarl\n"
        "[permuted-mnist.demo.icarl]\nstrength = 2 # two\n\n[mixture.demo]\n# of two\nhat = { strength = 3 }\n"
        "sgd = { lr = 4.0 }\n# the last\n"
    )
    ewc, hat, logit = (("permuted-mnist", "demo", "ewc"), ("mixture", "demo", "hat"), ("mixture", "paper", "fsr-logit"))
    write_sections(table, {ewc: {"strength": 9.0}, hat: {"strength": 8.0}, logit: {"strength": 7.0}})
    assert table.read_text() == (
        "# the first\n\n[permuted-mnist.demo.ewc]\nstrength = 9.0\n\n# of icarl\n"
        "[permuted-mnist.demo.icarl]\nstrength = 2 # two\n\n[mixture.demo]\n# of two\n"
        "sgd = { lr = 4.0 }\n# the last\n\n[mixture.demo.hat]\nstrength = 8.0\n"
        "\n[mixture.paper.fsr-logit]\nstrength = 7.0\n"
    )
    read_table(table)


def test_the_committed_table_goes_through_the_editor_unchanged() -> None:
    text = TUNED.read_text(encoding="utf-8")
    assert tomlkit.dumps(tomlkit.parse(text)) == text


def test_a_new_section_does_not_come_between_a_comment_and_what_it_is_on() -> None:
    text = "[mixture.demo.ewc]\nstrength = 1\n\n# of another\n[permuted-mnist.demo.icarl]\nstrength = 2\n"
    assert with_section(text, ("mixture", "demo", "lwf"), {"strength": 3.0}) == (
        "[mixture.demo.ewc]\nstrength = 1\n\n[mixture.demo.lwf]\nstrength = 3.0\n"
        "\n# of another\n[permuted-mnist.demo.icarl]\nstrength = 2\n"
    )


def test_a_section_after_those_of_its_sizes() -> None:
    """Tables may have them in that order; where a method's own section is new, it goes before them."""
    of_size, own = "[mixture.demo.icarl.at_per_class.1]\nstrength = 1\n", "[mixture.demo.icarl]\nstrength = {}\n"
    keys, entry = ("mixture", "demo", "icarl"), {"strength": 3.0}
    assert with_section(f"{of_size}\n{own.format(2)}", keys, entry) == f"{of_size}\n{own.format(3.0)}"
    assert with_section(f"# a\n\n{of_size}", keys, entry) == f"# a\n\n{own.format(3.0)}\n{of_size}"


def test_a_form_that_cannot_be_replaced_is_left_alone(tmp_path: Path) -> None:
    table = tmp_path / "x.toml"
    text = "[permuted-mnist]\ndemo.ewc.strength = 1\n"
    table.write_text(text)
    with pytest.raises(
        SelfReminderError, match=r"\[permuted-mnist.demo.ewc\] in a form of its own: take it out by hand"
    ):
        write_sections(table, {("permuted-mnist", "demo", "ewc"): {"strength": 2.0}})
    assert table.read_text() == text


# Figures --------------------------------------------------------------------------------------------------


def choice_of(tried: list[TrialResult], values: dict[str, tuple[Any, ...]], method: str = "ewc") -> Choice:
    (candidates,) = tuning(method, values=values).candidates
    return Choice(candidates, tried, "study", 0.8 if candidates.reference else None)


@pytest.mark.parametrize("kind", ["curve", "lines", "cloud", "names", "zero", "sgd", "one"])
def test_figures(tmp_path: Path, kind: str) -> None:
    if kind == "curve":
        tried = [TrialResult({"strength": 10.0**i}, "done", 0.5 + i / 10, (0.4, 0.6)) for i in range(3)]
        tried += [TrialResult({"strength": 1e3}, "diverged"), TrialResult({"strength": 1e4}, "pruned")]
        choice = choice_of(tried, {"strength": tuple(10.0**i for i in range(5))})
    elif kind == "names":
        tried = [TrialResult({"over_tasks": name}, "done", 0.5) for name in ("sum", "mean")]
        choice = choice_of(tried, {"over_tasks": ("sum", "mean")}, "fsr-logit")
    elif kind == "zero":
        choice = choice_of([TrialResult({"strength": i}, "done", 0.5) for i in (0.0, 1.0)], {"strength": (0.0, 1.0)})
    elif kind == "one":
        choice = choice_of([TrialResult({"lr": 3.9e-5}, "done", 0.1, (0.1,))], {"lr": (1e-4, 1e-3)}, "adam")
    elif kind == "sgd":
        choice = choice_of([TrialResult({"lr": i}, "done", i) for i in (0.1, 1.0)], {"lr": (0.1, 1.0)}, "sgd")
    else:
        lrs = (0.1, 0.2) if kind == "lines" else tuple(0.01 * i for i in range(1, 13))
        tried = [TrialResult({"strength": 1.0 + i % 4, "lr": lrs[i % len(lrs)]}, "done", i / 12) for i in range(12)]
        choice = choice_of(tried, {"strength": (1.0, 2.0, 3.0, 4.0), "lr": lrs})
    for name in ("a", "b"):
        png, svg = draw_tuning(choice, "title", tmp_path / name)
        assert png.read_bytes()[:4] == b"\x89PNG"
        assert b"<svg" in svg.read_bytes()
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_title_does_not_run_over_the_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    monkeypatch.setattr("selfreminder.report.figures.save", lambda figure, _: kept.append(figure) or [])
    choice = choice_of([TrialResult({"strength": 1.0}, "done", 0.5)], {"strength": (1.0,)})
    long = "fsr-logitlab on nonlinear-mnist (embedded-mnist), scale small, memory of 10 per class and some more words"
    draw_tuning(choice, f"{long}\nall tasks at the end; one seed", tmp_path / "x")
    (figure,) = kept
    assert figure.get_suptitle().endswith("\nall tasks at the end; one seed")
    figure.draw_without_rendering()
    of_title, of_all = figure._suptitle.get_window_extent(), figure.bbox
    assert of_all.x0 <= of_title.x0 < of_title.x1 <= of_all.x1


def test_no_figure_of_nothing(tmp_path: Path) -> None:
    assert draw_tuning(choice_of([], {"strength": (1.0,)}), "title", tmp_path / "x") == []


# The command ----------------------------------------------------------------------------------------------


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.glob(f"*/{RECORDS}")}


def test_tune(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", *TINY, "--methods", "fsr-logit,adam", "--values", "strength=0.1,1000"]
    command += ["--per-class", "1", "--jobs", "1"]
    (in_folder / "mine.toml").write_text("# mine\n[permuted-mnist.demo.fsr-logit]\nstrength = 5\n")
    assert main([*command, "--into", "mine.toml"]) == 0
    captured = capsys.readouterr()
    assert "nothing to tune for adam" in captured.err
    assert "fsr-logit strength 0.1: validation 0." in captured.err
    assert "is the smallest candidate" in captured.out or "is the largest candidate" in captured.out
    (folder,) = (in_folder / "runs").iterdir()
    assert folder.name == "tune-permuted-mnist-demo-1-per-class-tasks-2-epochs-1-width-0.06"
    before = times(folder)
    assert len(before) == 4
    entry = tomllib.loads((folder / "tuned.toml").read_text())["permuted-mnist"]["demo"]["fsr-logit"]
    entry = entry["at_per_class"]["1"]
    assert entry["seeds"] == [100, 101]
    assert entry["where"] == {"tasks": 2, "epochs": 1, "width": 0.06}
    assert entry["command"].endswith("--per-class 1 --tasks 2 --epochs 1 --width 0.06 --values strength=0.1,1000")
    assert max(entry["validation"], key=lambda name: entry["validation"][name]) == f"{entry['strength']:g}"
    values = {f"{records.experiment.strength:g}": [] for path in before if (records := read_records(path.parent))}
    for path in before:
        records = read_records(path.parent)
        assert records is not None
        values[f"{records.experiment.strength:g}"].append(sum(records.validation[-1]) / 2)
    assert entry["validation"] == {name: round(sum(found) / 2, 4) for name, found in values.items()}
    assert (folder / "fsr-logit-strength.png").exists()
    mine = (in_folder / "mine.toml").read_text()
    assert mine.startswith("# mine\n[permuted-mnist.demo.fsr-logit]\nstrength = 5\n")
    assert tomllib.loads(mine)["permuted-mnist"]["demo"]["fsr-logit"]["at_per_class"]["1"] == entry

    assert main([*command, "--into", "new.toml"]) == 0
    assert (in_folder / "new.toml").read_text() == (folder / "tuned.toml").read_text()
    assert times(folder) == before
    capsys.readouterr()

    # Again, with one more candidate: what was run is not run again.
    assert main([*command, "--values", "strength=3", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    (result,) = answer["results"]
    assert [trial["settings"] for trial in result["trials"]] == [{"strength": s} for s in (0.1, 3.0, 1000.0)]
    assert result["validation"]["stderr"] is not None
    after = times(folder)
    assert len(after) == 6
    assert after.items() >= before.items()

    # A comparison takes what was chosen.
    at = {"methods": ("fsr-logit",), "size": Size(1), "tuned": folder / "tuned.toml"}
    compared = Comparison(benchmark="permuted-mnist", **at)
    assert compared.experiments[0].strength == result["chosen"]["strength"]
    assert compared.untuned == []


def test_tpe_by_command(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", *TINY, "-m", "ewc,adam", "--fields", "strength,lr", "--sampler", "tpe", "--seeds", "1"]
    command += ["--jobs", "1", "--out", "x", "--json"]
    found: dict[Path, int] = {}
    for trials in (1, 3):
        assert main([*command, "--trials", str(trials)]) == 0
        ewc, adam = json.loads(capsys.readouterr().out)["results"]
        assert [len(result["trials"]) for result in (ewc, adam)] == [trials, trials]
        assert (ewc["chosen"].keys(), adam["chosen"].keys()) == ({"strength", "lr"}, {"lr"})
        assert times(in_folder / "x").items() >= found.items()
        found = times(in_folder / "x")
        assert len(found) == 2 * trials
    entry = tomllib.loads((in_folder / "x/tuned.toml").read_text())["permuted-mnist"]["demo"]["ewc"]
    assert [set(trial) for trial in entry["validation"]] == [{"strength", "lr", "validation"}] * 3


def test_tunings_at_once_put_all_they_chose_into_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(text: str, keys: Any, entry: Any, name: str) -> str:
        time.sleep(0.05)  # between reading and writing
        return with_section(text, keys, entry, name)

    monkeypatch.setattr("selfreminder.experiment.tuning.tuned.with_section", slowly)
    table, names = tmp_path / "t.toml", ["ewc", "lwf", "icarl", "fsr-logit"]

    def put(name: str) -> None:
        write_sections(table, {("default", name): {"strength": 1.0}})

    with ThreadPoolExecutor(len(names)) as pool:  # each opens the lock by itself, as processes do
        list(pool.map(put, names))
    assert sorted(read_table(table)["default"]) == sorted(names)


def test_what_is_a_comparisons_own_is_not_written(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", "permuted-mnist", "-m", "adam", "--values", "epochs=1,2", "--seeds", "1", "--out", "x"]
    (candidates,) = tuning("adam", values={"epochs": (1, 2)}, seeds=1).candidates
    for settings in candidates.combine():
        make_records(in_folder / "x", *candidates.runs(settings), [[0.5] * (task + 1) for task in range(10)])
    (in_folder / "mine.toml").write_text("")
    assert main([*command, "--into", "mine.toml"]) == 2
    assert "a table has no place for all of these fields" in capsys.readouterr().err
    assert main(command) == 0
    assert "nothing was written to a table" in capsys.readouterr().out
    assert not (in_folder / "x/tuned.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["permuted-mnits"], "did you mean 'permuted-mnist'"),
        (["permuted-mnist", "--scale", "smal"], "did you mean 'small'"),
        (["permuted-mnist", "--methods", "ewx"], "did you mean 'ewc'"),
        (["permuted-mnist", "--methods", "adam"], "there is nothing to tune for adam"),
        (["permuted-mnist", "--fields", "strenght"], "did you mean 'strength'"),
        (["permuted-mnist", "--fields", "seed"], "unknown field 'seed'"),
        (["permuted-mnist", "--fields", "lr", "--values", "strength=1"], "values of strength, but the fields are lr"),
        (["permuted-mnist", "--fields", "weight_decay"], "weight_decay has no usual candidates: give some, --values"),
        (["permuted-mnist", "--values", "strength"], "--values strength: write a field and its candidates"),
        (["permuted-mnist", "--values", "strength=1,x"], '--values strength=1,x: strength is "x"'),
        (["permuted-mnist", "--values", "lr=0.1,-1"], "lr is -1.0: it must be above 0"),
        (["permuted-mnist", "--sampler", "gird"], "did you mean 'grid'"),
        (["permuted-mnist", "--trials", "5"], "trials are for --sampler tpe"),
        (["permuted-mnist", "--sampler", "tpe", "--trials", "0"], "trials is 0"),
        (["permuted-mnist", "--seeds", "0"], "seeds is 0"),
        (["permuted-mnist", "--jobs", "0"], "jobs is 0"),
        (["permuted-mnist", "--into", "nowhere/mine.toml"], "nowhere is no folder"),
        (["permuted-mnist", "--tuned", "nowhere.toml"], "nowhere.toml: No such file"),
        (["permuted-mnist", "--out", "mine"], "mine exists and holds no tuning"),
        (["permuted-mnist", "--tasks", "0"], "tasks is 0"),
    ],
)
def test_mistakes(in_folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    (in_folder / "mine").mkdir()
    (in_folder / "mine" / "thesis.tex").write_text("years of work")
    assert main(["tune", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.strip().splitlines()
    assert message in line
    assert not (in_folder / "runs").exists()
    assert [path.name for path in (in_folder / "mine").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("command", ["compare permuted-mnist", "run spec.toml"])
def test_other_commands_read_tables(in_folder: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    (in_folder / "spec.toml").write_text('benchmark = "permuted-mnist"\nscale = "demo"\n')
    (in_folder / "x.toml").write_text("[permuted-mnist.demo.ewc]\nstrenght = 3\n")
    assert main([*command.split(), "--tuned", "x.toml"]) == 2
    assert "x.toml: [permuted-mnist.demo.ewc]: unknown field 'strenght'" in capsys.readouterr().err


def test_a_method_that_does_not_apply(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", *TINY, "--methods", "ewc,hat", "--jobs", "1"]) == 2
    assert "hat does not apply here" in capsys.readouterr().err
    assert not list(in_folder.glob(f"runs/*/*/{RECORDS}"))


def test_folders(tmp_path: Path) -> None:
    """Runs of anybody may be in it; a comparison, or another tuning at the same time, may not."""
    with (
        claimed(tmp_path / "new"),
        pytest.raises(SelfReminderError, match="another process"),
        claimed(tmp_path / "new"),
    ):
        pass
    (candidates,) = tuning("ewc").candidates
    make_records(tmp_path / "runs", candidates.base, [[0.5]])
    with claimed(tmp_path / "runs"):
        pass
    (tmp_path / "runs" / "comparison.json").write_text("{}")
    with pytest.raises(SelfReminderError, match="holds a comparison"), claimed(tmp_path / "runs"):
        pass


def test_without_optuna(in_folder: Path) -> None:
    code = "import sys; sys.modules['optuna'] = None\nfrom selfreminder.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "tune", "permuted-mnist"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "selfreminder: tuning needs Optuna: pip install 'selfreminder[tune]'\n"
    assert not (in_folder / "runs").exists()
    subprocess.run([*command, "--help"], capture_output=True, check=True)


def test_optuna_is_for_tuning_alone() -> None:
    code = "import sys, selfreminder.cli.tune, selfreminder.cli.compare; print({'optuna', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.slow
def test_killed_and_interrupted_it_goes_on(in_folder: Path) -> None:
    """kill -9 and Ctrl-C in the middle: no trial that was told is lost, no run is made twice, the table is the same."""
    command = [sys.executable, "-m", "selfreminder", "tune", "permuted-mnist", "--methods", "fsr-logit", "--out"]
    at = ["--tasks", "2", "--epochs", "3", "--width", "0.1", "--jobs", "1"]
    more = ["--values", "strength=0.01,0.03,0.1,0.3,1,3,10,30", *at]
    folder, done = in_folder / "x", 0
    for number in (signal.SIGKILL, signal.SIGINT, signal.SIGKILL):
        process = subprocess.Popen([*command, "x", *more], stderr=subprocess.PIPE, text=True)
        while len(told(folder)) <= done:
            assert process.poll() is None
            time.sleep(0.02)
        time.sleep(0.7)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        if number == signal.SIGINT:
            assert process.returncode == 130, errors
            assert "To go on: selfreminder tune permuted-mnist --methods fsr-logit --out x" in errors
        assert len(told(folder)) > done
        done = len(told(folder))
        with (folder / JOURNAL).open("ab") as journal:  # a power cut in the middle of a write
            journal.write(b'{"op_code": 6, "worker')
    before, finished = times(folder), [p for p in folder.glob(f"*/{RECORDS}") if '"done"' in p.read_text()]
    assert len(finished) >= 2 * done
    subprocess.run([*command, "x", *more], check=True, capture_output=True)
    after = times(folder)
    assert all(before[path] == after[path] for path in finished)
    subprocess.run([*command, "y", *more], check=True, capture_output=True)
    assert (folder / "tuned.toml").read_text() == (in_folder / "y" / "tuned.toml").read_text()
    for path in after:
        assert path.read_bytes() == (in_folder / "y" / path.relative_to(folder)).read_bytes()
    assert len(told(folder)) == 8


def told(folder: Path) -> list[int]:
    """Numbers of the trials that the journal has as complete."""
    found = []
    for line in (folder / JOURNAL).read_bytes().splitlines() if (folder / JOURNAL).exists() else []:
        try:
            log = json.loads(line)
        except ValueError:
            continue
        if log.get("state") == optuna.trial.TrialState.COMPLETE.value:
            found.append(log["trial_id"])
    return found
