"""`selfreminder.toml`, the user's own file beside a store: which code builds the model, what the gate asks, and so on.

Every path in it is relative to its folder. A key or a value that nobody knows is an error with the nearest one that is.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from selfreminder._base.errors import SelfReminderError, StoreError, unknown
from selfreminder._base.sizes import as_index, parse_bytes
from selfreminder.memory.query import parse_age
from selfreminder.store.gate import Gate
from selfreminder.store.train_settings import TrainSettings

CONFIG = "selfreminder.toml"
Table = TypeVar("Table")


@dataclass(frozen=True, kw_only=True)
class ModelTable:
    """[model]: one of factory, timm and hf."""

    factory: str | None = None
    """package.module:function, called without arguments"""
    timm: str | None = None
    """the name of a model of timm"""
    hf: str | None = None
    """a folder that transformers wrote"""
    weights: str | None = None
    """of version 1, and read only by `init`: later ones are in the store"""
    labels: tuple[str, ...] | None = None
    """names of the outputs, in order, where data has names as labels"""

    def __post_init__(self) -> None:
        given = [name for name in ("factory", "timm", "hf") if getattr(self, name) is not None]
        if len(given) != 1:
            raise SelfReminderError(f"exactly one of factory, timm and hf says what the model is, not {len(given)}")


@dataclass(frozen=True, kw_only=True)
class DataTable:
    """[data]"""

    new: str | None = None
    """where `update` looks without --data"""
    label: str | None = None
    """the name of the column of labels, where that is not label or labels"""
    inputs: tuple[str, ...] | None = None
    """of a table or of arrays by name: what the model takes, in this order; without it, all numbers"""
    categories: tuple[str, ...] = ()
    """of a table: columns whose values become codes"""
    text: tuple[str, ...] = ()
    """of a table: columns whose words are counted"""
    size: int | None = None
    """of a side of an image; without it all must have one size"""
    channels: int | None = None
    """of an image, 1 or 3"""
    preprocess: str | None = None
    """package.module:function, from inputs as they are given to what the model takes"""
    augment: str | None = None
    """the same for training alone"""
    holdout: float = 0.2
    """the share of data on which versions are judged; it is never trained on"""
    validation: float = 0.1
    """the share of the rest on which strength and interpolation are chosen"""
    slices: tuple[str, ...] = ()
    """metadata columns of whose values each is judged by itself too: ["site"]"""

    def __post_init__(self) -> None:
        for name in ("holdout", "validation"):
            if not 0 < (share := getattr(self, name)) < 1:
                raise SelfReminderError(f"{name} is {share}: it is a share between 0 and 1, say 0.2")


@dataclass(frozen=True, kw_only=True)
class MemoryTable:
    """[memory]"""

    budget: str | None = None
    """bytes in all, such as "5MB" """
    per_class: int | None = None
    """instead of a budget: items of each class of each update"""
    max_age: str | None = None
    """what came in longer ago, such as "180d", is neither remembered nor held out any more"""

    def __post_init__(self) -> None:
        if self.budget is not None:
            if self.per_class is not None:
                raise SelfReminderError("budget and per_class both say how much to remember: leave one out")
            parse_bytes(self.budget)
        if self.per_class is not None and self.per_class < 1:
            raise SelfReminderError(f"per_class is {self.per_class}: a memory keeps at least one item")
        if self.max_age is not None:
            parse_age(self.max_age)

    @property
    def size(self) -> dict[str, Any]:
        """As `Reminder.remember` takes it; 5 MB where nobody said."""
        return {"per_class": self.per_class} if self.per_class is not None else {"budget": self.budget or "5MB"}


@dataclass(frozen=True, kw_only=True)
class MlflowTable:
    """[mlflow]: a registry that is told of every version, where there is one."""

    uri: str | None = None
    """http://…, sqlite:///…; the current version is champion there, one that was kept aside candidate"""
    name: str = "model"
    """of the registered model"""


