"""The paper's figures, and a few of our own, as values: which runs each is drawn from, and what there is of them.

A run that several figures show is the same experiment in each, so that one folder with all figures' runs holds it
once. Strengths λ and step sizes are those of `tuned.toml`, fixed before the runs. λ depends on the memory's size: it
was tuned for each size that the table has under `at_per_class`; another size takes the λ of the scale's own. Figures
of two tasks have the paper's λ and step size at scale `paper`, whatever the table says.
Nothing here needs torch.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from selfreminder._base.errors import unknown
from selfreminder._base.sizes import Size
from selfreminder.benchmarks import SCALES
from selfreminder.experiment.catalogue import benchmark, uses
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.records import Records, index_by_key
from selfreminder.experiment.spec import Experiment
from selfreminder.report.results import Result, count_seeds, group_runs, name_settings

_SEEDS = {"demo": 2, "small": 5, "paper": 3}
"""of the figures on MNIST; else as the scale says. The paper has five: at its own scale three are usual, for their
hours, and `--seeds 5` makes five"""
_DEMO_TASKS = {"permuted-mnist": 6, "nonlinear-mnist": 3}
"""fewer than in a comparison: at scale demo all figures together take minutes"""
_SELECTION_SEEDS = _SEEDS | {"demo": 1}
_CODEC_SEEDS = {"demo": 1, "small": 3, "medium": 3, "paper": 3}
"""images keep their accuracy in every codec that the figure shows: a few seeds show that"""
_METHODS = ("sgd", "adam", "lwf", "icarl", "ewc", "fsr-distill", "fsr-logit")
"""the paper's six, and adam: who it is that has learned its newest task is measured by fine-tuning"""
_MEMORY_METHODS = ("fsr-logit", "fsr-distill", "icarl")
_SELECTIONS = ("random", "herding", "gradient", "influence", "influence+")
_WITHIN_EWCS_NUMBERS = {
    ("nonlinear-mnist", "small"): 16,
    ("color-cifar10", "medium"): 20,
}
"""images per class that are as many numbers as EWC keeps, as the paper counts, where the scale's own are more; five
would be on colour CIFAR10 at scale small, and are not run"""
_HED: dict[str, dict[str, str]] = {"demo": {}, "small": {}, "medium": {"hed": "2018"}, "paper": {"hed": "2018"}}
"""the paper's is that of 2018; the runs at scale small were made before there was a choice"""
_PAPERS_STRENGTHS = {"fsr-logit": 5.0, "fsr-distill": 10.0}
"""the paper's λ on permuted MNIST"""
_FEWER = ":samples=1000,iterations=30"
"""for influence at the scales of minutes: from 1,000 points and from 3,000, it correlated by .999 in a trial"""
WORDS: dict[str, Callable[[Any], str]] = {
    "per_class": "{} per class".format,
    "width": "width {:g}".format,
    "select": lambda value: value.partition(":")[0],
    "codec": lambda value: "uint8" if value == "auto" else value,
    "logit_codec": "{} logits".format,
}
"""settings in which the lines of a figure differ; images of MNIST are kept as uint8 where nobody says otherwise"""


@dataclass(frozen=True)
class Figure:
    """What is drawn, and the runs that it is drawn from."""

    name: str
    summary: str
    by_scale: Mapping[str, tuple[Comparison, ...]]

    @property
    def title(self) -> str:
        return self.summary[0].upper() + self.summary[1:]

    def comparisons(self, scale: str) -> tuple[Comparison, ...]:
        """List the comparisons whose runs it is drawn from."""
        if scale not in self.by_scale:
            raise unknown("scale", scale, self.by_scale)
        return self.by_scale[scale]

    def experiments(self, scale: str, seeds: int | None = None) -> list[Experiment]:
        """List every run once, seed by seed; of more `seeds` than usual, where so many are asked for."""
        usual, found = self.count_seeds(scale), dict[str, Experiment]()
        for comparison in self.comparisons(scale):
            # Lines that need fewer seeds than the others stay as they are.
            grows = seeds is not None and seeds > usual == _count_seeds(comparison)
            found |= {e.key: e for e in (replace(comparison, seeds=seeds) if grows else comparison).experiments}
        return sorted(found.values(), key=lambda experiment: experiment.seed)

    def count_seeds(self, scale: str) -> int:
        """Count the seeds that it usually has."""
        return max(map(_count_seeds, self.comparisons(scale)))

    def untuned(self, scale: str) -> list[str]:
        """Name methods whose strength or step size nobody chose for its runs at this scale, and what they take."""
        return list(dict.fromkeys(said for comparison in self.comparisons(scale) for said in comparison.untuned))


