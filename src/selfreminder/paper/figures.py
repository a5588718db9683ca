"""What each of the paper's figures shows, and the figures as files, for a page of two columns: PNG, SVG and PDF.

Here are those over tasks; `figures_memory` has those of how much is kept.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from selfreminder.paper import figures_memory
from selfreminder.paper.specs import FigureResults
from selfreminder.report.charts import HEAT
from selfreminder.report.figures import STYLE, draw_lines, line_style, save, styled
from selfreminder.report.panels import (
    AVERAGE,
    RHO,
    BarPanel,
    Bars,
    Drawing,
    HeatPanel,
    LinePanel,
    Series,
    accuracy_panels,
    fit_limits,
    trace,
)
from selfreminder.report.results import sort_best_first
from selfreminder.report.style import blend, look, selection_look

_WIDTH = 7.0
"""inches, of two columns; in one, a figure of one panel has room"""
_STYLE: dict[Any, Any] = STYLE | {
    "font.size": 8,
    "axes.titlesize": 8,
    "lines.linewidth": 1.3,
    "pdf.fonttype": 42,
    "figure.dpi": 200,
}
_LETTERS, _LETTERS_OF_KEY = 114, 8
"""of a legend's row over the whole width; that a key takes beside its name"""
KINDS = ("png", "svg", "pdf")


def make_drawing(found: FigureResults) -> Drawing | None:
    """Lay out what can be drawn of a figure; None if there is nothing."""
    return _DRAWINGS[found.figure.name](found) if found.runs else None


def _accuracy(found: FigureResults, x_title: str = "Tasks learned") -> Drawing:
    panels = accuracy_panels(sort_best_first(found.lines), x_title)
    return Drawing(panels, panels[0].series)


def _color(found: FigureResults) -> Drawing:
    drawing = _accuracy(found, "Tasks learned (RGB, YIQ, YUV, HSV, HED)")
    if {run.experiment.hed for run in found.runs} == {"2018"}:
        return replace(drawing, note="HED is that of scikit-image in 2018, when the paper was written.")
    return replace(drawing, note="HED is today's of scikit-image; the paper's was that of 2018, almost linear in RGB.")


def _rho(found: FigureResults) -> Drawing | None:
    """Show the network's own width, and smaller ones."""
    widths = sorted({experiment.width for experiment in found.wanted}, reverse=True)
    lines = found.of("fsr-logitlab", "fsr-logit", "hat", "ewc", "sgd", width=widths[0])
    own = [trace(line, line.rho_curve, line.method, marker=look(line.method, [])[1]) for line in lines]
    small: list[Series] = []
    for line in found.of("fsr-logit", "hat"):
        place, share = widths.index(line.experiment.width), Fraction(line.experiment.width / widths[0])
        name = line.method if place == 0 else f"{line.method}, {share.limit_denominator(64)} of the width"
        marker = look(line.method, [])[1] if place == 0 else line.marker
        small.append(trace(line, line.rho_curve, name, marker=marker, dash=figures_memory.DASHES[2 * place]))
    panels = _ratio_panels([("The network's own width", own), ("Small models", small)])
    return Drawing(panels, _shared_legend(panels)) if panels else None


def _mixture(found: FigureResults) -> Drawing:
    lines = sort_best_first(found.lines)
    ratios = [trace(line, line.rho_curve) for line in lines if not line.is_reference]
    average = [trace(line, line.average_curve) for line in lines]
    # Without it, a reader would take what data sets differ in for what methods do.
    note = "The seed draws the order of the data sets: until the last, averages of seeds are of different ones."
    panels = [*_ratio_panels([("Forgetting ratio", ratios)]), LinePanel(AVERAGE, average)]
    return Drawing(panels, average, note)


