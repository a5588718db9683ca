"""Several that change one memory file at once: no change is lost, and who must wait is told for whom."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from selfreminder import Memory, SelfReminderError, change_memory, open_memory, save_memory
from selfreminder._base.errors import explain_os_error
from selfreminder._base.lock import LockedError, locked_file
from selfreminder.cli import main
from selfreminder.memory.query import delete_items


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_memory(Memory.of({"x": torch.rand(40, 9)}, torch.zeros(40, 5), task=0), tmp_path / "m")
    assert [found.name for found in tmp_path.iterdir()] == ["m"]  # nobody else has a name for it yet: no lock
    return tmp_path / "m"


def test_no_deletion_is_lost_among_threads(path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        for done in list(pool.map(lambda first: delete_items(path, ids=f"{first}-{first + 3}"), range(0, 40, 5))):
            assert len(done.deleted) == 4
            assert len(done.before) == len(done.left) + 4
    assert open_memory(path).ids.tolist() == list(range(4, 40, 5))


def test_no_deletion_is_lost_among_processes(path: Path) -> None:
    code = """
import sys
from selfreminder.cli import main, memory
print("ready", flush=True)
sys.stdin.read(1)
sys.exit(main())
"""
    command = [sys.executable, "-c", code, "memory", "delete", path]
    started = [
        subprocess.Popen([*command, "--id", f"{first}-{first + 9}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for first in (0, 10, 20)
    ]
    for process in started:  # all are loaded before any begins
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write(b"x")
        process.stdin.flush()
    for process in started:
        process.communicate()
        assert process.returncode == 0
    assert open_memory(path).ids.tolist() == list(range(30, 40))


def test_a_save_comes_before_or_after_a_deletion(path: Path) -> None:
    """Who reads, changes and writes never writes over what was saved between."""
    larger = Memory.of({"x": torch.rand(50, 9)}, torch.zeros(50, 5), task=0)

    def change(memory: Memory) -> Memory:
        saving = pool.submit(save_memory, larger, path)
        with pytest.raises(TimeoutError):
            saving.result(timeout=0.3)
        saved.append(saving)
        return memory.take(memory.ids < 5)

    saved = []
    with ThreadPoolExecutor(1) as pool:
        assert len(change_memory(path, change) or ()) == 5
        saved[0].result()
    assert len(open_memory(path)) == 50


def test_who_is_waited_for_is_said(path: Path) -> None:
    with (
        locked_file(path),
        pytest.raises(LockedError, match=rf"at work on {path} \(process {os.getpid()} on .* since 2.*\): wait for it"),
        locked_file(path, patience=0.0),
    ):
        raise AssertionError("two at once")
    path.with_name(".m.lock").write_text("\x1b[31m no holder at all")
    with (
        FileLock(path.with_name(".m.lock")),
        pytest.raises(LockedError, match=f"at work on {path}: wait for it"),
        locked_file(path, patience=0.0),
    ):
        raise AssertionError("two at once")


def test_what_a_killed_process_leaves_stops_nobody(path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from selfreminder._base.atomic import replace_file
from selfreminder._base.lock import locked_file
with locked_file(Path(sys.argv[1])), replace_file(sys.argv[1]) as temporary:
    temporary.write_text("half of it")
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code, path], check=False)
    assert len(list(path.parent.glob(".m.*"))) == 2
    assert len(delete_items(path, ids="0").left) == 39
    assert {found.name for found in path.parent.iterdir()} == {"m", ".m.lock"}


def test_a_change_that_fails_or_is_none_changes_nothing(path: Path) -> None:
    before = path.read_bytes()

    def fail(memory: Memory) -> Memory:
        raise SelfReminderError("no")

    with pytest.raises(SelfReminderError, match="no"):
        change_memory(path, fail)
    assert change_memory(path, lambda _: None) is None
    assert len(delete_items(path, where="task=9").deleted) == 0
    with pytest.raises(SelfReminderError, match="which items"):
        delete_items(path)
    with pytest.raises(SelfReminderError, match="does not exist"):
        change_memory(path.with_name("missing"), fail)
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_written_to_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: FileLock, **_: object) -> None:
        raise PermissionError(13, "Permission denied", self.lock_file)

    monkeypatch.setattr(FileLock, "acquire", refuse)  # a test may be run by root, whom no mode stops
    assert len(open_memory(path)) == 40
    assert main(["memory", "verify", str(path)]) == 0
    assert main(["memory", "delete", str(path), "--id", "3", "--dry-run"]) == 0
    with pytest.raises(PermissionError) as raised:
        delete_items(path, ids="3")
    assert explain_os_error(raised.value).startswith(f"{path}: Permission denied: get access")
    assert main(["memory", "delete", str(path), "--id", "3"]) == 2
    assert "get access to it" in capsys.readouterr().err