def figure(name: str) -> Figure:
    """Find the figure of that name."""
    if name not in FIGURES:
        raise unknown("figure", name, FIGURES)
    return FIGURES[name]


def experiments(figures: Iterable[Figure], scale: str, seeds: int | None = None) -> list[Experiment]:
    """List the runs of several figures, each once, one figure after the other."""
    return list({e.key: e for figure in figures for e in figure.experiments(scale, seeds)}.values())


def _count_seeds(comparison: Comparison) -> int:
    return comparison.defaults.seeds if comparison.seeds is None else comparison.seeds


# Plans: from a scale to comparisons -----------------------------------------------------------------------


def _on_mnist(
    name: str,
    scale: str,
    *methods: str,
    seeds: Mapping[str, int] = _SEEDS,
    size: int | None = None,
    tasks: int | None = None,
    **settings: Any,
) -> Comparison:
    return Comparison(
        benchmark=name,
        scale=scale,
        methods=methods,
        seeds=seeds.get(scale),
        size=None if size is None else Size(per_class=size),
        tasks=_DEMO_TASKS[name] if scale == "demo" and tasks is None else tasks,
        **settings,
    )


def _permuted(scale: str) -> tuple[Comparison, ...]:
    return (_on_mnist("permuted-mnist", scale, *_METHODS),)


def _nonlinear(scale: str) -> tuple[Comparison, ...]:
    methods = () if scale == "demo" else _METHODS
    return (_on_mnist("nonlinear-mnist", scale, *methods), *_within_ewcs_numbers("nonlinear-mnist", scale))


def _color(scale: str) -> tuple[Comparison, ...]:
    methods = ("sgd", "adam", "ewc", "fsr-logit") if scale == "demo" else _METHODS
    own = Comparison(benchmark="color-cifar10", scale=scale, methods=methods, settings=_HED[scale])
    return (own, *_within_ewcs_numbers("color-cifar10", scale, settings=_HED[scale]))


def _within_ewcs_numbers(name: str, scale: str, **settings: Any) -> Iterable[Comparison]:
    """Make FSR's runs with no more numbers than EWC, where the scale's own memory has more."""
    if (per_class := _WITHIN_EWCS_NUMBERS.get((name, scale))) is not None:
        seeds = _SEEDS.get(scale) if name.endswith("mnist") else None
        yield Comparison(
            benchmark=name, scale=scale, methods=("fsr-logit",), seeds=seeds, size=Size(per_class), **settings
        )


def _sizes(scale: str) -> tuple[int, ...]:
    return (1, 10) if scale == "demo" else (1, 3, 5, 10, 50)


def _memory_sizes(scale: str) -> tuple[Comparison, ...]:
    other_sizes = () if scale == "demo" else (2,)
    return (
        _on_mnist("permuted-mnist", scale, "sgd", "adam", "ewc"),
        *(_on_mnist("permuted-mnist", scale, *_MEMORY_METHODS, size=size) for size in _sizes(scale)),
        *(_on_mnist("permuted-mnist", scale, "fsr-logit", size=size) for size in other_sizes),
    )


def _two_tasks(scale: str, method: str, size: int | None = None) -> Comparison:
    # What is tuned later for the paper's whole stream shall not change what these are.
    papers = {"strength": _PAPERS_STRENGTHS.get(method), "lr": None} if scale == "paper" else {}
    return _on_mnist("permuted-mnist", scale, method, size=size, tasks=2, probe=2, settings=papers)


def _logit_bars(scale: str) -> tuple[Comparison, ...]:
    return (_two_tasks(scale, "fsr-logit", 10),)


def _heatmaps(scale: str) -> tuple[Comparison, ...]:
    return (_two_tasks(scale, "adam"), *(_two_tasks(scale, method, 1) for method in ("fsr-logit", "fsr-distill")))


def _generative_replay(scale: str) -> tuple[Comparison, ...]:
    # Over the whole stream, as the other methods: the first five tasks are the same ones.
    return (_on_mnist("permuted-mnist", scale, "adam", "generative-replay", "fsr-logit"),)


def _rho(scale: str) -> tuple[Comparison, ...]:
    name = "split-cifar100"
    width = benchmark(name).scales[scale].width
    smaller = (1 / 2,) if scale == "demo" else (1 / 2, 1 / 4)
    return (
        Comparison(benchmark=name, scale=scale, methods=("sgd", "ewc", "hat", "fsr-logit", "fsr-logitlab")),
        *(
            Comparison(benchmark=name, scale=scale, methods=("hat", "fsr-logit"), width=width * factor)
            for factor in smaller
        ),
    )


