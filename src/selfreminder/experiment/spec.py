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
from selfreminder._base.factories import is_factory, shorten_path
from selfreminder._base.sizes import Size, parse_bytes
from selfreminder.benchmarks import AUGMENTATIONS, SCENARIOS, check_model_name
from selfreminder.experiment.catalogue import benchmark, check_applies, check_selection, method_facts
from selfreminder.methods import LARGEST, OPTIMIZERS, SCHEDULES, TYPE_NAMES, has_type, show_number

_MOST = {"tasks": 10_000, "split_into": 10_000, "epochs": 1_000_000, "seed": 2**63 - 1, "processes": 64}
"""the largest that whole numbers can be, where not as of `LARGEST`"""
_OVER_TASKS = ("sum", "mean")
EVALUATIONS = ("newest", "sample", "all")
"""which tasks are evaluated after each, see `Experiment.evaluate`"""
HEDS = ("today", "2018")
"""which colour space HED is, see `selfreminder.benchmarks.color_cifar10`"""
PRECISIONS = ("fp32", "bf16")
_LATER = (
    *("split_into", "scenario", "evaluate", "items", "reading", "model", "freeze", "momentum", "schedule", "augment"),
    "precision",
    "hed",
    "test_after",
    "processes",
    "evaluate_every",
)
"""fields that earlier records do not have"""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One run: a method on a benchmark with a seed. Equal experiments give equal records."""

    benchmark: str
    method: str
    seed: int = 0
    """varies initial weights, tasks, validation part, order and selection"""
    data: str = "mnist"
    """the data set, or several with + between them; with the benchmark own, where your data is"""
    reading: dict[str, Any] = field(default_factory=dict)
    """how your own data is read and cut into tasks, see `selfreminder.benchmarks.own.Reading`"""
    images: int | None = None
    """a class-balanced part of the training images; None: all"""
    tasks: int = 20
    split_into: int | None = None
    """a split-… stream has so many tasks, of which the first are learned; None: as many as are learned"""
    scenario: str | None = None
    """task (a head each), domain (the same classes), class (one output that grows) or stream (no boundaries, one
    pass); None: the benchmark's own"""
    model: str | None = None
    """the network, see `selfreminder list`; None: the benchmark's"""
    width: float = 1.0
    """of the network, as a factor of the paper's"""
    freeze: bool = False
    """train the network's last layer alone, on features of the others that are computed once"""
    epochs: int = 20
    """on each task"""
    batch_size: int = 128
    optimizer: str | None = None
    """adam, adamw or sgd; None: the method's own"""
    lr: float | None = None
    """step size; None: the paper's, 1e-4 for adam, 1e-3 for sgd"""
    plateau: bool = False
    """HAT's protocol, see `selfreminder.training.Training`; epochs are then the most there can be"""
    weight_decay: float = 1e-4
    momentum: float = 0.0
    """of sgd"""
    schedule: str = "constant"
    """of the step size within a task, see `selfreminder.training.SCHEDULES`"""
    augment: str | None = None
    """changes of training images: flip, crop, crop-flip, or module:function of yours, (x, generator) -> x"""
    strength: float | None = None
    """λ, of the methods that have one; None: the method's default"""
    per_class: int | None = 50
    """items of each class that a task leaves in the memory"""
    per_task: int | None = None
    """items that a task leaves in the memory"""
    budget: str | None = None
    """bytes of the whole memory"""
    items: int | None = None
    """items of the whole memory"""
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
    evaluate: str = "all"
    """after each task: all so far; the newest alone; or a sample, which is the first, the newest and eight others"""
    evaluate_every: int | None = None
    """so many steps of a task lie between evaluations while it is learned; None: only its end is evaluated"""
    hed: str = "today"
    """of color-cifar10: HED as scikit-image computes it since 0.18; or as in 2018, when the paper was written"""
    test_after: bool = False
    """of data that is cut by time: the last fifth of each period is its test part, instead of a fifth that is drawn"""
    device: str = "cpu"
    precision: str = "fp32"
    """of training steps: fp32, or bf16 by autocast; evaluation is in fp32"""
    processes: int = 1
    """that train the run together, each on its part of every batch, on a device of its own"""
    options: dict[str, Any] = field(default_factory=dict)
    """the method's own options"""

    def __post_init__(self) -> None:
        for name, (of, optional) in _TYPES.items():
            value = getattr(self, name)
            if value is None and optional:
                continue
            if value is None or not has_type(value, of):
                raise _wrong_type(name, value)
            if of in LARGEST and not abs(value) <= (most := _MOST.get(name, LARGEST[of])):
                raise SelfReminderError(f"{name} is {show_number(value)}: it must be at most {most:g}")
            if of is float:  # 1 and 1.0 are the same experiment, and must have the same name
                object.__setattr__(self, name, float(value))
        for name in ("options", "reading"):
            _check_json(name, getattr(self, name))
        if self.model is not None:
            check_model_name(self.model)
            if self.model == benchmark(self.benchmark).model:  # the same experiment as with None
                object.__setattr__(self, "model", None)
        facts = benchmark(self.benchmark)
        method_facts(self.method)  # raises if there is no such method
        if self.optimizer not in (None, *OPTIMIZERS):
            raise unknown("optimizer", self.optimizer, OPTIMIZERS)
        for name, known in (
            ("codec", NAMES),
            ("logit_codec", LOGIT_NAMES),
            ("over_tasks", _OVER_TASKS),
            ("evaluate", EVALUATIONS),
            ("schedule", SCHEDULES),
            ("precision", PRECISIONS),
            ("hed", HEDS),
        ):
            if getattr(self, name) not in known:
                raise unknown(name, str(getattr(self, name)), known)
        self._check_data()
        self._check_scenario()
        for name in ("tasks", "epochs", "batch_size", "images", "memory_batch", "evaluate_every", "processes"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise SelfReminderError(f"{name} is {value}: it must be at least 1")
        if self.split_into is not None:
            if not facts.splits_classes:
                raise SelfReminderError(f"split_into is {self.split_into}: {self.benchmark} does not split classes")
            if self.split_into < self.tasks:
                raise SelfReminderError(f"tasks is {self.tasks}: the stream is split into {self.split_into}")
            if self.split_into == self.tasks:  # the same experiment as with None
                object.__setattr__(self, "split_into", None)
        if self.hed != "today" and self.benchmark != "color-cifar10":
            raise SelfReminderError(f"hed is {self.hed}: {self.benchmark} has no task in HED, only color-cifar10 has")
        if self.test_after and not facts.has_times:
            raise SelfReminderError(f"test_after is for data with times: the items of {self.benchmark} have none")
        for name in ("width", "lr"):
            if (value := getattr(self, name)) is not None and not (value > 0 and math.isfinite(value)):
                raise SelfReminderError(f"{name} is {value}: it must be above 0")
        for name in ("strength", "weight_decay"):
            if (value := getattr(self, name)) is not None and not (value >= 0 and math.isfinite(value)):
                raise SelfReminderError(f"{name} is {value}: it must be a number that is not below 0")
        check_selection(self.select)
        if self.probe < 0:
            raise SelfReminderError(f"probe is {self.probe}: it must not be below 0")
        if not re.fullmatch(r"cpu|mps|cuda(:\d{1,3})?", self.device):
            raise SelfReminderError(f"device '{self.device}' is not cpu, cuda, cuda:N or mps")
        if self.processes > 1 and self.device not in ("cpu", "cuda"):
            raise SelfReminderError(f"processes is {self.processes}: the device is cpu or cuda, not {self.device}")
        if not 0 <= self.momentum < 1:
            raise SelfReminderError(f"momentum is {self.momentum}: it must be from 0 to below 1")
        if self.augment is not None and self.augment not in AUGMENTATIONS and not is_factory(self.augment):
            raise unknown("augmentation", self.augment, [*AUGMENTATIONS, "module:function"])
        if not 0 < self.validation < 1:
            raise SelfReminderError(f"validation is {self.validation}: it is a share between 0 and 1")
        _ = self.size

    def _check_data(self) -> None:
        """Raise unless its data sets are like those of a scale of the benchmark: its network takes no others."""
        if self.has_own_data:
            if not self.data:
                raise SelfReminderError("data is missing: say where your data is, such as folder:photos or npz:x.npz")
            return
        if self.reading:
            raise SelfReminderError(f"reading is for data of your own: {self.benchmark} has its own data")
        usual = [scale.data.split("+") for scale in benchmark(self.benchmark).scales.values()]
        if len(self.data_sets) > 1 and max(map(len, usual)) == 1:
            raise SelfReminderError(f"data is {self.data}: {self.benchmark} has one data set")
        shapes = {data.dataset(name).shape for names in usual for name in names}
        for name in self.data_sets:
            if data.dataset(name).shape not in shapes:
                raise SelfReminderError(f"data is {name}: {self.benchmark} needs images like those of {usual[-1][0]}")

    def _check_scenario(self) -> None:
        """Raise for a scenario that there is not, or in which the method lacks what it needs."""
        if self.scenario is None:
            return
        if self.scenario not in SCENARIOS:
            raise unknown("scenario", self.scenario, SCENARIOS)
        if self.scenario == benchmark(self.benchmark).scenario:  # the same experiment as with None
            object.__setattr__(self, "scenario", None)
            return
        check_applies(self.method, self.scenario)
        if self.scenario == "stream" and self.epochs != 1:
            raise SelfReminderError(f"epochs is {self.epochs}: a stream passes once, epochs must be 1")

    @property
    def size(self) -> Size:
        """How much a memory keeps."""
        return Size(self.per_class, self.per_task, self.budget, self.items)

    @property
    def has_own_data(self) -> bool:
        """Whether its data is the user's own."""
        return benchmark(self.benchmark).own_data

    @property
    def data_sets(self) -> list[str]:
        """The names of its data sets; none if the data is the user's own."""
        return [] if self.has_own_data else self.data.split("+")

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
        method = re.sub(r"[^\w.+-]+", "-", self.method).strip("-.")
        return f"{method}-seed{self.seed}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Experiment)} | {"options": {}, "reading": {}}
_HINTS = get_type_hints(Experiment) | {"seeds": int, "scale": str}
_NONE = "none"
_PLACES = ("model", "augment")
"""fields that may name a file"""
_MOST_SHOWN = 100
"""letters of a value in a message"""
_MOST_DIGITS = 400
"""of a number in a command line"""


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
    if of in LARGEST and not abs(value) <= LARGEST[float]:  # what is too large for its field, an experiment says
        raise SelfReminderError(f"{name} is {show_number(value)}: it must be at most {LARGEST[float]:g}")
    if of is dict:
        _check_json(name, value)
    if name in _PLACES:
        return shorten_path(str(value))
    return float(value) if of is float else value


def _check_json(name: str, value: object) -> None:
    """Raise for a value that JSON cannot say."""
    try:
        json.dumps(value)
    except TypeError:
        raise SelfReminderError(f"{name} has a date or a time: write it as text") from None
    except (ValueError, RecursionError):
        raise SelfReminderError(f"{name} is nested too deep, or has a number that is too long") from None


def parse_text(name: str, text: str) -> Any:
    """Parse a field's value from the command line.

    >>> parse_text("epochs", "3"), parse_text("lr", "1e-3"), parse_text("plateau", "true")
    (3, 0.001, True)
    """
    of, _ = field_type(name)
    if text == _NONE or of is str:
        return parse_value(name, text)
    if of is int and re.fullmatch(r"[+-]?\d+", text) and len(text) <= _MOST_DIGITS:
        return parse_value(name, int(text))
    if of is float:
        try:
            return parse_value(name, float(text))
        except SelfReminderError:
            raise
        except ValueError:
            raise _wrong_type(name, text) from None
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text
    return parse_value(name, value)


def parse_option(name: str, text: str) -> Any:
    """Parse the value of a method's own option from the command line: a number, true or false, or text.

    >>> parse_option("alpha", "0.5"), parse_option("literal", "true"), parse_option("fisher", "empirical")
    (0.5, True, 'empirical')
    """
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, bool | int | float) else text


def _wrong_type(name: str, value: object) -> SelfReminderError:
    of, optional = field_type(name)
    must = TYPE_NAMES[of] + (f', or "{_NONE}"' if optional else "")
    try:
        said = json.dumps(value, default=str)
    except (ValueError, RecursionError):
        said = "nested too deep"
    return SelfReminderError(
        f"{name} is {said if len(said) <= _MOST_SHOWN else said[:_MOST_SHOWN] + '…'}: it must be {must}"
    )


_TYPES = {each.name: field_type(each.name) for each in dataclasses.fields(Experiment)}
