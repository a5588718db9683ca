"""What is committed in results/: packed records, and the claims that they give."""

import json
import shutil
from collections.abc import Collection
from pathlib import Path

import pytest

from selfreminder.cli import main
from selfreminder.experiment.folder import GRID, read_grid
from selfreminder.experiment.pool.grid import Grid
from selfreminder.experiment.pool.process import Done
from selfreminder.experiment.records import PACKED, pack_records, read_packed
from selfreminder.experiment.spec import Experiment
from selfreminder.paper.claims import as_json
from selfreminder.paper.likely_reasons import find_reasons
from selfreminder.paper.reproduction import CLAIMS, read_reproduction
from selfreminder.paper.specs import FIGURES, experiments

RESULTS = Path(__file__).parents[2] / "results"
PAPER = RESULTS / "paper-small"


def test_the_runs_are_those_of_the_figures_and_of_likely_reasons() -> None:
    of_figures = {run.key for run in experiments(FIGURES.values(), "small")}
    of_reasons = {run.key for reason in find_reasons("small") for run in reason.experiments()}
    assert set(read_packed(PAPER)) == of_figures | of_reasons
    grid = read_grid(PAPER)
    assert grid is not None and {run.key for run in grid} == of_figures | of_reasons
    assert all(isinstance(job.answer, Done) for job in Grid(grid, PAPER).all), "reproduce has nothing left to run"


@pytest.mark.parametrize("folder", sorted(RESULTS.glob("*/")), ids=lambda path: path.name)
def test_packing_again_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / PACKED, tmp_path)
    assert pack_records(tmp_path) == list(read_packed(folder))
    assert (tmp_path / PACKED).read_bytes() == (folder / PACKED).read_bytes()


def copy_runs(keys: Collection[str], folder: Path) -> None:
    """Pack some of the runs in another folder."""
    lines, key = [], ""
    for line in (PAPER / PACKED).read_text(encoding="utf-8").splitlines(keepends=True):
        event = json.loads(line)
        key = Experiment(**event["experiment"]).key if event["event"] == "start" else key
        lines += [line] if key in keys else []
    folder.mkdir()
    (folder / PACKED).write_text("".join(lines), encoding="utf-8")


def test_reproduce_goes_on_from_packed_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "x"
    copy_runs([run.key for run in FIGURES["logit-bars"].experiments("small")], folder)
    command = ["reproduce", "logit-bars", "--scale", "small", "--out", str(folder)]
    assert main([*command, "--draw-only"]) == 0
    drawn = {path: path.read_bytes() for path in folder.rglob("*.*")}
    assert drawn[folder / "figures" / "logit-bars.svg"] == (PAPER / "figures" / "logit-bars.svg").read_bytes()
    (folder / GRID).write_text('{"figure": "logit-bars", "scale": "small"}')
    capsys.readouterr()
    assert main(command) == 0
    assert "logit-bars" in capsys.readouterr().out
    assert [path.name for path in folder.iterdir() if path.is_dir()] == ["figures"], "nothing was run"
    assert {path: path.read_bytes() for path in drawn} == drawn


def test_the_claims_are_those_of_the_records() -> None:
    found = read_reproduction(PAPER, "small")
    assert found.troubles == [] and all(shown.missing == 0 for shown in found.shown)
    assert json.loads(json.dumps(as_json(found.verdicts))) == json.loads((PAPER / CLAIMS).read_text(encoding="utf-8"))
