"""Many experiments from one TOML file: fields of `Experiment`, and lists of values whose product is taken.

    benchmark = "permuted-mnist"
    scale = "demo"            # data, tasks, epochs, tuned strengths …, where nothing else is said
    seeds = 3                 # the same as seed = [0, 1, 2] in [grid]
    epochs = 3

    [grid]
    method = ["adam", "fsr-logit", "ewc"]
    per_class = [1, 10]       # for methods that keep samples: adam and ewc have one run for both

    [methods.ewc]             # for one method alone; a list is swept here too
    strength = [10, 30]

What is said for one method goes before [grid], and [grid] before the rest. What a method has no use for is for the
others alone. "none" stands for no value. Nothing here needs torch.
"""

import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from selfreminder import methods as all_methods
from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder._base.sizes import Size
from selfreminder.experiment.catalogue import benchmark, method_facts, uses
from selfreminder.experiment.comparison import MOST_RUNS, Comparison
from selfreminder.experiment.spec import Experiment, parse_option, parse_text, parse_value
from selfreminder.experiment.tuning.tuned import describe_untuned
from selfreminder.methods import show_number

_FIELDS = tuple(field.name for field in fields(Experiment))
_KEYS = (*_FIELDS, "scale", "seeds")
_SIZES = ("per_class", "per_task", "budget", "items")
_STREAM = ("benchmark", "data", "images", "tasks", "split_into", "validation", "hed", "test_after")
_EXTENT = ("tasks", "epochs", "width", "data", "scenario", "model")
"""that what was chosen was chosen for"""
_TABLES = ("grid", "methods")
_OPTION = "options."
"""what stands before a method's own option on the command line"""

