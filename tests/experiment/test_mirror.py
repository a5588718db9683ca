"""Folders in an object store: on fsspec's memory and local file systems, and, where s3fs and moto are, on a server."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.lock import LockedError
from selfreminder.cli import main
from selfreminder.experiment import mirror as mirror_module
from selfreminder.experiment.mirror import CLAIM, Mirror
from selfreminder.experiment.object_store import Store
from selfreminder.experiment.records import RECORDS, STATE, TIMINGS
from selfreminder.experiment.run import run
from selfreminder.experiment.sweep import read_sweep
from selfreminder.training import StoppedError

SPEC = """
benchmark = "permuted-mnist"
data = "embedded-mnist"
images = 300
tasks = 2
width = 0.05
per_class = 2
epochs = 2
seeds = {seeds}

[grid]
method = ["fsr-logit"]
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    move_to(tmp_path / "first machine", monkeypatch)
    yield
    fsspec.filesystem("memory").store.clear()


def move_to(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be another machine, with nothing in its cache."""
    monkeypatch.setenv("SELFREMINDER_CACHE", str(cache))


def write_spec(tmp_path: Path, seeds: int = 2) -> Path:
    spec = tmp_path / "grid.toml"
    spec.write_text(SPEC.format(seeds=seeds))
    return spec


def read_all(url: str) -> dict[str, bytes]:
    store = Store(url)
    return {name: store.read(name) or b"" for name in store.list()}


def check_a_grid(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a grid, look at it from another machine, and go on with it there."""
    spec, here = write_spec(tmp_path), tmp_path / "here"
    assert main(["run", str(spec), "--out", url, "--jobs", "1"]) == 0
    assert f"is in {url}" in capsys.readouterr().err
    assert main(["run", str(spec), "--out", str(here), "--jobs", "1"]) == 0
    stored = read_all(url)
    expected = {path.relative_to(here).as_posix() for path in here.rglob("*") if path.is_file()}
    assert stored.keys() == {name for name in expected if not any(part[0] == "." for part in name.split("/"))}
    records = {name for name in stored if name.endswith(RECORDS)}
    assert len(records) == 2
    for name in records:
        assert stored[name] == (here / name).read_bytes()
    capsys.readouterr()

    move_to(tmp_path / "second machine", monkeypatch)
    assert main(["status", url]) == 0
    assert capsys.readouterr().out.startswith("2 of 2 runs done")
    assert main(["report", url]) == 0
    assert b"<html" in read_all(url)["report.html"]
    write_spec(tmp_path, seeds=3)
    capsys.readouterr()
    assert main(["run", str(spec), f"--out={url}/", "--jobs", "1"]) == 0
    assert capsys.readouterr().err.count(": done") == 1  # the third
    now = read_all(url)
    assert len([name for name in now if name.endswith(RECORDS)]) == 3
    assert all(now[name] == stored[name] for name in records)
    assert json.loads(Store(url).read(CLAIM) or b"")["ended"] is True


@pytest.mark.slow
@pytest.mark.parametrize("where", ["memory", "file"])
def test_a_grid_in_a_store(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "memory://bucket/some/grid" if where == "memory" else f"file://{tmp_path}/store/grid"
    check_a_grid(url, tmp_path, monkeypatch, capsys)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server on this machine with a bucket."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    fsspec.filesystem("s3").makedirs("bucket", exist_ok=True)
    yield server
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    server.stop()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the server and its clients
def test_a_grid_on_a_server(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_a_grid("s3://bucket/some/grid", tmp_path, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mistakes_with_a_server(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = str(write_spec(tmp_path))
    capsys.readouterr()
    assert main(["run", spec, "--out", "s3://no-such-bucket/grid"]) == 2
    line = capsys.readouterr().err
    assert "s3://no-such-bucket/grid cannot be used (The specified bucket does not exist)" in line
    assert line.count("\n") == 1
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    assert main(["run", spec, "--out", "s3://bucket/grid"]) == 2
    line = capsys.readouterr().err
    assert "cannot be used (Unable to locate credentials)" in line and line.count("\n") == 1


def begin(url: str, spec: Path) -> tuple[Mirror, Path]:
    """Begin a run in the folder of a store, as a process that is killed does."""
    begun = Mirror(url)
    begun._load()
    begun._claim()
    experiment = read_sweep(spec).experiments[0]
    folder = begun.folder / experiment.key
    with pytest.raises(StoppedError):
        run(experiment, folder, stop=lambda: (folder / TIMINGS).read_text().count("\n") >= 2)
    return begun, folder


def test_another_machine_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From whatever had arrived when the first was killed."""
    spec, url = write_spec(tmp_path, seeds=1), "memory://bucket/killed"
    killed, folder = begin(url, spec)
    (experiment,) = read_sweep(spec).experiments
    run(experiment, tmp_path / "whole")
    whole = (tmp_path / "whole" / RECORDS).read_bytes()
    writes: list[str] = []
    monkeypatch.setattr(killed.store, "write", lambda name, content: writes.append(name))
    killed._push()
    assert [name.rpartition("/")[2] for name in writes] == [TIMINGS, RECORDS, STATE]
    monkeypatch.setattr(mirror_module, "_SILENCE", 0.1)
    for arrived in range(4):
        fsspec.filesystem("memory").store.clear()
        killed.store = Store(url)
        killed._claim()
        for name in writes[:arrived]:
            killed.store.write(name, (killed.folder / name).read_bytes())
        move_to(tmp_path / f"machine {arrived}", monkeypatch)
        with Mirror(url).writing() as here:
            run(experiment, here / experiment.key)
            lines = (here / experiment.key / TIMINGS).read_bytes()
        stored = read_all(url)
        assert stored[f"{experiment.key}/{RECORDS}"] == whole
        assert f"{experiment.key}/{STATE}" not in stored
        if arrived == 3:  # with its state: what was done before is not done again
            before = (folder / TIMINGS).read_bytes()
            assert lines.startswith(before) and b'"epoch": 0' not in lines[len(before) :].partition(b'"task": 1')[0]
    assert "was at work in memory://bucket/killed" in capsys.readouterr().err


def test_one_process_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url, over = "memory://bucket/busy", threading.Event()

    def live() -> None:
        other = Mirror(url)
        other._load()
        while not over.wait(0.1):
            other._claim()

    other = threading.Thread(target=live)
    other.start()
    try:
        while Store(url).read(CLAIM) is None:
            time.sleep(0.01)
        move_to(tmp_path / "second machine", monkeypatch)
        assert main(["run", str(write_spec(tmp_path)), "--out", url]) == 2
    finally:
        over.set()
        other.join()
    assert "another process is at work in memory://bucket/busy (process " in capsys.readouterr().err
    assert read_all(url) == {}


def test_who_has_lost_a_store_writes_nothing_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "memory://bucket/lost"
    with (
        pytest.raises(LockedError, match=r"has taken memory://bucket/lost: what was done here is in"),
        Mirror(url).writing() as here,
    ):
        move_to(tmp_path / "second machine", monkeypatch)
        monkeypatch.setattr(mirror_module, "_SILENCE", 0.1)
        with Mirror(url).writing() as there:
            (there / "a.txt").write_text("theirs")
        (here / "a.txt").write_text("ours")
    assert read_all(url) == {"a.txt": b"theirs"}


def test_what_could_not_be_sent_is_sent_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "memory://bucket/away"
    with Mirror(url).writing() as here:
        (here / "a.txt").write_text("first")
    with monkeypatch.context() as broken, pytest.raises(SelfReminderError, match="cannot be used \\(no network\\)"):

        def fail(*_: object, **__: object) -> None:
            raise OSError("no network")

        with Mirror(url).writing() as here:
            (here / "a.txt").write_text("second")
            (here / "b.txt").write_text("new")
            broken.setattr(fsspec.filesystem("memory"), "pipe_file", fail)
    assert read_all(url) == {"a.txt": b"first"}
    with Mirror(url).writing() as here:
        assert (here / "a.txt").read_text() == "second"
        (here / "b.txt").unlink()
    assert read_all(url) == {"a.txt": b"second"}


def test_changes_are_sent_while_the_work_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_module, "_EVERY", 0.05)
    url = "memory://bucket/live"
    with Mirror(url).writing() as here:
        (here / "run").mkdir()
        (here / "run" / "a.txt").write_text("a")
        deadline = time.monotonic() + 600
        while "run/a.txt" not in Store(url).list():
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_what_others_changed_replaces_what_is_here(tmp_path: Path) -> None:
    """Of objects as they are, those that are here as they came are not fetched again; no name leads elsewhere."""
    url, store = "memory://bucket/others", Store("memory://bucket/others")
    store.write("same.txt", b"same")
    store.write("changed.txt", b"old")
    store.write("gone/a.txt", b"gone")
    with Mirror(url).reading() as here:
        assert (here / "gone" / "a.txt").read_text() == "gone"
    store.write("changed.txt", b"new")
    store.remove("gone/a.txt")
    store.write(".hidden", b"hidden")
    store.write("..\\evil.txt", b"evil")
    (here / "left.txt").write_text("of nobody")
    fetched: list[str] = []
    again = Mirror(url)
    read = again.store.read
    again.store.read = lambda name: fetched.append(name) or read(name)
    with again.reading() as here:
        assert {path.name for path in here.rglob("*") if path.is_file() and path.name[0] != "."} == {
            "same.txt",
            "changed.txt",
        }
        assert (here / "changed.txt").read_text() == "new"
    assert fetched == [CLAIM, "changed.txt"]


def test_mistakes_are_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = str(write_spec(tmp_path))
    for words, said in (
        (["run", spec, "--out", "nowhere://x/y"], "nowhere://x/y is no place that is known"),
        (["status", "memory://bucket/nothing"], "memory://bucket/nothing holds no runs"),
        (["report", "runs", "--out", "memory://x"], "--out memory://x: name a file of this machine"),
        (["compare", "permuted-mnis", "-o", "memory://bucket/typo"], "did you mean 'permuted-mnist'"),
    ):
        assert main(words) == 2
        line = capsys.readouterr().err
        assert said in line and line.count("\n") == 1
    assert Store("memory://bucket/typo").read(CLAIM) is None


def test_a_missing_extra_is_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    assert main(["run", str(write_spec(tmp_path)), "--out", "s3://bucket/grid"]) == 2
    line = capsys.readouterr().err
    assert "Install s3fs to access S3 (pip install 'selfreminder[remote]')" in line and line.count("\n") == 1