def _selection(scale: str) -> tuple[Comparison, ...]:
    demo = scale == "demo"
    fewer = _FEWER if scale in ("demo", "small") else ""
    return tuple(
        _on_mnist(
            "nonlinear-mnist",
            scale,
            "fsr-logit",
            seeds=_SELECTION_SEEDS,
            size=size,
            select=select + fewer if select.startswith("influence") else select,
            tasks=2 if demo else None,
        )
        for size in ((1, 5) if demo else (1, 3, 5))
        for select in (_SELECTIONS[:-1] if demo else _SELECTIONS)
    )


def _bytes(scale: str) -> tuple[Comparison, ...]:
    # `auto` is uint8 here, and shared with the other figures.
    codecs: tuple[dict[str, Any], ...] = ({"codec": "float32"}, {"codec": "compressed"}, {"logit_codec": "float16"})
    return (
        _on_mnist("permuted-mnist", scale, "lwf", "ewc", "generative-replay"),
        *(_on_mnist("permuted-mnist", scale, "fsr-logit", size=size) for size in _sizes(scale)),
        *(
            _on_mnist("permuted-mnist", scale, "fsr-logit", seeds=_CODEC_SEEDS, size=size, **codec)
            for size in ((10,) if scale == "demo" else (1, 10, 50))
            for codec in codecs
        ),
    )


def _bytes_split(scale: str) -> tuple[Comparison, ...]:
    # HAT knows a task by its head.
    return (Comparison(benchmark="split-cifar100", scale=scale, methods=("ewc", "hat", "fsr-logit", "fsr-logitlab")),)


def _mixture(scale: str) -> tuple[Comparison, ...]:
    return (Comparison(benchmark="mixture", scale=scale, methods=("sgd", "ewc", "hat", "fsr-logit")),)


_PLANS: dict[str, tuple[str, Callable[[str], tuple[Comparison, ...]]]] = {
    "permuted": ("permuted MNIST: the first task, and the average of the tasks so far", _permuted),
    "nonlinear": ("non-linear MNIST: the first task, and the average of the tasks so far", _nonlinear),
    "color": ("CIFAR10 in five colour spaces: the first task, and the average of the tasks so far", _color),
    "memory-sizes": ("permuted MNIST: the average with memories of 1 to 50 images per class", _memory_sizes),
    "logit-bars": ("logits of the first task before and after the second, 10 images per class", _logit_bars),
    "heatmaps": ("predictions on the first task before and after the second, 1 image per class", _heatmaps),
    "rho": ("split CIFAR100: the forgetting ratio ρ, with HAT, true labels and small models", _rho),
    "selection": ("non-linear MNIST: which images to keep, of 1 to 5 per class", _selection),
    "generative-replay": ("permuted MNIST: FSR beside generative replay", _generative_replay),
    "bytes": ("permuted MNIST: accuracy against the bytes that a method keeps", _bytes),
    "bytes-split": ("split CIFAR100: accuracy against the bytes that a method keeps, HAT among them", _bytes_split),
    "mixture": ("very unlike data sets: the forgetting ratio ρ of HAT and FSR", _mixture),
}

FIGURES = {
    name: Figure(name, summary, {scale: plan(scale) for scale in SCALES}) for name, (summary, plan) in _PLANS.items()
}


# What there is of them ----------------------------------------------------------------------------------------


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
        wanted = figure_runs(name, scale, count_whole_seeds(name, scale, done))
        # The figure's own experiment, wherever it was run.
        runs = tuple(replace(done[key], experiment=own) for key, own in wanted.items() if key in done)
        found.append(FigureResults(figure, scale, tuple(wanted.values()), runs))
    return found


def count_whole_seeds(name: str, scale: str, done: Mapping[str, Records]) -> int:
    """Count the seeds that a figure is drawn and judged from: more than usual where all of their runs are done."""
    count, most = FIGURES[name].count_seeds(scale), max((run.experiment.seed for run in done.values()), default=0)
    while count <= most and all(key in done for key in figure_runs(name, scale, count + 1)):
        count += 1
    return count


@cache
def figure_runs(name: str, scale: str, seeds: int | None = None) -> Mapping[str, Experiment]:
    """Give every run of a figure by its key, see `Figure.experiments`; to tell the keys takes a while."""
    return {experiment.key: experiment for experiment in FIGURES[name].experiments(scale, seeds)}