Axes = dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Sweep:
    """What a file asks for: fields with one value, and lists of values whose product is run."""

    name: str
    """the file, for messages"""
    fixed: Mapping[str, Any]
    grid: Mapping[str, tuple[Any, ...]]
    methods: Mapping[str, Axes]
    scale: str | None = None
    tuned: Path | None = None
    """a table that goes before the one that comes with selfreminder"""

    @cached_property
    def experiments(self) -> list[Experiment]:
        """Every run once, seed by seed, and runs on the same data one after the other."""
        with _naming(self.name):
            found = {experiment.key: experiment for experiment in self._make_experiments()}
            run = sorted({experiment.method for experiment in found.values()})
            if idle := [name for name in self.grid if not any(uses(method, name) for method in run)]:
                raise SelfReminderError(f"[grid]: {idle[0]} is of no use to {', '.join(run)}: leave it out")
            if unrun := self.methods.keys() - set(run):
                raise SelfReminderError(f"[methods.{min(unrun)}] is of a method that is not run: name it in [grid] too")
            for experiment in found.values():
                if experiment.options:  # to know a method's own takes its file, and torch
                    all_methods.check_options(experiment.method, experiment.options, (*_FIELDS, "size"))
        places: dict[tuple[Any, ...], int] = {}

        def place(experiment: Experiment) -> tuple[int, int]:
            data = tuple(getattr(experiment, name) for name in _STREAM)
            return experiment.seed, places.setdefault(data, len(places))

        return sorted(found.values(), key=place)

    def find_untuned(self, experiments: Iterable[Experiment]) -> list[str]:
        """Find methods whose strength or step size nobody chose, nor the file says: as of a comparison."""
        if self.scale is None:
            return []
        found: dict[str, None] = {}
        other: dict[str, None] = {}
        for e in experiments:
            said = {*self.fixed, *self.grid, *self.methods.get(e.method, ())}
            if {"strength", "lr"} & said:
                continue
            at = benchmark(e.benchmark).scales[self.scale]
            changed = {name: getattr(e, name) for name in _EXTENT if getattr(e, name) != getattr(at, name, None)}
            if sha256 := e.reading.get("sha256"):
                changed["data"] = f"{e.data} ({sha256[:8]})"
            if untuned := describe_untuned(e.benchmark, self.scale, e.method, e.size, self.tuned, changed):
                found[untuned] = None
            elif uses(e.method, "strength"):
                other |= dict.fromkeys(changed)
        return [*found, *([f"what was chosen for other {', '.join(other)}"] if other else ())]

    def _make_experiments(self) -> Iterator[Experiment]:
        for name in self._list_values("benchmark"):
            first = {field: values[0] for field, values in self.grid.items()} | dict(self.fixed)
            of_scale = [] if self.scale is None else self._compare(name, first).experiments
            seeds = tuple(dict.fromkeys(e.seed for e in of_scale)) or (0,)
            for method in self._list_values("method", tuple(dict.fromkeys(e.method for e in of_scale))):
                yield from self._sweep_method(name, method, seeds)

    def _list_values(self, name: str, default: tuple[Any, ...] = ()) -> tuple[Any, ...]:
        found = self.grid.get(name) or ((self.fixed[name],) if name in self.fixed else default)
        if not found:
            raise SelfReminderError(f'{name} is missing: write {name} = "…", or a list of them under [grid]')
        return found

    def _sweep_method(self, benchmark: str, method: str, seeds: tuple[int, ...]) -> Iterator[Experiment]:
        own = self.methods.get(method, {})
        elsewhere = ("benchmark", "method", *own, *(_SIZES if any(name in own for name in _SIZES) else ()))
        axes = {k: values for k, values in self.grid.items() if k not in elsewhere and uses(method, k)} | own
        if "seed" not in {*axes, *self.fixed}:
            axes["seed"] = seeds
        fixed = {k: value for k, value in self.fixed.items() if uses(method, k)}
        fixed |= {"benchmark": benchmark, "method": method}
        if any(name in axes for name in _SIZES):
            fixed = {name: value for name, value in fixed.items() if name not in _SIZES}
        if (count := math.prod(map(len, axes.values()))) > MOST_RUNS:
            raise SelfReminderError(f"{method} would have {count} runs: a grid has at most {MOST_RUNS}")
        for values in product(*axes.values()):
            yield self._make_experiment(fixed | dict(zip(axes, values)))

    def _make_experiment(self, settings: dict[str, Any]) -> Experiment:
        if options := {k.removeprefix(_OPTION): value for k, value in settings.items() if k.startswith(_OPTION)}:
            settings = {k: value for k, value in settings.items() if not k.startswith(_OPTION)}
            settings["options"] = {**settings.get("options", {}), **options}
        sizes = {name: settings[name] for name in _SIZES if settings.get(name) is not None}
        if sizes:
            settings = dict.fromkeys(_SIZES) | settings
        if self.scale is None:
            return Experiment(**settings)
        of_scale = self._compare(
            settings["benchmark"],
            settings,
            methods=(settings["method"],),
            seeds=1,
            size=Size(**sizes) if sizes else None,
            tasks=settings.get("tasks"),
            tuned=self.tuned,
        )
        base = {name: parse_value(name, value) for name, value in of_scale.experiments[0].as_dict().items()}
        return Experiment(**(base | settings))

    def _compare(self, benchmark_name: str, settings: Mapping[str, Any], **asked: Any) -> Comparison:
        """Make the comparison that has what the scale says; data of one's own is not the scale's, nor is a network."""
        names = ("model", *(("data", "reading") if benchmark(benchmark_name).own_data else ()))
        own = {name: settings[name] for name in names if name in settings}
        return Comparison(benchmark=benchmark_name, scale=self.scale or "", settings=own, **asked)


def read_sweep(
    path: str | Path, fixed: Sequence[str] = (), swept: Sequence[str] = (), tuned: Path | None = None
) -> Sweep:
    """Read the sweep of a TOML file, and check it field by field.

    Args:
        path: the file.
        fixed: texts such as "epochs=3", which go before all that the file says.
        swept: texts such as "strength=0.01,0.1", likewise.
        tuned: a table of strengths and step sizes, for a file that names a scale.
    """
    try:
        said = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise SelfReminderError(f"{path} is no TOML: {error}") from None
    for text in fixed:
        with _naming(f"--set {text}"):
            name, value = _split_assignment(text, _KEYS)
            if name.startswith(_OPTION):
                _get_table(said, "options")[name.removeprefix(_OPTION)] = parse_option(name, value)
                continue
            _forget_field(said, name)
            said[name] = parse_text(name, value)
            _narrow_to_methods(said, name, [said[name]])
    for text in swept:
        with _naming(f"--sweep {text}"):
            name, value = _split_assignment(text, _FIELDS)
            _forget_field(said, name)
            parse = parse_option if name.startswith(_OPTION) else parse_text
            values = [parse(name, each.strip()) for each in value.split(",")]
            _get_table(said, "grid")[name] = values
            _narrow_to_methods(said, name, values)
    with _naming(str(path)):
        sweep = _make_sweep(said, str(path))
        if tuned is not None and sweep.scale is None:
            raise SelfReminderError(f'it names no scale, so that {tuned} has no part in it: write scale = "…"')
        return replace(sweep, tuned=tuned)


