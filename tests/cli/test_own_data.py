"""`compare` on data, a model and a scenario of one's own: from nothing to a figure, and each mistake in a line."""

import json
from pathlib import Path

import numpy as np
import pytest

from selfreminder import data
from selfreminder.cli import main

SMALL = ["--methods", "adam,fsr-logit", "--epochs", "2", "--seeds", "1", "--jobs", "1", "--json"]


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    digits = data.load("embedded-mnist")
    sites = np.array(["a", "b"] * 150)
    np.savez("own.npz", x=digits.train_x[:300], y=digits.train_y[:300], site=sites)
    return tmp_path


def test_a_table_and_a_figure(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["compare", "--data", "npz:own.npz", "--by", "site", "--model", "mlp:16x1", "--out", "out", *SMALL]
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert {result["method"] for result in found["results"]} == {"adam", "fsr-logit"}
    assert found["tasks"] == 2
    assert Path("out/accuracy.svg").is_file()
    assert main(asked) == 0  # nothing is run again
    capsys.readouterr()
    np.savez("own.npz", x=np.zeros((40, 4), np.float32), y=np.arange(40) % 2, site=np.array(["a", "b"] * 20))
    assert main(asked) == 2  # another folder, or other data
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ([], "name a benchmark (see selfreminder list), or data of your own with --data"),
        (["own"], "say where your data is: --data folder:PATH"),
        (["permuted-mnist", "--data", "npz:own.npz"], "--data is for data of your own: leave out permuted-mnist"),
        (["permuted-mnist", "--by", "site"], "--by is for data of your own: give --data too"),
        (["--data", "npz:own.npz"], "say how it is cut into tasks: --by site"),
        (["--data", "npz:own.npz", "--by", "sit"], "did you mean 'site'"),
        (["--data", "npz:nowhere.npz", "--by", "site"], "nowhere.npz: there is no such file or folder"),
        (["--data", "npz:own.npz", "--by", "site", "--model", "mlp:16"], "unknown model 'mlp:16'"),
        (["--data", "npz:own.npz", "--by", "site", "--scenario", "stream"], "a stream passes once"),
        (["--data", "npz:own.npz", "--by", "class"], "task '0' has no '1': tasks of a domain have the same classes"),
        (["--data", "npz:own.npz", "--by", "site", "--test-after"], "--test-after needs times: a column of dates"),
        (["permuted-mnist", "--test-after"], "test_after is for data with times"),
        (["permuted-mnist", "--model", "cifar10-vgg"], "cifar10-vgg takes 3×32×32 images"),
        (["split-mnist", "--scenario", "clas"], "clas"),
    ],
)
def test_mistakes(asked: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *asked, *SMALL]) == 2
    said = capsys.readouterr().err
    assert message in " ".join(said.split())
    assert "Traceback" not in said


def test_a_scenario_of_a_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "split-mnist", "--scenario", "class", "--width", "0.05", "--tasks", "2", *SMALL]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "split-mnist-demo-tasks-2" in found["folder"] and found["folder"].endswith("-class")
    assert any(result["method"] == "joint" for result in found["results"])
