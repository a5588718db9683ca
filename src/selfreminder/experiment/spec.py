"""What an experiment is, as a value. Nothing here needs torch."""

import dataclasses
import hashlib
import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

from selfreminder import data, methods, selection
from selfreminder._base.codec_names import LOGIT_NAMES, NAMES
from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder._base.sizes import Size
from selfreminder.benchmarks.catalogue import benchmark

_NUMBERS = ("width", "lr", "weight_decay", "strength", "validation")
_OPTIMIZERS = ("adam", "sgd")
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
        is_split = benchmark(self.benchmark).is_split
        if self.method not in methods.names():
            raise unknown("method", self.method, methods.names())
        if self.optimizer not in (None, *_OPTIMIZERS):
            raise unknown("optimizer", self.optimizer, _OPTIMIZERS)
        for name, known in (("codec", NAMES), ("logit_codec", LOGIT_NAMES), ("over_tasks", _OVER_TASKS)):
            if getattr(self, name) not in known:
                raise unknown(name, str(getattr(self, name)), known)
        self._check_data()
        for name in ("tasks", "epochs", "batch_size", "images", "memory_batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SelfReminderError(f"{name} is {value}: it must be at least 1")
        if self.split_into is not None:
            if not is_split:
                raise SelfReminderError(f"split_into is {self.split_into}: {self.benchmark} does not split classes")
            if self.split_into < self.tasks:
                raise SelfReminderError(f"tasks is {self.tasks}: the stream is split into {self.split_into}")
            if self.split_into == self.tasks:  # the same experiment as with None
                object.__setattr__(self, "split_into", None)
        for name in ("width", "lr"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise SelfReminderError(f"{name} is {value}: it must be above 0")
        for name in ("strength", "weight_decay"):
            value = getattr(self, name)
            if value is not None and not (value >= 0 and math.isfinite(value)):
                raise SelfReminderError(f"{name} is {value}: it must be a number that is not below 0")
        selection.parse(self.select)
        if not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise SelfReminderError(f"device '{self.device}' is not cpu, cuda or cuda:N")
        if not 0 < self.validation < 1:
            raise SelfReminderError(f"validation is {self.validation}: it is a share between 0 and 1")
        _ = self.size

    def _check_data(self) -> None:
        """Raise unless its data are such as the benchmark has at some scale: its network takes no others."""
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

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def as_recorded(self) -> dict[str, Any]:
        """As files say it: a field that came later is left out at its default, so that they stay the same."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        return {k: value for k, value in self.as_dict().items() if k not in _LATER or value != defaults[k]}

    @property
    def key(self) -> str:
        """A name for exactly this experiment. A field at its default adds nothing: new fields keep old names."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)} | {"options": {}}
        said = {name: value for name, value in self.as_dict().items() if value != defaults[name]}
        text = json.dumps(said, sort_keys=True)
        return f"{self.method}-seed{self.seed}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
