import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import save_file

from selfreminder._base import tensor_file
from selfreminder._base.errors import MemoryFileError, explain_os_error
from selfreminder.memory import file as memory_file
from selfreminder.memory.codec import Encoded
from selfreminder.memory.file import memory_hash, open_memory, save_memory
from selfreminder.memory.fingerprint import Fingerprint
from selfreminder.memory.memory import Memory, ReservoirState


@pytest.fixture
def memory() -> Memory:
    generator = torch.Generator().manual_seed(0)
    first = Memory.of(
        {
            "x": torch.randint(0, 256, (20, 9), generator=generator) / 255,
            "mask": torch.ones(20, 2, dtype=torch.bool),
        },
        torch.randn(20, 5, generator=generator),
        task=0,
        labels=torch.arange(20) % 5,
        time=1_700_000_000,
    )
    return first + first


@pytest.fixture
def path(memory: Memory, tmp_path: Path) -> Path:
    path = tmp_path / "memory.safetensors"
    save_memory(memory, path)
    return path


def test_round_trip(memory: Memory, path: Path) -> None:
    back = open_memory(path)
    assert back.facts == memory.facts
    assert back.columns.keys() == memory.columns.keys()
    for name, column in memory.columns.items():
        assert torch.equal(back.columns[name], column)
        assert back.columns[name].dtype == column.dtype


def test_empty_memory(tmp_path: Path) -> None:
    save_memory(Memory(), tmp_path / "m")
    assert len(open_memory(tmp_path / "m")) == 0


def test_same_content_same_bytes(memory: Memory, path: Path, tmp_path: Path) -> None:
    for i in range(5):
        save_memory(open_memory(path), tmp_path / str(i))
        assert (tmp_path / str(i)).read_bytes() == path.read_bytes()
    save_memory(memory.take(torch.arange(39)), tmp_path / "other")
    assert memory_hash(tmp_path / "other") != memory_hash(path)


def test_readable_by_others(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@settings(max_examples=60)
@given(fraction=st.floats(0, 1, exclude_max=True))
def test_truncated(fraction: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("cut") / "m"
    save_memory(Memory.of({"x": torch.rand(3, 4)}, torch.zeros(3, 2), task=0), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * fraction)])
    with pytest.raises(MemoryFileError):
        open_memory(path)


