"""The paper's figures of how much has to be kept."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from selfreminder._base.sizes import show_bytes
from selfreminder.metrics import task_average
from selfreminder.paper.figures import AVERAGE, DASHES, LinePanel, Plate, Shown, curve, limits, seeds_of
from selfreminder.report.curves import Estimate, results
from selfreminder.report.findings import Entry
from selfreminder.report.style import MARKERS, look
from selfreminder.report.svg.charts import Series

_WITH_MEMORY = ("fsr-logit", "fsr-distill", "icarl")
_INK = "#000000"
_LEVEL = "4 3"
"""the dash of a line that is the same for every x"""


def memory_sizes(shown: Shown) -> Plate:
    """At the end against the memory's size, and how far ahead fsr-logit is; then over tasks, a panel a method."""
    methods = [name for name in _WITH_MEMORY if shown.of(name)]
    others = shown.of("ewc", "sgd", "adam")
    sizes = sorted({experiment.per_class or 0 for experiment in shown.wanted if experiment.method in _WITH_MEMORY})
    end = [_against_size(name, _by_size(shown.of(name))) for name in methods]
    end += [Series(e.method, e.colour, "", sizes, [e.result.task_average] * len(sizes), _LEVEL) for e in others]
    keys: dict[int, Series] = {}
    over_tasks: dict[str, list[Series]] = {}
    for name in methods or ["Without a memory"]:
        over_tasks[name] = []
        for line in reversed(_by_size(shown.of(name))):
            size = line.experiment.per_class or 0
            place = len(sizes) - 1 - sizes.index(size)  # the largest has a whole line
            said, shape = f"{size} per class", {"dash": DASHES[place], "marker": MARKERS[place]}
            over_tasks[name].append(curve(line, line.result.average_curve, said, **shape))
            keys.setdefault(size, curve(line, (), said, colour=_INK, **shape))
        # Fine-tuning forgets so much that beside it, sizes would look the same.
        beside = shown.of("ewc") if methods else others
        over_tasks[name] += [curve(line, line.result.average_curve, line.method) for line in beside]
    against = {"x_title": "Images per class and task", "log": True, "ticks": tuple(map(float, sizes))}
    panels: list[LinePanel] = []
    if methods:
        whole = limits(end, least=0.0, most=1.0)
        panels.append(LinePanel("After the last task", tuple(end), y_title=AVERAGE, limits=whole, **against))
    if leads := _leads(shown, methods):
        ahead = limits(leads, 0.0, step=0.005)
        panels.append(LinePanel("fsr-logit above the others", leads, y_title="Difference", limits=ahead, **against))
    near = limits((each for series in over_tasks.values() for each in series), step=0.05, least=0.0, most=1.0)
    panels += [LinePanel(name, tuple(lines), y_title=AVERAGE, limits=near) for name, lines in over_tasks.items()]
    looks = [replace(each, marker=look(each.name, [])[1], dash="") for each in end]
    return Plate(tuple(panels), (*looks, *(keys[size] for size in sorted(keys))))


def _leads(shown: Shown, methods: Sequence[str]) -> tuple[Series, ...]:
    """By how much fsr-logit is above each other method at the end, by size; differences of the same seeds."""
    own = {line.experiment.per_class or 0: _ends(line) for line in shown.of("fsr-logit")}
    found: list[Series] = []
    for name in (name for name in methods if name != "fsr-logit"):
        others = {line.experiment.per_class or 0: _ends(line) for line in shown.of(name)}
        leads: dict[int, Estimate] = {}
        for size in sorted(own.keys() & others.keys()):
            if seeds := sorted(own[size].keys() & others[size].keys()):
                leads[size] = Estimate.of([own[size][seed] - others[size][seed] for seed in seeds])
        if leads:
            found.append(Series(name, *look(name, []), list(leads), list(leads.values())))
    return tuple(found)


def _ends(line: Entry) -> dict[int, float]:
    """The task average after the last task, by seed."""
    return {run.experiment.seed: task_average(run.test)[-1] for run in line.runs}


def bytes_kept(shown: Shown) -> Plate:
    """Every way of keeping images, and methods that keep something else."""
    ways: dict[str, list[Entry]] = {}
    lines_of = _of_the_same_seeds(shown, "fsr-logit", "ewc", "lwf", "generative-replay")
    for line in lines_of["fsr-logit"]:
        codec, logits = line.experiment.codec, line.experiment.logit_codec
        name = f"fsr-logit, {'uint8' if codec == 'auto' else codec}"
        ways.setdefault(name if logits == "float32" else f"{name}, {logits} logits", []).append(line)
    series: list[Series] = []
    for place, (name, lines) in enumerate(ways.items()):
        kept = sorted(lines, key=lambda line: line.result.bytes)
        x, y = [line.result.bytes for line in kept], _averages(kept)
        series.append(Series(name, kept[0].colour, MARKERS[place], x, y, DASHES[place]))
    series += _kept_by(line for method, lines in lines_of.items() if method != "fsr-logit" for line in lines)
    marks, note = where_equal(ways, lines_of["ewc"])
    drawn = [line for lines in lines_of.values() for line in lines]
    return Plate((_against_bytes(series, lines_of["ewc"], marks),), tuple(series), note, seeds=seeds_of(drawn))


