"""The catalogue: facts about every method, benchmark and selection, without importing torch.

A method declares its facts on its class, a benchmark on its value `BENCHMARK`, a selection by its function. To read
them would import torch, so they are kept in an index, `catalogue.json`, with a digest of the source files that it was
made of. Where the digest is that of the files, the index is read; where it is not, because somebody edited or added a
file, the files are imported instead. So a new one is one new file, and known at once. `make format` writes the index.
"""

import ast
import dataclasses
import hashlib
import inspect
import json
import textwrap
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from selfreminder import benchmarks as benchmark_files
from selfreminder import methods as method_files
from selfreminder import selection as selection_files
from selfreminder._base.atomic import write_text
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.factories import MODELS, installed, is_factory, load_factory
from selfreminder.benchmarks import Benchmark, Scale

INDEX = Path(__file__).with_suffix(".json")

_SIZE = ("per_class", "per_task", "budget", "items")
_SETTINGS = ("strength", "select", "codec", "logit_codec", "memory_batch", "over_tasks")


@dataclass(frozen=True, kw_only=True)
class MethodFacts:
    """The facts about a method: see `selfreminder.methods.base.Method`, where they are explained."""

    summary: str
    """the first line of its file's docstring"""
    optimizer: str
    is_fine_tuning: bool
    is_reference: bool
    heads: str
    needs_boundaries: bool
    settings: tuple[str, ...]
    """its dataclass fields: settings of an experiment that it uses, and options of its own"""
    strength: float | None
    """the default λ; None without one"""
    code: str = ""
    """a digest of its source and of its bases', without comments and docstrings"""


@dataclass(frozen=True)
class SelectionFacts:
    """The facts about a selection."""

    summary: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Catalogue:
    """The facts about all methods, benchmarks and selections of our own, by name."""

    methods: dict[str, MethodFacts]
    benchmarks: dict[str, Benchmark]
    selections: dict[str, SelectionFacts]


@cache
def read_catalogue() -> Catalogue:
    """Read the catalogue from its index, or make it by importing all files where the index is not theirs.

    >>> "fsr-logit" in read_catalogue().methods, "permuted-mnist" in read_catalogue().benchmarks
    (True, True)
    """
    index = json.loads(INDEX.read_text(encoding="utf-8")) if INDEX.is_file() else {}
    if index.get("sha256") != _digest():
        index = make_index()
    return Catalogue(
        {name: MethodFacts(**_with_tuples(facts)) for name, facts in index["methods"].items()},
        {name: _benchmark(facts) for name, facts in index["benchmarks"].items()},
        {name: SelectionFacts(**_with_tuples(facts)) for name, facts in index["selections"].items()},
    )


def method_facts(name: str) -> MethodFacts:
    """Give the facts about a method.

    >>> method_facts("joint").is_reference, method_facts("hat").heads, method_facts("sgd").optimizer
    (True, 'per task', 'sgd')
    """
    found = read_catalogue().methods
    return found[name] if name in found else _facts_of_others(name)


@cache
def _facts_of_others(name: str) -> MethodFacts:
    return _facts_of_class(name)


def check_applies(method: str, scenario: str) -> None:
    """Raise if a scenario does not tell a method what it needs."""
    facts = method_facts(method)
    if facts.needs_boundaries and scenario == "stream":
        raise SelfReminderError(f"{method} must know where a task ends, which a stream does not tell: leave it out")
    if facts.heads == "per task" and scenario != "task":
        raise SelfReminderError(f"{method} must know the task of what it predicts: choose the scenario task")
    if facts.heads == "one" and scenario == "task":
        raise SelfReminderError(f"{method} is for one output that tasks share, not for a head per task: leave it out")


def applies(method: str, scenario: str) -> bool:
    """Tell whether a method can be used in a scenario.

    >>> applies("hat", "class"), applies("fsr-logit", "class")
    (False, True)
    """
    try:
        check_applies(method, scenario)
    except SelfReminderError:
        return False
    return True


def benchmark(name: str) -> Benchmark:
    """Give the facts about a benchmark.

    >>> benchmark("split-mnist").scales["demo"].tasks
    5
    """
    found = read_catalogue().benchmarks
    return found[name] if name in found else _load_others(name)


@cache
def _load_others(name: str) -> Benchmark:
    return benchmark_files.load_benchmark(name)


