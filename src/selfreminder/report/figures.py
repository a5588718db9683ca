"""Figures as files, drawn by matplotlib: accuracy over tasks, the forgetting ratio, the trials of a tuning.

The same numbers give the same bytes.
"""

import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from selfreminder._base.atomic import replace_file
from selfreminder.experiment.tuning.candidates import Candidates, format_value, is_numeric
from selfreminder.report.panels import LinePanel, Series, accuracy_panels, cost_panels, steps_panel, trace
from selfreminder.report.results import Estimate, Result, sort_best_first
from selfreminder.report.style import look

if TYPE_CHECKING:  # they need the extra `tune`
    from selfreminder.experiment.tuning.search import Choice
    from selfreminder.experiment.tuning.study import TrialResult

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "errorbar.capsize": 1.5,
    "svg.hashsalt": "selfreminder",
    "figure.dpi": 150,
}
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""no date and no version: the same records give the same file"""
KINDS = ("png", "svg")
"""of files, unless others are asked for"""
_THINNER = 0.5
"""points by which the line of an error bar is thinner than that of its series"""
_LETTERS = 14
"""of a title in an inch"""
_FIELD_NAMES = {"strength": "Strength λ", "lr": "Step size"}
_MOST_LINES = 8
"""of a tuning's figure; where there would be more, it has points"""


def styled(style: dict[Any, Any] = STYLE) -> AbstractContextManager[None]:
    """Draw in a style, and in nothing that a user's matplotlibrc asks for: the same numbers give the same bytes."""
    return plt.style.context(["default", style])


def entitle(figure: Figure, title: str) -> None:
    """Give a figure a title, broken into lines that do not run over its edges."""
    most = int(_LETTERS * figure.get_figwidth())
    lines = [part for line in title.splitlines() for part in textwrap.wrap(line, most)]
    figure.suptitle("\n".join(lines), fontsize=9)


def save(figure: Figure, stem: Path, kinds: Sequence[str] = KINDS) -> list[Path]:
    """Write a figure as `stem`.png, `stem`.svg or `stem`.pdf."""
    paths = {kind: stem.with_name(f"{stem.name}.{kind}") for kind in kinds}
    for kind in sorted(kinds):  # always in one order: each time a figure is drawn, its layout moves a little
        with replace_file(paths[kind]) as temporary:
            figure.savefig(temporary, format=kind, metadata=_METADATA[kind])
    plt.close(figure)
    return list(paths.values())


def draw_lines(axes: Axes, panel: LinePanel) -> None:
    """Draw the series of a panel with their standard errors, the first on top, and the panel's titles."""
    for place, series in enumerate(panel.series):
        errors = [y.stderr or 0.0 for _, y in series.points]
        axes.errorbar(
            [x for x, _ in series.points],
            [y.mean for _, y in series.points],
            yerr=errors if any(errors) else None,
            label=series.name,
            elinewidth=plt.rcParams["lines.linewidth"] - _THINNER,
            zorder=3 - place / len(panel.series),
            **line_style(series),
        )
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x_title)
    axes.set_ylabel(panel.y_title)
    if panel.limits is not None:
        axes.set_ylim(panel.limits)


def line_style(series: Series) -> dict[str, Any]:
    """Say how a series looks, in matplotlib's words."""
    dash = tuple(float(length) for length in series.dash.split())
    return {"color": series.colour, "marker": series.marker or None, "linestyle": (0, dash) if dash else "-"}


def _height(keys: int) -> float:
    """Inches of a figure with so many keys beside it."""
    return max(3.4, 0.5 + 0.19 * keys)


def draw_accuracy(results: Sequence[Result], title: str, stem: Path, kinds: Sequence[str] = KINDS) -> list[Path]:
    """Draw the accuracy on the first task and over all tasks so far, as `stem`.png and `stem`.svg."""
    with styled():
        figure, grid = plt.subplots(1, 2, figsize=(8.4, _height(len(results))), sharey=True, layout="constrained")
        for axes, panel in zip(grid, accuracy_panels(sort_best_first(results))):
            draw_lines(axes, panel)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        grid[1].set_ylabel("")
        entitle(figure, title)
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside right center")
        return save(figure, stem, kinds)


def draw_steps(results: Sequence[Result], title: str, stem: Path, kinds: Sequence[str] = KINDS) -> list[Path]:
    """Draw how accuracy goes while tasks are learned, as `stem`.png and `stem`.svg; nothing where nobody looked."""
    if (panel := steps_panel(sort_best_first(results))) is None:
        return []
    with styled():
        figure, axes = plt.subplots(figsize=(7.2, _height(len(panel.series))), layout="constrained")
        draw_lines(axes, panel)
        for place, _ in panel.marks:
            axes.axvline(place, color="#888888", linewidth=0.6)
        entitle(figure, title)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
        return save(figure, stem, kinds)


def draw_costs(results: Sequence[Result], title: str, stem: Path, kinds: Sequence[str] = KINDS) -> list[Path]:
    """Draw the accuracy at the end against bytes, and against seconds where they are known; nothing without either."""
    panels = cost_panels(sort_best_first(results))
    if not panels:
        return []
    with styled():
        figure, grid = plt.subplots(
            1,
            len(panels),
            figsize=(1.6 + 3.4 * len(panels), _height(len(results))),
            sharey=True,
            layout="constrained",
            squeeze=False,
        )
        for axes, panel in zip(grid[0], panels):
            axis = panel.x_axis
            # Zero has a place of its own before the others, as on the page.
            places = [replace(s, x=[axis.share(x) for x in s.x]) for s in panel.series]
            draw_lines(axes, replace(panel, series=places))
            axes.set_xlim(-0.02, 1.02)
            axes.set_xticks([axis.share(tick) for tick, _ in axis.ticks], [label for _, label in axis.ticks])
        for axes in grid[0][1:]:
            axes.set_ylabel("")
        entitle(figure, title)
        widest = max(range(len(panels)), key=lambda place: len(panels[place].series))
        figure.legend(*grid[0][widest].get_legend_handles_labels(), loc="outside right center")
        return save(figure, stem, kinds)


