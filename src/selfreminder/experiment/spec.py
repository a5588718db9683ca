"""What an experiment is, as a value, and how its fields are written in a file or a command line. Needs no torch."""

import dataclasses
import hashlib
import json
import math
import re
import tomllib
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from selfreminder import data
from selfreminder._base.codec_names import LOGIT_NAMES, NAMES
from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder._base.sizes import Size, parse_bytes
from selfreminder.experiment.catalogue import benchmark, check_selection, method_facts
from selfreminder.methods import OPTIMIZERS, TYPE_NAMES, has_type

_NUMBERS = ("width", "lr", "weight_decay", "strength", "validation")
_OVER_TASKS = ("sum", "mean")
_LATER = ("split_into",)
"""fields that earlier records do not have"""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One run: a method on a benchmark with a seed. Equal experiments give equal records."""

    benchmark: str
    method: str
    seed: int = 0
    """varies initial weights, tasks, validation part, order and selection"""
    data: str = "mnist"
    """the data set, or several with + between them"""
    images: int | None = None
    """a class-balanced part of the training images; None: all"""
    tasks: int = 20
    split_into: int | None = None
    """a split-… stream has so many tasks, of which the first are learned; None: as many as are learned"""
    width: float = 1.0
    """of the network, as a factor of the paper's"""
    epochs: int = 20
    """on each task"""
    batch_size: int = 128
    optimizer: str | None = None
    """adam or sgd; None: the method's own"""
    lr: float | None = None
    """step size; None: the paper's, 1e-4 for adam, 1e-3 for sgd"""
    plateau: bool = False
    """HAT's protocol, see `selfreminder.training.Training`; epochs are then the most there can be"""
    weight_decay: float = 1e-4
    strength: float | None = None
    """λ, of the methods that have one; None: the method's default"""
    per_class: int | None = 50
    """items of each class that a task leaves in the memory"""
    per_task: int | None = None
    """items that a task leaves in the memory"""
    budget: str | None = None
    """bytes of the whole memory"""
    select: str = "random"
    """which items are kept, see `selfreminder.selection`"""
    codec: str = "auto"
    """how they are kept, see `selfreminder.memory.codec`"""
    logit_codec: str = "float32"
    """how their logits are kept"""
    memory_batch: int | None = None
    """remembered items in a step; None: as many as new ones"""
    over_tasks: str = "sum"
    validation: float = 0.1
    """share of the training images held out to choose λ and step sizes on"""
    probe: int = 0
    """for so many first tasks, record the logits and predictions on the first task's validation part"""
    device: str = "cpu"
    options: dict[str, Any] = field(default_factory=dict)
    """the method's own options"""

    def __post_init__(self) -> None:
        for name in _NUMBERS:  # 1 and 1.0 are the same experiment, and must have the same name
            if isinstance(value := getattr(self, name), int) and not isinstance(value, bool):
                object.__setattr__(self, name, float(value))
        facts = benchmark(self.benchmark)
        method_facts(self.method)  # raises if there is no such method
        if self.optimizer not in (None, *OPTIMIZERS):
            raise unknown("optimizer", self.optimizer, OPTIMIZERS)
        for name, known in (("codec", NAMES), ("logit_codec", LOGIT_NAMES), ("over_tasks", _OVER_TASKS)):
            if getattr(self, name) not in known:
                raise unknown(name, str(getattr(self, name)), known)
        self._check_data()
        for name in ("tasks", "epochs", "batch_size", "images", "memory_batch"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise SelfReminderError(f"{name} is {value}: it must be at least 1")
        if self.split_into is not None:
            if not facts.splits_classes:
                raise SelfReminderError(f"split_into is {self.split_into}: {self.benchmark} does not split classes")
            if self.split_into < self.tasks:
                raise SelfReminderError(f"tasks is {self.tasks}: the stream is split into {self.split_into}")
            if self.split_into == self.tasks:  # the same experiment as with None
                object.__setattr__(self, "split_into", None)
        for name in ("width", "lr"):
            if (value := getattr(self, name)) is not None and not (value > 0 and math.isfinite(value)):
                raise SelfReminderError(f"{name} is {value}: it must be above 0")
        for name in ("strength", "weight_decay"):
            if (value := getattr(self, name)) is not None and not (value >= 0 and math.isfinite(value)):
                raise SelfReminderError(f"{name} is {value}: it must be a number that is not below 0")
        check_selection(self.select)
        if not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise SelfReminderError(f"device '{self.device}' is not cpu, cuda or cuda:N")
        if not 0 < self.validation < 1:
            raise SelfReminderError(f"validation is {self.validation}: it is a share between 0 and 1")
        _ = self.size

    def _check_data(self) -> None:
        """Raise unless its data sets are like those of a scale of the benchmark: its network takes no others."""
        usual = [scale.data.split("+") for scale in benchmark(self.benchmark).scales.values()]
        if len(self.data_sets) > 1 and max(map(len, usual)) == 1:
            raise SelfReminderError(f"data is {self.data}: {self.benchmark} has one data set")
        shapes = {data.dataset(name).shape for names in usual for name in names}
        for name in self.data_sets:
            if data.dataset(name).shape not in shapes:
                raise SelfReminderError(f"data is {name}: {self.benchmark} needs images like those of {usual[-1][0]}")

    @property
    def size(self) -> Size:
        """How much a memory keeps."""
        return Size(self.per_class, self.per_task, self.budget)

    @property
    def data_sets(self) -> list[str]:
        """The names of its data sets."""
        return self.data.split("+")

    @property
    def has_generated_data(self) -> bool:
        """Whether some of its images are made up: its numbers then say nothing about methods."""
        return any(data.dataset(name).generated for name in self.data_sets)

    def as_dict(self) -> dict[str, Any]:
        """Give all fields by name."""
        return dataclasses.asdict(self)

    def as_recorded(self) -> dict[str, Any]:
        """Give the fields as files have them: one that was added later is left out at its default, as in old files."""
        return {k: value for k, value in self.as_dict().items() if k not in _LATER or value != _DEFAULTS[k]}

    @property
    def key(self) -> str:
        """A name for exactly this experiment. A field at its default adds nothing: new fields keep old names."""
        said = {name: value for name, value in self.as_dict().items() if value != _DEFAULTS[name]}
        text = json.dumps(said, sort_keys=True)
        return f"{self.method}-seed{self.seed}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Experiment)} | {"options": {}}
_HINTS = get_type_hints(Experiment) | {"seeds": int, "scale": str}
_NONE = "none"


def field_type(name: str) -> tuple[type, bool]:
    """Give a field's type, and whether it may have no value.

    >>> field_type("epochs"), field_type("strength")
    ((<class 'int'>, False), (<class 'float'>, True))
    """
    hint = _HINTS[name]
    (of,) = [part for part in get_args(hint) if part is not NoneType] if NoneType in get_args(hint) else [hint]
    return get_origin(of) or of, NoneType in get_args(hint)


def parse_value(name: str, value: Any) -> Any:
    """Parse a field's value from TOML into the form in which equal values are equal; raise if it has another type.

    >>> parse_value("strength", 3), parse_value("budget", "64KB"), parse_value("images", "none")
    (3.0, '64000', None)
    """
    of, optional = field_type(name)
    if optional and (value is None or value == _NONE):
        return None
    if name == "budget" and isinstance(value, str | int) and not isinstance(value, bool):
        return str(parse_bytes(value))
    if not has_type(value, of):
        raise _wrong_type(name, value)
    if of is dict:
        try:
            json.dumps(value)
        except TypeError:
            raise SelfReminderError(f"{name} has a date or a time: write it as text") from None
    return float(value) if of is float else value


def parse_text(name: str, text: str) -> Any:
    """Parse a field's value from the command line.

    >>> parse_text("epochs", "3"), parse_text("lr", "1e-3"), parse_text("plateau", "true")
    (3, 0.001, True)
    """
    of, _ = field_type(name)
    if text == _NONE or of is str:
        return parse_value(name, text)
    if of is int and re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    if of is float:
        try:
            return float(text)
        except ValueError:
            raise _wrong_type(name, text) from None
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        value = text
    return parse_value(name, value)


def _wrong_type(name: str, value: object) -> SelfReminderError:
    of, optional = field_type(name)
    must = TYPE_NAMES[of] + (f', or "{_NONE}"' if optional else "")
    return SelfReminderError(f"{name} is {json.dumps(value, default=str)}: it must be {must}")