def _selection(found: FigureResults) -> Drawing:
    """Show a panel for each size of the memory, a line for each way to select."""
    sizes: dict[int, list[Series]] = {}
    for line in found.lines:
        name = line.experiment.select.partition(":")[0]
        colour, marker = selection_look(name)
        series = trace(line, line.average_curve, name, colour=colour, marker=marker)
        sizes.setdefault(line.experiment.per_class or 0, []).append(series)
    shared = fit_limits((each for series in sizes.values() for each in series), least=0.0, most=1.0)
    panels = [
        LinePanel(f"{size} per class", series, y_title=AVERAGE, limits=shared) for size, series in sorted(sizes.items())
    ]
    return Drawing(panels, _shared_legend(panels), "All lines are of fsr-logit.")


def _ratio_panels(panels: Sequence[tuple[str, Sequence[Series]]]) -> list[LinePanel]:
    """Show ρ after each task, where it is defined."""
    drawn = {title: [each for each in series if each.points] for title, series in panels}
    drawn = {title: series for title, series in drawn.items() if series}
    if not drawn:
        return []
    shared = fit_limits((each for series in drawn.values() for each in series), 0.0)
    return [LinePanel(title, series, y_title=RHO, limits=shared) for title, series in drawn.items()]


def _shared_legend(panels: Sequence[LinePanel]) -> list[Series]:
    return list({each.name: each for panel in panels for each in panel.series}.values())


# Files ----------------------------------------------------------------------------------------------------------


def draw(found: FigureResults, drawing: Drawing, stem: Path) -> list[Path]:
    """Draw a figure as `stem`.png, `stem`.svg and `stem`.pdf: the same bytes for the same records."""
    rows, columns, height = _layout(drawing.panels)
    width = _WIDTH if columns > 1 else 0.68 * _WIDTH
    keys = _legend_columns(drawing.legend, _LETTERS * width / _WIDTH)
    with styled(_STYLE):
        size = (width, rows * height + 0.19 * math.ceil(len(drawing.legend) / keys) + 0.45)
        figure, grid = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
        for place, panel in enumerate(drawing.panels):
            axes = grid.flat[place]
            match panel:
                case LinePanel():
                    _draw_lines(axes, panel)
                case BarPanel():
                    _draw_bars(axes, panel)
                case HeatPanel():
                    _draw_heatmap(axes, panel)
            if place % columns:
                _share_y(axes, panel, drawing.panels[place - 1])
            if isinstance(panel, BarPanel) and place + columns < len(drawing.panels):
                axes.set_xlabel("")
        for axes in grid.flat[len(drawing.panels) :]:
            axes.set_visible(False)
        if isinstance(drawing.panels[0], HeatPanel):
            figure.colorbar(grid[0, -1].images[0], ax=grid, label="Share of the class", aspect=12, shrink=0.85)
        figure.suptitle(title(found, drawing), fontsize=8)
        if drawing.legend:
            handles = [_handle(key) for key in drawing.legend]
            figure.legend(handles=handles, loc="outside lower center", ncols=keys, handlelength=2.6)
        return save(figure, stem, KINDS)


def title(found: FigureResults, drawing: Drawing) -> str:
    """Say what a figure is, at which scale, of how many seeds, and how much of it is missing."""
    said = [f"scale {found.scale}"]
    if found.made_up:
        said.append("made-up images")
    seeds = drawing.seeds or found.seeds
    if seeds == "one seed":
        said.append("one seed")
    elif isinstance(drawing.panels[0], HeatPanel):
        said.append(f"mean of {seeds}")
    else:
        said.append(f"mean and {drawing.errors}, {seeds}")
    if found.missing:
        said.append(f"{found.missing} of {len(found.wanted)} runs missing")
    return f"{found.figure.title}\n{'; '.join(said)}"


