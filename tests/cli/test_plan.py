"""`--dry-run`: what is left and what it takes is said, and nothing is trained or written."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from selfreminder.cli import main
from selfreminder.experiment.records import RECORDS

TINY = ["permuted-mnist", "--tasks", "2", "--epochs", "1", "--width", "0.06", "--per-class", "2", "--jobs", "2"]


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--dry-run", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_a_comparison_before_and_after_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["compare", *TINY, "--methods", "adam,fsr-logit", "--out", "x"]
    before = plan(capsys, *asked, "--seeds", "1")
    assert not Path("x").exists()
    assert (before["left"], before["runs"], before["by_times"], before["workers"]) == (2, 2, 0, 2)
    assert [row["what"] for row in before["results"]] == ["adam", "fsr-logit"]
    assert main([*asked, "--seeds", "1"]) == 0
    capsys.readouterr()
    written = sum(path.stat().st_size for path in Path("x").glob("*/*"))
    assert before["written_bytes"] == pytest.approx(written, rel=0.1), "what was said is what came"
    files = {path: path.stat().st_mtime_ns for path in Path("x").rglob("*")}
    after = plan(capsys, *asked, "--seeds", "3")
    assert (after["left"], after["runs"], after["by_times"], after["by_peaks"]) == (4, 6, 4, 4)
    assert after["peak_bytes"] < before["peak_bytes"], "the estimate is rather too much"
    assert {path: path.stat().st_mtime_ns for path in Path("x").rglob("*")} == files
    assert main([*asked, "--seeds", "3", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "4 of 6 runs are left" in out and "(4 runs by the times of others in the folder)" in out
    assert main([*asked, "--seeds", "1", "--dry-run"]) == 0
    assert "None of 2 runs is left." in capsys.readouterr().out
    assert main([*asked, "--seeds", "1", "--codec", "float32", "--dry-run"]) == 2, "as the command itself would"
    assert "of other codec" in capsys.readouterr().err


@pytest.mark.slow
def test_a_tuning(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["tune", *TINY, "--methods", "fsr-logit,adam", "--values", "strength=0.1,1", "--out", "x"]
    said = plan(capsys, *asked)
    assert (said["left"], said["notes"]) == (4, []), "two strengths, two seeds; adam has nothing to tune"
    chosen = plan(capsys, *asked, "--sampler", "tpe", "--trials", "3")
    assert (chosen["left"], chosen["notes"]) == (6, ["At most: trials that fall behind are ended early."])
    assert not Path("x").exists()
    assert main([*asked, "--sampler", "tpe", "--trials", "2", "--no-prune", "--seeds", "1"]) == 0
    capsys.readouterr()
    more = plan(capsys, *asked, "--sampler", "tpe", "--trials", "5", "--no-prune", "--seeds", "1")
    assert (more["runs"], more["left"], more["by_times"]) == (5, 3, 3)
    assert len(list(Path("x").glob(f"*/{RECORDS}"))) == 2
    both = plan(capsys, "compare", *TINY, "--methods", "fsr-logit", "--seeds", "2", "--tune", "--out", "y")
    assert both["left"] == 2 and both["tuning"]["left"] == 24, "four step sizes and eight strengths, two seeds"


def test_data_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("own.npz", x=np.random.default_rng(0).random((60, 5)), y=np.arange(60) % 2, site=np.arange(60) // 30)
    said = plan(capsys, "compare", "--data", "npz:own.npz", "--by", "site", "--methods", "adam", "--seeds", "2")
    assert said["left"] == 2 and 0 < said["core_hours"] < 0.1
    assert [path.name for path in Path().iterdir()] == ["own.npz"]


def test_data_that_is_not_at_hand(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SELFREMINDER_DATA", "XDG_CACHE_HOME", "SELFREMINDER_CACHE"):
        monkeypatch.setenv(name, str(Path.cwd()))
    said = plan(capsys, "compare", "split-cifar100", "--scale", "small", "--methods", "sgd", "--seeds", "1")
    assert said["notes"] == ["Memory is estimated without cifar100: not at hand."]
    assert not any(Path().iterdir()), "nothing is fetched"


def test_an_object_store_is_read_and_not_claimed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELFREMINDER_CACHE", str(Path.cwd() / "cache"))
    url = f"file://{Path.cwd()}/store/grid"
    assert plan(capsys, "compare", *TINY, "--methods", "adam", "--seeds", "1", "--out", url)["left"] == 1
    assert not list(Path("store").rglob("*.*")), "not even a claim"
