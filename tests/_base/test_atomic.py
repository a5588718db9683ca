"""Files written whole or not at all, by several threads at once and by processes that were killed."""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from selfreminder._base import atomic, tensor_file
from selfreminder._base.atomic import name_temporary, remove_stale, replace_file, write_text


def test_threads_that_write_one_path_all_succeed(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def write_and_read(writer: int) -> None:
        for turn in range(40):
            text = f"{writer} {turn} " * 500
            write_text(path, text)
            found = path.read_text(encoding="utf-8")
            assert len(set(found.split()[::2])) == len(set(found.split()[1::2])) == 1  # of one write alone

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(write_and_read, writer) for writer in range(4)]:
            done.result()
    assert [found.name for found in tmp_path.iterdir()] == ["file"]


def test_a_reader_has_the_old_file_or_the_new(tmp_path: Path) -> None:
    """However often the file is replaced: no false damage. Files have other headers and other sizes in turn."""
    path = tmp_path / "file"

    def write_turns(writer: int) -> None:
        for number in range(writer, 300, 2):
            tensor_file.write(path, {f"x{number % 7}": torch.full((number % 50,), number)}, "key", {"number": number})

    def read_turns() -> None:
        while not all(writer.done() for writer in writers):
            tensors, about = tensor_file.read(path, "key")
            (tensor,) = tensors.values()
            assert tensor.tolist() == [about["number"]] * (about["number"] % 50)

    write_turns(299)
    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write_turns, writer) for writer in range(2)]
        for done in (*writers, *[pool.submit(read_turns) for _ in range(2)]):
            done.result()


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from selfreminder._base.atomic import name_temporary, replace_file
name_temporary(Path(sys.argv[1]) / "export").mkdir()
with replace_file(Path(sys.argv[1]) / "file.bin") as temporary:
    temporary.write_text("half of it")
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    living, foreign = name_temporary(tmp_path / "file.bin"), tmp_path / ".file.bin.00000000.1.00000000.part"
    old, users = tmp_path / ".file.bin.00000000.1.00000001.part", tmp_path / ".notes.part"
    for path in (living, foreign, old, users):
        path.touch()
    os.utime(old, (0, 0))
    assert len(list(tmp_path.glob(".*.part"))) == 6
    remove_stale(tmp_path, "file.bin")
    assert len(list(tmp_path.glob(".*.part"))) == 4  # the folder is somebody else's
    remove_stale(tmp_path)
    assert sorted(tmp_path.glob(".*.part")) == sorted([living, foreign, users])


def test_temporary_names_are_short_enough(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 100 + ".safetensors")
    write_text(path, "content")
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_a_file_that_others_cannot_read_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "before")
    for mode in (0o600, 0o664):
        path.chmod(mode)
        with replace_file(path) as temporary:
            assert stat.S_IMODE(temporary.stat().st_mode) | mode == mode
            temporary.write_text("after")
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_the_order_in_which_things_reach_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut the name has the old content or all of the new: content, then name, then folder."""
    order: list[str] = []
    sync, replace = os.fsync, Path.replace

    def noted_sync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        order.append("folder" if is_folder else f"content of {os.fstat(descriptor).st_size}")
        sync(descriptor)

    def noted_replace(self: Path, target: Path) -> Path:
        order.append("name")
        return replace(self, target)

    monkeypatch.setattr(atomic.os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    write_text(tmp_path / "file", "seven b")
    assert order == ["content of 7", "name", "folder"]
