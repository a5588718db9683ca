"""The command that gives the runs of a folder, found from the runs themselves."""

import dataclasses
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfreminder.experiment.benchmarks import benchmark
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.folder import GRID
from selfreminder.experiment.spec import Experiment
from selfreminder.sizes import Size

_OWN = ("method", "seed", "strength", "lr", "optimizer", "options")
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
    """whether strengths and step sizes are still those of the table"""
    file: tuple[str, str] | None = None
    """name and text of the grid's file"""


def redo(experiments: Sequence[Experiment], folder: Path) -> Redo | None:
    """The `compare` that has these runs, or else the `run`; None if there is neither."""
    compared = _compare(experiments)
    if compared is not None and compared.exact:
        return compared
    return _run(folder) or compared


def _compare(experiments: Sequence[Experiment]) -> Redo | None:
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
    return shlex.join(words)


def _run(folder: Path) -> Redo | None:
    """The grid of `selfreminder run`, which keeps a copy of its file."""
    try:
        about = json.loads((folder / GRID).read_text(encoding="utf-8"))
        name = about["spec"]
        text = (folder / name).read_text(encoding="utf-8")
    except (OSError, LookupError):  # of a comparison
        return None
    options = [word for option in ("set", "sweep") for value in about[option] for word in (f"--{option}", value)]
    return Redo(shlex.join(["selfreminder", "run", name, *options]), file=(name, text))