def draw_ratio(results: Sequence[Result], title: str, stem: Path) -> list[Path]:
    """Draw the forgetting ratio ρ after each task, as `stem`.png and `stem`.svg; nothing where it is undefined."""
    drawn = [r for r in results if not r.is_reference and r.rho_curve and None not in r.rho_curve]
    if not drawn:
        return []
    series = [trace(result, result.rho_curve) for result in drawn]
    y_title = "Forgetting ratio ρ (0: as joint training)"
    with styled():
        figure, axes = plt.subplots(figsize=(5.2, _height(len(drawn))), layout="constrained")
        draw_lines(axes, LinePanel("", series, y_title=y_title, limits=None))
        axes.axhline(0, color="#888888", linewidth=0.8)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        entitle(figure, title)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
        return save(figure, stem)


def draw_tuning(choice: "Choice", title: str, stem: Path) -> list[Path]:
    """Draw one method's validation accuracy against the values tried, as `stem`.png and `stem`.svg.

    A second field gets a line for each of its values. Nothing is drawn where no trial is done.
    """
    candidates, done = choice.candidates, choice.done
    if not done:
        return []
    numbers_first = sorted(candidates.values, key=lambda name: not is_numeric(candidates.values[name]))
    across, *others = sorted(numbers_first, key=lambda name: name != "strength")
    lines: dict[str, list[TrialResult]] = {}
    for trial in done:
        lines.setdefault(_describe({name: trial.settings[name] for name in others}), []).append(trial)
    with styled():
        figure, axes = plt.subplots(figsize=(5.2, 4.0), layout="constrained")
        _set_up_values_axis(axes, across, choice)
        if len(lines) == 1 or len(done) > len(lines) <= _MOST_LINES:
            _draw_trial_lines(axes, across, lines, candidates)
        else:
            _draw_trial_points(axes, across, others[0], done, candidates)
        for state, marker in (("pruned", "|"), ("diverged", "x")):
            at = [candidates.position(across, trial.settings) for trial in choice.results if trial.state == state]
            if at:
                below = {"transform": axes.get_xaxis_transform(), "clip_on": False, "linestyle": "none"}
                # Above the axis, whose ticks they would else be taken for.
                axes.plot(at, [0.04] * len(at), marker=marker, markersize=9, color="#888888", label=state, **below)
        if (best := choice.chosen) is not None:
            ring = {"marker": "o", "markersize": 11, "markerfacecolor": "none", "linestyle": "none", "zorder": 5}
            at, label = [candidates.position(across, best.settings)], f"chosen: {_describe(best.settings)}"
            axes.plot(at, [best.value or 0.0], color="#000000", label=label, **ring)
        if choice.adams_newest is not None:
            axes.axhline(choice.adams_newest, color=look("adam", [])[0], linewidth=1.0, label="adam")
        axes.set_ylabel("Validation accuracy")
        entitle(figure, title)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
        return save(figure, stem)


def _set_up_values_axis(axes: Axes, name: str, choice: "Choice") -> None:
    """Label the axis of a field's values: logarithmic where it can be, names one after the other."""
    axes.set_xlabel(_FIELD_NAMES.get(name, name))
    values = choice.candidates.values[name]
    at = [choice.candidates.position(name, trial.settings) for trial in choice.results]
    if not is_numeric(values):
        axes.set_xticks(range(len(values)), [format_value(value) for value in values])
    elif min(at) > 0:
        axes.set_xscale("log")
        axes.set_xlim(min(at) / 1.5, max(at) * 1.5)  # matplotlib finds none for a single point


def _draw_trial_lines(axes: Axes, across: str, lines: dict[str, list["TrialResult"]], candidates: Candidates) -> None:
    colour, marker = look(candidates.method, [candidates.method])
    shades = list(plt.get_cmap("viridis")([i / len(lines) for i in range(len(lines))]))
    series = []
    for shade, (label, trials) in zip([colour] if len(lines) == 1 else shades, lines.items()):
        trials.sort(key=lambda trial: candidates.position(across, trial.settings))
        x = [candidates.position(across, trial.settings) for trial in trials]
        y = [Estimate(trial.value or 0.0, trial.stderr) for trial in trials]
        series.append(Series(label or candidates.method, to_hex(shade), marker, x, y))
    draw_lines(axes, LinePanel("", series, axes.get_xlabel(), limits=None))


def _draw_trial_points(
    axes: Axes, across: str, other: str, trials: list["TrialResult"], candidates: Candidates
) -> None:
    """Draw trials where lines would be too many, or of one point each: a second number is the points' colour."""
    at = [candidates.position(across, trial.settings) for trial in trials]
    values = [trial.settings[other] for trial in trials]
    shades = values if is_numeric(values) else [1.0] * len(trials)
    norm = LogNorm() if min(shades) > 0 else Normalize()
    drawn = axes.scatter(at, [trial.value or 0.0 for trial in trials], c=shades, s=16, norm=norm)
    if is_numeric(values):
        axes.figure.colorbar(drawn, ax=axes, label=_FIELD_NAMES.get(other, other))


def _describe(settings: dict[str, Any]) -> str:
    return ", ".join(f"{_FIELD_NAMES.get(name, name)} {format_value(value)}" for name, value in settings.items())