def _make_sweep(said: dict[str, Any], name: str) -> Sweep:
    own = {}
    for method, settings in _get_table(said, "methods").items():
        method_facts(method)  # raises if there is no such method
        with _naming(f"[methods.{method}]"):
            known = [f for f in _FIELDS if f not in ("benchmark", "method")]
            own[method] = _read_axes(settings, known)
            if unused := [name for name in own[method] if not uses(method, name)]:
                raise SelfReminderError(f"{method} has no {unused[0]}")
    with _naming("[grid]"):
        grid = _read_axes(_get_table(said, "grid"), _FIELDS)
    fixed: dict[str, Any] = {}
    for key, value in said.items():
        if key in _TABLES:
            continue
        if key not in _KEYS:
            raise unknown("key", key, (*_KEYS, *_TABLES))
        if isinstance(value, list):
            raise SelfReminderError(f"{key} is a list: what is swept goes under [grid]")
        if key == "seeds":
            grid["seed"] = _read_seeds(value, {*said, *grid})
        else:
            fixed[key] = parse_value(key, value)
    return Sweep(name, fixed, grid, own, fixed.pop("scale", None))


def _read_axes(settings: object, known: Sequence[str]) -> Axes:
    if not isinstance(settings, dict):
        raise SelfReminderError(f"it is {settings!r}: it must be a table of settings")
    axes: Axes = {}
    for key, value in settings.items():
        values = value if isinstance(value, list) else [value]
        if key == "seeds":
            axes["seed"] = _read_seeds(value, set(settings))
        elif key.startswith(_OPTION):
            axes[key] = tuple(dict.fromkeys(values))
        elif key not in known:
            raise unknown("field", key, known)
        elif not values:
            raise SelfReminderError(f"{key} is an empty list: it must have a value at least")
        else:
            said = [parse_value(key, each) for each in values]
            axes[key] = tuple(each for place, each in enumerate(said) if each not in said[:place])
    return axes


def _read_seeds(value: object, beside: set[str]) -> tuple[int, ...]:
    if "seed" in beside:
        raise SelfReminderError("both seeds and seed are given: one of them is enough")
    count = parse_value("seeds", value)
    if not 1 <= count <= MOST_RUNS:
        raise SelfReminderError(f"seeds is {show_number(count)}: it must be at least 1, and at most {MOST_RUNS}")
    return tuple(range(count))


def _split_assignment(text: str, known: Sequence[str]) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or not value.strip():
        raise SelfReminderError("write a field and its value, such as epochs=3")
    is_option = name.startswith(_OPTION) and name.removeprefix(_OPTION).isidentifier()
    if name not in known and not is_option:
        raise unknown("field", name, known)
    return name, value.strip()


def _forget_field(said: dict[str, Any], name: str) -> None:
    """Forget what a file says of a field, or of others that say the same thing."""
    alike = next((group for group in (_SIZES, ("seed", "seeds")) if name in group), (name,))
    of_methods = said.get("methods", {})
    tables = [said, said.get("grid"), *(of_methods.values() if isinstance(of_methods, dict) else ())]
    for table in tables:
        for each in alike:
            if isinstance(table, dict):
                table.pop(each, None)


def _narrow_to_methods(said: dict[str, Any], name: str, values: list[Any]) -> None:
    """Leave out what a file says for other methods than those that the command line chooses."""
    if name == "method":
        known = all_methods.names()
        chosen = [method for method in values if method in known or all_methods.is_place(str(method))]
        for key in [key for key in _get_table(said, "grid") if chosen and not any(uses(each, key) for each in chosen)]:
            del said["grid"][key]
        said["methods"] = {method: own for method, own in _get_table(said, "methods").items() if method in values}


def _get_table(said: dict[str, Any], name: str) -> dict[str, Any]:
    table = said.setdefault(name, {})
    if not isinstance(table, dict):
        raise SelfReminderError(f"{name} is {table!r}: it must be a table, [{name}]")
    return table


@contextmanager
def _naming(place: str) -> Iterator[None]:
    """Name the place of an error in its message."""
    try:
        yield
    except SelfReminderError as error:
        raise SelfReminderError(f"{place}: {error}") from None
