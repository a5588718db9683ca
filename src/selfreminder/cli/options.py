"""What several commands ask for in the same words."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, Token

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import Size
from selfreminder.experiment.comparison import Comparison


def whole_number(_: object, tokens: Sequence[Token]) -> int:
    """A number of the command line, which would else be rounded."""
    text = tokens[0].value
    if not re.fullmatch(r"[+-]?\d+", text):
        raise ValueError(f"'{text}' is no whole number")
    return int(text)


Whole = Annotated[int, Parameter(converter=whole_number)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Kept:
    """How much stays in the memory: at least one of these was given."""

    per_class: Whole | None = None
    """Items of each class that a task leaves in the memory."""
    per_task: Whole | None = None
    """Items that a task leaves in the memory."""
    budget: str | None = None
    """Bytes of the whole memory, such as 250KB."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Extent:
    """How large a benchmark is run, where that is not as the scale says."""

    tasks: Whole | None = None
    """Tasks in the stream; by default as the scale says. Fewer are the first ones of it."""
    epochs: Whole | None = None
    """Epochs on each task; by default as the scale says."""
    width: float | None = None
    """Of the network, as a factor of the paper's; by default as the scale says."""


def comparison_of(
    benchmark: str,
    scale: str,
    methods: str | None,
    kept: Kept | None,
    extent: Extent | None,
    device: str,
    tuned: Path | None,
    *,
    seeds: int | None,
) -> Comparison:
    """The comparison that options ask for."""
    extent = extent or Extent()
    return Comparison(
        benchmark=benchmark,
        scale=scale,
        methods=() if methods is None else _method_names(methods),
        seeds=seeds,
        size=None if kept is None else Size(kept.per_class, kept.per_task, kept.budget),
        tasks=extent.tasks,
        epochs=extent.epochs,
        width=extent.width,
        device=device,
        tuned=tuned,
    )


def _method_names(methods: str) -> tuple[str, ...]:
    names = [name.strip() for name in methods.split(",")]
    if not all(names):
        raise SelfReminderError(f"'{methods}' names no method at some place: write for example adam,fsr-logit")
    return tuple(dict.fromkeys(names))


def check_jobs(jobs: int | None) -> None:
    """Raise if there would be no worker."""
    if jobs is not None and jobs < 1:
        raise SelfReminderError(f"jobs is {jobs}: it must be at least 1")
