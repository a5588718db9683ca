"""The benchmarks, one file each. A file's name is its benchmark's name; the first line of its docstring, its help.

A benchmark's file has two things: `BENCHMARK`, its facts as a `Benchmark`, and `make_stream(spec)`, which makes its
stream of tasks. Packages may add their own by an entry point in the group ``selfreminder.benchmarks`` that names a
module; and a benchmark may be named by where it is, ``my_benchmark.py``. Nothing here imports torch before a benchmark
is loaded.
"""

import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder._base.factories import MODELS, NAME, installed, load_file

if TYPE_CHECKING:
    from selfreminder.benchmarks.models import build_model
    from selfreminder.benchmarks.stream import Parts, Split, Stream, StreamSpec, Task

__all__ = [
    "MODEL_NAMES",
    "SCALES",
    "SCENARIOS",
    "Benchmark",
    "Parts",
    "Scale",
    "Split",
    "Stream",
    "StreamSpec",
    "Task",
    "build_model",
    "load_benchmark",
    "make_stream",
    "names",
    "own_names",
]

GROUP = "selfreminder.benchmarks"
"""of entry points"""

SCALES = {
    "demo": "minutes, on data that comes with selfreminder",
    "small": "minutes a run, on real data",
    "medium": "a core-hour or so a run",
    "paper": "the paper's own, hours a run",
}
"""the names of scales and what they cost"""

SCENARIOS = {
    "task": "a head for each task, and the task is known when it is tested",
    "domain": "the same classes in every task",
    "class": "one output that grows by each task's classes; which task an item is of is not known",
    "stream": "no boundaries: one pass; --evaluate-every 50 tests on the way",
}
"""what a model is told and asked"""

AUGMENTATIONS = {
    "flip": "half of the images are mirrored",
    "crop": "images are shifted by up to an eighth of their sides",
    "crop-flip": "both",
}
"""changes of training images"""

MODEL_NAMES = {
    "mnist-mlp": "the paper's for MNIST: 784-1024×4-10",
    "cifar10-vgg": "the paper's for colour CIFAR10: eight convolutions with batch norm",
    "cifar100-alexnet": "HAT's AlexNet, the paper's for split CIFAR100",
    "auto": "a quarter of resnet18 for images, mlp:256x2 for rows of numbers",
    "resnet18": "ResNet-18 as for CIFAR, for images of any size",
    "mlp:UNITSxLAYERS": "an MLP of any size, such as mlp:256x3",
    "efficientnet-lite0": "EfficientNet-Lite0 with its ImageNet weights, by package",
    "timm:NAME": "a model of timm",
    "hf:FOLDER": "a classifier of text in a folder that save_pretrained wrote",
    "module:factory": "a function of yours, or file.py:factory, that gives a model; it may take the number of outputs",
}
"""what a network can be called"""
MLP_NAME = r"mlp:([1-9]\d{0,4})x(\d{1,2})"
_OWN_MODEL = re.compile(rf"{MLP_NAME}|timm:.+|hf:.+|{NAME}")


def check_model_name(name: str) -> None:
    """Raise unless a network can have this name.

    >>> check_model_name("mlp:256x3")
    """
    if name not in (*MODEL_NAMES, *installed(MODELS)) and not _OWN_MODEL.fullmatch(name):
        raise unknown("model", name, [*MODEL_NAMES, *installed(MODELS)])


ONE_HEAD_METHODS = ("sgd", "adam", "lwf", "ewc", "icarl", "fsr-distill", "fsr-logit")
"""compared in the paper where all tasks share one head"""
ONE_HEAD_DEMO = ("sgd", "adam", "ewc", "fsr-logit")
"""those of them that a demo compares"""
HEAD_PER_TASK_METHODS = ("sgd", "ewc", "hat", "fsr-logit", "fsr-logitlab")
"""compared in the paper where each task has a head of its own"""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large a benchmark is run: the defaults of its experiments."""

    data: str
    """a data set, or several with + between them"""
    images: int | None = None
    """class-balanced training images, of each data set; None: all"""
    tasks: int
    epochs: int
    width: float
    """of the network, as a factor of the paper's"""
    seeds: int
    per_class: int
    """items of each class that a task leaves in the memory"""
    methods: tuple[str, ...] = ()
    """compared unless others are named; none: the benchmark's"""
    batch_size: int = 128
    optimizer: str | None = None
    """None: each method's own"""
    lr: float | None = None
    plateau: bool = False
    """HAT's protocol, see `selfreminder.training.Training`"""


