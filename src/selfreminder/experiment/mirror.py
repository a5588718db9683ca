"""A folder that is kept in an object store: filled from there at the start, sent there as it changes.

The work is done in a folder of this machine, beside the cache of data. The store is what counts: whatever another
machine has put there replaces what is here. One process at a time writes to it: its claim, an object beside the others,
says which one, and changes as long as that is alive.
"""

import _thread
import hashlib
import json
import os
import platform
import secrets
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from selfreminder._base.atomic import write_text
from selfreminder._base.checked import DAMAGE
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.lock import LockedError, locked
from selfreminder.data.source import cache_folder
from selfreminder.experiment.carried import Carried, Versions, read_changes, sort_for_writing
from selfreminder.experiment.object_store import Store

CLAIM = ".selfreminder.json"
"""of the process that is at work in a store, or was the last: {"by", "where", "beat", "ended"}"""
_KNOWN, _LOCK = ".mirror.json", ".mirror.lock"
"""in the folder here: who it is to a store, and what it has of it; and who is at work in it"""
_EVERY = 15.0
"""seconds between two looks at what is to be sent"""
_SILENCE = 60.0
"""seconds after which a process whose claim does not change is taken for dead"""


class Mirror:
    """The folder here of a store."""

    def __init__(self, url: str) -> None:
        self.store = Store(url)
        around, _, name = self.store.url.rpartition("/")
        # With its own name, beside those of its neighbours: a comparison's tuning is one.
        self.folder = cache_folder() / "remote" / hashlib.sha256(around.encode()).hexdigest()[:16] / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self._beat, self._beaten = 0, 0.0

    @contextmanager
    def reading(self, may_be_empty: bool = False) -> Iterator[Path]:
        """Give the folder as the store has it; what is added to it is sent at the end."""
        with ExitStack() as lock:
            try:
                lock.enter_context(locked(self.folder, 0.0, _LOCK))
            except LockedError:  # who is at work in it has the newest, and sends it
                yield self.folder
                return
            self._load()
            claim = self._read_claim()
            if claim.get("by") != self._id:
                self._pull()
            if not may_be_empty and not any(self._known.values()):
                raise SelfReminderError(f"{self.store.url} holds no runs")
            if claim.get("ended") is False and claim.get("by") != self._id:
                print(f"selfreminder: {claim.get('where')} is, or was, at work in {self.store.url}", file=sys.stderr)
            yield self.folder
            self._push()

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """Give the folder as the store has it, let no other process write there, and send what changes."""
        with locked(self.folder, 1.0, _LOCK):
            self._load()
            claim = self._wait_for(self._read_claim())
            if claim.get("by") != self._id:  # else nobody has been there since, and here may be more than there
                self._pull()
            self._claim()
            over, lost = threading.Event(), list[SelfReminderError]()
            thread = threading.Thread(target=self._follow, args=(over, lost), daemon=True)
            thread.start()
            try:
                yield self.folder
            finally:
                over.set()
                thread.join()
                if lost:
                    raise lost[0]
                self._send(ended=True)
                if any(self._known.values()):
                    print(f"selfreminder: {self.folder} is in {self.store.url}", file=sys.stderr)

    # What is known of the store -------------------------------------------------------------------------------

    def _load(self) -> None:
        """Read who this folder is to the store, and which of its files are there as they are here."""
        self._id, self._known, self._tags = secrets.token_hex(8), dict[str, Versions](), dict[str, str]()
        try:
            said = json.loads((self.folder / _KNOWN).read_text(encoding="utf-8"))
            known = {
                around: {name: (int(size), int(time)) for name, (size, time) in files.items()}
                for around, files in said["known"].items()
            }
            self._id, self._known, self._tags = str(said["id"]), known, dict(said["tags"])
        except (OSError, *DAMAGE):
            return

    def _keep(self) -> None:
        said = {"id": self._id, "known": self._known, "tags": self._tags}
        write_text(self.folder / _KNOWN, json.dumps(said))

    # Claims ---------------------------------------------------------------------------------------------------

    def _read_claim(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self.store.read(CLAIM) or b"{}"))
        except (ValueError, TypeError):
            return {}

    def _wait_for(self, claim: dict[str, Any]) -> dict[str, Any]:
        """Wait for another process that may be alive; raise if it is."""
        if claim.get("ended") is not False or claim.get("by") == self._id:
            return claim
        where = claim.get("where")
        print(f"selfreminder: {where} was at work in {self.store.url}: looking whether it still is", file=sys.stderr)
        deadline = time.monotonic() + _SILENCE
        while time.monotonic() < deadline:
            time.sleep(min(2.0, _SILENCE))
            now = self._read_claim()
            if now.get("ended"):
                return now
            if now != claim:
                raise LockedError(
                    f"another process is at work in {self.store.url} ({now.get('where')}): wait for it, or choose "
                    "another one with --out"
                )
        return claim

    def _claim(self, ended: bool = False) -> None:
        self._beat, self._beaten = self._beat + 1, time.monotonic()
        where = f"process {os.getpid()} on {platform.node()}"
        claim = {"by": self._id, "where": where, "beat": self._beat, "ended": ended}
        self.store.write(CLAIM, json.dumps(claim).encode())

    # Files ----------------------------------------------------------------------------------------------------

    def _pull(self) -> None:
        """Make the folder what the store is."""
        there: dict[str, dict[str, str]] = {around: {} for around in self._list_folders()}
        for path, tag in self.store.list().items():
            around, _, name = path.rpartition("/")
            there.setdefault(around, {})[name] = tag
        for around, tags in there.items():
            here, known = self.folder / around, self._known.setdefault(around, {})
            edited = read_changes(here, known).written  # since it came; `known` is all that is here now
            old = [name for name, tag in tags.items() if self._tags.get(_join(around, name)) != tag]
            found: dict[str, bytes] = {}
            for name in reversed(sort_for_writing({*old, *(tags.keys() & edited), *(tags.keys() - known)})):
                if (content := self.store.read(_join(around, name))) is not None:  # else it was removed meanwhile
                    found[name] = content
                    self._tags[_join(around, name)] = tags[name]
            Carried(dict(reversed(found.items())), tuple(known.keys() - tags)).put(here)
            read_changes(here, known)
        self._keep()

    def _push(self) -> None:
        """Make the store what the folder is."""
        for around in self._list_folders():
            known = dict(self._known.get(around, {}))
            changes = read_changes(self.folder / around, known)
            for name, content in changes.written.items():
                self.store.write(_join(around, name), content)
                self._tags.pop(_join(around, name), None)
            for name in changes.removed:
                self.store.remove(_join(around, name))
            if changes != Carried():
                self._known[around] = known  # not before all has arrived: else it is sent again
                self._keep()
            if time.monotonic() - self._beaten > _EVERY and self._beat:
                self._claim()

    def _send(self, ended: bool = False) -> None:
        """Send what has changed, if the store is still this process's."""
        claim = self._read_claim()
        if claim.get("by") != self._id:
            raise LockedError(
                f"{claim.get('where') or 'another process'} has taken {self.store.url}: what was done here is in "
                f"{self.folder}, copy it before the same command fetches what is there"
            )
        self._push()
        if ended and not any(self._known.values()):  # nothing came of it
            self.store.remove(CLAIM)
        else:
            self._claim(ended)

    def _follow(self, over: threading.Event, lost: list[SelfReminderError]) -> None:
        """Send what has changed every now and then; a store that does not answer is asked again."""
        warned = False
        while not over.wait(_EVERY):
            try:
                self._send()
            except LockedError as error:
                lost.append(error)
                _thread.interrupt_main()  # like Ctrl-C
                return
            except (SelfReminderError, OSError) as error:
                if not warned:
                    print(f"selfreminder: {error}; tried again every {_EVERY:g} s", file=sys.stderr)
                warned = True

    def _list_folders(self) -> list[str]:
        """List the folder and those in it, by their names from there on, without hidden ones, and what was known."""
        found = {""}
        for path, names, _ in os.walk(self.folder):
            names[:] = [name for name in names if not name.startswith(".")]
            around = Path(path).relative_to(self.folder)
            found |= {(around / name).as_posix() for name in names}
        return sorted(found | self._known.keys())


def _join(around: str, name: str) -> str:
    return f"{around}/{name}" if around else name
