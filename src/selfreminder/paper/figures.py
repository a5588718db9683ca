"""The paper's figures as numbers: what there is of each in some records, and what its panels show.

`paper_figures_files` draws a plate as files, `paper_page` as charts of a page: both show the same numbers.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from selfreminder.experiment.catalogue import references, uses
from selfreminder.experiment.records import Records, index_by_key
from selfreminder.experiment.spec import Experiment
from selfreminder.paper.specs import FIGURES, Figure
from selfreminder.report.curves import Estimate, results
from selfreminder.report.findings import Entry
from selfreminder.report.style import look, other_marker
from selfreminder.report.svg.charts import Bars, Series

_ROOM = 0.25
"""between points and the ends of an axis, in steps"""
AVERAGE = "Average of the tasks so far"
DASHES = ("", "5 3", "3 2", "2 2", "1 2", "6 2 1 2")
_SAID: dict[str, Callable[[Any], str]] = {
    "per_class": lambda value: f"{value} per class",
    "width": lambda value: f"width {value:g}",
    "select": lambda value: value.partition(":")[0],
    "codec": lambda value: "uint8" if value == "auto" else value,
    "logit_codec": lambda value: f"{value} logits",
}
"""settings in which the lines of a figure differ; images of MNIST are kept as uint8 where nobody says otherwise"""


@dataclass(frozen=True)
class LinePanel:
    """Lines against x, the first on top; see `charts.line_chart`."""

    title: str
    series: tuple[Series, ...]
    x_title: str = "Tasks learned"
    y_title: str = "Test accuracy"
    limits: tuple[float, float] | None = (0.0, 1.0)
    log: bool = False
    ticks: tuple[float, ...] = ()
    marks: tuple[tuple[float, str], ...] = ()
    show_x: Callable[[float], str] = "{:,g}".format


@dataclass(frozen=True)
class BarPanel:
    """Groups of bars."""

    title: str
    groups: tuple[str, ...]
    bars: tuple[Bars, ...]
    x_title: str
    y_title: str
    limits: tuple[float, float]


@dataclass(frozen=True)
class HeatPanel:
    """A matrix of shares."""

    title: str
    matrix: list[list[Estimate]]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_title: str
    column_title: str


Panels = tuple[LinePanel, ...] | tuple[BarPanel, ...] | tuple[HeatPanel, ...]


@dataclass(frozen=True)
class Plate:
    """A figure that can be drawn."""

    panels: Panels
    legend: tuple[Series | Bars, ...] = ()
    note: str = ""
    """what a reader must know of it beside its axes"""
    errors: str = "standard error"
    """what error bars show"""
    seeds: str = ""
    """of how many it is, where not of all that its lines have"""


@dataclass(frozen=True)
class Shown:
    """What there is of a figure at a scale."""

    figure: Figure
    scale: str
    wanted: tuple[Experiment, ...]
    runs: tuple[Records, ...]
    """of those wanted, the ones that are done"""

    @property
    def missing(self) -> int:
        return len(self.wanted) - len(self.runs)

    @property
    def made_up(self) -> bool:
        """Whether its images are."""
        return any(experiment.has_generated_data for experiment in self.wanted)

    @cached_property
    def lines(self) -> tuple[Entry, ...]:
        """One for each method and setting of which a run is done, in the figure's order."""
        groups: dict[str, list[Records]] = {}
        for run in self.runs:
            groups.setdefault(self.name_of(run.experiment), []).append(run)
        methods = [runs[0].experiment.method for runs in groups.values()]
        found: list[Entry] = []
        for name, runs in groups.items():
            one = runs[0].experiment
            joint = [] if one.method in references() else [r for r in self.runs if r.experiment.method in references()]
            bounds = [run for run in joint if run.experiment.width == one.width]
            colour, marker = look(one.method, methods)
            place = sum(line.method == one.method for line in found)
            result = results([*runs, *bounds])[0]
            found.append(Entry(name, one, tuple(runs), result, colour, other_marker(marker, place)))
        return tuple(found)

    def of(self, *methods: str, **settings: Any) -> list[Entry]:
        """The lines of some methods, in the order of these, with a setting."""
        wanted = sorted((line for line in self.lines if line.method in methods), key=lambda e: methods.index(e.method))
        return [line for line in wanted if all(getattr(line.experiment, k) == v for k, v in settings.items())]

    def name_of(self, experiment: Experiment) -> str:
        """A method with what tells it from its other lines in this figure."""
        method = experiment.method
        said = [
            say(getattr(experiment, name))
            for name, say in _SAID.items()
            if uses(method, name) and len({getattr(run, name) for run in self.wanted if run.method == method}) > 1
        ]
        return f"{experiment.method} ({', '.join(said)})" if said else experiment.method

    @property
    def seeds(self) -> str:
        """Of how many seeds its lines are.

        A mean of several has a standard error; lines of an unfinished figure may be of different numbers.
        """
        return seeds_of(self.lines)


def seeds_of(lines: Iterable[Entry]) -> str:
    """Of how many seeds lines are, in words."""
    counts = {line.result.seeds for line in lines}
    if counts <= {1}:
        return "one seed"
    low, high = min(counts), max(counts)
    return f"{high} seeds" if low == high else f"{low} to {high} seeds"


def gather(records: Iterable[Records], scale: str) -> list[Shown]:
    """What there is of every figure; runs that are not done, or are of no figure, are left out."""
    done = {key: record for key, record in index_by_key(records).items() if record.done}
    shown = []
    for name, figure in FIGURES.items():
        wanted = _wanted(name, scale)
        # The figure's own experiment, wherever it was run.
        runs = tuple(replace(done[key], experiment=own) for key, own in wanted.items() if key in done)
        shown.append(Shown(figure, scale, tuple(wanted.values()), runs))
    return shown


def limits(
    series: Iterable[Series], *more: float, step: float = 0.1, least: float = -math.inf, most: float = math.inf
) -> tuple[float, float]:
    """Ends of an axis that has room for all points with their errors, and for other values."""
    points = [point for each in series for _, point in each.points]
    ends = [point.mean + side * (point.stderr or 0.0) for point in points for side in (-1, 1)]
    low = math.floor(min([*ends, *more]) / step - _ROOM) * step
    high = math.ceil(max([*ends, *more]) / step + _ROOM) * step
    return round(max(low, least), 9), round(min(high, most), 9)


def curve(line: Entry, values: Sequence[Estimate | None], name: str | None = None, **look: str) -> Series:
    """A line over tasks; `look` may be a colour, a marker, a dash."""
    given = {"colour": line.colour, "marker": line.marker} | look
    return Series(name or line.name, x=range(1, len(values) + 1), y=values, **given)


@cache
def _wanted(name: str, scale: str) -> dict[str, Experiment]:
    return {experiment.key: experiment for experiment in FIGURES[name].experiments(scale)}
