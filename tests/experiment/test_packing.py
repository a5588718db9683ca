"""Runs packed into one file are read, shown and gone on from as those in folders are."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from selfreminder._base.checked import parse_line
from selfreminder._base.errors import SelfReminderError
from selfreminder.cli import main
from selfreminder.experiment.folder import run_folders
from selfreminder.experiment.pool.grid import Grid
from selfreminder.experiment.pool.process import Done
from selfreminder.experiment.records import PACKED, RECORDS, pack_records, read_folder, read_packed, read_records
from selfreminder.experiment.run import run
from selfreminder.experiment.status import read_status
from selfreminder.experiment.table import records
from selfreminder.report.folder_results import read_folder_results
from selfreminder.report.page import render_comparison

EARLIER = Path(__file__).parent / "earlier" / "compare"
"""made by version 0.1.0 before there were packed files:
selfreminder compare permuted-mnist --methods adam,fsr-logit --seeds 1 --tasks 2 --epochs 3 --per-class 1"""
COMPARE = ["compare", "permuted-mnist", "--methods", "adam,fsr-logit", "--seeds", "1", "--tasks", "2", "--epochs", "3"]
COMPARE += ["--per-class", "1", "--jobs", "1"]
SCRIPT = Path(__file__).parents[2] / "scripts" / "pack_records.py"
ADAM, LOGIT = "adam-seed0-854e039e7d", "fsr-logit-seed0-467d3fe5b4"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two runs in folders of their own."""
    return shutil.copytree(EARLIER, tmp_path / "compare")


@pytest.fixture
def packed(folder: Path) -> Path:
    """The same two runs, in a packed file alone."""
    pack_records(folder)
    remove_folders(folder)
    return folder


def remove_folders(folder: Path) -> None:
    for path in list(folder.glob(f"*/{RECORDS}")):
        shutil.rmtree(path.parent)


def remove_first_line(path: Path) -> None:
    """As in packed files of earlier versions."""
    path.write_bytes(path.read_bytes().partition(b"\n")[2])


def change_results(path: Path) -> None:
    path.write_text(path.read_text().replace("0.756", "0.757"))


# Packing ------------------------------------------------------------------------------------------------------


def test_lines_stay_but_for_those_of_epochs(folder: Path) -> None:
    assert pack_records(folder) == [ADAM, LOGIT]
    lines = [line for key in (ADAM, LOGIT) for line in (folder / key / RECORDS).read_text().splitlines()]
    kept = [line for line in lines if json.loads(line)["event"] != "epoch"]
    first, _, rest = (folder / PACKED).read_text().partition("\n")
    packed = rest.splitlines()
    assert [line for line in packed if json.loads(line)["event"] != "rest"] == kept
    assert [json.loads(line)["event"] for line in packed] == ["start", "task", "task", "rest", "done"] * 2
    ended = [json.loads(line) for line in lines if '"epoch": 2' in line]
    assert [loss for line in packed for loss in json.loads(line).get("losses", ())] == [e["loss"] for e in ended]
    said, has_check = parse_line(first.encode())
    assert said == {"event": "packed", "runs": 2, "sha256": hashlib.sha256(rest.encode()).hexdigest()} and has_check
    assert [json.loads(line)["event"] for line in kept] == ["start", "task", "task", "done"] * 2


def test_packing_again_adds_new_runs(folder: Path) -> None:
    pack_records(folder)
    whole = (folder / PACKED).read_bytes()
    assert pack_records(folder) == [ADAM, LOGIT], "runs that are packed and have a folder are there once"
    assert (folder / PACKED).read_bytes() == whole
    # Whichever was packed first, the bytes are the same.
    (folder / PACKED).unlink()
    shutil.move(folder / ADAM, folder.parent)
    assert pack_records(folder) == [LOGIT]
    shutil.rmtree(folder / LOGIT)
    shutil.move(folder.parent / ADAM, folder)
    assert pack_records(folder) == [ADAM, LOGIT]
    assert (folder / PACKED).read_bytes() == whole


