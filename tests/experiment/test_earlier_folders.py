"""Folders that earlier versions made, with `comparison.json` or without a command in `grid.json`, are read as ever."""

import json
import shutil
from pathlib import Path

import pytest

from selfreminder import records
from selfreminder.cli import main
from selfreminder.experiment.folder import EARLIER_COMPARISON, GRID
from selfreminder.experiment.records import RECORDS

EARLIER = Path(__file__).parent / "earlier_folders"
SETTINGS = ["--tasks", "2", "--epochs", "1", "--width", "0.02", "--per-class", "1"]
COMPARE = ["compare", "permuted-mnist", "--methods", "adam,fsr-logit", "--seeds", "1", *SETTINGS]


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of an earlier folder, which the test may change."""
    shutil.copytree(EARLIER / request.param, tmp_path / request.param)
    return tmp_path / request.param


def read_all(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.glob(f"*/{RECORDS}")}


@pytest.mark.parametrize("folder", ["comparison", "grid"], indirect=True)
def test_commands_that_look_at_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len({row["run"] for row in records(folder)}) == 2
    assert main(["status", str(folder)]) == 0
    assert "2 of 2 runs done" in capsys.readouterr().out
    assert main(["report", str(folder)]) == 0
    assert "2 of 2 runs done" in capsys.readouterr().out
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "is not stored here" in page
    assert ("strength = [10, 30]" in page) == (folder.name == "grid")


@pytest.mark.parametrize("folder", ["comparison"], indirect=True)
@pytest.mark.parametrize("lost", [None, GRID, EARLIER_COMPARISON])
def test_a_comparison_is_gone_on_with(folder: Path, lost: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    """Whichever of its two files is left: what is missing is run, and the command is stored from now on."""
    if lost is not None:
        (folder / lost).unlink()
    before = read_all(folder)
    out = ["--out", str(folder), "--jobs", "1"]
    assert main([*COMPARE, *out, "--select", "herding"]) == 2
    assert "holds another experiment, of other select" in capsys.readouterr().err
    (missing,) = [key for key in before if key.startswith("fsr-logit")]
    shutil.rmtree(folder / missing)
    assert main([*COMPARE, *out]) == 0
    after = read_all(folder)
    assert after.keys() == before.keys()
    assert all(after[key] == before[key] for key in before if key != missing)
    about = json.loads((folder / GRID).read_text())
    assert about["commands"] == [[*COMPARE, *out]]
    assert about["comparison"]["methods"] == ["adam", "fsr-logit"]


@pytest.mark.parametrize("folder", ["grid"], indirect=True)
def test_a_grid_is_gone_on_with(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = read_all(folder)
    spec = folder.parent / "g.toml"
    spec.write_bytes((folder / "spec.toml").read_bytes())
    again = ["run", str(spec), "--out", str(folder), "--jobs", "1"]
    assert main(again) == 0
    assert "2 of 2 runs done" in capsys.readouterr().out
    assert read_all(folder) == before
    assert json.loads((folder / GRID).read_text())["commands"] == [again]
    assert main([*COMPARE, "--out", str(folder)]) == 2
    assert "holds a grid of selfreminder run: choose another folder" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["comparison"], indirect=True)
def test_nobody_else_takes_a_comparison(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = folder.parent / "g.toml"
    spec.write_bytes((EARLIER / "grid" / "spec.toml").read_bytes())
    for command in (["run", str(spec)], ["reproduce", "rho", "--draw-only"], ["tune", "permuted-mnist"]):
        assert main([*command, "--out", str(folder)]) == 2
        assert "choose another folder with --out" in capsys.readouterr().err
