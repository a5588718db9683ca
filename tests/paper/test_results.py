"""What is committed in results/: packed records, and the claims that they give."""

import json
import re
import shutil
from collections.abc import Collection
from pathlib import Path

import pytest

from scripts.results_tables import fill_pages, read_standing
from selfreminder.cli import main
from selfreminder.experiment.folder import GRID, read_grid
from selfreminder.experiment.pool.grid import Grid
from selfreminder.experiment.pool.process import Done
from selfreminder.experiment.records import PACKED, pack_records, read_packed
from selfreminder.experiment.spec import Experiment
from selfreminder.paper.claims import as_json
from selfreminder.paper.likely_reasons import find_reasons
from selfreminder.paper.reproduction import read_reproduction
from selfreminder.paper.scales import CLAIMS, JUDGED, PAGE, find_other_scales
from selfreminder.paper.specs import FIGURES, experiments

RESULTS = Path(__file__).parents[2] / "results"
PAPER = RESULTS / "paper-small"
MORE_SEEDS = {"permuted": 8}
"""than usual, of figures at scale small"""


def test_the_runs_are_those_of_the_figures_and_of_likely_reasons() -> None:
    """Some of the reasons are planned, and none of their own runs is there."""
    runs, grid = set(read_packed(PAPER)), read_grid(PAPER)
    of_figures = {run.key for run in experiments(FIGURES.values(), "small")}
    of_figures |= {run.key for name, seeds in MORE_SEEDS.items() for run in FIGURES[name].experiments("small", seeds)}
    of_reasons = [{run.key for run in reason.experiments()} for reason in find_reasons("small")]
    tested = [keys for keys in of_reasons if keys <= runs]
    assert runs == of_figures.union(*tested)
    assert grid is not None and {run.key for run in grid} == runs
    assert all(isinstance(job.answer, Done) for job in Grid(grid, PAPER).all), "nothing that was asked for is left"


def test_the_runs_at_scale_paper_are_those_of_two_figures() -> None:
    seeds = {"heatmaps": 5, "logit-bars": 3}
    runs = {run.key for name, count in seeds.items() for run in FIGURES[name].experiments("paper", count)}
    assert set(read_packed(RESULTS / "paper-full")) == runs


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in RESULTS.rglob(PACKED)), ids=lambda path: str(path.relative_to(RESULTS))
)
def test_packing_again_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / PACKED, tmp_path)
    assert pack_records(tmp_path) == list(read_packed(folder))
    # Those of earlier versions have no first line about the rest.
    again, before = ((path / PACKED).read_bytes() for path in (tmp_path, folder))
    assert again == before or again.partition(b"\n")[2] == before


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in RESULTS.rglob(GRID)), ids=lambda path: str(path.relative_to(RESULTS))
)
def test_lists_of_runs_are_whole(folder: Path) -> None:
    listed = read_grid(folder)  # raises where it is not what its check says
    assert listed is not None and set(read_packed(folder)) <= {run.key for run in listed}


def test_status_names_processors_that_are_mixed(capsys: pytest.CaptureFixture[str]) -> None:
    """Records of earlier versions do not say on which they were made."""
    full = RESULTS / "paper-full"
    assert main(["status", str(full)]) == 0
    said = capsys.readouterr().out
    assert "permuted-mnist: Perhaps several kinds of processor: " in said and "whose records do not say" in said
    assert main(["status", str(full), "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["processors"]["permuted-mnist"]
    assert sum(counts.values()) == len(read_packed(full)) and {"AVX512", "not recorded"} <= counts.keys()
    assert main(["status", str(PAPER)]) == 0
    named = [line for line in capsys.readouterr().out.splitlines() if "processor" in line]
    assert {line.partition(":")[0] for line in named} == {"permuted-mnist", "nonlinear-mnist"}, (
        "of others it is unknown"
    )


def test_what_is_computed_of_results_is_in_their_pages() -> None:
    for path, text in fill_pages().items():
        assert path.read_text(encoding="utf-8") == text, "python scripts/results_tables.py writes it anew"


def test_each_page_has_the_verdicts_of_the_other_scale() -> None:
    for folder, scale in ((PAPER, "small"), (RESULTS / "paper-full", "paper")):
        (other,) = find_other_scales(folder, scale)
        page = (folder / PAGE).read_text(encoding="utf-8")
        shown = dict(re.findall(rf'href="{re.escape(other.link)}#claim-([\w.]+)">([a-z ]+)</a>', page))
        assert shown == {id: verdict for id, verdict in other.verdicts.items() if verdict in JUDGED}, "make results"
        assert other.answer in page and (folder / other.link).is_file()


def test_each_claim_stands_at_the_largest_scale_at_which_it_was_judged(tmp_path: Path) -> None:
    for scale, verdicts in (
        ("small", {"C1": "held", "C2": "contradicted", "C3": "not enough data"}),
        ("paper", {"C1": "too few to tell", "C2": "not enough data", "C3": "not enough data"}),
    ):
        folder = tmp_path / f"of-{scale}"
        folder.mkdir()
        (folder / CLAIMS).write_text(json.dumps({id: {"verdict": verdict} for id, verdict in verdicts.items()}))
        (folder / GRID).write_text(json.dumps({"scale": scale}))
    found = {id: (each["verdict"], scale) for id, (scale, each) in read_standing(tmp_path).items()}
    assert found == {
        "C1": ("too few to tell", "paper"),
        "C2": ("contradicted", "small"),
        "C3": ("not enough data", "small"),
    }


def test_the_verdicts_in_the_table_are_those_of_the_claims() -> None:
    """Its words are written by hand; each row has a claim's id, and its verdict in bold."""
    text = (RESULTS / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (C[\w.]+) \| .* \| \*\*([a-z ]+)\*\*", text, re.MULTILINE))
    claims = json.loads((PAPER / CLAIMS).read_text(encoding="utf-8"))
    assert rows == {id: each["verdict"] for id, each in claims.items()}
    few = re.findall(r"^\| C.*\*\*too few to tell\*\*.*", text, re.MULTILINE)
    assert [row for row in few if "seeds would" not in row] == []


def copy_runs(keys: Collection[str], folder: Path) -> None:
    """Pack some of the runs in another folder."""
    lines, key = [], ""
    for line in (PAPER / PACKED).read_text(encoding="utf-8").splitlines(keepends=True):
        event = json.loads(line)
        if event["event"] == "packed":
            continue
        key = Experiment(**event["experiment"]).key if event["event"] == "start" else key
        lines += [line] if key in keys else []
    folder.mkdir()
    (folder / PACKED).write_text("".join(lines), encoding="utf-8")


@pytest.mark.slow
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