def test_nothing_to_pack(tmp_path: Path) -> None:
    with pytest.raises(SelfReminderError, match="holds no runs that are done"):
        pack_records(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_not_done_stays_in_its_folder(folder: Path) -> None:
    path = folder / LOGIT / RECORDS
    path.write_text(path.read_text().removesuffix('{"event": "done"}\n'))
    assert pack_records(folder) == [ADAM]
    remaining = read_records(folder / LOGIT)
    assert remaining is not None and not remaining.done


def test_a_packed_run_goes_before_one_in_a_folder_that_is_not_done(folder: Path) -> None:
    pack_records(folder)
    content, path = (folder / PACKED).read_bytes(), folder / LOGIT / RECORDS
    path.write_text(path.read_text().removesuffix('{"event": "done"}\n'))
    found = read_records(folder / LOGIT)
    assert found is not None and found.done
    assert pack_records(folder) == [ADAM, LOGIT]
    assert (folder / PACKED).read_bytes() == content


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / ADAM / RECORDS).write_text("{}\n"), f"{ADAM}/{RECORDS} is damaged"),
        (lambda folder: change_results(folder / LOGIT / RECORDS), f"{LOGIT} and .*{PACKED} are of one run and differ"),
        (lambda folder: (folder / ADAM).rename(folder / "mine"), f"mine holds the run {ADAM}: name it so"),
    ],
)
def test_what_is_not_packed(folder: Path, damage: Callable[[Path], object], message: str) -> None:
    """The packed file is then as it was."""
    pack_records(folder)
    content = b"".join((folder / PACKED).read_bytes().splitlines(keepends=True)[6:])  # of the second run alone
    (folder / PACKED).write_bytes(content)
    damage(folder)
    with pytest.raises(SelfReminderError, match=message):
        pack_records(folder)
    assert (folder / PACKED).read_bytes() == content
    assert not list(folder.glob(".*.part"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text * 2, f"{ADAM} is there twice"),
        (lambda text: text.replace('{"event": "done"}\n', "", 1), f"{ADAM} is not done"),
        (lambda text: text[:-1], "its last line has no end"),
        (lambda text: text[1:], "damaged"),
        (lambda text: text[text.index("\n") + 1 :], "damaged"),
        (lambda text: text.replace("0.756", "1.756"), "not an accuracy"),
    ],
)
def test_a_damaged_packed_file_is_refused(
    packed: Path, change: Callable[[str], str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By all that read it; nothing is run in its stead."""
    remove_first_line(packed / PACKED)
    before = (packed / PACKED).read_text()
    (packed / PACKED).write_text(change(before))
    for reader in (pack_records, records, read_status, read_folder_results, run_folders, read_packed):
        with pytest.raises(SelfReminderError, match=message) as raised:
            reader(packed)
        assert f"{packed / PACKED} is damaged, or was edited" in str(raised.value)
    assert main([*COMPARE, "--out", str(packed)]) == 2
    assert message in capsys.readouterr().err
    assert (packed / PACKED).read_text() == change(before)
    assert not run_folders_that_exist(packed)


def test_a_packed_file_that_is_not_what_it_was_is_refused(packed: Path) -> None:
    """Edited, cut short at the end of a run, or emptied: it would else look like one with fewer runs, or others."""
    path = packed / PACKED
    before = path.read_text()
    lines = before.splitlines(keepends=True)
    others = (before.replace("0.756", "0.757"), "".join(lines[:6]), "".join(lines[:1]), "", before + lines[-1])
    for content in others:
        path.write_text(content)
        with pytest.raises(SelfReminderError, match=rf"{PACKED} is damaged, or was edited .* restore it, or remove it"):
            read_packed(packed)
    path.write_text("".join(lines[1:6]))  # on purpose: without its first line
    assert list(read_packed(packed)) == [ADAM]


def run_folders_that_exist(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()]


# Reading ------------------------------------------------------------------------------------------------------


def test_records_are_read_from_either(folder: Path) -> None:
    """Folders of the earlier layout, with epochs, and the packed file of them."""
    rows = records(folder)
    assert len(rows) == 2 * 3 and {row["run"] for row in rows} == {ADAM, LOGIT}
    of_run, every = records(folder / ADAM), records(folder, every=True)
    found = {key: read_records(folder / key) for key in (ADAM, LOGIT)}
    state = [run.as_dict() | {"seconds": 0.0, "epochs": 0} for run in read_status(folder).runs]
    assert [run["state"] for run in state] == ["done", "done"]
    page, paths = render_comparison(read_folder_results(folder)), run_folders(folder)
    pack_records(folder)
    remove_folders(folder)
    assert run_folders(folder) == paths
    assert records(folder) == rows and records(folder / ADAM) == of_run and records(folder, every=True) == every
    for key, records_of in found.items():
        assert records_of is not None and len(records_of.epochs) == 6
        assert read_records(folder / key) == replace(records_of, epochs=())
        assert read_folder(folder / key) is None
    assert [run.as_dict() for run in read_status(folder).runs] == state
    assert render_comparison(read_folder_results(folder)) == page
    assert not run_folders_that_exist(folder), "reading makes no folders"


def test_folders_within_folders(packed: Path) -> None:
    around = packed.parent
    shutil.copytree(EARLIER, around / "another")
    expected = [around / place / key for place in ("another", "compare") for key in (ADAM, LOGIT)]
    assert run_folders(around, deep=True) == expected
    assert run_folders(around) == []
    with pytest.raises(SelfReminderError, match="give one of the folders in it, another, compare"):
        read_folder_results(around)


def test_a_packed_file_that_was_replaced_is_read_again(packed: Path) -> None:
    remove_first_line(packed / PACKED)
    assert len(records(packed)) == 6
    change_results(packed / PACKED)
    assert {row["accuracy"] for row in records(packed / ADAM)} == {0.7575, 0.7205, 0.757}
    assert len(read_packed(packed)) == 2
    (packed / PACKED).unlink()
    assert read_packed(packed) == {}


def test_records_of_an_earlier_version_are_named(packed: Path) -> None:
    path = packed / PACKED
    remove_first_line(path)
    path.write_text(path.read_text().replace('"flips"', '"flops"'))
    (packed / "grid.json").unlink()
    with pytest.raises(SelfReminderError, match=f"{PACKED} is of an earlier version, .* remove the lines of {ADAM}"):
        read_folder_results(packed)


# Going on -----------------------------------------------------------------------------------------------------


def test_a_comparison_goes_on_from_folders_of_the_earlier_layout_and_from_packed_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMPARE, "--out", str(folder), "--json"]) == 0
    before = json.loads(capsys.readouterr().out)
    figure = (folder / "accuracy.svg").read_bytes()
    pack_records(folder)
    remove_folders(folder)
    assert main([*COMPARE, "--out", str(folder), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == before
    assert (folder / "accuracy.svg").read_bytes() == figure
    assert not run_folders_that_exist(folder), "nothing was run again"
    assert main(["status", str(folder), "--all"]) == 0
    assert "2 of 2 runs done" in capsys.readouterr().out
    # Other settings are another comparison, packed or not.
    assert main([*COMPARE, "--out", str(folder), "--codec", "float32"]) == 2
    assert "holds another experiment, of other codec" in capsys.readouterr().err


def test_a_grid_from_a_file_goes_on_from_packed_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, folder = tmp_path / "tiny.toml", tmp_path / "grid"
    spec.write_text(
        """
        benchmark = "permuted-mnist"
        method = "adam"
        data = "embedded-mnist"
        images = 100
        tasks = 1
        epochs = 1
        width = 0.05
        [grid]
        seed = [0, 1]
        """
    )
    command = ["run", str(spec), "--out", str(folder), "--jobs", "1", "--json"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert len(pack_records(folder)) == 2
    remove_folders(folder)
    assert main(command) == 0
    assert capsys.readouterr().out == said
    assert not run_folders_that_exist(folder)


def test_new_runs_get_folders(packed: Path) -> None:
    runs = [found.experiment for found in read_packed(packed).values()]
    smaller = {"data": "embedded-mnist", "images": 100, "width": 0.05, "epochs": 1}
    new = replace(runs[0], seed=1, **smaller)
    grid = Grid([*runs, new], packed, jobs=1)
    assert [job.answer for job in grid.all] == [Done(), Done(), None]
    assert all(job is None or job.experiment == new for job in grid.run())
    assert [path.name for path in run_folders_that_exist(packed)] == [new.key]
    assert pack_records(packed) == sorted([ADAM, LOGIT, new.key])
    assert run(runs[0], packed / ADAM) == read_packed(packed)[ADAM], "the library's run does not run it again either"


def test_the_script_packs_a_folder_and_refuses_a_typo_in_one_line(folder: Path) -> None:
    def call(*arguments: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)

    done = call(folder)
    assert (done.returncode, done.stdout) == (0, f"{folder / PACKED}: 2 runs\n")
    assert set(read_packed(folder)) == {ADAM, LOGIT}
    for mistake, says in (((folder.with_name("compar"),), "did you mean 'compare'?"), ((), "it takes one folder")):
        refused = call(*mistake)
        assert refused.returncode == 2 and says in refused.stderr and refused.stderr.count("\n") == 1
