"""The transaction: at whatever moment it ends, the current version is whole, and the same command completes."""

import errno
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from shop import GATE, TRAIN, make_shop, make_store, module_of

from selfreminder import SelfReminderError, Store
from selfreminder.cli import main
from selfreminder.store.rollback import find_resurrected


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_shop(tmp_path_factory.mktemp("shop"))
    make_store(folder)
    return folder


@pytest.fixture
def shop(made: Path, tmp_path: Path) -> Path:
    """A copy of the shop with its store; its code is imported from where it was made."""
    folder = tmp_path / "shop"
    shutil.copytree(made, folder)
    return folder


def snapshot(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_an_update_that_passes_is_promoted_and_the_same_again_is_nothing_to_do(shop: Path) -> None:
    store = Store.open(shop / "store")
    done = store.update(shop / "new.npz")
    assert done.outcome == "promoted" and store.current.number == 2
    assert store.verify() == []
    manifest = store.current.manifest
    assert manifest.parent == 1 and manifest.verdict == "passed"
    assert set(manifest.metrics) == {"v1", "v2"} and manifest.metrics["v2"]["right"] > 0.15
    heldout, memory = store.current.read_heldout(), store.current.read_memory()
    assert not set(heldout.items.tolist()) & set(memory.sources.tolist())  # what judges is never trained on
    assert {int(item) >= 1000 for item in heldout.slice("v2").items} == {True}
    assert not list((store.path / "work").glob("*"))
    assert store.update(shop / "new.npz").outcome == "nothing"
    assert store.update(shop / "newer.npz").outcome == "promoted"
    assert set(store.current.manifest.metrics) == {"v1", "v2", "v3"}


def test_what_the_gate_refuses_is_kept_aside_and_not_trained_again(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = shop / "selfreminder.toml"
    config.write_text(config.read_text().replace("old_drop_max = 0.2", "old_drop_max = 0.001"))
    store = Store.open(shop / "store")
    before = snapshot(store.path / "versions" / "1")
    done = store.update(shop / "new.npz")
    assert done.outcome == "refused" and "v1" in done.reason
    assert store.current.number == 1 and store.numbers == [1, 2] and snapshot(store.path / "versions" / "1") == before
    monkeypatch.setattr("selfreminder.store.update.train_candidate", None)  # from here on, nothing is trained
    assert store.update(shop / "new.npz").outcome == "refused" and store.numbers == [1, 2]
    config.write_text(config.read_text().replace("old_drop_max = 0.001", "old_drop_max = 0.2"))
    done = store.update(shop / "new.npz")  # another gate judges the same candidate
    assert done.outcome == "promoted" and store.current.number == 3 and store.verify() == []


def test_a_trial_adds_nothing_and_saves_the_training(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(shop / "store")
    tried = store.update(shop / "new.npz", dry_run=True)
    assert tried.outcome == "promoted" and tried.dry_run and store.numbers == [1]
    monkeypatch.setattr("selfreminder.store.update.train_candidate", None)
    assert store.update(shop / "new.npz").outcome == "promoted"


def run_until_killed(shop: Path, after: float) -> int | None:
    """Run the command, and kill it after some seconds; the exit code if it ended before."""
    command = [sys.executable, "-m", "selfreminder", "update", "--data", "new.npz"]
    with subprocess.Popen(command, cwd=shop, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            return process.wait(after)
        except subprocess.TimeoutExpired:
            process.kill()
            return None


def kill_and_complete(shop: Path, times: int, seed: int) -> None:
    choose = random.Random(seed)
    config = shop / "selfreminder.toml"
    config.write_text(config.read_text().replace("epochs = 10", "epochs = 40"))
    pristine = shop.with_name("pristine")
    shutil.copytree(shop / "store", pristine)
    began = time.monotonic()
    assert run_until_killed(shop, 600) == 0
    whole = time.monotonic() - began
    weights = Store.open(shop / "store").current.read_weights()
    killed = 0
    while killed < times:
        shutil.rmtree(shop / "store")
        shutil.copytree(pristine, shop / "store")
        for attempt in range(1000):
            began = time.monotonic()
            code = run_until_killed(shop, choose.uniform(0.3, 1.0) * whole)
            store = Store.open(shop / "store")
            assert store.verify() == []
            assert store.current.number in (1, 2)
            if code is not None:
                if not attempt:  # a machine that had much else to do has less now: kill it earlier
                    whole = min(whole, time.monotonic() - began)
                break
            killed += 1
            if killed >= times:
                code = run_until_killed(shop, 600)
                break
        assert code in (0, 3)  # 3: it was promoted just before it was killed
        store = Store.open(shop / "store")
        assert store.current.number == 2 and store.numbers == [1, 2] and store.verify() == []
        assert all(torch.equal(value, weights[name]) for name, value in store.current.read_weights().items())


@pytest.mark.slow
def test_kill_at_a_random_moment(shop: Path) -> None:
    kill_and_complete(shop, times=1, seed=0)


@pytest.mark.slow
def test_kill_at_fifty_random_moments(shop: Path) -> None:
    kill_and_complete(shop, times=50, seed=1)


def test_killed_between_the_version_and_the_pointer(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(shop / "store")

    class KilledError(BaseException):
        pass

    def die(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched, pytest.raises(KilledError):
        patched.setattr(Store, "promote", die)
        store.update(shop / "new.npz")
    assert store.current.number == 1 and store.verify() == []
    monkeypatch.setattr("selfreminder.store.update.train_candidate", None)
    assert store.update(shop / "new.npz").outcome == "promoted" and store.numbers == [1, 2]


def test_two_at_once_one_runs_and_the_other_says_who(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(shop / "store")
    with Store.open(store).hold("selfreminder update --data inbox"):
        other = subprocess.run(
            [sys.executable, "-m", "selfreminder", "update", "--data", "new.npz"],
            cwd=shop, capture_output=True, text=True,
        )  # fmt: skip
    assert other.returncode == 2
    assert f"held by process {os.getpid()} of" in other.stderr and "`selfreminder update --data inbox`" in other.stderr
    assert main(["update", "--store", store, "--data", str(shop / "new.npz")]) == 0


@pytest.mark.parametrize("moment", range(0, 12, 3))
def test_a_full_disk_changes_nothing(shop: Path, monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    store, written = Store.open(shop / "store"), 0
    fsync = os.fsync

    def fill(descriptor: int) -> None:
        nonlocal written
        written += 1
        if written > moment:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fill)
        assert main(["update", "--store", str(store.path), "--data", str(shop / "new.npz")]) == 2
    assert store.current.number == 1 and store.verify() == []
    assert store.update(shop / "new.npz").outcome == "promoted" and store.verify() == []


# Mistakes: a line that says what to do, exit code 2, nothing changed -------------------------------------------


def complain(shop: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    before = {name: each for name, each in snapshot(shop / "store").items() if not name.startswith("work")}
    capsys.readouterr()
    assert main([*arguments, "--store", str(shop / "store")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Traceback" not in said
    left = snapshot(shop / "store")
    assert {name: each for name, each in left.items() if not name.startswith("work")} == before
    return said


def save(shop: Path, x: np.ndarray, y: np.ndarray | None, **columns: np.ndarray) -> str:
    np.savez(shop / "bad.npz", x=x, **({} if y is None else {"y": y}), **columns)
    return str(shop / "bad.npz")


DIGITS = np.random.default_rng(0).integers(0, 255, (200, 28, 28)).astype(np.uint8)
LABELS = np.arange(200) % 10


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (DIGITS, LABELS % 2 + 9, "--grow"),
        (DIGITS[:, :14], LABELS, "shape (14, 28)"),
        (DIGITS.astype(np.float32), LABELS, "float32"),
        (DIGITS[:3], LABELS[:3], "wait for more data"),
        (DIGITS, None, "no labels"),
    ],
)
def test_data_that_does_not_fit(shop: Path, capsys: pytest.CaptureFixture[str], x, y, said: str) -> None:
    assert said in complain(shop, capsys, "update", "--data", save(shop, x, y))


def test_data_that_is_not_there(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such file" in complain(shop, capsys, "update", "--data", str(shop / "nowhere.npz"))
    assert "which data?" in complain(shop, capsys, "update")


def test_a_column_that_is_not_there(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = shop / "selfreminder.toml"
    config.write_text(config.read_text().replace("[data]", '[data]\nslices = ["site"]'))
    assert "site" in complain(shop, capsys, "update", "--data", str(shop / "new.npz"))
    config.write_text(config.read_text().replace('slices = ["site"]', 'label = "lable"'))
    assert "lable" in complain(shop, capsys, "update", "--data", str(shop / "new.npz"))


def test_a_key_that_nobody_knows(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = shop / "selfreminder.toml"
    config.write_text(config.read_text().replace("old_drop_max", "old_drop_mx"))
    assert "did you mean 'old_drop_max'?" in complain(shop, capsys, "update", "--data", str(shop / "new.npz"))


def test_a_factory_that_raises(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = shop / "selfreminder.toml"
    config.write_text(config.read_text().replace(":build", ":build_badly"))
    assert "no licence" in complain(shop, capsys, "update", "--data", str(shop / "new.npz"))
    config.write_text(config.read_text().replace(":build_badly", ":biuld"))
    assert "did you mean 'build'" in complain(shop, capsys, "update", "--data", str(shop / "new.npz"))


def test_a_changed_file(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = shop / "store" / "versions" / "1" / "memory.safetensors"
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(bytes(whole))
    assert "was changed after it was written" in complain(shop, capsys, "update", "--data", str(shop / "new.npz"))
    assert main(["verify", "--store", str(shop / "store")]) == 1


def test_weights_that_do_not_fit(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_file({"1.weight": torch.zeros(4, 784), "9.bias": torch.zeros(2)}, shop / "other.safetensors")
    said = complain(shop, capsys, "check", str(shop / "other.safetensors"))
    assert "1.weight (4, 784) instead of (32, 784)" in said and "9.bias" in said and "1.bias" in said
    torch.save({"weights": object}, shop / "other.pt")
    assert "state dict alone" in complain(shop, capsys, "check", str(shop / "other.pt"))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_that_cannot_be_written_to(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (shop / "store").rglob("*"):
        path.chmod(path.stat().st_mode & ~0o222)
    (shop / "store").chmod(0o555)
    assert "ermission denied" in complain(shop, capsys, "update", "--data", str(shop / "new.npz"))
    assert main(["history", "--store", str(shop / "store")]) == 0


def test_a_read_only_disk(shop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "store/.lock")

    monkeypatch.setattr("selfreminder._base.lock.FileLock.acquire", refuse)
    assert "can be written to" in complain(shop, capsys, "update", "--data", str(shop / "new.npz"))
    assert main(["history", "--store", str(shop / "store")]) == 0


# More classes, deletion ---------------------------------------------------------------------------------------


def test_a_model_grows_when_it_is_asked_to(shop: Path) -> None:
    with np.load(shop / "new.npz") as found:
        np.savez(shop / "grown.npz", x=found["x"], y=np.where(found["y"] == 3, 10, found["y"]))
    store = Store.open(shop / "store")
    with pytest.raises(SelfReminderError, match="--grow"):
        store.update(shop / "grown.npz")
    assert store.update(shop / "grown.npz", grow=True).outcome == "promoted"
    assert store.current.manifest.outputs == 11
    assert store.current.read_weights()["3.weight"].shape == (11, 32)
    assert store.update(shop / "newer.npz").outcome == "promoted"  # the wide model is built again


def test_deleted_items_are_in_no_file_of_the_new_version(shop: Path) -> None:
    store = Store.open(shop / "store")
    store.update(shop / "new.npz")
    gone = store.delete(ids="0-99", dry_run=True)
    assert store.numbers == [1, 2]
    assert store.delete(ids="0-99").version is not None
    kept = {*store.current.read_memory().sources.tolist(), *store.current.read_heldout().items.tolist()}
    assert kept and min(kept) >= 100
    assert gone.remembered and gone.held_out and gone.trained_with == (1, 2) and gone.kept_in == (1, 2)
    assert store.delete(where="label=3").version is not None
    assert 3 not in store.current.read_heldout().labels and 3 not in store.current.read_memory().labels
    with pytest.raises(SelfReminderError, match="unknown column 'lable'"):
        store.delete(where="lable=3")
    assert find_resurrected(store, store.version(1)) and not find_resurrected(store, store.current)
    assert store.verify() == []


def test_unlabelled_old_data_is_judged_by_agreement(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    with np.load(shop / "old.npz") as found:
        np.savez(shop / "old.npz", x=found["x"])
    name = module_of(shop)
    settings = {"data": {"preprocess": f"{name}:prepare"}, "gate": GATE}
    made = Store.init(
        shop / "store", shop / "old.npz", model=f"{name}:build", weights=shop / "weights.safetensors", settings=settings
    )
    assert made.right == 1.0 and made.measure == "agreement" and "no labels" in made.notes[0]


def test_what_init_refuses_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop, name = make_shop(tmp_path), module_of(tmp_path)
    save_file({"1.weight": torch.zeros(4, 784)}, shop / "other.safetensors")
    high = save(shop, DIGITS, LABELS + 5)

    def refuse(weights: str, data: str, *more: str) -> str:
        model = ["--model", f"{name}:build", "--preprocess", f"{name}:prepare", "--weights", str(shop / weights)]
        assert main(["init", "--store", str(shop / "store"), *model, "--data", data, *more]) == 2
        assert not (shop / "store").exists() and not (shop / "selfreminder.toml").exists()
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        return said

    sys.path.insert(0, str(shop))
    assert "do not fit" in refuse("other.safetensors", str(shop / "old.npz"))
    assert "label 14 has no output" in refuse("weights.safetensors", high)
    assert "site" in refuse("weights.safetensors", str(shop / "old.npz"), "--slices", "site")
    assert "no such file" in refuse("weights.safetensors", str(shop / "nowhere.npz"))


def test_without_old_data_it_says_what_cannot_be_shown(tmp_path: Path) -> None:
    shop, name = make_shop(tmp_path), module_of(tmp_path)
    settings = {"data": {"preprocess": f"{name}:prepare"}, "train": TRAIN}
    made = Store.init(shop / "store", model=f"{name}:build", weights=shop / "weights.safetensors", settings=settings)
    assert made.heldout == 0 and "nothing shows" in made.notes[0]
    assert Store.open(shop / "store").update(shop / "new.npz").outcome == "promoted"