HatScale = partial(Scale, batch_size=64, optimizer="sgd", lr=0.05, plateau=True)
"""A `Scale` with the training protocol of HAT's authors."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """The facts about a benchmark. Its file has them as `BENCHMARK`, beside `make_stream`, which makes its tasks."""

    model: str
    """its network, a name of `selfreminder.benchmarks.models.MODELS`"""
    methods: tuple[str, ...]
    """compared unless a scale or the user names others"""
    scales: dict[str, Scale]
    """by the names of `SCALES`"""
    own_data: bool = False
    """its data is the user's own"""
    head_per_task: bool = False
    """each task has an output head of its own"""
    parts_of_data: bool = False
    """each task has a part of the data, rather than all of it in another form"""
    splits_classes: bool = False
    """tasks are classes of one data set: fewer tasks are the first ones, not other ones"""
    has_times: bool = False
    """its items have times, or may have them: a test part can come after the training part"""
    compares_with_reference: bool = False
    """run joint training too, the reference of the forgetting ratio ρ"""
    summary: str = ""
    """the first line of its file's docstring, without the full stop"""

    @property
    def scenario(self) -> str:
        """The scenario that it has unless another is asked for."""
        return "task" if self.head_per_task else "domain"


SplitBenchmark = partial(
    Benchmark,
    methods=HEAD_PER_TASK_METHODS,
    head_per_task=True,
    parts_of_data=True,
    splits_classes=True,
    compares_with_reference=True,
)
"""A `Benchmark` whose tasks are classes of one data set, with a head each."""

_SHARED = ("__init__", "augmentation", "models", "networks", "periods", "scenario", "stream")
_WITH_TORCH = dict.fromkeys(("Parts", "Split", "Stream", "StreamSpec", "Task"), "stream") | {"build_model": "models"}
"""public names that are imported when first used, by the module that has them"""


def __getattr__(name: str) -> Any:
    """Import a public name that needs torch."""
    if name not in _WITH_TORCH:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)


@cache
def names() -> tuple[str, ...]:
    """Names of all benchmarks.

    >>> "permuted-mnist" in names()
    True
    """
    return tuple(dict.fromkeys((*own_names(), *sorted(installed(GROUP)))))


@cache
def own_names() -> tuple[str, ...]:
    """Names of the benchmarks that have a file here."""
    stems = (path.stem for path in sorted(Path(__file__).parent.glob("*.py")))
    return tuple(stem.replace("_", "-") for stem in stems if stem not in _SHARED)


def load_benchmark(name: str) -> Benchmark:
    """Load the facts about a benchmark from its file, which imports torch.

    See `selfreminder.experiment.catalogue` for the same without torch.

    >>> load_benchmark("split-mnist").splits_classes
    True
    """
    module = load_module(name)
    return replace(module.BENCHMARK, summary=(module.__doc__ or "").partition("\n")[0].removesuffix("."))


@lru_cache(maxsize=1)  # methods follow each other with the same seed, and so the same stream
def make_stream(name: str, spec: "StreamSpec") -> "Stream":
    """Make the stream of tasks of a benchmark; asked for the same one again, give it again."""
    module = load_module(name)
    stream = module.make_stream(spec) if name in own_names() else _make_others(name, module, spec)
    if spec.scenario is None or module.BENCHMARK.own_data:  # whose classes may differ from task to task
        return stream
    return import_module(f"{__name__}.scenario").arrange(stream, spec.scenario)


def _make_others(name: str, module: ModuleType, spec: "StreamSpec") -> "Stream":
    """Make the stream of a benchmark that is not of our own, whatever it raises or gives."""
    try:
        stream = module.make_stream(spec)
    except SelfReminderError:
        raise
    except Exception as error:
        raise SelfReminderError(f"{name}: make_stream raised {type(error).__name__}: {error}") from error
    if not isinstance(stream, import_module(f"{__name__}.stream").Stream):
        raise SelfReminderError(f"{name}: make_stream gives a {type(stream).__name__}: it should give a Stream")
    return stream


def load_module(name: str) -> ModuleType:
    """Load the module of a benchmark: its file here, or what an entry point or a path names."""
    if name in own_names():
        return import_module(f"{__name__}.{name.replace('-', '_')}")
    if name in installed(GROUP):
        try:
            module = installed(GROUP)[name].load()
        except Exception as error:  # whatever a stranger's module raises
            raise SelfReminderError(f"benchmark '{name}' cannot be loaded: {type(error).__name__}: {error}") from None
    elif name.endswith(".py"):
        module = load_file(Path(name))
    else:
        raise unknown("benchmark", name, [*names(), "my_benchmark.py"])
    facts = getattr(module, "BENCHMARK", None)
    if not isinstance(facts, Benchmark) or not callable(getattr(module, "make_stream", None)):
        raise SelfReminderError(f"{name} is no benchmark: it should have BENCHMARK, a Benchmark, and make_stream(spec)")
    if not facts.scales or not set(facts.scales) <= set(SCALES):
        raise SelfReminderError(f"{name}: its scales should be some of {', '.join(SCALES)}")
    return module
