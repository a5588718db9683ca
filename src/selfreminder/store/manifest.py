"""What a version says of itself: `manifest.json`, with the sha256 of every other file of the version and its own."""

import getpass
import hashlib
import json
import platform
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from selfreminder import __version__
from selfreminder._base.atomic import write_text
from selfreminder._base.checked import DAMAGE, fits
from selfreminder._base.errors import StoreError
from selfreminder._base.tensor_file import canonical_json, parse_json

MANIFEST = "manifest.json"
SCHEMA = 1
_AT_ONCE = 1 << 20
_PACKAGES = ("torch", "numpy", "safetensors", "timm", "transformers")


@dataclass(frozen=True)
class FileFacts:
    """A file of a version, as it was written."""

    sha256: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """The data that a version was made with. Its items are numbered, once in the whole life of a store."""

    source: str
    """as it was named: a path, or the kind of object"""
    fingerprint: str
    """sha256 of inputs, labels and columns"""
    items: int
    first_item: int
    """the number of its first item; the others follow"""
    trained: int
    heldout: int
    left_out: int = 0
    """items that equal one of an earlier held-out slice, and are therefore not trained on"""
    labelled: bool = True
    columns: tuple[str, ...] = ()
    """metadata"""


@dataclass(frozen=True)
class SliceMetrics:
    """How a version does on a slice."""

    items: int
    right: float
    """the share of them"""
    measure: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a version says of itself."""

    version: int
    kind: str
    """init, update or delete"""
    parent: int | None
    outputs: int
    """of the model"""
    next_item: int
    """numbers from here on are free"""
    classes: tuple[str, ...] | None = None
    """names of the outputs, in order"""
    job: str | None = None
    """parent, data and settings in one hash: what the same command would do again"""
    verdict: str | None = None
    """of the gate: passed, failed, too few to tell; None where there was nothing to judge"""
    judgement: Mapping[str, Any] = field(default_factory=dict)
    """of the gate, in full"""
    data: DataFacts | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """of `selfreminder.toml` and of the command, without any name of code"""
    training: Mapping[str, Any] = field(default_factory=dict)
    """how the candidate came about: strength, interpolation, steps, seconds"""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """by slice: accuracy (or agreement), items"""
    deleted: tuple[int, ...] = ()
    """numbers of items that memory and held-out slices lack from here on"""
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    who: str = field(default_factory=lambda: f"{who_am_i()}@{socket.gethostname()}")
    command: str | None = None
    software: Mapping[str, str] = field(default_factory=lambda: name_software())
    files: Mapping[str, FileFacts] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the manifest of a version whose other files are in `folder` already."""
        facts = {"schema": SCHEMA, **asdict(self)}
        facts["sha256"] = _hash_facts(facts)
        write_text(folder / MANIFEST, _dump(facts))

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read the manifest of a version, as it was written and no otherwise."""
        path = folder / MANIFEST
        try:
            text = path.read_text(encoding="utf-8")
            facts = parse_json(text)
        except FileNotFoundError:
            raise StoreError(f"{path} is missing: {folder} is no version of a store") from None
        except ValueError as error:
            raise StoreError(f"{path} is damaged: {error}; {_RESTORE}") from None
        if not isinstance(facts, dict) or type(facts.get("schema")) is not int:
            raise StoreError(f"{path} is no manifest: it has no schema; {_RESTORE}")
        if facts["schema"] > SCHEMA:
            raise StoreError(
                f"{path} has schema {facts['schema']}, this version of selfreminder reads up to {SCHEMA}: "
                "update selfreminder"
            )
        _check_names(path, facts.get("files"))
        if facts.get("sha256") != _hash_facts(facts) or text != _dump(facts):
            raise StoreError(f"{path} was changed after it was written; {_RESTORE}")
        known = {each.name for each in fields(cls)}
        facts = {name: value for name, value in facts.items() if name in known}
        try:
            data = facts.pop("data")
            found = cls(
                data=None if data is None else DataFacts(**data | {"columns": tuple(data["columns"])}),
                classes=None if (classes := facts.pop("classes")) is None else tuple(classes),
                deleted=tuple(facts.pop("deleted")),
                files={name: FileFacts(**each) for name, each in facts.pop("files").items()},
                **facts,
            )
            good = fits(found, cls) and all(fits(SliceMetrics(**each), SliceMetrics) for each in found.metrics.values())
            if not good or not (found.parent or 0) < found.version:
                raise ValueError("a value of another type, or a parent that is no earlier version")
        except DAMAGE as error:
            raise StoreError(f"{path} is no whole manifest ({error}); {_RESTORE}") from None
        return found


_RESTORE = "put the folder back from a copy, or go to another version by `selfreminder rollback --to N`"


def hash_file(path: Path) -> FileFacts:
    """The sha256 and the size of a file."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while part := file.read(_AT_ONCE):
            digest.update(part)
            size += len(part)
    return FileFacts(digest.hexdigest(), size)


def who_am_i() -> str:
    """The name of the user, or its number where nobody knows a name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def name_software() -> dict[str, str]:
    """The versions of what computes."""
    found = {"python": platform.python_version(), "selfreminder": __version__}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _check_names(path: Path, files: Any) -> None:
    """Refuse a manifest that names files outside of its version."""
    for name in files if isinstance(files, dict) else ():
        parts = PurePosixPath(name).parts, PureWindowsPath(name).parts
        if not name or name.startswith(".") or any(len(each) != 1 for each in parts):
            raise StoreError(f"{path} names the file '{name}', which is not in its folder: do not use this store")


def _hash_facts(facts: Mapping[str, Any]) -> str:
    text = canonical_json({name: value for name, value in facts.items() if name != "sha256"})
    return hashlib.sha256(text.encode()).hexdigest()


def _dump(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, indent=1, sort_keys=True) + "\n"
