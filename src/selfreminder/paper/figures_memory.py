"""What the paper's figures of little memory show: sizes, bytes, and what is left of the first task."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from selfreminder._base.sizes import show_bytes
from selfreminder.metrics import diagonal
from selfreminder.paper.specs import FigureResults
from selfreminder.report.html import decimal
from selfreminder.report.panels import AVERAGE, BarPanel, Bars, Drawing, HeatPanel, LinePanel, Series, fit_limits, trace
from selfreminder.report.results import Estimate, Result, count_seeds
from selfreminder.report.style import MARKERS, look

DASHES = ("", "5 3", "3 2", "2 2", "1 2", "6 2 1 2")
"""by which lines of one colour are told apart"""
_WITH_MEMORY = ("fsr-logit", "fsr-distill", "icarl")
_INK, _BEFORE = "#000000", "#999999"
_LEVEL = "4 3"
"""the dash of a line that is the same for every x"""


def compare_sizes(found: FigureResults) -> Drawing:
    """Show the end against the memory's size, and how far ahead fsr-logit is; then over tasks, a panel a method."""
    by_method = {name: sorted(lines, key=_size) for name in _WITH_MEMORY if (lines := found.of(name))}
    others = found.of("ewc", "sgd", "adam")
    sizes = sorted({experiment.per_class or 0 for experiment in found.wanted if experiment.method in _WITH_MEMORY})
    end = [
        Series(name, *look(name, []), [_size(line) for line in lines], [line.task_average for line in lines])
        for name, lines in by_method.items()
    ]
    end += [Series(e.method, e.colour, "", sizes, [e.task_average] * len(sizes), _LEVEL) for e in others]
    keys: dict[int, Series] = {}
    over_tasks: dict[str, list[Series]] = {}
    for name, lines in by_method.items() or [("Without a memory", [])]:
        over_tasks[name] = []
        for line in reversed(lines):
            size = _size(line)
            place = len(sizes) - 1 - sizes.index(size)  # the largest has a whole line
            said, shape = f"{size} per class", {"dash": DASHES[place], "marker": MARKERS[place]}
            over_tasks[name].append(trace(line, line.average_curve, said, **shape))
            keys.setdefault(size, trace(line, (), said, colour=_INK, **shape))
        # Fine-tuning forgets so much that beside it, sizes would look the same.
        beside = found.of("ewc") if by_method else others
        over_tasks[name] += [trace(line, line.average_curve, line.method) for line in beside]
    against = {"x_title": "Images per class and task", "log": True, "ticks": tuple(map(float, sizes))}
    panels: list[LinePanel] = []
    if by_method:
        whole = fit_limits(end, least=0.0, most=1.0)
        panels.append(LinePanel("After the last task", end, y_title=AVERAGE, limits=whole, **against))
    if leads := _leads(by_method):
        ahead = fit_limits(leads, 0.0, step=0.005)
        panels.append(LinePanel("fsr-logit above the others", leads, y_title="Difference", limits=ahead, **against))
    near = fit_limits((each for series in over_tasks.values() for each in series), step=0.05, least=0.0, most=1.0)
    panels += [LinePanel(name, series, y_title=AVERAGE, limits=near) for name, series in over_tasks.items()]
    looks = [replace(each, marker=look(each.name, [])[1], dash="") for each in end]
    return Drawing(panels, (*looks, *(keys[size] for size in sorted(keys))))


def _leads(by_method: Mapping[str, Sequence[Result]]) -> list[Series]:
    """Compute by how much fsr-logit is above each other method at the end, by size; differences of the same seeds."""
    by_size = {name: {_size(line): line for line in lines} for name, lines in by_method.items()}
    own = by_size.pop("fsr-logit", {})
    series: list[Series] = []
    for name, others in by_size.items():
        leads = {size: own[size].leads(others[size]) for size in sorted(own.keys() & others.keys())}
        found = {size: Estimate.of(values) for size, values in leads.items() if values}
        if found:
            series.append(Series(name, *look(name, []), list(found), list(found.values())))
    return series


