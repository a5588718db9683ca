"""The command that gives the runs of a folder, found from the runs themselves."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import Size
from selfreminder.benchmarks import SCALES
from selfreminder.experiment.catalogue import benchmark
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.folder import TABLE, read_about
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.tuning.tuned import METHOD_FIELDS, read_table

_OWN = ("method", "seed", "options", *METHOD_FIELDS)
"""what may differ between the runs of a comparison"""
_OF_SCALE = ("tasks", "epochs", "width")
"""what a comparison takes from its scale unless told otherwise"""
_FOUND = ("benchmark", "scale", "methods", "seeds", "size", *_OF_SCALE, "tuned")


@dataclass(frozen=True)
class Redo:
    """How to get these runs again."""

    command: str
    comparison: Comparison | None = None
    """None for a grid from a file"""
    exact: bool = True
    """whether strengths, step sizes and the like are those of the table"""
    file: tuple[str, str] | None = None
    """name and text of the grid's file"""
    papers_scale: str | None = None
    """of `selfreminder reproduce`, which draws the paper's figures of these runs and judges its claims"""

    @property
    def scale(self) -> str | None:
        return self.comparison.scale if self.comparison else self.papers_scale


def redo(experiments: Sequence[Experiment], folder: Path) -> Redo | None:
    """The `reproduce`, the `compare` or else the `run` that has these runs; None if there is none of them."""
    about = read_about(folder) or {}
    compared = _compare(experiments, _table(folder) if "tuned" in about else None)
    exact = compared if compared is not None and compared.exact else None
    return _reproduce(about, exact) or exact or _run(folder, about) or compared


def _reproduce(about: Mapping[str, Any], compared: Redo | None) -> Redo | None:
    figure, scale = about.get("figure"), about.get("scale")
    if not isinstance(figure, str) or not isinstance(scale, str) or scale not in SCALES:
        return None
    words = ["selfreminder", "reproduce", figure, "--scale", scale]
    return Redo(shlex.join(words), compared and compared.comparison, papers_scale=scale)


def _table(folder: Path) -> Path | None:
    """The table that the runs were given, if it can still be read."""
    try:
        read_table(folder / TABLE)
    except (OSError, SelfReminderError):
        return None
    return folder / TABLE


def _compare(experiments: Sequence[Experiment], table: Path | None) -> Redo | None:
    """Of the scales whose comparison has these runs, the one that needs the fewest options beside it."""
    one, seeds = experiments[0], sorted({experiment.seed for experiment in experiments})
    if seeds != list(range(len(seeds))) or any(_shared(other) != _shared(one) for other in experiments):
        return None
    keys = {experiment.key for experiment in experiments}
    found: list[tuple[bool, int, Redo]] = []
    for scale, defaults in benchmark(one.benchmark).scales.items():
        given: dict[str, Any] = {
            field.name: getattr(one, field.name)
            for field in dataclasses.fields(Comparison)
            if field.name not in _FOUND and getattr(one, field.name) != field.default
        }
        given |= {k: getattr(one, k) for k in _OF_SCALE if getattr(one, k) != getattr(defaults, k)}
        if one.size != Size(per_class=defaults.per_class):
            given["size"] = one.size
        comparison = Comparison(
            benchmark=one.benchmark,
            scale=scale,
            methods=tuple(dict.fromkeys(experiment.method for experiment in experiments)),
            seeds=len(seeds),
            tuned=table,
            **given,
        )
        if _shared(comparison.experiments[0]) == _shared(one):
            exact = keys <= {experiment.key for experiment in comparison.experiments}
            found.append((not exact, len(given), Redo(_command(comparison, given), comparison, exact)))
    return min(found, key=lambda candidate: candidate[:2])[2] if found else None


def _shared(experiment: Experiment) -> dict[str, Any]:
    return {key: value for key, value in experiment.as_dict().items() if key not in _OWN}


def _command(comparison: Comparison, given: dict[str, Any]) -> str:
    words = ["selfreminder", "compare", comparison.benchmark, "--scale", comparison.scale]
    words += ["--methods", ",".join(comparison.methods), "--seeds", str(comparison.seeds)]
    for name, value in given.items():
        options = vars(value) if isinstance(value, Size) else {name: value}
        for option, said in options.items():
            if said is not None:
                words += [f"--{option.replace('_', '-')}", str(said)]
    if comparison.tuned is not None:
        words += ["--tuned", comparison.tuned.name]
    return shlex.join(words)


def _run(folder: Path, about: Mapping[str, Any]) -> Redo | None:
    """The grid of `selfreminder run`, which keeps a copy of its file."""
    try:
        name = Path(about["spec"]).name  # in this folder, whatever somebody wrote into it
        text = (folder / name).read_text(encoding="utf-8")
        given = {option: [str(value) for value in about[option]] for option in ("set", "sweep")}
    except (OSError, LookupError, TypeError, ValueError):  # of a comparison, or damaged
        return None
    options = [word for option, values in given.items() for value in values for word in (f"--{option}", value)]
    options += ["--tuned", TABLE] if "tuned" in about else []
    return Redo(shlex.join(["selfreminder", "run", name, *options]), file=(name, text))
