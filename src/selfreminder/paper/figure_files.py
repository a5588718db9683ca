"""The paper's figures as files, for a page of two columns: PNG, SVG and PDF, the same bytes for the same records."""

import math
from collections.abc import Sequence
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

from selfreminder._base.atomic import replace_file
from selfreminder.paper.figures import BarPanel, HeatPanel, LinePanel, Plate, Shown
from selfreminder.report.figures import STYLE, save, styled
from selfreminder.report.style import blend
from selfreminder.report.svg.axes import linear, logarithmic
from selfreminder.report.svg.charts import HEAT, Bars, Series

_WIDTH = 7.0
"""inches, of two columns; in one, a figure of one panel has room"""
_STYLE: dict[Any, Any] = STYLE | {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "pdf.fonttype": 42,
    "figure.dpi": 200,
}
_LETTERS, _LETTERS_OF_KEY = 114, 8
"""of a legend's row over the whole width; that a key takes beside its name"""
KINDS = ("png", "svg", "pdf")


def draw(shown: Shown, plate: Plate, stem: Path) -> list[Path]:
    """Write a figure as `stem`.png, `stem`.svg and `stem`.pdf."""
    rows, columns, height = _layout(plate.panels)
    width = _WIDTH if columns > 1 else 0.68 * _WIDTH
    keys = _legend_columns(plate.legend, _LETTERS * width / _WIDTH)
    with styled(_STYLE):
        size = (width, rows * height + 0.19 * math.ceil(len(plate.legend) / keys) + 0.45)
        figure, grid = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
        for place, panel in enumerate(plate.panels):
            axes = grid.flat[place]
            match panel:
                case LinePanel():
                    _lines(axes, panel)
                case BarPanel():
                    _bars(axes, panel)
                case HeatPanel():
                    _heat(axes, panel)
            if place % columns:
                _share_y(axes, panel, plate.panels[place - 1])
            if isinstance(panel, BarPanel) and place + columns < len(plate.panels):
                axes.set_xlabel("")
        for axes in grid.flat[len(plate.panels) :]:
            axes.set_visible(False)
        if isinstance(plate.panels[0], HeatPanel):
            figure.colorbar(grid[0, -1].images[0], ax=grid, label="Share of the class", aspect=12, shrink=0.85)
        figure.suptitle(title(shown, plate), fontsize=8)
        if plate.legend:
            handles = [_handle(key) for key in plate.legend]
            figure.legend(handles=handles, loc="outside lower center", ncols=keys, handlelength=2.6)
        pdf = stem.with_name(f"{stem.name}.pdf")
        with replace_file(pdf) as temporary:
            # No date and no version: the same records give the same file.
            about = {"CreationDate": None, "Creator": None, "Producer": None}
            figure.savefig(temporary, format="pdf", metadata=about)
        return [*save(figure, stem), pdf]


def title(shown: Shown, plate: Plate) -> str:
    """What it is, at which scale, of how many seeds, and how much of it is missing."""
    summary = shown.figure.summary
    said = [f"scale {shown.scale}"]
    if shown.made_up:
        said.append("made-up images")
    seeds = plate.seeds or shown.seeds
    if seeds == "one seed":
        said.append("one seed")
    elif isinstance(plate.panels[0], HeatPanel):
        said.append(f"mean of {seeds}")
    else:
        said.append(f"mean and {plate.errors}, {seeds}")
    if shown.missing:
        said.append(f"{shown.missing} of {len(shown.wanted)} runs missing")
    return f"{summary[0].upper()}{summary[1:]}\n{'; '.join(said)}"


def _layout(panels: Sequence[object]) -> tuple[int, int, float]:
    """Rows, columns, and the height of a row in inches."""
    if isinstance(panels[0], BarPanel):
        return 2, -(-len(panels) // 2), 1.55
    if isinstance(panels[0], HeatPanel):
        return 1, len(panels), 1.95
    columns = {1: 1, 3: 3, 5: 3}.get(len(panels), 2)
    return -(-len(panels) // columns), columns, 2.3


def _legend_columns(legend: Sequence[Series | Bars], letters: float) -> int:
    """Columns for the fewest rows that are no wider than so many letters; matplotlib fills one column after another."""
    names = [len(key.name) + _LETTERS_OF_KEY for key in legend]
    for rows in range(1, len(names)):
        columns = math.ceil(len(names) / rows)
        if sum(max(column) for column in np.array_split(names, columns)) <= letters:
            return columns
    return 1


def _lines(axes: Axes, panel: LinePanel) -> None:
    for place, series in enumerate(panel.series):
        points = series.points
        errors = [y.stderr or 0.0 for _, y in points]
        axes.errorbar(
            [x for x, _ in points],
            [y.mean for _, y in points],
            yerr=errors if any(errors) else None,
            **_look(series),
            elinewidth=0.8,
            capsize=1.5,
            zorder=3 - place / len(panel.series),
        )
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x_title)
    axes.set_ylabel(panel.y_title)
    axes.set_ylim(panel.limits)
    xs = [x for series in panel.series for x, _ in series.points]
    axis = logarithmic(xs, panel.show_x) if panel.log else linear(xs, margin=0.03, whole=True, count=10)
    ticks = [(tick, panel.show_x(tick)) for tick in panel.ticks] or axis.ticks
    axes.set_xscale("log" if panel.log else "linear")
    axes.set_xlim(axis.low, axis.high)
    axes.set_xticks([tick for tick, _ in ticks], [label for _, label in ticks])
    axes.minorticks_off()
    for x, word in panel.marks:
        axes.axvline(x, color="#5a6472", linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        left, right = axes.get_xlim()
        beyond = x * x > left * right if panel.log else 2 * x > left + right
        offset, side = ((-4, 4), "right") if beyond else ((4, 4), "left")
        where = {"xy": (x, 0.0), "xycoords": ("data", "axes fraction"), "xytext": offset}
        axes.annotate(word, **where, textcoords="offset points", ha=side, va="bottom")


def _bars(axes: Axes, panel: BarPanel) -> None:
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


def _heat(axes: Axes, panel: HeatPanel) -> None:
    colours = ListedColormap([blend(*HEAT, i / 255) for i in range(256)])
    axes.imshow([[cell.mean for cell in row] for row in panel.matrix], vmin=0, vmax=1, cmap=colours)
    axes.set_title(panel.title.replace(": ", "\n"))
    axes.set_xticks(range(len(panel.columns)), panel.columns)
    axes.set_yticks(range(len(panel.rows)), panel.rows)
    axes.set_xlabel(panel.column_title)
    axes.set_ylabel(panel.row_title)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _share_y(axes: Axes, panel: object, left: object) -> None:
    """A panel that shares its axis with the one to its left has no title of it, and no numbers where they are equal."""
    names = ("y_title", "row_title", "limits", "rows")
    own, other = ([getattr(each, name, None) for name in names] for each in (panel, left))
    if own[:2] == other[:2]:
        axes.set_ylabel("")
        if own == other:
            axes.tick_params(labelleft=False)


def _look(series: Series) -> dict[str, Any]:
    dash = tuple(float(length) for length in series.dash.split())
    return {
        "color": series.colour,
        "marker": series.marker or None,
        "markersize": 3.5,
        "linewidth": 1.3,
        "linestyle": (0, dash) if dash else "-",
    }


def _handle(key: Series | Bars) -> Line2D | Patch:
    if isinstance(key, Bars):
        return Patch(color=key.colour, label=key.name)
    return Line2D([], [], label=key.name, **_look(key))