@settings(max_examples=150)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_edited(place: float, bit: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any changed bit is found, be it in the header or in the data."""
    path = tmp_path_factory.mktemp("edit") / "m"
    memory = Memory.of({"x": torch.rand(3, 4)}, torch.zeros(3, 2), task=0)
    save_memory(memory, path)
    content = bytearray(path.read_bytes())
    content[int(len(content) * place)] ^= 1 << bit
    path.write_bytes(content)
    with pytest.raises(MemoryFileError):
        open_memory(path)


def test_newer_schema(path: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_file, "SCHEMA", 99)
    save_memory(memory, path)
    monkeypatch.undo()
    with pytest.raises(MemoryFileError, match="schema 99, this version reads up to 2: update"):
        open_memory(path)


def test_the_first_schema_is_still_read(memory: Memory, path: Path) -> None:
    columns = memory.columns | {
        "labels": memory.labels.to(torch.int32),
        "sources": memory.sources.to(torch.int64),
        "width": memory.widths,
    }
    codecs = {name: x.codec for name, x in memory.inputs.items()}
    about = {"schema": 1, "codecs": codecs, "selection_names": ["given"], "next_id": 40}
    tensor_file.write(path, columns, "selfreminder", about)
    old = open_memory(path)
    assert torch.equal(old.labels, memory.labels)
    assert torch.equal(old.draw(40).inputs["x"], memory.draw(40).inputs["x"])
    save_memory(old, path)
    assert torch.equal(open_memory(path).logits, memory.logits)


def test_fingerprints_and_reservoirs_are_kept(memory: Memory, path: Path) -> None:
    fingerprint = Fingerprint("0123", 5, None, {"x": ((9,), "float32"), "mask": ((2,), "bool")})
    more = replace(
        memory,
        fingerprints={0: fingerprint},
        reservoirs={0: ReservoirState(2**40, 2**63 - 1, below=7), 12: ReservoirState(3, 4)},
    )
    without = memory_hash(path)
    save_memory(more, path)
    back = open_memory(path)
    assert (back.fingerprints, back.reservoirs) == (more.fingerprints, more.reservoirs)
    assert memory_hash(path) != without
    save_memory(back, path.with_name("again"))
    assert path.with_name("again").read_bytes() == path.read_bytes()


def test_a_file_without_them_is_what_it_always_was(path: Path) -> None:
    """The hash is written down: it was the same before there were any."""
    plain = Memory.of(
        {"x": torch.arange(12.0).reshape(4, 3)},
        torch.arange(8.0).reshape(4, 2),
        task=0,
        labels=torch.tensor([0, 1, 0, 1]),
    )
    save_memory(plain, path)
    assert memory_hash(path) == "fe0523c2b3c25166f7dc4c32405854b53995ecaec4ea5ab8972f7833d93ad445"
    back = open_memory(path)
    assert (back.fingerprints, back.reservoirs) == ({}, {})


@pytest.mark.parametrize(
    "facts",
    [
        {"recorders": []},
        {"recorders": {"0": {"model": "a"}}},
        {"recorders": {"zero": {}}},
        {"recorders": {"0": {"model": "a", "classes": 2, "transform": "", "inputs": {"x": 3}}}},
        {"recorders": {"0": {"model": "a", "classes": 2, "transform": 3, "inputs": {}}}},
        {"recorders": {"0": {"model": "a", "classes": 2, "transform": {"item": 0}, "inputs": {}}}},
        {"streams": {"0": {"seen": 1}}},
        {"streams": {"0": {"seen": -1, "seed": 0}}},
        {"streams": {"0": {"seen": 1, "seed": 0, "other": 0}}},
        {"streams": [1]},
        {"inputs": []},
    ],
)
def test_facts_that_no_memory_has(memory: Memory, path: Path, facts: dict[str, object]) -> None:
    about = {"schema": 2, **memory.facts, **facts}
    tensor_file.write(path, memory.columns, "selfreminder", about)
    with pytest.raises(MemoryFileError, match="holds no whole memory"):
        open_memory(path)


def test_not_a_memory(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "weights.safetensors")
    (tmp_path / "text").write_text("hello")
    (tmp_path / "nothing").touch()
    for name in ("weights.safetensors", "text", "nothing"):
        with pytest.raises(MemoryFileError, match="is no memory file"):
            open_memory(tmp_path / name)
    with pytest.raises(MemoryFileError, match="is a folder"):
        open_memory(tmp_path)
    with pytest.raises(MemoryFileError, match="does not exist"):
        open_memory(tmp_path / "missing")
    save_file({"a": torch.zeros(1)}, tmp_path / "odd", metadata={"selfreminder": json.dumps([1])})
    with pytest.raises(MemoryFileError, match="edited"):
        open_memory(tmp_path / "odd")


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": {"x": Encoded("zstd", torch.zeros(40, 9))}},
        {"inputs": {"x": Encoded("raw", torch.zeros(39, 9))}},
        {"selection_names": ()},
        {"kept_logits": Encoded("float32", torch.zeros(40))},
        {"kept_logits": Encoded("float32", torch.zeros(39, 5))},
        {"labels": torch.zeros(40)},
        {"width": torch.full((40,), 99, dtype=torch.int16)},
        {"tasks": torch.arange(40, 0, -1, dtype=torch.int32)},
    ],
)
def test_a_file_whose_hash_is_right_but_whose_content_is_no_memory(
    memory: Memory, path: Path, change: dict[str, object]
) -> None:
    save_memory(replace(memory, **change), path)
    with pytest.raises(MemoryFileError, match="holds no whole memory"):
        open_memory(path)


def test_a_link_stays_a_link_and_a_protected_file_stays(memory: Memory, path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    save_memory(memory.take(torch.arange(3)), link)
    assert link.is_symlink()
    assert len(open_memory(path)) == 3


def test_a_failed_write_leaves_the_old_file(path: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("selfreminder._base.tensor_file.save_file", full)
    with pytest.raises(OSError, match="No space left") as raised:
        save_memory(memory + memory, path)
    assert (
        explain_os_error(raised.value) == f"{path}: No space left on device: make room, then run the same command again"
    )
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir() if p.name not in ("cache", f".{path.name}.lock")] == [path.name]
