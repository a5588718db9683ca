"""Versions in an MLflow registry: an SQLite file, and a server on loopback."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from shop import make_shop, make_store

from ports import find_port
from selfreminder._base.errors import MissingExtraError, StoreError
from selfreminder.store import mlflow as registry

FILES = {"model.safetensors": b"weights", "memory.safetensors": b"memory", "README.md": b"# card"}

# What MLflow's own dependencies say of themselves is not about this project.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)


@pytest.fixture(autouse=True)
def no_telemetry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)


def make_version(folder: Path, number: int, verdict: str | None = None) -> Path:
    folder = folder / str(number)
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content + str(number).encode())
    facts = {"version": number, "sha256": f"hash {number}", "verdict": verdict}
    (folder / "manifest.json").write_text(json.dumps(facts))
    return folder


def follow_a_life(uri: str, folder: Path) -> list[registry.Registered]:
    """Two versions: registered, promoted, rolled back."""
    first = registry.register(uri, "shop", make_version(folder, 1), alias=None)
    assert registry.find_alias(uri, "shop") is None
    registry.promote(uri, "shop", 1)
    second = registry.register(uri, "shop", make_version(folder, 2, "passed"), metrics={"v1 (accuracy)": 0.9})
    assert (registry.find_alias(uri, "shop", "candidate"), registry.find_alias(uri, "shop")) == (2, 1)
    assert registry.register(uri, "shop", folder / "2") == second  # the same command again
    assert registry.promote(uri, "shop", 2) == second
    assert (registry.find_alias(uri, "shop", "candidate"), registry.find_alias(uri, "shop")) == (None, 2)
    registry.promote(uri, "shop", 1)  # a rollback
    assert registry.find_alias(uri, "shop") == 1
    assert (first.version, second.version) == (1, 2)
    return [first, second]


def test_a_life_in_an_sqlite_file(tmp_path: Path):
    uri = f"sqlite:///{tmp_path / 'm.db'}"
    _, second = follow_a_life(uri, tmp_path / "versions")
    folder = Path(second.uri.removeprefix("file://"))
    assert folder.is_relative_to(tmp_path)
    assert {each.name for each in folder.iterdir()} == {*FILES, "manifest.json", "MLmodel"}
    assert (folder / "memory.safetensors").read_bytes() == b"memory2"
    assert "python_function" not in (folder / "MLmodel").read_text()  # nothing that MLflow would run or unpickle
    assert {each.name for each in tmp_path.iterdir()} == {"m.db", "mlartifacts", "versions"}
    with pytest.raises(StoreError, match="'a/b' is no name"):
        registry.register(uri, "a/b", tmp_path / "versions" / "1")
    with pytest.raises(StoreError, match="has no version 7 of the store: register it first"):
        registry.promote(uri, "shop", 7)


def test_mistakes_are_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    uri = f"sqlite:///{tmp_path / 'm.db'}"
    version = make_version(tmp_path, 1)
    with pytest.raises(StoreError, match="is no version of a store"):
        registry.register(uri, "shop", tmp_path)
    with pytest.raises(StoreError, match="there is no folder"):
        registry.register(f"sqlite:///{tmp_path}/nowhere/m.db", "shop", version)
    with pytest.raises(StoreError, match=r"127.0.0.1:9 does not answer .*start `mlflow server`"):
        registry.register("http://127.0.0.1:9", "shop", version)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'selfreminder\[mlflow\]'"):
        registry.register(uri, "shop", version)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    port = find_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{tmp_path / 's.db'}",
        "--artifacts-destination",
        str(tmp_path / "files"),
    ]
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True)
    try:
        uri, until = f"http://127.0.0.1:{port}", time.monotonic() + 600
        while True:
            try:
                with urllib.request.urlopen(f"{uri}/health", timeout=2):
                    break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    pytest.fail((tmp_path / "server.log").read_text()[-2000:])
                time.sleep(0.2)
        yield uri
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its own group: nobody else is in it
        process.wait()


@pytest.mark.slow
def test_a_life_on_a_server(server: str, tmp_path: Path):
    follow_a_life(server, tmp_path / "versions")
    stored = [path for path in (tmp_path / "files").rglob("memory.safetensors") if path.read_bytes() == b"memory2"]
    assert len(stored) == 1


def test_the_registry_follows_the_store(tmp_path: Path) -> None:
    """Every version that was made is there; champion is the current one, after an update and after a rollback."""
    uri = f"sqlite:///{tmp_path / 'm.db'}"
    shop = make_shop(tmp_path)
    store = make_store(shop, mlflow={"uri": uri, "name": "shop"})
    assert registry.find_alias(uri, "shop") == 1
    assert store.update(shop / "new.npz").notes == () and registry.find_alias(uri, "shop") == 2
    config = store.config_path.read_text()
    store.config_path.write_text(config.replace("old_drop_max = 0.2", "old_drop_max = 0.0001"))
    assert store.update(shop / "newer.npz").outcome == "refused"
    assert (registry.find_alias(uri, "shop", "candidate"), registry.find_alias(uri, "shop")) == (3, 2)
    assert store.rollback().notes == () and registry.find_alias(uri, "shop") == 1
    store.config_path.write_text(config.replace(uri, "http://127.0.0.1:9"))
    (note,) = store.rollback(to=2).notes  # the store moves on whatever becomes of the registry
    assert "does not answer" in note and "export --version 2 --mlflow" in note and store.current.number == 2