def bytes_kept_with_heads(shown: Shown) -> Plate:
    """Methods that know the task of what they predict, HAT among them."""
    series = _kept_by(shown.of("fsr-logitlab", "fsr-logit", "hat", "ewc", "joint"))
    return Plate((_against_bytes(series, shown.of("ewc")),), tuple(series), "joint keeps all data.")


def _kept_by(lines: Iterable[Entry]) -> list[Series]:
    """A point for each."""
    return [Series(e.name, e.colour, e.marker, [e.result.bytes], [e.result.task_average]) for e in lines]


def _against_bytes(
    series: Sequence[Series], ewc: Sequence[Entry], marks: tuple[tuple[float, str], ...] = ()
) -> LinePanel:
    """Accuracy at the end against bytes, with a line across where EWC is."""
    own = {e.result.bytes for e in ewc}  # where its point says it
    across = sorted({x for each in series for x in each.x} - own)
    levels = [(e, Estimate(e.result.task_average.mean, None)) for e in ewc]
    level = [Series(e.name, e.colour, "", across, [mean] * len(across), _LEVEL) for e, mean in levels]
    return LinePanel(
        "After the last task",
        (*series, *level),
        "Bytes kept",
        AVERAGE,
        limits(series, least=0.0, most=1.0),
        log=True,
        marks=marks,
        show_x=show_bytes,
    )


def _of_the_same_seeds(shown: Shown, *methods: str) -> dict[str, list[Entry]]:
    """The lines of methods with the runs of those seeds that all of them have: a codec that loses nothing shows it."""
    lines = shown.of(*methods)
    common = set.intersection(*({run.experiment.seed for run in line.runs} for line in lines)) if lines else set()
    found: dict[str, list[Entry]] = {method: [] for method in methods}
    for line in lines:
        runs = tuple(run for run in line.runs if run.experiment.seed in common) or line.runs
        found[line.method].append(replace(line, runs=runs, result=results(runs)[0]))
    return found


def where_equal(ways: Mapping[str, Sequence[Entry]], ewc: Sequence[Entry]) -> tuple[tuple[tuple[float, str], ...], str]:
    """The fewest bytes with which fsr-logit is as good as EWC, of all ways of keeping images.

    Gives the place with its words, and a sentence.
    """
    if not ways or not ewc:
        return (), ""
    level, whole = ewc[0].result.task_average.mean, ewc[0].result.bytes
    found = [(*place, name) for name, lines in ways.items() if (place := _reaches(lines, level)) is not None]
    if not found:
        return (), "No memory is as good as EWC."
    where, between, name = min(found)
    share = f"{_percent(where / whole)} of EWC's bytes"
    least = "about" if between else "the smallest memory measured,"
    note = f"As good as EWC: {name}, with {least} {show_bytes(where)}, {share} (marked)."
    return ((where, share if between else f"≤ {share}"),), note


def _reaches(lines: Sequence[Entry], level: float) -> tuple[float, bool] | None:
    """The bytes at which an accuracy is reached: between two sizes, on a straight line over log bytes.

    False with them: the smallest memory is as good already, and fewer bytes may do.
    """
    points = sorted((line.result.bytes, line.result.task_average.mean) for line in lines)
    above = next((place for place, (_, accuracy) in enumerate(points) if accuracy >= level), None)
    if above is None:
        return None
    where, accuracy = points[above]
    if above == 0:
        return where, False
    before, lower = points[above - 1]
    return math.exp(math.log(before) + math.log(where / before) * (level - lower) / (accuracy - lower)), True


def _percent(share: float) -> str:
    """
    >>> _percent(0.02637), _percent(0.264), _percent(0.999)
    ('2.6 %', '26 %', '100 %')
    """
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def _against_size(name: str, lines: Sequence[Entry]) -> Series:
    return Series(name, *look(name, []), [line.experiment.per_class or 0 for line in lines], _averages(lines))


def _by_size(lines: Sequence[Entry]) -> list[Entry]:
    return sorted(lines, key=lambda line: line.experiment.per_class or 0)


def _averages(lines: Sequence[Entry]) -> list[Estimate]:
    return [line.result.task_average for line in lines]
