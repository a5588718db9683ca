"""`compare` on data, a model and a scenario of one's own: from nothing to a figure, and each mistake in a line."""

import json
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest

from selfreminder import data
from selfreminder import methods as method_files
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


def test_a_spec_is_of_just_this_data(capsys: pytest.CaptureFixture[str]) -> None:
    """`run` says what the tasks are, and takes data that has changed for other data."""
    Path("spec.toml").write_text(
        'benchmark = "own"\ndata = "npz:own.npz"\ntasks = 2\nepochs = 1\nmethod = "adam"\nreading = { by = "site" }\n'
    )
    assert main(["run", "spec.toml", "--out", "out"]) == 0
    assert "npz:own.npz: 2 tasks" in capsys.readouterr().err
    first = list(Path("out").glob("adam*"))
    np.savez("own.npz", x=np.zeros((40, 4), np.float32), y=np.arange(40) % 2, site=np.arange(40) // 20)
    assert main(["run", "spec.toml", "--out", "out"]) == 0
    assert len(list(Path("out").glob("adam*"))) == len(first) + 1 == 2


def test_strengths_and_step_sizes_on_ones_own_data(capsys: pytest.CaptureFixture[str]) -> None:
    """`--tune` chooses both, also for a method by its path; the table says of which data."""
    source = Path(method_files.__file__).with_name("er.py").read_text()
    Path("mine.py").write_text(source.replace("class ER(", "class Mine("))
    asked = ["compare", "--data", "npz:own.npz", "--by", "site", "--methods", "mine.py", "--epochs", "1"]
    asked += ["--model", "mlp:8x1", "--seeds", "1", "--jobs", "2"]
    assert main([*asked, "--tune", "--out", "out", "--json"]) == 0
    assert not json.loads(capsys.readouterr().out)["untuned"]
    section = tomllib.loads(Path("out-tuning/tuned.toml").read_text())["own"]["demo"]["mine.py"]
    assert {"strength", "lr"} <= section.keys() and len(section["validation"]) > 1
    again = shlex.split(section["command"])[1:]
    assert main([*again, "--dry-run", "--out", "out-tuning", "--json"]) == 0, "its command is one"
    assert json.loads(capsys.readouterr().out)["left"] == 0

    spec = 'benchmark = "own"\ndata = "npz:own.npz"\nscale = "demo"\nmethod = "mine.py"\nseeds = 1\ntasks = 2\n'
    Path("spec.toml").write_text(spec + '[reading]\nby = "site"\n')
    assert main(["run", "spec.toml", "--tuned", "out-tuning/tuned.toml", "--dry-run", "--json"]) == 0
    settings = json.loads(capsys.readouterr().out)["results"][0]["experiment"]
    assert [settings[name] for name in ("strength", "lr")] == [section[name] for name in ("strength", "lr")]

    np.savez("own.npz", x=np.zeros((40, 4), np.float32), y=np.arange(40) % 2, site=np.arange(40) // 20)
    assert main([*asked, "--tuned", "out-tuning/tuned.toml", "--out", "other"]) == 0
    assert "Not tuned for this: mine.py: what was chosen with 2 tasks" in (said := capsys.readouterr().out), said
    assert main([*asked, "--lr", "0.01", "--tune", "--out", "third"]) == 0
    table = tomllib.loads(Path("third-tuning/tuned.toml").read_text())["own"]["demo"]["mine.py"]
    assert table["fields"] == ["strength"]


def test_a_test_part_without_a_class(capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"2024-01-{1 + i // 10:02},{i % 7},{i < 100}\n" for i in range(160))
    Path("own.csv").write_text("day,x,late\n" + rows)
    asked = [
        "compare",
        "--data",
        "csv:own.csv",
        "--by",
        "parts:1",
        "--label",
        "late",
        "--test-after",
        "--methods",
        "adam",
    ]
    assert main(asked) == 2
    assert "what comes last in task" in (said := " ".join(capsys.readouterr().err.split()))
    assert "has no 'True': cut into longer tasks" in said


def test_what_is_said_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The first of many tasks, and its inputs; that its rows are not in order where that counts."""
    rows = [f"2024-{1 + i % 12:02}-01,{i},{(i + 1) % 5 or ''},note {i},{i % 2}" for i in range(120)]
    Path("own.csv").write_text("\n".join(["day,a,b,note,y", *rows]) + "\n")
    asked = ["compare", "--data", "csv:own.csv", "--dry-run", "--methods", "adam", "--by"]
    assert main([*asked, "a"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 12 + 5
    assert said[12].split() == ["11", "1", "1", "1"] and said[13] == "  … and 108 more"
    assert said[14:16] == ["  inputs: b; left out: day (dates), a (names tasks), note (text)", "  filled gaps: b 24"]
    assert main([*asked, "parts:2"]) == 0
    assert "parts are in the order of the rows, which is not that of 'day'" in capsys.readouterr().err
    for more in (["--test-after"], ["--scenario", "stream", "--epochs", "1"]):
        assert main([*asked, "parts:2", *more]) == 2
        assert "rows are not in order of 'day': sort them, or cut --by day:month" in capsys.readouterr().err
    Path("spec.toml").write_text(
        'benchmark = "own"\ndata = "csv:own.csv"\ntasks = 2\nepochs = 1\nmethod = "adam"\ntest_after = true\n'
        'reading = { by = "parts:2" }\n'
    )
    assert main(["run", "spec.toml", "--dry-run"]) == 2
    assert "rows are not in order of 'day'" in capsys.readouterr().err
    Path("own.csv").write_text("\n".join(["day,a,b,note,y", *sorted(rows)]) + "\n")
    assert main([*asked, "parts:2", "--test-after"]) == 0


def test_a_scenario_of_a_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "split-mnist", "--scenario", "class", "--width", "0.05", "--tasks", "2", *SMALL]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "split-mnist-demo-tasks-2" in found["folder"] and found["folder"].endswith("-class")
    assert any(result["method"] == "joint" for result in found["results"])
