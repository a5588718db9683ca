"""The content of data files, checked by sha256, in whatever form they come: plain, gzipped, converted, archived."""

import gzip
import hashlib
import io
import lzma
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from selfreminder._base.errors import DataError

Progress = Callable[[str, int, int | None], None]
"""(what, bytes so far, bytes in all if known)"""

_CHUNK = 1 << 18
_DAMAGED = (tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError)


@dataclass(frozen=True)
class Form:
    """Another form of a file: the members of an archive, or the one file of a folder, that hold its content."""

    members: tuple[str, ...]
    convert: Callable[..., bytes] = bytes
    """the members' contents -> the file's"""


@dataclass(frozen=True)
class DataFile:
    """A file and the sha256 of its uncompressed content."""

    name: str
    sha256: str
    forms: tuple[Form, ...] = ()
    namesakes: tuple[str, ...] = ()
    """sha256 of other data sets' files of the same name"""


def possible_places(file: DataFile, folder: Path) -> Iterator[Path]:
    """Give the places in a folder where a file may lie, archives apart."""
    yield folder / file.name
    yield folder / f"{file.name}.gz"
    for form in file.forms:
        if len(form.members) == 1:
            yield folder / form.members[0]


def is_archive(path: Path) -> bool:
    """Tell a tar archive by its name."""
    return path.suffix == ".tgz" or ".tar" in path.suffixes[-2:]


def read(file: DataFile, path: Path) -> bytes:
    """Read a file's content, uncompressed and checked, from one of its `possible_places` or from an archive."""
    if is_archive(path):
        return next(content for _, content in unpack(path, str(path), [file]))
    form = next((form for form in file.forms if len(form.members) == 1 and path.match(form.members[0])), Form(()))
    content = _convert(form, [_read_plain(path)], str(path))
    check_content(file, content, str(path))
    return content


def is_namesake(file: DataFile, path: Path) -> bool:
    """Tell whether the file at `path` is known to be another data set's."""
    try:
        return bool(file.namesakes) and hashlib.sha256(_read_plain(path)).hexdigest() in file.namesakes
    except DataError:
        return False


def unpack(
    archive: Path | bytes, where: str, files: Iterable[DataFile], progress: Progress | None = None
) -> Iterator[tuple[DataFile, bytes]]:
    """Unpack files with their checked contents from a tar archive, in one pass. No member is written to disk."""
    waiting = list(files)
    held: dict[str, bytes] = {}
    opened = archive.open("rb") if isinstance(archive, Path) else io.BytesIO(archive)
    try:
        with opened as stream, tarfile.open(fileobj=stream) as tar:
            for entry in tar:
                name = posixpath.normpath(entry.name)
                needed = {part for file in waiting for form in file.forms for part in form.members}
                member = tar.extractfile(entry) if name in needed and entry.isfile() else None
                if member is None:
                    continue
                held = {part: content for part, content in held.items() if part in needed}
                held[name] = read_stream(member, posixpath.basename(name), entry.size, progress)
                for file in waiting.copy():
                    if form := next((form for form in file.forms if held.keys() >= set(form.members)), None):
                        origin = f"{form.members[0]} in {where}"
                        content = _convert(form, [held[part] for part in form.members], origin)
                        check_content(file, content, origin)
                        waiting.remove(file)
                        yield file, content
                if not waiting:
                    return
    except _DAMAGED as error:
        raise DataError(f"{where} is damaged ({error}): replace or remove it") from None
    raise DataError(f"{where} has no {', '.join(file.name for file in waiting)}")


def read_stream(stream: IO[bytes], what: str, total: int | None, progress: Progress | None) -> bytes:
    """Read all of a stream, and tell the progress."""
    parts, size = [], 0
    while part := stream.read(_CHUNK):
        parts.append(part)
        size += len(part)
        if progress:
            progress(what, size, total)
    return b"".join(parts)


def gunzip(content: bytes, where: str) -> bytes:
    """Decompress a content; `where` it comes from is said if it is damaged."""
    try:
        return gzip.decompress(content)
    except _DAMAGED as error:
        raise DataError(f"{where} is damaged ({error}): remove it, then `selfreminder data get` again") from None


def check_content(file: DataFile, content: bytes, where: str) -> None:
    """Raise unless a content has the file's sha256; `where` it comes from is said."""
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise DataError(
            f"{where} has the wrong checksum: sha256 {digest[:16]}…, it should be {file.sha256[:16]}…; "
            "remove it, then `selfreminder data get` again"
        )


def _read_plain(path: Path) -> bytes:
    content = path.read_bytes()
    return gunzip(content, str(path)) if path.suffix == ".gz" else content


def _convert(form: Form, parts: list[bytes], where: str) -> bytes:
    try:
        return form.convert(*parts)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
