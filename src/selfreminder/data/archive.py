"""Files and archives of anybody, read within bounds: how much memory they may take is known before it is taken.

Every file that selfreminder knows is smaller than these bounds. A few bytes can ask for gigabytes: compressed content,
a header that says how long the rest is.
"""

import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from selfreminder._base.errors import DataError, SelfReminderError
from selfreminder._base.sizes import show_bytes

MOST_BYTES = 2**28
"""of a file's content; the largest that there is has 154 MB"""
MOST_IN_ARCHIVE = 2**30
"""of an archive's content, all of which is read on the way to a member; the largest that there is has 187 MB"""
_MOST_MEMBERS = 20_000
"""the most that there are is 12,107, mails"""
_MOST_DICTIONARY = 2**28
"""bytes that decompressing a .xz may need beside its content"""
_CHUNK = 2**18
DAMAGED = (
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    ValueError,
    ArithmeticError,
    LookupError,
)
"""what reading an archive that is none can raise"""

Progress = Callable[[str, int, int | None], None]
"""(what, bytes so far, bytes in all if known)"""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read_file(path: Path) -> bytes:
    """Read a file, decompressed if it is named `.gz`."""
    with path.open("rb") as file:
        content = read_stream(file, str(path))
    return gunzip(content, str(path)) if path.suffix == ".gz" else content


def read_stream(
    stream: _Readable, where: str, what: str = "", total: int | None = None, progress: Progress | None = None
) -> bytes:
    """Read all of a stream, which must not be too large, and tell the progress."""
    parts, size = [], 0
    if total is not None:
        _check_size(total, where)
    while part := stream.read(_CHUNK):
        parts.append(part)
        size += len(part)
        _check_size(size, where)
        if progress:
            progress(what, size, total)
    return b"".join(parts)


def gunzip(content: bytes, where: str) -> bytes:
    """Decompress a content; `where` it comes from is said if it is damaged."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            return read_stream(stream, where)
    except SelfReminderError:
        raise
    except DAMAGED as error:
        raise DataError(f"{where} is damaged ({error}): remove it, then `selfreminder data get` again") from None


def _check_size(size: int, where: str) -> None:
    if size > MOST_BYTES:
        raise DataError(
            f"{where} has more than {show_bytes(MOST_BYTES)}: no data file that selfreminder knows has that"
        )


@contextmanager
def open_tar(archive: Path | bytes) -> Iterator[tarfile.TarFile]:
    """Open a tar archive, plain or compressed, whose members are read in their order."""
    with archive.open("rb") if isinstance(archive, Path) else io.BytesIO(archive) as file:
        start = file.read(6)
        file.seek(0)
        stream: _Readable = file
        if start.startswith(b"\x1f\x8b"):
            stream = gzip.GzipFile(fileobj=file)
        elif start == b"\xfd7zXZ\0":
            stream = io.BufferedReader(_Xz(file), _CHUNK)
        # It needs no more of a file than this.
        with tarfile.open(fileobj=_Forward(stream), mode="r:") as tar:  # pyright: ignore[reportArgumentType, reportCallIssue]
            yield tar


def list_members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """List the members of an archive in their order, as many as any has."""
    for count, member in enumerate(tar):
        if count >= _MOST_MEMBERS:
            raise ValueError(f"it has more than {_MOST_MEMBERS} members")
        yield member


class _Forward:
    """A stream that is read forwards, never too far and never too much at once.

    A member that nobody wants is passed over in small steps; a header that asks for gigabytes is refused.
    """

    def __init__(self, stream: _Readable) -> None:
        self._stream, self._place = stream, 0

    def tell(self) -> int:
        return self._place

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or place < self._place:
            raise ValueError("its members are not in their order")
        for _ in self._read_parts(place - self._place):
            pass
        return self._place

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MOST_BYTES:
            raise ValueError("a header is too long")
        return b"".join(self._read_parts(size))

    def _read_parts(self, size: int) -> Iterator[bytes]:
        while size and (part := self._stream.read(min(_CHUNK, size))):
            self._place += len(part)
            size -= len(part)
            if self._place > MOST_IN_ARCHIVE:
                raise ValueError(f"it has more than {show_bytes(MOST_IN_ARCHIVE)}")
            yield part


class _Xz(io.RawIOBase):
    """A decompressed .xz, whose dictionary is not too large."""

    def __init__(self, file: _Readable) -> None:
        self._file = file
        self._xz = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_DICTIONARY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        while not self._xz.eof:
            given = self._file.read(_CHUNK) if self._xz.needs_input else b""
            if self._xz.needs_input and not given:
                raise EOFError("it ends in the middle")
            if part := self._xz.decompress(given, len(buffer)):
                buffer[: len(part)] = part
                return len(part)
        return 0