def digest_parts(benchmark_name: str, model: str | None = None) -> dict[str, str]:
    """Digest the source of what of an experiment is not of our own: its benchmark, and the factory of its model.

    A factory's is that of the module that it is in.
    """
    found = {}
    if benchmark_name not in read_catalogue().benchmarks:
        found["benchmark_code"] = digest_code(benchmark_files.load_module(benchmark_name))
    named = model or ""
    if named in installed(MODELS) or (is_factory(named) and not named.startswith(("timm:", "hf:"))):
        found["model_code"] = digest_code(inspect.getmodule(load_factory(named)))
    return found


def digest_code(part: Any) -> str:
    """Digest the source of a module, class or function, without comments and docstrings; empty where it has none."""
    try:
        return hashlib.sha256(_dump_code(part).encode()).hexdigest()[:12]
    except (OSError, TypeError, SyntaxError):  # made at a prompt or in C, or a lambda in the middle of a line
        return ""


def check_selection(text: str) -> None:
    """Raise for a selection, or an option of one of our own, that nobody knows."""
    name, options = selection_files.parse(text)
    if name in (found := read_catalogue().selections):
        selection_files.check_options(name, options, found[name].options)


def selection_summary(name: str) -> str:
    """Give one line about a selection.

    >>> selection_summary("random")
    'At random, from every class: simple, and hard to beat.'
    """
    found = read_catalogue().selections
    return found[name].summary if name in found else selection_files.summary(name)


def uses(method: str, field: str) -> bool:
    """Tell whether a run of a method can depend on a field of its experiment.

    >>> uses("adam", "per_class"), uses("fsr-logit", "per_class"), uses("adam", "epochs")
    (False, True, True)
    """
    if field not in (*_SIZE, *_SETTINGS):
        return True
    return ("size" if field in _SIZE else field) in method_facts(method).settings


def references() -> tuple[str, ...]:
    """Give the names of the methods that others are measured by.

    >>> references()
    ('joint',)
    """
    return tuple(name for name, facts in read_catalogue().methods.items() if facts.is_reference)


def _benchmark(facts: dict[str, Any]) -> Benchmark:
    scales = {name: Scale(**_with_tuples(of)) for name, of in facts["scales"].items()}
    return Benchmark(**_with_tuples({**facts, "scales": scales}))


def _with_tuples(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in facts.items()}


def make_index() -> dict[str, Any]:
    """Make the index by importing all methods, benchmarks and selections."""
    benchmarks = {name: benchmark_files.load_benchmark(name) for name in benchmark_files.own_names()}
    methods = {name: _facts_of_class(name) for name in method_files.own_names()}
    selections = {
        name: SelectionFacts(selection_files.summary(name), selection_files.load(name)[1])
        for name in selection_files.own_names()
    }
    return dataclasses.asdict(Catalogue(methods, benchmarks, selections)) | {"sha256": _digest()}


def write_index() -> None:
    """Write the index anew, each method and each scale of a benchmark on a line of its own."""
    write_text(INDEX, json.dumps(make_index(), ensure_ascii=False).replace('}, "', '},\n"') + "\n")


def _facts_of_class(name: str) -> MethodFacts:
    kind = method_files.method_class(name)
    fields: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(kind)}
    shared = ("optimizer", "is_fine_tuning", "is_reference", "heads", "needs_boundaries")
    return MethodFacts(
        summary=(import_module(kind.__module__).__doc__ or "").partition("\n")[0],
        settings=tuple(fields),
        strength=fields.get("strength"),
        code=_digest_code(kind),
        **{name: getattr(kind, name) for name in shared},
    )


def _digest_code(kind: type) -> str:
    """Digest a method's file, and those of its bases that are classes of other files."""
    own = inspect.getmodule(kind)
    others = [
        base for base in kind.__mro__ if issubclass(base, method_files.Method) and base.__module__ != kind.__module__
    ]
    digest = hashlib.sha256()
    for part in (own, *others):
        assert part is not None
        digest.update(_dump_code(part).encode())
    return digest.hexdigest()[:12]


def _dump_code(part: Any) -> str:
    """Write what a module, a class or a function does, without comments and docstrings."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(part)))
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [each for each in body if not _is_docstring(each)]  # pyright: ignore[reportAttributeAccessIssue]
    return ast.dump(tree)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _digest() -> str:
    """Digest the sources of all methods, benchmarks and selections."""
    digest = hashlib.sha256()
    for package in (method_files, benchmark_files, selection_files):
        for path in sorted(Path(package.__path__[0]).glob("*.py")):
            digest.update(f"{package.__name__}/{path.name}\n{path.read_text(encoding='utf-8')}\0".encode())
    return digest.hexdigest()
