"""The benchmarks, one file each. A file's name is its benchmark's name; the first line of its docstring, its help.

A benchmark's file has two things: `BENCHMARK`, its facts as a `Benchmark`, and `make_stream(spec)`, which makes its
stream of tasks. Nothing here imports torch before a benchmark is loaded.
"""

from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from selfreminder._base.errors import unknown

if TYPE_CHECKING:
    from selfreminder.benchmarks.models import build_model
    from selfreminder.benchmarks.stream import Parts, Split, Stream, StreamSpec, Task

__all__ = [
    "SCALES",
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
]

SCALES = {
    "demo": "minutes, on data that comes with selfreminder",
    "small": "minutes a run, on real data",
    "medium": "a core-hour or so a run",
    "paper": "the paper's own, hours a run",
}
"""the names of scales and what they cost"""

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
    head_per_task: bool = False
    """each task has an output head of its own"""
    parts_of_data: bool = False
    """each task has a part of the data, rather than all of it in another form"""
    splits_classes: bool = False
    """tasks are classes of one data set: fewer tasks are the first ones, not other ones"""
    compares_with_reference: bool = False
    """run joint training too, the reference of the forgetting ratio ρ"""
    summary: str = ""
    """the first line of its file's docstring, without the full stop"""


SplitBenchmark = partial(
    Benchmark,
    methods=HEAD_PER_TASK_METHODS,
    head_per_task=True,
    parts_of_data=True,
    splits_classes=True,
    compares_with_reference=True,
)
"""A `Benchmark` whose tasks are classes of one data set, with a head each."""

_SHARED = ("__init__", "models", "stream")
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
    stems = (path.stem for path in sorted(Path(__file__).parent.glob("*.py")))
    return tuple(stem.replace("_", "-") for stem in stems if stem not in _SHARED)


def load_benchmark(name: str) -> Benchmark:
    """Load the facts about a benchmark from its file, which imports torch.

    See `selfreminder.experiment.catalogue` for the same without torch.

    >>> load_benchmark("split-mnist").splits_classes
    True
    """
    module = _load_module(name)
    return replace(module.BENCHMARK, summary=(module.__doc__ or "").partition("\n")[0].removesuffix("."))


@lru_cache(maxsize=1)  # methods follow each other with the same seed, and so the same stream
def make_stream(name: str, spec: "StreamSpec") -> "Stream":
    """Make the stream of tasks of a benchmark; asked for the same one again, give it again."""
    return _load_module(name).make_stream(spec)


def _load_module(name: str) -> ModuleType:
    if name not in names():
        raise unknown("benchmark", name, names())
    return import_module(f"{__name__}.{name.replace('-', '_')}")
