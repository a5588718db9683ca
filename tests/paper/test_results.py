"""What is committed in results/: packed records, and the claims that they give."""

import json
import shutil
from pathlib import Path

import pytest

from selfreminder.experiment.folder import read_grid
from selfreminder.experiment.records import PACKED, pack_records, read_packed
from selfreminder.paper.claims import as_json
from selfreminder.paper.reasons import reasons
from selfreminder.paper.reproduction import CLAIMS, read_reproduction
from selfreminder.paper.specs import FIGURES, experiments

RESULTS = Path(__file__).parents[2] / "results"
PAPER = RESULTS / "paper-small"


def test_the_runs_are_those_of_the_figures_and_of_likely_reasons() -> None:
    of_figures = {run.key for run in experiments(FIGURES.values(), "small")}
    of_reasons = {run.key for reason in reasons("small") for run in reason.experiments()}
    assert set(read_packed(PAPER)) == of_figures | of_reasons
    grid = read_grid(PAPER)
    assert grid is not None and {run.key for run in grid} == of_figures | of_reasons


@pytest.mark.parametrize("folder", sorted(RESULTS.glob("*/")), ids=lambda path: path.name)
def test_packing_again_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / PACKED, tmp_path)
    assert pack_records(tmp_path) == list(read_packed(folder))
    assert (tmp_path / PACKED).read_bytes() == (folder / PACKED).read_bytes()


def test_the_claims_are_those_of_the_records() -> None:
    found = read_reproduction(PAPER, "small")
    assert found.troubles == [] and all(shown.missing == 0 for shown in found.shown)
    assert json.loads(json.dumps(as_json(found.verdicts))) == json.loads((PAPER / CLAIMS).read_text(encoding="utf-8"))
