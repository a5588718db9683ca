"""Folders in an object store: commands are given folders of this machine instead, which are kept the same."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from selfreminder._base.errors import MissingExtraError, SelfReminderError

_WRITING, _READING = ("compare", "run", "tune", "reproduce"), ("status", "report")
_OUT = ("--out", "-o")
_URL = re.compile(r"((?:--out|-o|--folder)=)?([a-z][a-z0-9+.-]+://.*)")


@contextmanager
def with_stores(words: Sequence[str]) -> Iterator[list[str]]:
    """Give the words of a command with a folder of this machine instead of each URL of a store."""
    given, command = list(words), words[0] if words else ""
    writes = command in _WRITING and "--dry-run" not in words
    with ExitStack() as stores:
        for place, word in enumerate(given):
            found = _URL.fullmatch(word)
            if found is None or command not in (*_WRITING, *_READING):
                continue
            option, url = found[1] or "", found[2]
            is_out = option.startswith(_OUT) or given[place - 1] in _OUT
            if command in _READING and is_out:
                raise SelfReminderError(
                    f"--out {url}: name a file of this machine; without it the page goes to its runs"
                )
            if command in _READING or is_out:  # else it is something else, such as the address of a cluster
                given[place] = f"{option}{_open(url, writes, command in _WRITING, stores)}"
                if command == "compare" and "--tune" in given:
                    _open(f"{url.rstrip('/')}-tuning", writes, True, stores)
        yield given


def _open(url: str, writes: bool, may_be_empty: bool, stores: ExitStack) -> Path:
    try:
        from selfreminder.experiment.mirror import Mirror  # noqa: PLC0415 - of the extra `remote`
    except ImportError as error:
        raise MissingExtraError(f"{url} needs {error.name}: pip install 'selfreminder[remote]'") from None
    mirror = Mirror(url)
    return stores.enter_context(mirror.writing() if writes else mirror.reading(may_be_empty))
