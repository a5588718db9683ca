"""Versions, the pointer, the lock: what holds whatever happens."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from selfreminder import Store
from selfreminder._base.errors import StoreError
from selfreminder._base.tensor_file import write_plain
from selfreminder.memory import Memory, save_memory
from selfreminder.store.heldout import HELDOUT, HeldOut
from selfreminder.store.manifest import MANIFEST, Manifest
from selfreminder.store.version import CARD, MEMORY, MODEL, REPORT
from selfreminder.store.versions import CURRENT


def add(store: Store, *, parent: int | None = None, promote: bool = True, verdict: str | None = "passed") -> int:
    number = store.next_number()
    folder = store.work_folder(f"job{number}")
    write_plain(folder / MODEL, {"weight": torch.full((2, 2), float(number))}, {"format": "pt"})
    save_memory(Memory.of({"x": torch.rand(4, 2)}, torch.zeros(4, 3), task=0), folder / MEMORY)
    HeldOut.of({"x": torch.rand(4, 2)}, torch.zeros(4), name=f"v{number}", time=0).write(folder / HELDOUT)
    (folder / REPORT).write_text("<p>")
    (folder / CARD).write_text("# card\n")
    kind = "init" if parent is None else "update"
    manifest = Manifest(version=number, kind=kind, parent=parent, outputs=3, next_item=8 * number, verdict=verdict)
    store.add_version(folder, manifest)
    if promote:
        store.promote(number, kind)
    return number


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.create(tmp_path / "store")
    with made.hold():
        add(made)
        add(made, parent=1)
    return Store.open(made.path)


def test_versions_are_read_as_they_were_written(store: Store) -> None:
    assert store.numbers == [1, 2]
    assert store.current.number == 2
    assert store.current.read_weights()["weight"].tolist() == [[2, 2], [2, 2]]
    assert store.current.read_heldout().names == ("v2",)
    assert len(store.current.read_memory()) == 4
    assert [version.number for version in store.ancestors(2)] == [2, 1]
    assert store.verify() == []
    assert store.current.manifest.software["torch"] == str(torch.__version__)


def test_a_path_may_be_a_text(store: Store) -> None:
    assert Store(str(store.path)).current.number == store.current.number


def test_rollback_moves_the_pointer_and_nothing_else(store: Store) -> None:
    before = {path: path.read_bytes() for path in (store.path / "versions").rglob("*") if path.is_file()}
    assert store.rollback().version.number == 1
    assert store.current.number == 1
    assert [move.why for move in store.moves] == ["init", "update", "rollback"]
    assert before == {path: path.read_bytes() for path in (store.path / "versions").rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match="none before it"):
        store.rollback()
    assert store.rollback(to=2).version.number == 2


def test_what_the_gate_refused_cannot_become_current_by_rollback(store: Store) -> None:
    aside = add(store, parent=2, promote=False, verdict="failed")
    with pytest.raises(StoreError, match="kept aside"):
        store.rollback(to=aside)
    assert store.current.number == 2
    assert store.next_number() == aside + 1


@pytest.mark.parametrize("name", [MODEL, MEMORY, HELDOUT, REPORT, CARD, MANIFEST])
def test_a_flipped_byte_is_found_wherever_it_is(store: Store, name: str) -> None:
    path = store.current.folder / name
    whole = path.read_bytes()
    for place in range(0, len(whole), max(len(whole) // 40, 1)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        (problem,) = store.verify()
        assert name in problem
    path.write_bytes(whole)
    assert store.verify() == []


def test_a_missing_file_and_one_too_many_are_found(store: Store) -> None:
    (store.current.folder / CARD).unlink()
    (store.current.folder / "extra.bin").write_bytes(b"")
    assert ["missing" in problem or "belongs to no version" in problem for problem in store.verify()] == [True, True]
    with pytest.raises(StoreError, match=r"README.md is missing: put .* back"):
        store.current.path(CARD)


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes, indent=1, sort_keys=True) + "\n")


@pytest.mark.parametrize("name", ["../1/model.safetensors", "/etc/passwd", "..", "a\\..\\b", ".hidden", ""])
def test_a_path_that_leaves_the_store_is_refused(store: Store, name: str) -> None:
    rewrite(store.current.folder / MANIFEST, files={name: {"sha256": "", "bytes": 0}})
    with pytest.raises(StoreError, match="which is not in its folder"):
        _ = store.current


def test_a_link_to_elsewhere_is_refused(store: Store) -> None:
    path = store.current.folder / MODEL
    path.rename(store.path / "moved")
    path.symlink_to(store.path / "moved")
    with pytest.raises(StoreError, match="a link to elsewhere"):
        store.current.read_weights()


def test_a_newer_schema_is_refused(store: Store) -> None:
    rewrite(store.current.folder / MANIFEST, schema=99)
    with pytest.raises(StoreError, match=r"schema 99.*update selfreminder"):
        _ = store.current
    rewrite(store.path / CURRENT, schema=99)
    with pytest.raises(StoreError, match=r"schema 99.*update selfreminder"):
        Store.open(store.path)


def test_what_is_no_store_is_not_opened_and_not_written_to(tmp_path: Path, store: Store) -> None:
    with pytest.raises(StoreError, match="is no store"):
        Store.open(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="is a store already"):
        Store.create(store.path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("")
    with pytest.raises(StoreError, match="with something in it"):
        Store.create(tmp_path / "full")
    (store.path / CURRENT).write_text("{}")
    with pytest.raises(StoreError, match="damaged"):
        Store.open(store.path)


def test_a_held_store_says_who_holds_it(store: Store) -> None:
    code = (
        "import sys; from selfreminder import Store\n"
        "with Store.open(sys.argv[1]).hold('selfreminder update --data inbox'): print('held', flush=True); input()"
    )
    command = [sys.executable, "-c", code, str(store.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match=rf"process {other.pid} of .* on .* since .*`selfreminder update --data"):
            store.rollback()
        other.kill()
    assert store.rollback().version.number == 1  # the lock went with its process
