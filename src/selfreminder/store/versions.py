"""A folder of versions, and the pointer to the current one."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from selfreminder._base.atomic import move_folder, write_text
from selfreminder._base.checked import DAMAGE, with_check, without_check
from selfreminder._base.errors import StoreError
from selfreminder.store.config import CONFIG, Config
from selfreminder.store.holder import hold
from selfreminder.store.manifest import MANIFEST, Manifest, hash_file, who_am_i
from selfreminder.store.version import Version

CURRENT, VERSIONS, WORK = "current.json", "versions", "work"
_SCHEMA = 1


@dataclass(frozen=True)
class Move:
    """One move of the pointer."""

    to: int
    why: str
    """init, update, delete or rollback"""
    when: str
    who: str


class Versions:
    """A local folder of numbered versions, each whole and never edited, and one pointer to the current one.

    Opening it reads nothing but the pointer; `config` is the user's `selfreminder.toml` beside it.
    """

    def __init__(self, path: str | Path, config: str | Path | None = None) -> None:
        self.path = Path(path)
        self.config_path = self.path.resolve().parent / CONFIG if config is None else Path(config)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, version {self.current.number} of {len(self.versions)})"

    # Make and open -------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: str | Path, config: str | Path | None = None) -> Self:
        """Make an empty store: until its first version is promoted, nobody can open it."""
        store = cls(path, config)
        store.check_new()
        (store.path / VERSIONS).mkdir(parents=True, exist_ok=True)
        return store

    def check_new(self) -> None:
        """Refuse a folder that is a store already, or that has something else in it."""
        if (self.path / CURRENT).exists():
            raise StoreError(f"{self.path} is a store already: `selfreminder update` goes on with it; or name another")
        if self.path.exists() and (
            not self.path.is_dir() or any(each.name not in _OWN for each in self.path.iterdir())
        ):
            raise StoreError(f"{self.path} is there, with something in it: name a new folder for the store")

    @classmethod
    def open(cls, path: str | Path, config: str | Path | None = None) -> Self:
        """Open a store."""
        store = cls(path, config)
        store._read_pointer()
        return store

    @property
    def config(self) -> Config:
        """The user's own file, as it is now."""
        return Config.read(self.config_path)

    @contextmanager
    def hold(self, command: str | None = None) -> Iterator[None]:
        """Let nobody else write to the store meanwhile; one that is held says who holds it."""
        with hold(self.path, command):
            yield

    # Versions ------------------------------------------------------------------------------------------

    @property
    def numbers(self) -> list[int]:
        """Of all versions, promoted or kept aside."""
        folder = self.path / VERSIONS
        return sorted(int(each.name) for each in folder.iterdir() if each.name.isdecimal()) if folder.is_dir() else []

    @property
    def versions(self) -> list[Version]:
        """All of them, oldest first."""
        return [self.version(number) for number in self.numbers]

    def version(self, number: int) -> Version:
        """A version by its number."""
        folder = self.path / VERSIONS / str(number)
        if not folder.is_dir():
            known = ", ".join(map(str, self.numbers)) or "none"
            raise StoreError(f"{self.path} has no version {number}: it has {known}")
        return Version.open(folder)

    @property
    def current(self) -> Version:
        """The version that is deployed."""
        return self.version(self.moves[-1].to)

    @property
    def moves(self) -> list[Move]:
        """How the pointer moved, from version 1 on."""
        return [Move(**each) for each in self._read_pointer()["moves"]]

    @property
    def promoted(self) -> set[int]:
        """Versions that are or were current."""
        return {move.to for move in self.moves}

    def next_number(self) -> int:
        """The number of the version after all that there are or were."""
        moves = self.moves if (self.path / CURRENT).exists() else []
        return max([0, *self.numbers, *(move.to for move in moves)]) + 1

    def ancestors(self, number: int) -> list[Version]:
        """A version and those that it came from, newest first."""
        found = [self.version(number)]
        while (parent := found[-1].manifest.parent) is not None and parent in self.numbers:
            found.append(self.version(parent))
        return found

    # What changes a store: under `hold` ----------------------------------------------------------------

    def work_folder(self, key: str, of: int | None = None) -> Path:
        """Where an update with this key is on its way, from the version with this number."""
        folder = self.name_work(key, of)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def name_work(self, key: str, of: int | None = None) -> Path:
        """The same, whether it is there or not."""
        return self.path / WORK / (key if of is None else f"{of}-{key}")

    def add_version(self, folder: Path, manifest: Manifest) -> Version:
        """Let a folder of files become a version, in one step; it is not current by that.

        `folder` is inside the store. What it holds is what the version has; the manifest is written here.
        """
        (folder / MANIFEST).unlink(missing_ok=True)
        files = {path.name: hash_file(path) for path in sorted(folder.iterdir())}
        replace(manifest, files=files).write(folder)
        target = self.path / VERSIONS / str(manifest.version)
        if target.exists():
            raise StoreError(f"{self.path} has a version {manifest.version} already")
        move_folder(folder, target)
        return Version.open(target)

    def promote(self, number: int, why: str = "update") -> None:
        """Make a version the current one, in one step."""
        self.version(number)
        moves = self._read_pointer()["moves"] if (self.path / CURRENT).exists() else []
        now = datetime.now(UTC).isoformat(timespec="seconds")
        moves.append({"to": number, "why": why, "when": now, "who": who_am_i()})
        pointer = with_check({"schema": _SCHEMA, "version": number, "moves": moves})
        write_text(self.path / CURRENT, json.dumps(pointer, indent=1) + "\n")

    def verify(self) -> list[str]:
        """What is wrong with any file of the store; nothing, if all is as it was written."""
        found = []
        for number in self.numbers:
            try:
                found += self.version(number).verify()
            except StoreError as error:
                found.append(str(error))
        try:
            current = self.moves[-1].to
            if current not in self.numbers:
                found.append(f"{self.path / CURRENT} points to version {current}, which is not there")
        except StoreError as error:
            found.append(str(error))
        return found

    def clean(self, but_of: int | None = None) -> None:
        """Remove what updates left on their way, but for those from the version with this number."""
        for folder in (self.path / WORK).glob("*"):
            if but_of is None or not folder.name.startswith(f"{but_of}-"):
                with suppress(OSError):
                    shutil.rmtree(folder)

    # ---------------------------------------------------------------------------------------------------

    def _read_pointer(self) -> dict[str, Any]:
        path = self.path / CURRENT
        try:
            pointer = json.loads(path.read_text(encoding="utf-8"))
            schema = pointer["schema"]
            if schema > _SCHEMA:
                raise StoreError(
                    f"{self.path} has schema {schema}, this version of selfreminder reads up to {_SCHEMA}: "
                    "update selfreminder"
                )
            moves = without_check(pointer)["moves"]
            if not moves or not all(_is_move(Move(**each)) for each in moves):
                raise TypeError("it points to no version")
            if pointer["version"] != moves[-1]["to"]:
                raise TypeError("it contradicts itself")
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(f"{self.path} is no store: `selfreminder init` makes one") from None
        except StoreError:
            raise
        except DAMAGE as error:
            raise StoreError(f"{path} is damaged ({error}): put it back from a copy") from None
        return pointer


_OWN = {VERSIONS, WORK, ".lock", "holder.json"}


def _is_move(move: Move) -> bool:
    return type(move.to) is int and all(type(each) is str for each in (move.why, move.when, move.who))
