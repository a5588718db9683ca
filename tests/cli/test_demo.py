"""What a newcomer sees, end to end."""

import json
from pathlib import Path

import pytest

from selfreminder import benchmarks, methods
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import Size
from selfreminder.benchmarks import HEAD_PER_TASK_METHODS, ONE_HEAD_METHODS
from selfreminder.cli import main
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.run import run

pytestmark = pytest.mark.slow


def test_demo_shows_forgetting_and_remembering(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`make demo`, one seed: fsr-logit with 10 images per class is far above fine-tuning after 10 tasks."""
    arguments = ["--seeds", "1", "--methods", "adam,fsr-logit", "--json", "--out", str(tmp_path / "demo")]
    assert main(["compare", "permuted-mnist", "--scale", "demo", *arguments]) == 0
    adam, logit = json.loads(capsys.readouterr().out)["results"]
    assert logit["task_average"]["mean"] > adam["task_average"]["mean"] + 0.25
    assert logit["forgetting"]["mean"] < 0.1 < adam["forgetting"]["mean"]
    assert logit["bytes"] == 10 * 100 * 839


PAPERS = {*ONE_HEAD_METHODS, *HEAD_PER_TASK_METHODS, "joint", "generative-replay"}
"""methods whose strengths were chosen for the paper's benchmarks"""
DOES_NOT_APPLY = {
    "permuted-mnist": {"hat"},
    "nonlinear-mnist": {"hat"},
    "color-cifar10": {"hat", "generative-replay"},
    "split-cifar100": {"generative-replay"},
    "split-cifar10": {"generative-replay"},
    "split-mnist": {"generative-replay"},
    "mixture": {"generative-replay"},
}


@pytest.mark.parametrize("benchmark", DOES_NOT_APPLY)
def test_the_papers_methods_on_its_benchmarks(
    benchmark: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All methods that apply run to the end; those that do not say so before any training."""
    names = sorted(PAPERS - DOES_NOT_APPLY[benchmark])
    few = ["--seeds", "1", "--tasks", "3"] if "mnist" in benchmark and "split" not in benchmark else ["--seeds", "1"]
    out = ["--json", "--out", str(tmp_path / "all")]
    assert main(["compare", benchmark, *few, "--methods", ",".join(names), *out]) == 0
    results = {row["method"]: row for row in json.loads(capsys.readouterr().out)["results"]}
    assert results.keys() == set(names)
    average = {name: row["task_average"]["mean"] for name, row in results.items()}
    if "mnist" in benchmark:  # made-up images are for trying the command only
        assert average["joint"] > max(average.values()) - 0.03
        newest = {name: row["task_average"]["mean"] + (row["forgetting"]["mean"] or 0) for name, row in results.items()}
        if benchmark == "nonlinear-mnist":
            del newest["sgd"]  # which learns little of it in so few steps at any step size of the table
            assert newest.pop("lwf") > 0.3  # its λ, the best over all tasks, holds back the new ones
        assert min(newest.values()) > {"split-mnist": 0.75, "nonlinear-mnist": 0.4, "permuted-mnist": 0.5}[benchmark]
    for name in DOES_NOT_APPLY[benchmark]:
        assert main(["compare", benchmark, *few, "--methods", name, "--out", str(tmp_path / name)]) == 2
        assert f"{name} does not apply here" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("benchmark", [name for name in benchmarks.names() if name != "own"])
@pytest.mark.filterwarnings("ignore:fewer than")
def test_every_other_method_runs_or_says_why(benchmark: str, tmp_path: Path) -> None:
    few = {"seeds": 1, "tasks": 2, "epochs": 1, "width": 0.05, "size": Size(per_class=2)}
    for name in sorted({*methods.names()} - PAPERS) if benchmark in DOES_NOT_APPLY else sorted(methods.names()):
        try:
            experiment = Comparison(benchmark=benchmark, methods=(name,), **few).experiments[0]
            assert run(experiment, tmp_path / name).done
        except SelfReminderError as error:
            assert name in str(error)
            assert "\n" not in str(error)
