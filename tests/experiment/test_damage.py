"""A flipped bit or a cut, anywhere in what runs leave behind: it is named, or changes nothing."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from selfreminder import records
from selfreminder._base.checked import DAMAGE, format_line, parse_line, with_check, without_check
from selfreminder._base.errors import SelfReminderError
from selfreminder.cli import main
from selfreminder.experiment.folder import GRID, read_about, read_grid, read_origin, write_grid
from selfreminder.experiment.pool.process import FAILURE, Failed, keep_failure, read_failure
from selfreminder.experiment.records import PACKED, RECORDS, STATE, TIMINGS, pack_records, read_packed, read_records
from selfreminder.experiment.run import run
from selfreminder.experiment.status import read_status
from selfreminder.training import StoppedError
from tiny import TINY

LOGIT = replace(TINY, method="fsr-logit", images=100, width=0.02, per_class=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid of one run that is done, with its packed file, and one that was stopped in its second task."""
    folder = tmp_path_factory.mktemp("made")
    stopped = replace(LOGIT, seed=1)
    write_grid(folder, [LOGIT, stopped], {"commands": [["run", "x.toml"]]})
    run(LOGIT, folder / LOGIT.key)
    count = iter(range(1000))
    with pytest.raises(StoppedError):
        run(stopped, folder / stopped.key, stop=lambda: next(count) == 8)
    keep_failure(folder / stopped.key, Failed("a reason", "mistake"))
    return folder