def _size(line: Result) -> int:
    return line.experiment.per_class or 0


def compare_bytes(found: FigureResults) -> Drawing:
    """Show every way of keeping images, and methods that keep something else."""
    lines = _of_the_same_seeds(found.of("fsr-logit", "ewc", "lwf", "generative-replay"))
    ways: dict[str, list[Result]] = {}
    for line in lines:
        if line.method == "fsr-logit":
            codec, logits = line.experiment.codec, line.experiment.logit_codec
            name = f"fsr-logit, {'uint8' if codec == 'auto' else codec}"
            ways.setdefault(name if logits == "float32" else f"{name}, {logits} logits", []).append(line)
    series: list[Series] = []
    for place, (name, own) in enumerate(ways.items()):
        kept = sorted(own, key=lambda line: line.bytes)
        x, y = [line.bytes for line in kept], [line.task_average for line in kept]
        series.append(Series(name, kept[0].colour, MARKERS[place], x, y, DASHES[place]))
    series += _points([line for line in lines if line.method != "fsr-logit"])
    ewc = [line for line in lines if line.method == "ewc"]
    marks, note = where_equal(ways, ewc)
    return Drawing([_against_bytes(series, ewc, marks)], series, note, seeds=count_seeds(lines))


def compare_bytes_with_heads(found: FigureResults) -> Drawing:
    """Show methods that know the task of what they predict, HAT among them."""
    series = _points(found.of("fsr-logitlab", "fsr-logit", "hat", "ewc", "joint"))
    return Drawing([_against_bytes(series, found.of("ewc"))], series, "joint keeps all data.")


def _points(lines: Sequence[Result]) -> list[Series]:
    return [Series(e.name, e.colour, e.marker, [e.bytes], [e.task_average]) for e in lines]


def _against_bytes(
    series: Sequence[Series], ewc: Sequence[Result], marks: Sequence[tuple[float, str]] = ()
) -> LinePanel:
    """Show accuracy at the end against bytes, with a line across where EWC is."""
    own = {e.bytes for e in ewc}  # where its point says it
    across = sorted({x for each in series for x in each.x} - own)
    levels = [(e, Estimate(e.task_average.mean, None)) for e in ewc]
    level = [Series(e.name, e.colour, "", across, [mean] * len(across), _LEVEL) for e, mean in levels]
    return LinePanel(
        "After the last task",
        (*series, *level),
        "Bytes kept",
        AVERAGE,
        fit_limits(series, least=0.0, most=1.0),
        log=True,
        marks=marks,
        show_x=show_bytes,
    )


def _of_the_same_seeds(lines: Sequence[Result]) -> list[Result]:
    """Keep the runs of those seeds that all lines have, so that a codec that loses nothing shows it."""
    seeds = [{run.experiment.seed for run in line.runs} for line in lines]
    common = set.intersection(*seeds) if seeds else set()
    kept = [tuple(run for run in line.runs if run.experiment.seed in common) for line in lines]
    return [replace(line, runs=runs or line.runs) for line, runs in zip(lines, kept)]


def where_equal(
    ways: Mapping[str, Sequence[Result]], ewc: Sequence[Result]
) -> tuple[tuple[tuple[float, str], ...], str]:
    """The fewest bytes with which fsr-logit is as good as EWC, of all ways of keeping images.

    Gives the place with its words, and a sentence.
    """
    if not ways or not ewc:
        return (), ""
    level, whole = ewc[0].task_average.mean, ewc[0].bytes
    found = [(*place, name) for name, lines in ways.items() if (place := _reaches(lines, level)) is not None]
    if not found:
        return (), "No memory is as good as EWC."
    where, between, name = min(found)
    share = f"{_percent(where / whole)} of EWC's bytes"
    least = "about" if between else "the smallest memory measured,"
    note = f"As good as EWC: {name}, with {least} {show_bytes(where)}, {share} (marked)."
    return ((where, share if between else f"≤ {share}"),), note


