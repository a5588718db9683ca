from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreminder._base.errors import SelfReminderError
from selfreminder.cli import main
from selfreminder.experiment.folder import read_grid
from selfreminder.experiment.pool.grid import Grid
from selfreminder.experiment.pool.process import Done, Failed, Left, Progress
from selfreminder.experiment.records import RECORDS, STATE, TIMINGS
from selfreminder.experiment.run import run
from selfreminder.experiment.status import read_status
from selfreminder.experiment.tuning.search import Choice, Search, describe_choice
from selfreminder.experiment.tuning.study import Study, TrialResult, open_journal
from tiny import TINY
from tunings import make_records, tuning


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


def finish(search: Search) -> Search:
    for job in search.grid.run():
        search.take(job)
    return search


LONG = replace(TINY, images=2000, tasks=10, epochs=4)
SHORT = replace(TINY, epochs=1)


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
    found = read_status(tmp_path)
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
