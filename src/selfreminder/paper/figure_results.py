"""What there is of the paper's figures in some records, and what a figure shows, ready to be drawn.

`figures` draws it as files, `page` as charts: both show the same numbers. Nothing here needs torch.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from selfreminder.experiment.catalogue import uses
from selfreminder.experiment.records import Records, index_by_key
from selfreminder.experiment.spec import Experiment
from selfreminder.paper.specs import FIGURES, Figure
from selfreminder.report.panels import Bars, Panel, Series
from selfreminder.report.results import Result, count_seeds, group_runs, name_settings

WORDS: dict[str, Callable[[Any], str]] = {
    "per_class": "{} per class".format,
    "width": "width {:g}".format,
    "select": lambda value: value.partition(":")[0],
    "codec": lambda value: "uint8" if value == "auto" else value,
    "logit_codec": "{} logits".format,
}
"""settings in which the lines of a figure differ; images of MNIST are kept as uint8 where nobody says otherwise"""


@dataclass(frozen=True)
class Drawing:
    """What a figure shows: panels of one kind, and what is said of them."""

    panels: Sequence[Panel]
    legend: Sequence[Series | Bars] = ()
    note: str = ""
    """what a reader must know of it beside its axes"""
    errors: str = "standard error"
    """what error bars show"""
    seeds: str = ""
    """of how many it is, where not of all that its lines have"""


@dataclass(frozen=True)
class FigureResults:
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
    def lines(self) -> tuple[Result, ...]:
        """One result for each method and setting of which a run is done, in the figure's order."""
        return tuple(group_runs(self.runs, self.name_of))

    @property
    def seeds(self) -> str:
        return count_seeds(self.lines)

    def of(self, *methods: str, **settings: Any) -> list[Result]:
        """Find the lines of some methods, in the order of these, with a setting."""
        wanted = sorted((line for line in self.lines if line.method in methods), key=lambda e: methods.index(e.method))
        return [line for line in wanted if all(getattr(line.experiment, k) == v for k, v in settings.items())]

    def name_of(self, experiment: Experiment) -> str:
        """Name a method with what tells it from its other lines in this figure."""
        alike = [other for other in self.wanted if other.method == experiment.method]
        settings = {
            name: getattr(experiment, name)
            for name in WORDS
            if uses(experiment.method, name) and len({getattr(other, name) for other in alike}) > 1
        }
        return name_settings(experiment.method, settings, WORDS)


def gather(records: Iterable[Records], scale: str) -> list[FigureResults]:
    """Gather what there is of every figure; runs that are not done, or are of no figure, are left out."""
    done = {key: record for key, record in index_by_key(records).items() if record.done}
    found = []
    for name, figure in FIGURES.items():
        wanted = _wanted(name, scale)
        # The figure's own experiment, wherever it was run.
        runs = tuple(replace(done[key], experiment=own) for key, own in wanted.items() if key in done)
        found.append(FigureResults(figure, scale, tuple(wanted.values()), runs))
    return found


@cache
def _wanted(name: str, scale: str) -> Mapping[str, Experiment]:
    return {experiment.key: experiment for experiment in FIGURES[name].experiments(scale)}
