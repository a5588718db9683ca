"""The benchmarks, one file each. A file's name is its benchmark's name; the first line of its docstring, its help.

A benchmark's file has two things: `BENCHMARK`, its facts (see `selfreminder.benchmarks.base`), and
`make_stream(spec)`, which makes its stream of tasks. Nothing here imports torch before a benchmark is loaded.
"""

from dataclasses import replace
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from selfreminder._base.errors import unknown
from selfreminder.benchmarks.base import SCALES, Benchmark, Scale

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

_SHARED = ("__init__", "base", "models", "stream")
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
