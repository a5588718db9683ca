"""Damage, forgery and kills at the worst moment: what a store and an update on its way make of them."""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from shop import make_shop, make_store

from selfreminder import SelfReminderError, Store
from selfreminder._base import tensor_file
from selfreminder._base.errors import StoreError
from selfreminder.cli import main
from selfreminder.store.config import Config
from selfreminder.store.heldout import HeldOut
from selfreminder.store.manifest import MANIFEST, Manifest, _dump, _hash_facts
from selfreminder.store.versions import CURRENT


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_shop(tmp_path_factory.mktemp("shop"))
    make_store(folder)
    return folder


@pytest.fixture(scope="module")
def judged(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop in which an update was tried: its candidate is there."""
    folder = tmp_path_factory.mktemp("judged") / "shop"
    shutil.copytree(made, folder)
    Store.open(folder / "store").update(folder / "new.npz", dry_run=True)
    return folder


@pytest.fixture
def shop(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "shop")
    return tmp_path / "shop"


def damage(path: Path, count: int) -> Any:
    """The file with a flipped bit or cut short, again and again; whole in the end."""
    whole, chance = path.read_bytes(), random.Random(0)
    for _ in range(count):
        place = chance.randrange(8 * len(whole))
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        for content in (bytes(flipped), whole[: place // 8]):
            path.write_bytes(content)
            yield f"bit {place}"
    path.write_bytes(whole)


def test_a_pointer_that_is_damaged_is_noticed_or_says_the_same(shop: Path) -> None:
    store = Store.open(shop / "store")
    store.promote(1, "rollback")
    moves, silent = store.moves, 0
    for what in damage(store.path / CURRENT, 200):
        try:
            assert store.moves == moves, what
            silent += 1
        except StoreError as error:
            assert "put it back" in str(error) or "update selfreminder" in str(error)
    assert silent < 20, "spaces and line ends alone"


@pytest.mark.parametrize(
    "content", ["[" * 100_000, "[]", '{"schema": 1, "version": 1, "moves": [{"to": true}]}', '{"schema": "1"}']
)
def test_odd_pointers(shop: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "store" / CURRENT).write_text(content)
    assert main(["history", "--store", str(shop / "store")]) == 2
    assert "is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["job.json", "candidate.json", "model.safetensors", "memory.safetensors"])
def test_an_update_goes_on_with_what_is_whole_alone(judged: Path, tmp_path: Path, name: str) -> None:
    """A candidate that waits for its judgement cannot become another one."""
    shutil.copytree(judged, tmp_path / "shop")
    (path,) = (tmp_path / "shop" / "store" / "work").glob(f"*/{name}")
    store, noticed = Store.open(tmp_path / "shop" / "store"), 0
    for _ in damage(path, 10):
        try:
            store.update(judged / "new.npz", dry_run=True)
        except SelfReminderError as error:
            assert "remove" in str(error) and str(path.parent) in str(error)
            noticed += 1
    assert noticed >= 18
    shutil.rmtree(path.parent)
    assert store.update(judged / "new.npz").outcome == "promoted"


def test_a_trial_moves_no_pointer(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the same update was killed just before it moved it."""
    store = Store.open(shop / "store")
    with monkeypatch.context() as patched:
        patched.setattr(Store, "promote", kill)
        with pytest.raises(KeyboardInterrupt):
            store.update(shop / "new.npz")
    assert store.numbers == [1, 2]
    assert store.update(shop / "new.npz", dry_run=True).version is None
    assert store.current.number == 1
    assert store.update(shop / "new.npz").outcome == "promoted"
    assert store.current.number == 2


def kill(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("step", ["promote", "clean"])
def test_a_deletion_that_was_killed_is_done_once(shop: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    store = Store.open(shop / "store")
    with monkeypatch.context() as patched:
        patched.setattr(Store, step, kill)
        with pytest.raises(KeyboardInterrupt):
            store.delete(where="label=3")
    done = store.delete(where="label=3")
    assert store.numbers == [1, 2] and store.current.number == 2 and store.verify() == []
    assert (done.version is None) == (step == "clean")
    assert 3 not in store.current.read_heldout().labels.tolist()


def test_what_an_update_left_on_its_way_is_removed_when_there_is_nothing_to_do(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(shop / "store")
    with monkeypatch.context() as patched:
        patched.setattr(Store, "promote", lambda *_: patched.undo() or kill())
        with pytest.raises(KeyboardInterrupt):
            store.update(shop / "new.npz")
    store.promote(2)
    assert list((store.path / "work").iterdir())
    assert store.update(shop / "new.npz").outcome == "nothing"
    assert not list((store.path / "work").iterdir())


# Forgery: whoever makes a file can also make its hash --------------------------------------------------------


def forge(path: Path, **changes: Any) -> None:
    facts = json.loads(path.read_text()) | changes
    path.write_text(_dump(facts | {"sha256": _hash_facts(facts)}))


@pytest.mark.parametrize(
    "changes",
    [
        {"version": True},
        {"parent": 1},
        {"parent": 10**400},
        {"next_item": 2**64},
        {"outputs": "ten"},
        {"metrics": {"v1": {"right": "all", "items": 1, "measure": "accuracy"}}},
        {"metrics": {"v1": {}}},
        {"metrics": []},
        {"files": {"model.safetensors": {"sha256": 1, "bytes": 2}}},
        {"deleted": ["1"]},
        {"classes": [1]},
        {"data": {"columns": []}},
        {"created": None},
    ],
)
def test_manifests_with_odd_values(shop: Path, changes: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    forge(shop / "store" / "versions" / "1" / MANIFEST, **changes)
    assert main(["history", "--store", str(shop / "store")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "manifest" in said


def test_a_manifest_nested_too_deep(shop: Path) -> None:
    (shop / "store" / "versions" / "1" / MANIFEST).write_text("[" * 100_000)
    with pytest.raises(StoreError, match="nested too deep"):
        Manifest.read(shop / "store" / "versions" / "1")


@pytest.mark.parametrize(
    "forge_slices",
    [
        lambda tensors, about: about["inputs"]["x"].update(shape=[-1]),
        lambda tensors, about: about["inputs"]["x"].update(shape=[2**32]),
        lambda tensors, about: about.update(slices=[]),
        lambda tensors, about: about.update(slices=[["v1"] * 3]),
        lambda tensors, about: about.update(values={"site": []}),
        lambda tensors, about: about.update(values=[]),
        lambda tensors, about: tensors.update(labels=torch.zeros(3)),
        lambda tensors, about: tensors.update(items=torch.zeros(2, dtype=torch.int64)),
        lambda tensors, about: tensors.update({"column.site": torch.tensor([-1, 0, 0, 0], dtype=torch.int32)}),
    ],
)
def test_held_out_slices_with_odd_values(tmp_path: Path, forge_slices: Callable[..., object]) -> None:
    path = tmp_path / "heldout"
    x, sites = torch.rand(4, 30), ["A", "B", "A", None]
    HeldOut.of({"x": x}, torch.zeros(4), name="v1", time=0, columns={"site": sites}).write(path)
    assert HeldOut.load(path).columns["site"] == ("A", "B", "A", None)
    tensors, about = tensor_file.read(path, "selfreminder-heldout")
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    forge_slices(tensors, about)
    tensor_file.write(path, tensors, "selfreminder-heldout", about)
    with pytest.raises(StoreError, match="holds no held-out slices"):
        HeldOut.load(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "[" * 100_000, "is no TOML"),
        (f"[model]\nfactory = 'a:b'\n[train]\nlr = 1{'0' * 400}", "too large"),
        (f"[model]\nfactory = 'a:b'\n[train]\nseed = 1{'0' * 400}", "too large"),
        (f"[model]\nfactory = 'a:b'\n[train]\nseed = 1{'0' * 5000}", "is no TOML"),
        ("[model]\nfactory = 'a:b'\n[gate]\nconfidence = nan", "confidence"),
        ("[model]\nfactory = 'a:b'\n[train]\nlr = inf", "lr"),
        ("model = 3", "not a table"),
    ],
)
def test_settings_with_odd_numbers(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "selfreminder.toml").write_text(text)
    with pytest.raises(SelfReminderError, match=said) as raised:
        Config.read(tmp_path / "selfreminder.toml")
    assert len(str(raised.value)) < 500


def test_a_version_is_as_it_was_read(shop: Path) -> None:
    """What is refused above is refused for its oddness: the same manifest, forged without one, is read."""
    folder = shop / "store" / "versions" / "1"
    before = Manifest.read(folder)
    forge(folder / MANIFEST, command="another")
    assert Manifest.read(folder) == replace(before, command="another")
