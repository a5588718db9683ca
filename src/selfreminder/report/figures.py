"""The paper's figures, drawn from results."""

import textwrap
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from selfreminder._base.atomic import replacing
from selfreminder.report.curves import Estimate, MethodResult
from selfreminder.report.style import look

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "svg.hashsalt": "selfreminder",
    "figure.dpi": 150,
}
LINE: dict[str, Any] = {"markersize": 3.5, "linewidth": 1.4, "elinewidth": 0.9, "capsize": 1.5}
"""how `Axes.errorbar` draws a line"""
_LETTERS = 14
"""of a title in an inch"""


def styled(style: dict[Any, Any] = STYLE) -> AbstractContextManager[None]:
    """Draw in it, and in nothing that a user's matplotlibrc asks for: the same numbers give the same bytes."""
    return plt.style.context(["default", style])


def entitle(figure: Figure, title: str) -> None:
    """Give a figure a title, broken into lines that do not run over its edges."""
    most = int(_LETTERS * figure.get_figwidth())
    lines = [part for line in title.splitlines() for part in textwrap.wrap(line, most)]
    figure.suptitle("\n".join(lines), fontsize=9)


def ratio_panel(results: list[MethodResult], title: str, stem: Path) -> list[Path]:
    """The forgetting ratio ρ after each task, as `stem`.png and `stem`.svg; nothing where it is undefined."""
    drawn = [r for r in results if r.method != "joint" and r.rho_curve and None not in r.rho_curve]
    if not drawn:
        return []
    with styled():
        figure, axes = plt.subplots(figsize=(5.2, 3.4), layout="constrained")
        for result in drawn:
            colour, marker = look(result.method, [r.method for r in results])
            curve = [point for point in result.rho_curve if point is not None]
            _line(axes, curve, colour, marker, result.method, zorder=2)
        axes.axhline(0, color="#888888", linewidth=0.8)
        axes.set_xlabel("Tasks learned")
        axes.set_ylabel("Forgetting ratio ρ (0: as joint training)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        entitle(figure, title)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
        return save(figure, stem)


def two_panels(results: list[MethodResult], title: str, stem: Path) -> list[Path]:
    """Accuracy on the first task and over all tasks so far, as `stem`.png and `stem`.svg."""
    with styled():
        figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4), sharey=True, layout="constrained")
        best_first = sorted(results, key=lambda result: -result.task_average.mean)
        for place, result in enumerate(best_first):
            colour, marker = look(result.method, [r.method for r in results])
            for axes, curve in ((left, result.first_curve), (right, result.average_curve)):
                _line(axes, curve, colour, marker, result.method, zorder=3 - place / len(results))
        for axes, name in ((left, "First task"), (right, "Average of the tasks so far")):
            axes.set_title(name)
            axes.set_xlabel("Tasks learned")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        left.set_ylabel("Test accuracy")
        left.set_ylim(0, 1)
        entitle(figure, title)
        figure.legend(*left.get_legend_handles_labels(), loc="outside right center")
        return save(figure, stem)


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as `stem`.png and `stem`.svg."""
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    for path in paths:
        with replacing(path) as temporary:
            kind = path.suffix[1:]
            # No date and no version: the same records give the same file.
            metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
            figure.savefig(temporary, format=kind, metadata=metadata)
    plt.close(figure)
    return paths


def _line(axes: Axes, curve: list[Estimate], colour: str, marker: str, label: str, zorder: float) -> None:
    tasks = range(1, len(curve) + 1)
    axes.errorbar(
        tasks,
        [point.mean for point in curve],
        yerr=[point.stderr or 0.0 for point in curve],
        color=colour,
        marker=marker,
        label=label,
        zorder=zorder,
        **LINE,
    )