def damages(content: bytes, count: int, seed: int) -> Iterator[bytes]:
    """So many contents with one bit flipped, and as many that were cut short."""
    chance = random.Random(seed)
    for _ in range(count):
        damaged = bytearray(content)
        damaged[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        yield bytes(damaged)
        yield content[: chance.randrange(len(content))]


def try_all(path: Path, read: Callable[[], Any], harmless: Callable[[Any], bool], count: int = 150) -> int:
    """Read damaged versions of a file: each is refused in one line or harmless. Gives how many were refused."""
    before, refused = path.read_bytes(), 0
    for damaged in damages(before, count, seed=len(before)):
        path.write_bytes(damaged)
        try:
            found = read()
        except SelfReminderError as error:
            assert str(path) in str(error)
            refused += 1
        else:
            assert harmless(found), damaged
    path.write_bytes(before)
    return refused


def test_records(made: Path, tmp_path: Path) -> None:
    """Cut short, a run is not done: it goes on or begins again, and ends the same."""
    folder = shutil.copytree(made / LOGIT.key, tmp_path / LOGIT.key)
    whole = read_records(folder)
    assert whole is not None

    def is_harmless(found: Any) -> bool:
        return found is None or (
            found.experiment == whole.experiment
            and found.tasks == whole.tasks[: len(found.tasks)]
            and found.epochs == whole.epochs[: len(found.epochs)]
        )

    assert try_all(folder / RECORDS, lambda: read_records(folder), is_harmless) > 100


def test_packed_records(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / LOGIT.key, tmp_path / LOGIT.key)
    pack_records(tmp_path)
    whole = read_packed(tmp_path)
    assert try_all(tmp_path / PACKED, lambda: read_packed(tmp_path), lambda found: found == whole) > 290


def test_the_list_of_runs(made: Path, tmp_path: Path) -> None:
    shutil.copy(made / GRID, tmp_path)
    whole, about = read_grid(tmp_path), read_about(tmp_path)

    def is_harmless(found: Any) -> bool:
        said = read_about(tmp_path)
        return found == whole and said is not None and about is not None and said["commands"] == about["commands"]

    assert try_all(tmp_path / GRID, lambda: read_grid(tmp_path), is_harmless) > 250


def test_a_list_of_runs_of_an_earlier_version_is_checked_by_its_keys(tmp_path: Path) -> None:
    write_grid(tmp_path, [LOGIT], {})
    said = json.loads((tmp_path / GRID).read_text())
    del said["check"]
    (tmp_path / GRID).write_text(json.dumps(said))
    assert read_grid(tmp_path) == [LOGIT]
    (tmp_path / GRID).write_text(json.dumps(said).replace('"epochs": 2', '"epochs": 3'))
    with pytest.raises(
        SelfReminderError, match=rf"damaged \(the settings of {LOGIT.key} are those of fsr-logit-seed0-"
    ):
        read_grid(tmp_path)


def test_times_and_failures(made: Path, tmp_path: Path) -> None:
    """They are no results: a damaged line counts for nothing, a damaged failure is none."""
    folder = shutil.copytree(made, tmp_path / "x")
    stopped = folder / replace(LOGIT, seed=1).key
    whole = sum(run.seconds for run in read_status(folder).runs)
    assert try_all(stopped / TIMINGS, lambda: read_status(folder), lambda found: found.runs[1].seconds <= whole) == 0
    failed = read_failure(stopped)
    assert failed is not None
    assert try_all(stopped / FAILURE, lambda: read_failure(stopped), lambda found: found in (None, failed)) == 0


def test_the_state(made: Path, tmp_path: Path) -> None:
    """A run goes on from a sound state alone: its records are those of a run in one go, or the damage is said."""
    stopped = replace(LOGIT, seed=1)
    run(stopped, tmp_path / "whole")
    whole = (tmp_path / "whole" / RECORDS).read_bytes()
    folder = shutil.copytree(made / stopped.key, tmp_path / "cut")
    records_before = (folder / RECORDS).read_bytes()
    state = (folder / STATE).read_bytes()
    for damaged in damages(state[:2000], 40, seed=0):  # of the header
        (folder / STATE).write_bytes(damaged + state[2000:])
        with pytest.raises(SelfReminderError, match=rf"{STATE} is damaged: .*; remove it to start this run again"):
            run(stopped, folder)
    for damaged in damages(state, 40, seed=1):
        (folder / STATE).write_bytes(damaged)
        try:
            run(stopped, folder)
        except SelfReminderError as error:
            assert f"{folder / STATE} is damaged" in str(error) and "\n" not in str(error)
        assert (folder / RECORDS).read_bytes() in (records_before, whole)
    (folder / STATE).write_bytes(state)
    run(stopped, folder)
    assert (folder / RECORDS).read_bytes() == whole


def test_a_state_of_an_earlier_version(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a hash, and with other shapes than the model's: what does not fit is said."""
    stopped = replace(LOGIT, seed=1)
    folder = shutil.copytree(made / stopped.key, tmp_path / "x")
    monkeypatch.setattr("selfreminder.experiment.preparation.build_network", lambda *_, **__: nn.Linear(1, 1))
    with pytest.raises(SelfReminderError, match=rf"{STATE} is damaged: Error.*; remove it to start this run again"):
        run(stopped, folder)


def test_copies_of_what_a_command_was_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, folder = tmp_path / "x.toml", tmp_path / "x"
    said = 'benchmark = "permuted-mnist"\nmethod = "adam"\ndata = "embedded-mnist"\n'
    said += "images = 100\ntasks = 1\nepochs = 1\nwidth = 0.02\n"
    spec.write_text(said)
    command = ["run", str(spec), "--out", str(folder), "--jobs", "1"]
    assert main(command) == 0
    assert read_origin(folder).file == ("spec.toml", said)
    (folder / "spec.toml").write_text(said.replace("100", "900"))
    assert main(["report", str(folder)]) == 2
    assert "spec.toml was damaged or edited since it was put there: start its command again" in capsys.readouterr().err
    assert main(command) == 0
    assert main(["report", str(folder)]) == 0


def test_a_comparison_goes_on_with_a_list_that_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = [
        "--tasks",
        "1",
        "--epochs",
        "1",
        "--width",
        "0.02",
        "--seeds",
        "1",
        "--jobs",
        "1",
        "--out",
        str(tmp_path / "x"),
    ]
    command = ["compare", "permuted-mnist", "--methods", "adam", *small]
    assert main(command) == 0
    (tmp_path / "x" / GRID).write_bytes(b"{")
    assert main(["status", str(tmp_path / "x")]) == 2
    assert "start its grid again to write it anew" in capsys.readouterr().err
    assert main([*command, "--codec", "float32"]) == 2
    assert "another experiment, of other codec" in capsys.readouterr().err
    assert main(command) == 0
    assert main(["status", str(tmp_path / "x")]) == 0


def test_lines_and_values_with_checks() -> None:
    event = {"event": "task", "test": [0.5, 1.0], "λ": "é\n"}
    line = format_line(event)
    assert parse_line(line[:-1]) == (event, True) and line.count(b"\n") == 1
    assert parse_line(b'{"event": "done"}') == ({"event": "done"}, False)
    assert without_check(with_check(event)) == event == without_check(event)
    for place in range(8 * (len(line) - 1)):
        damaged = bytearray(line[:-1])
        damaged[place // 8] ^= 1 << place % 8
        try:
            found, has_check = parse_line(bytes(damaged))
        except DAMAGE:
            continue
        assert not has_check and event.items() <= found.items(), "the flip was in the check's own name"


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"event": "start", "experiment": {"width": 1' + b"0" * 400 + b"}}"]
)
def test_odd_json(tmp_path: Path, content: bytes) -> None:
    (tmp_path / RECORDS).write_bytes(content + b"\n")
    (tmp_path / GRID).write_bytes(content)
    with pytest.raises(SelfReminderError, match="is damaged"):
        records(tmp_path)
    with pytest.raises(SelfReminderError, match="is damaged"):
        read_grid(tmp_path)