def _layout(panels: Sequence[object]) -> tuple[int, int, float]:
    """Choose rows, columns, and the height of a row in inches."""
    if isinstance(panels[0], BarPanel):
        return 2, -(-len(panels) // 2), 1.55
    if isinstance(panels[0], HeatPanel):
        return 1, len(panels), 1.95
    columns = {1: 1, 3: 3, 5: 3}.get(len(panels), 2)
    return -(-len(panels) // columns), columns, 2.3


def _legend_columns(legend: Sequence[Series | Bars], letters: float) -> int:
    """Choose columns for the fewest rows no wider than so many letters; matplotlib fills one column after another."""
    names = [len(key.name) + _LETTERS_OF_KEY for key in legend]
    for rows in range(1, len(names)):
        columns = math.ceil(len(names) / rows)
        if sum(max(column) for column in np.array_split(names, columns)) <= letters:
            return columns
    return 1


def _draw_lines(axes: Axes, panel: LinePanel) -> None:
    draw_lines(axes, panel)
    axis = panel.x_axis
    axes.set_xscale("log" if panel.log else "linear")
    axes.set_xlim(axis.low, axis.high)
    axes.set_xticks([tick for tick, _ in axis.ticks], [label for _, label in axis.ticks])
    axes.minorticks_off()
    for x, word in panel.marks:
        axes.axvline(x, color="#5a6472", linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        left, right = axes.get_xlim()
        beyond = x * x > left * right if panel.log else 2 * x > left + right
        offset, side = ((-4, 4), "right") if beyond else ((4, 4), "left")
        where = {"xy": (x, 0.0), "xycoords": ("data", "axes fraction"), "xytext": offset}
        axes.annotate(word, **where, textcoords="offset points", ha=side, va="bottom")


def _draw_bars(axes: Axes, panel: BarPanel) -> None:
    width = 0.8 / len(panel.bars)
    for place, bars in enumerate(panel.bars):
        values = [(group, value) for group, value in enumerate(bars.values) if value is not None]
        axes.bar(
            [group + (place - (len(panel.bars) - 1) / 2) * width for group, _ in values],
            [value.mean for _, value in values],
            width,
            yerr=[value.stderr or 0.0 for _, value in values],
            color=bars.colour,
            error_kw={"elinewidth": 0.6, "capsize": 0, "ecolor": "#1a1f26"},
            zorder=2,
        )
    axes.axhline(0, color="#5a6472", linewidth=0.8, zorder=3)
    axes.set_title(panel.title)
    axes.set_xticks(range(len(panel.groups)), panel.groups)
    axes.tick_params(axis="x", length=0)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(panel.limits)
    axes.set_xlabel(panel.x_title)
    axes.set_ylabel(panel.y_title)


def _draw_heatmap(axes: Axes, panel: HeatPanel) -> None:
    colours = ListedColormap([blend(*HEAT, i / 255) for i in range(256)])
    axes.imshow(
        [[math.nan if cell is None else cell.mean for cell in row] for row in panel.matrix],
        vmin=0,
        vmax=1,
        cmap=colours,
    )
    axes.set_title(panel.title.replace(": ", "\n"))
    axes.set_xticks(range(len(panel.columns)), panel.columns)
    axes.set_yticks(range(len(panel.rows)), panel.rows)
    axes.set_xlabel(panel.column_title)
    axes.set_ylabel(panel.row_title)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _share_y(axes: Axes, panel: object, left: object) -> None:
    """Leave out what an axis shares with that of the panel to its left: the title, and numbers where they are equal."""
    names = ("y_title", "row_title", "limits", "rows")
    own, other = ([getattr(each, name, None) for name in names] for each in (panel, left))
    if own[:2] == other[:2]:
        axes.set_ylabel("")
        if own == other:
            axes.tick_params(labelleft=False)


def _handle(key: Series | Bars) -> Line2D | Patch:
    if isinstance(key, Bars):
        return Patch(color=key.colour, label=key.name)
    return Line2D([], [], label=key.name, **line_style(key))


_DRAWINGS: dict[str, Callable[[FigureResults], Drawing | None]] = {
    "permuted": _accuracy,
    "nonlinear": _accuracy,
    "color": _color,
    "memory-sizes": figures_memory.compare_sizes,
    "logit-bars": figures_memory.show_logits,
    "heatmaps": figures_memory.show_confusion,
    "rho": _rho,
    "selection": _selection,
    "generative-replay": _accuracy,
    "bytes": figures_memory.compare_bytes,
    "bytes-split": figures_memory.compare_bytes_with_heads,
    "mixture": _mixture,
}
