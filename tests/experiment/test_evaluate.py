"""Which tasks are evaluated after each: all, the newest, or a sample; what was not evaluated is never made up."""

import gc
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from selfreminder import records
from selfreminder.cli import main
from selfreminder.experiment.evaluation import list_evaluated
from selfreminder.experiment.pool.process import Progress
from selfreminder.experiment.records import RECORDS, pack_records, read_packed
from selfreminder.experiment.run import run
from selfreminder.experiment.spec import Experiment
from selfreminder.metrics import backward_transfer, first_task, forgetting, rho, task_average
from selfreminder.report.results import group_runs
from selfreminder.training import StoppedError
from tiny import TINY

LONG = replace(TINY, images=60, tasks=13, epochs=1, width=0.02)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("all")
    run(LONG, folder)
    return folder


def test_fields_and_keys_of_earlier_experiments_stay(whole: Path) -> None:
    assert LONG.evaluate == "all" and "evaluate" not in LONG.as_recorded()
    assert LONG.key != replace(LONG, evaluate="newest").key
    assert Experiment(benchmark="permuted-mnist", method="adam").key == "adam-seed0-005a2b50e6"
    assert b'"on"' not in (whole / RECORDS).read_bytes()


def test_which_tasks() -> None:
    sample, newest = (replace(LONG, tasks=500, evaluate=each) for each in ("sample", "newest"))
    assert list_evaluated(sample, 9) == list(range(10))
    drawn = list_evaluated(sample, 300)
    assert len(drawn) == 10 and drawn[0] == 0 and drawn[-1] == 300 and drawn == sorted({*drawn})
    assert drawn == list_evaluated(replace(sample, method="ewc"), 300) != list_evaluated(replace(sample, seed=1), 300)
    assert list_evaluated(newest, 300) == [300]


@pytest.mark.parametrize("evaluate", ["newest", "sample"])
@pytest.mark.parametrize("kept", [0, 2**30])
def test_what_is_evaluated_is_what_it_is_with_all(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, evaluate: str, kept: int
) -> None:
    """Whether the data of old tasks is kept or made anew; stopped on the way, the records are the same bytes."""
    monkeypatch.setattr("selfreminder.experiment.evaluation.MOST_KEPT", kept)
    experiment = replace(LONG, evaluate=evaluate)
    found = run(experiment, tmp_path / "one")
    count = iter(range(1000))
    with pytest.raises(StoppedError):
        run(experiment, tmp_path / "two", stop=lambda: next(count) == 30)
    run(experiment, tmp_path / "two")
    assert (tmp_path / "two" / RECORDS).read_bytes() == (tmp_path / "one" / RECORDS).read_bytes()
    rows = {(row["after_task"], row["on_task"]): row for row in records(whole)}
    some = records(tmp_path / "one")
    assert [(row["after_task"], row["on_task"]) for row in some] == [
        (task, on) for task in range(13) for on in list_evaluated(experiment, task)
    ]
    for row in some:
        other = rows[row["after_task"], row["on_task"]]
        assert [row[name] for name in ("accuracy", "validation", "flips", "chance", "bytes")] == [
            other[name] for name in ("accuracy", "validation", "flips", "chance", "bytes")
        ]
    assert all(
        math.isnan(value) == (on not in list_evaluated(experiment, 12)) for on, value in enumerate(found.test[12])
    )


def test_packed(tmp_path: Path) -> None:
    experiment = replace(LONG, evaluate="sample")
    found = run(experiment, tmp_path / experiment.key)
    pack_records(tmp_path)
    assert read_packed(tmp_path)[experiment.key].tasks == found.tasks


def test_measures_of_what_was_evaluated() -> None:
    n = math.nan
    matrix = [[0.9], [n, 0.7], [0.5, n, 0.9]]
    assert task_average(matrix) == [0.9, 0.7, 0.7]
    assert first_task(matrix)[::2] == [0.9, 0.5] and math.isnan(first_task(matrix)[1])
    assert forgetting(matrix) == pytest.approx(0.4) and backward_transfer(matrix) == pytest.approx(-0.4)
    newest = [[0.9], [n, 0.7]]
    assert forgetting(newest) is None and backward_transfer(newest) is None
    assert rho(newest, joint=[[1.0], [n, 0.9]], chance=[0.5, 0.5]) == pytest.approx([-0.2, -0.5])


def test_results_say_none_where_nothing_was_evaluated(tmp_path: Path) -> None:
    (result,) = group_runs([run(replace(LONG, evaluate="newest"), tmp_path)])
    assert result.first_task is None and result.forgetting is None and result.negative_flips is None
    assert result.first_curve[0] is not None and result.first_curve[1:] == [None] * 12
    assert "NaN" not in json.dumps(result.as_dict())


@pytest.mark.slow
@pytest.mark.parametrize("evaluate", ["newest", "sample"])
def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], evaluate: str) -> None:
    out = tmp_path / "x"
    command = [
        "compare",
        "permuted-mnist",
        "--methods",
        "adam,sgd",
        "--tasks",
        "12",
        "--epochs",
        "1",
        "--width",
        "0.02",
    ]
    command += ["--seeds", "2", "--jobs", "1", "--out", str(out)]
    assert main([*command, "--evaluate", evaluate]) == 0
    printed = capsys.readouterr().out
    said = {"newest": "Only the newest task was evaluated", "sample": "the first, the newest and eight others"}[
        evaluate
    ]
    assert said in printed
    text = (out / "results.json").read_text()
    summary = json.loads(text)
    assert summary["evaluate"] == evaluate and "NaN" not in text
    assert (summary["results"][0]["first_task"] is None) == (evaluate == "newest")
    assert main(["report", str(out)]) == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    assert said in page and "nan" not in page.split("<style")[0]
    assert main(["status", str(out)]) == 0
    capsys.readouterr()
    assert main(command) == 2
    assert "holds another experiment, of other evaluate" in capsys.readouterr().err


def test_a_name_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "permuted-mnist", "--evaluate", "some"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_long_stream_keeps_nothing_of_its_tasks(tmp_path: Path) -> None:
    """But for what the method remembers: tensors grow by less than .1 MB a task, whatever the task's own size."""
    kept: dict[int, int] = {}

    def count(progress: Progress) -> None:
        if progress.fraction in (20 / 60, 1.0):
            tensors = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in _tensors()}
            kept[progress.task] = sum(tensors.values())

    run(replace(LONG, images=400, tasks=60, evaluate="newest"), tmp_path, watch=count)
    assert (kept[60] - kept[20]) / 40 < 100_000


def _tensors() -> list[torch.Tensor]:
    gc.collect()
    return [each for each in gc.get_objects() if type(each) is torch.Tensor]