def _reaches(lines: Sequence[Result], level: float) -> tuple[float, bool] | None:
    """Find the bytes at which an accuracy is reached: between two sizes, on a straight line over log bytes.

    False with them: the smallest memory is as good already, and fewer bytes may do.
    """
    points = sorted((line.bytes, line.task_average.mean) for line in lines)
    above = next((place for place, (_, accuracy) in enumerate(points) if accuracy >= level), None)
    if above is None:
        return None
    where, accuracy = points[above]
    if above == 0:
        return where, False
    before, lower = points[above - 1]
    return math.exp(math.log(before) + math.log(where / before) * (level - lower) / (accuracy - lower)), True


def _percent(share: float) -> str:
    """Write a share in percent, with two digits below 10 %.

    >>> _percent(0.02637), _percent(0.264), _percent(0.999)
    ('2.6 %', '26 %', '100 %')
    """
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def show_logits(found: FigureResults) -> Drawing:
    """Show means and deviations of logits by true class."""
    (line,) = found.lines
    of_task: list[list[Bars]] = []
    for task, colour in ((0, _BEFORE), (1, line.colour)):
        means, deviations = (_over_seeds(line, task, name) for name in ("logit_mean", "logit_deviation"))
        of_classes = [[Estimate(*pair) for pair in zip(*of_class)] for of_class in zip(means, deviations)]
        of_task.append([Bars(f"after task {task + 1}", colour, values) for values in of_classes])
    every = [Series("", "", "", range(len(bars.values)), bars.values) for classes in of_task for bars in classes]
    shared, classes = fit_limits(every, 0.0, step=2.0), tuple(str(k) for k in range(len(of_task[0])))
    panels = [
        BarPanel(f"Class {k}", classes, pair, "Class of the logit", "Logit", shared)
        for k, pair in zip(classes, zip(*of_task))
    ]
    note = "Validation part of the first task, by true class. After task 2: fsr-logit with 10 images per class."
    return Drawing(panels, panels[0].bars, note, "deviation over images")


def show_confusion(found: FigureResults) -> Drawing:
    """Show predictions by true class."""
    lines = found.of("adam", "fsr-logit", "fsr-distill")
    # Before there is anything to remember, methods of one step size train alike.
    alike: dict[float | None, list[Result]] = {}
    for line in lines:
        alike.setdefault(line.experiment.lr, []).append(line)
    asked: list[tuple[Result, int, str]] = []
    for group in alike.values():
        asked.append((group[0], 0, f"After task 1: {', '.join(line.method.removeprefix('fsr-') for line in group)}"))
        for line in group:
            size = "" if line.method == "adam" else f", {line.experiment.size}"
            asked.append((line, 1, f"After task 2: {line.method}{size}"))
    panels = []
    for line, task, title in asked:
        seeds = [_shares(run.tasks[task]["probe"]["confusion"]) for run in line.runs]
        matrix = [[Estimate.of(list(cell)) for cell in zip(*rows)] for rows in zip(*seeds)]
        classes = tuple(str(k) for k in range(len(matrix)))
        panels.append(HeatPanel(title, matrix, classes, classes, "True class", "Predicted class"))
    kept = ", ".join(f"{line.method} {decimal(_kept(line), 2)}" for line in lines)
    note = (
        "Validation part of the first task: the share of each true class that is predicted as each class. "
        f"Of its diagonal after task 1, a method keeps: {kept}."
    )
    return Drawing(panels, note=note)


def _kept(line: Result) -> float:
    """Compute what of the diagonal after the first task is left after the second, mean over seeds."""
    diagonals = [[diagonal(task["probe"]["confusion"]) for task in run.tasks[:2]] for run in line.runs]
    return fmean(after / before if before else math.nan for before, after in diagonals)


def _shares(counts: list[list[float]]) -> list[list[float]]:
    return [[count / (sum(row) or 1) for count in row] for row in counts]


def _over_seeds(line: Result, task: int, name: str) -> list[list[float]]:
    matrices = [run.tasks[task]["probe"][name] for run in line.runs]
    return [[fmean(cell) for cell in zip(*rows)] for rows in zip(*matrices)]