@dataclass(frozen=True, kw_only=True)
class Config:
    """All tables of `selfreminder.toml`, and where it is."""

    path: Path
    model: ModelTable
    data: DataTable = field(default_factory=DataTable)
    memory: MemoryTable = field(default_factory=MemoryTable)
    train: TrainSettings = field(default_factory=TrainSettings)
    gate: Gate = field(default_factory=Gate)
    mlflow: MlflowTable = field(default_factory=MlflowTable)

    @classmethod
    def read(cls, path: Path) -> "Config":
        """Read and check a file."""
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise StoreError(
                f"{path} is not there: it says which code builds the model; `selfreminder init` writes one"
            ) from None
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{path} is no TOML: {error}") from None
        kinds = {each.name: each.type for each in fields(cls) if each.name != "path"}
        for name in tables:
            if name not in kinds:
                raise StoreError(f"{path}: {unknown('table', name, kinds)}")
        if "model" not in tables:
            raise StoreError(f'{path} has no table [model]: write, say, factory = "shop.models:build" into it')
        read: dict[str, Any] = {}
        for name, table in tables.items():
            try:
                read[name] = read_table(kinds[name], table)  # pyright: ignore[reportArgumentType]
            except SelfReminderError as error:
                raise StoreError(f"{path}, [{name}]: {error}") from None
        return cls(path=path, **read)

    @property
    def folder(self) -> Path:
        """What paths and modules are relative to."""
        return self.path.parent

    def locate(self, name: str) -> Path:
        """A path that the file names; its folder need not be there yet."""
        return Path(os.path.normpath(self.folder.resolve() / name))

    @property
    def recorded(self) -> dict[str, Any]:
        """What a manifest says of it: the tables, without any name of code."""
        code = ("new", "preprocess", "augment")
        data = {name: value for name, value in asdict(self.data).items() if name not in code}
        return {"data": data} | {name: asdict(getattr(self, name)) for name in ("memory", "train", "gate")}


def make_config(
    path: Path, model: str | None, weights: str | Path | None, tables: Mapping[str, Mapping[str, Any]]
) -> Config:
    """The config that options ask for; one that is there already has to say the same."""
    if model is None:
        if not path.exists():
            raise StoreError(
                f"which model? Say --model package.module:factory, timm:NAME or hf:FOLDER, or write {path} yourself"
            )
        given = {
            f"[{name}] {key}" for name, table in tables.items() for key, value in table.items() if value is not None
        }
        if given:
            raise StoreError(f"{path} is there, and says what {', '.join(sorted(given))} is: edit it, or remove it")
        return Config.read(path)
    kind, _, name = model.partition(":")
    table: dict[str, Any] = {kind: name} if kind in ("timm", "hf") else {"factory": model}
    if kind == "hf":
        table["hf"] = _relative(Path(name), path.parent)
    if weights is not None:
        table["weights"] = _relative(Path(weights), path.parent)
    data = dict(tables.get("data", {}))
    if (new := data.get("new")) is not None and ":" not in new:
        data["new"] = _relative(Path(new), path.parent)
    told = {**tables, "model": {**tables.get("model", {}), **table}, "data": data}
    kinds = get_type_hints(Config)
    read: dict[str, Any] = {}
    for name, each in told.items():
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in each.items()}
        read[name] = read_table(kinds[name], {key: value for key, value in plain.items() if value is not None})
    return Config(path=path, **read)


def write_config(config: Config) -> str:
    """The text of a file that reads as this config; what is as it is by default is left out."""
    lines = ["# Read by every `selfreminder` command on the store beside this file. Yours to edit."]
    for each in fields(config):
        if each.name == "path":
            continue
        table = getattr(config, each.name)
        keys = [key for key in fields(table) if getattr(table, key.name) != key.default]
        if keys:
            lines += ["", f"[{each.name}]", *(f"{key.name} = {_show(getattr(table, key.name))}" for key in keys)]
    return "\n".join(lines) + "\n"


def _relative(path: Path, folder: Path) -> str:
    """A path as a file in `folder` names it."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # on another drive
        return path.resolve().as_posix()


def _show(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_show, value))}]"
    return json.dumps(value, ensure_ascii=False)


def read_table(kind: type[Table], table: Any) -> Table:
    """Make settings of a table of a TOML file; each key and each type is checked.

    >>> read_table(DataTable, {"holdout": 0.1}).holdout
    0.1
    """
    if not isinstance(table, Mapping):
        raise SelfReminderError(f"it is {table!r:.100}, not a table")
    types = get_type_hints(kind)
    made = {}
    for name, value in table.items():
        if name not in types:
            raise unknown("key", name, types)
        made[name] = _as_type(name, value, types[name])
    return kind(**made)


def _as_type(name: str, value: Any, wanted: Any) -> Any:
    """A value of a type that a table has; a list becomes a tuple, a whole number a float where that is wanted."""
    choices = get_args(wanted) if get_origin(wanted) in (UnionType, Union) else (wanted,)
    for choice in choices:
        if choice in (int, float) and type(value) is int:
            return choice(as_index(name, value))
        if choice in _NAMES and type(value) is choice:
            return value
        if get_origin(choice) is Literal and value in get_args(choice):
            return value
        if get_origin(choice) is tuple and isinstance(value, list):
            return tuple(_as_type(name, each, get_args(choice)[0]) for each in value)
    said = " or ".join(_say(choice) for choice in choices if choice is not type(None))
    raise SelfReminderError(f"{name} is {value!r:.100}, it should be {said}")


def _say(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(f'"{each}"' for each in get_args(kind))
    return f"a list, each {_NAMES[get_args(kind)[0]]}" if get_origin(kind) is tuple else _NAMES[kind]


_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
