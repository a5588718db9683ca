"""Figures as PNG and SVG, drawn by matplotlib: accuracy over tasks, the forgetting ratio, the trials of a tuning."""

import textwrap
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from selfreminder._base.atomic import replace_file
from selfreminder.experiment.catalogue import references
from selfreminder.experiment.tuning.choice import Outcome, Tried, is_numeric, text_of
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
_FIELD_NAMES = {"strength": "Strength λ", "lr": "Step size"}
_MOST_LINES = 8
"""of a tuning's figure; where there would be more, it has points"""


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
    drawn = [r for r in results if r.method not in references() and r.rho_curve and None not in r.rho_curve]
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


def tuning_figure(outcome: Outcome, title: str, stem: Path) -> list[Path]:
    """Draw one method's validation accuracy against the values tried, as `stem`.png and `stem`.svg.

    A second field gets a line for each of its values. Nothing is drawn where no trial is done.
    """
    choice, done = outcome.choice, [trial for trial in outcome.tried if trial.value is not None]
    if not done:
        return []
    numbers_first = sorted(choice.candidates, key=lambda field: not is_numeric(choice.candidates[field]))
    across, *others = sorted(numbers_first, key=lambda field: field != "strength")
    lines: dict[str, list[Tried]] = {}
    for trial in done:
        lines.setdefault(_describe({field: trial.settings[field] for field in others}), []).append(trial)
    with styled():
        figure, axes = plt.subplots(figsize=(5.2, 4.0), layout="constrained")
        _set_up_values_axis(axes, across, outcome)
        if len(lines) == 1 or len(done) > len(lines) <= _MOST_LINES:
            _draw_trial_lines(axes, across, lines, outcome)
        else:
            _draw_trial_points(axes, across, others[0], done, outcome)
        for state, marker in (("pruned", "|"), ("diverged", "x")):
            at = [choice.position(across, trial.settings) for trial in outcome.tried if trial.state == state]
            if at:
                below = {"transform": axes.get_xaxis_transform(), "clip_on": False, "linestyle": "none"}
                # Above the axis, whose ticks they would else be taken for.
                axes.plot(at, [0.04] * len(at), marker=marker, markersize=9, color="#888888", label=state, **below)
        if (best := outcome.chosen) is not None:
            ring = {"marker": "o", "markersize": 11, "markerfacecolor": "none", "linestyle": "none", "zorder": 5}
            at, label = [choice.position(across, best.settings)], f"chosen: {_describe(best.settings)}"
            axes.plot(at, [best.value or 0.0], color="#000000", label=label, **ring)
        if outcome.adams_newest is not None:
            axes.axhline(outcome.adams_newest, color=look("adam", [])[0], linewidth=1.0, label="adam")
        axes.set_ylabel("Validation accuracy")
        entitle(figure, title)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
        return save(figure, stem)


def _set_up_values_axis(axes: Axes, field: str, outcome: Outcome) -> None:
    """Label the axis of a field's values: logarithmic where it can be, names one after the other."""
    axes.set_xlabel(_FIELD_NAMES.get(field, field))
    candidates = outcome.choice.candidates[field]
    at = [outcome.choice.position(field, trial.settings) for trial in outcome.tried]
    if not is_numeric(candidates):
        axes.set_xticks(range(len(candidates)), [text_of(value) for value in candidates])
    elif min(at) > 0:
        axes.set_xscale("log")
        axes.set_xlim(min(at) / 1.5, max(at) * 1.5)  # matplotlib finds none for a single point


def _draw_trial_lines(axes: Axes, across: str, lines: dict[str, list[Tried]], outcome: Outcome) -> None:
    choice = outcome.choice
    colour, marker = look(choice.method, [choice.method])
    shades = list(plt.get_cmap("viridis")([i / len(lines) for i in range(len(lines))]))
    for shade, (label, trials) in zip([colour] if len(lines) == 1 else shades, lines.items()):
        trials.sort(key=lambda trial: choice.position(across, trial.settings))
        axes.errorbar(
            [choice.position(across, trial.settings) for trial in trials],
            [trial.value or 0.0 for trial in trials],
            yerr=[trial.stderr or 0.0 for trial in trials],
            color=shade,
            marker=marker,
            label=label or choice.method,
            **LINE,
        )


def _draw_trial_points(axes: Axes, across: str, other: str, trials: list[Tried], outcome: Outcome) -> None:
    """Draw trials where lines would be too many, or of one point each: a second number is the points' colour."""
    at = [outcome.choice.position(across, trial.settings) for trial in trials]
    values = [trial.settings[other] for trial in trials]
    shades = values if is_numeric(values) else [1.0] * len(trials)
    norm = LogNorm() if min(shades) > 0 else Normalize()
    drawn = axes.scatter(at, [trial.value or 0.0 for trial in trials], c=shades, s=16, norm=norm)
    if is_numeric(values):
        axes.figure.colorbar(drawn, ax=axes, label=_FIELD_NAMES.get(other, other))


def _describe(settings: dict[str, Any]) -> str:
    return ", ".join(f"{_FIELD_NAMES.get(field, field)} {text_of(value)}" for field, value in settings.items())


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as `stem`.png and `stem`.svg."""
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    for path in paths:
        with replace_file(path) as temporary:
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
