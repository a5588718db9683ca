"""The benchmarks, one file each. A file's name is its benchmark's name; the first line of its docstring, its help.

A benchmark's file has two things: `BENCHMARK`, its facts (see `selfreminder.benchmarks.base`), and
`make_stream(spec)`, which makes its stream of tasks. Nothing here imports torch before a benchmark is loaded.
"""

from dataclasses import replace
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from selfreminder._base.errors import unknown
from selfreminder.benchmarks.base import SCALES, Benchmark, Scale

if TYPE_CHECKING:
    from selfreminder.benchmarks.stream import Stream, StreamSpec

__all__ = ["SCALES", "Benchmark", "Scale", "load_benchmark", "make_stream", "names"]

_SHARED = ("__init__", "base", "models", "stream")


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
