"""A store over some time: elsewhere than its data, rolled back, with items deleted, of a model that grew."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from shop import GATE, TRAIN, make_shop, make_store, module_of
from transformers import BertConfig, BertForSequenceClassification

from selfreminder import SelfReminderError, Store, data
from selfreminder.cli import main


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_shop(tmp_path_factory.mktemp("life"))
    store = make_store(folder)
    store.update(folder / "new.npz")
    return folder


@pytest.fixture
def shop(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "shop")
    return tmp_path / "shop"


def test_a_store_in_a_folder_of_its_own_finds_weights_and_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, name = make_shop(tmp_path), module_of(tmp_path)
    monkeypatch.chdir(shop)
    model = ["--model", f"{name}:build", "--weights", "weights.safetensors", "--preprocess", f"{name}:prepare"]
    assert (
        main(["init", "--store", "deep/store", *model, "--data", "old.npz", "--new", "new.npz", "--epochs", "1"]) == 0
    )
    assert 'new = "../new.npz"' in (shop / "deep" / "selfreminder.toml").read_text()
    assert main(["update", "--store", "deep/store"]) in (0, 1)
    assert Store.open("deep/store").version(2).manifest.data.source == str(shop / "new.npz")


def test_new_data_may_come_from_a_function(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = shop / "selfreminder.toml"
    config.write_text(config.read_text().replace("[data]\n", '[data]\nnew = "os:getcwd"\n'))
    assert main(["update", "--store", str(shop / "store")]) == 2
    assert "os:getcwd" in capsys.readouterr().err  # it was called; what it gives is no data


def test_what_was_rolled_back_is_nothing_to_do_and_no_version_of_ours(shop: Path) -> None:
    store = Store.open(shop / "store")
    store.rollback()
    done = store.update(shop / "new.npz")
    assert done.outcome == "nothing" and "--to 2" in done.reason and done.version is None


def test_what_is_not_done_leaves_nothing_behind(shop: Path) -> None:
    store, digits = Store.open(shop / "store"), data.load("embedded-mnist")
    alike = digits.test_x[1000:1500], digits.test_y[1000:1500]
    assert store.update(alike, if_drifted=True).outcome == "nothing"
    with pytest.raises(SelfReminderError, match="wait for more data"):
        store.update((np.zeros((3, 28, 28), np.uint8), [0, 1, 2]))
    assert not list((store.path / "work").glob("*")) and store.numbers == [1, 2]


def test_weights_are_not_checked_by_labels_that_they_have_no_output_for(shop: Path) -> None:
    store = Store.open(shop / "store")
    with np.load(shop / "new.npz") as found:
        np.savez(shop / "high.npz", x=found["x"], y=found["y"] + 5)
    with pytest.raises(SelfReminderError, match="has no output"):
        store.check(shop / "weights.safetensors", shop / "high.npz")


def test_deletion_lists_every_version_that_knows_of_an_item(shop: Path) -> None:
    store = Store.open(shop / "store")
    remembered = int(store.current.read_memory().sources.min())
    kept = {*store.current.read_memory().sources.tolist(), *store.current.read_heldout().items.tolist()}
    lost = min(set(range(1600)) - kept)  # trained on once, or for validation
    done = store.delete(ids=f"{remembered},{lost}")
    assert done.remembered == (remembered,) and done.trained_with == (1, 2, 3) and done.kept_in == (1, 2)
    assert done.not_kept == 1 and "1 others of those numbers are not kept" in str(done)
    assert done.maybe_trained_with == ((1, 2, 3) if lost < 1000 else (2, 3))
    nothing = store.delete(ids=str(lost))
    assert nothing.version is None and nothing.not_kept == 1 and store.numbers == [1, 2, 3]


def test_going_to_any_version_tells_of_items_that_were_deleted_in_another(shop: Path) -> None:
    store = Store.open(shop / "store")
    store.rollback()
    store.delete(where="label=3")  # of version 1
    back = store.rollback()
    assert back.version.number == 1 and back.deleted_items
    forward = store.rollback(to=2)  # which was there before the deletion, and is no descendant of it
    assert forward.deleted_items and "deleted in another version" in str(forward)


def test_what_grew_goes_on_without_the_versions_before(shop: Path) -> None:
    store = Store.open(shop / "store")
    with np.load(shop / "newer.npz") as found:
        np.savez(shop / "grown.npz", x=found["x"], y=np.where(found["y"] == 3, 10, found["y"]))
    assert store.update(shop / "grown.npz", grow=True).outcome == "promoted"
    for number in (1, 2):
        shutil.rmtree(store.path / "versions" / str(number))
    x = np.random.default_rng(0).integers(0, 255, (300, 28, 28), np.uint8)
    assert store.update((x, np.arange(300) % 11)).outcome in ("promoted", "refused")
    assert store.verify() == []


def test_what_refuses_says_what_may_do_better(shop: Path) -> None:
    config = shop / "selfreminder.toml"
    text = config.read_text().replace("old_drop_max = 0.2", "old_drop_max = 0.001")
    config.write_text(text.replace("flips_max = 0.3", "flips_max = 0.001"))
    done = Store.open(shop / "store").update(shop / "newer.npz")
    assert done.outcome == "refused" and any("strength above" in note for note in done.notes)


# A model of transformers -----------------------------------------------------------------------------------


def test_a_text_model_of_transformers_is_updated_grows_and_is_handed_over(tmp_path: Path) -> None:
    small = BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, num_labels=2
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertForSequenceClassification(small).save_pretrained(tmp_path / "bert")
    chance = np.random.default_rng(0)
    ids = chance.integers(1, 20, (900, 6))
    mask, labels = np.ones_like(ids), (ids[:, 0] > 9).astype(np.int64)
    labels[600:] += ids[600:, 0] > 14
    columns = {"input_ids": ids, "attention_mask": mask}
    old, new = (
        {**{k: v[rows] for k, v in columns.items()}, "label": labels[rows]} for rows in (slice(600), slice(600, 900))
    )
    np.savez(tmp_path / "old.npz", **old)
    np.savez(tmp_path / "new.npz", **new)
    settings = {
        "data": {"inputs": tuple(columns)},
        "train": TRAIN | {"epochs": 2},
        "gate": GATE | {"old_drop_max": 1.0, "flips_max": 1.0},
    }
    Store.init(tmp_path / "store", tmp_path / "old.npz", model=f"hf:{tmp_path / 'bert'}", settings=settings)
    store = Store.open(tmp_path / "store")
    with pytest.raises(SelfReminderError, match="--grow"):
        store.update(tmp_path / "new.npz")
    assert store.update(tmp_path / "new.npz", grow=True).outcome == "promoted"
    store.export(hf=tmp_path / "out")
    loaded = BertForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    assert loaded.config.num_labels == 3
    assert loaded.classifier.weight.equal(store.current.read_weights()["classifier.weight"])
    store.export(pt2=tmp_path / "bert.pt2")
