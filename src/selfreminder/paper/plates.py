"""What each of the paper's figures shows; here, those over tasks."""

from collections.abc import Callable, Sequence
from fractions import Fraction

from selfreminder.experiment.catalogue import references
from selfreminder.paper.figures import AVERAGE, DASHES, LinePanel, Plate, Shown, curve, limits
from selfreminder.paper.figures_memory import bytes_kept, bytes_kept_with_heads, memory_sizes
from selfreminder.paper.figures_probes import heatmaps, logit_bars
from selfreminder.report.findings import Entry
from selfreminder.report.style import look, selection_look
from selfreminder.report.svg.charts import Series

_RHO = "ρ (0: as joint training)"


def plate(shown: Shown) -> Plate | None:
    """What can be drawn of a figure; None if there is nothing."""
    return _PLATES[shown.figure.name](shown) if shown.runs else None


def _accuracy(shown: Shown, tasks: str = "Tasks learned") -> Plate:
    """The paper's two panels."""
    lines = _best_first(shown.lines)
    first = tuple(curve(line, line.result.first_curve) for line in lines)
    average = tuple(curve(line, line.result.average_curve) for line in lines)
    return Plate((LinePanel("First task", first, tasks), LinePanel(AVERAGE, average, tasks)), first)


def _color(shown: Shown) -> Plate:
    return _accuracy(shown, "Tasks learned (RGB, YIQ, YUV, HSV, HED)")


def _rho(shown: Shown) -> Plate | None:
    """The network's own width, and smaller ones."""
    widths = sorted({experiment.width for experiment in shown.wanted}, reverse=True)
    lines = shown.of("fsr-logitlab", "fsr-logit", "hat", "ewc", "sgd", width=widths[0])
    own = [curve(line, line.result.rho_curve, line.method, marker=look(line.method, [])[1]) for line in lines]
    small: list[Series] = []
    for line in shown.of("fsr-logit", "hat"):
        place, share = widths.index(line.experiment.width), Fraction(line.experiment.width / widths[0])
        name = line.method if place == 0 else f"{line.method}, {share.limit_denominator(64)} of the width"
        marker = look(line.method, [])[1] if place == 0 else line.marker
        small.append(curve(line, line.result.rho_curve, name, marker=marker, dash=DASHES[2 * place]))
    panels = _ratios([("The network's own width", own), ("Small models", small)])
    return Plate(panels, _keys(panels)) if panels else None


def _mixture(shown: Shown) -> Plate:
    lines = _best_first(shown.lines)
    ratios = [curve(line, line.result.rho_curve) for line in lines if line.method not in references()]
    average = tuple(curve(line, line.result.average_curve) for line in lines)
    # Without it, a reader would take what data sets differ in for what methods do.
    note = "The seed draws the order of the data sets: until the last, averages of seeds are of different ones."
    return Plate((*_ratios([("Forgetting ratio", ratios)]), LinePanel(AVERAGE, average)), average, note)


def _ratios(panels: Sequence[tuple[str, Sequence[Series]]]) -> tuple[LinePanel, ...]:
    """ρ after each task, where it is defined."""
    drawn = [(title, tuple(each for each in series if each.points)) for title, series in panels]
    drawn = [(title, series) for title, series in drawn if series]
    if not drawn:
        return ()
    shared = limits((each for _, series in drawn for each in series), 0.0)
    return tuple(LinePanel(title, series, y_title=_RHO, limits=shared) for title, series in drawn)


def _selection(shown: Shown) -> Plate:
    """A panel for each size of the memory, a line for each way to select."""
    sizes: dict[int, list[Series]] = {}
    for line in shown.lines:
        name = line.experiment.select.partition(":")[0]
        colour, marker = selection_look(name)
        series = curve(line, line.result.average_curve, name, colour=colour, marker=marker)
        sizes.setdefault(line.experiment.per_class or 0, []).append(series)
    shared = limits((each for series in sizes.values() for each in series), least=0.0, most=1.0)
    panels = tuple(
        LinePanel(f"{size} per class", tuple(series), y_title=AVERAGE, limits=shared)
        for size, series in sorted(sizes.items())
    )
    return Plate(panels, _keys(panels), "All lines are of fsr-logit.")


def _keys(panels: Sequence[LinePanel]) -> tuple[Series, ...]:
    """A legend for lines that panels share."""
    return tuple({each.name: each for panel in panels for each in panel.series}.values())


def _best_first(lines: Sequence[Entry]) -> list[Entry]:
    return sorted(lines, key=lambda line: -line.result.task_average.mean)


_PLATES: dict[str, Callable[[Shown], Plate | None]] = {
    "permuted": _accuracy,
    "nonlinear": _accuracy,
    "color": _color,
    "memory-sizes": memory_sizes,
    "logit-bars": logit_bars,
    "heatmaps": heatmaps,
    "rho": _rho,
    "selection": _selection,
    "generative-replay": _accuracy,
    "bytes": bytes_kept,
    "bytes-split": bytes_kept_with_heads,
    "mixture": _mixture,
}
