"""Validation accuracy against what was tried."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize

from selfreminder.experiment.tuning.choice import Outcome, Tried, is_numeric, text_of
from selfreminder.report.figures import LINE, entitle, save, styled
from selfreminder.report.style import look

_NAMES = {"strength": "Strength λ", "lr": "Step size"}
_MOST_LINES = 8


def tuning_figure(outcome: Outcome, title: str, stem: Path) -> list[Path]:
    """The trials of one method, as `stem`.png and `stem`.svg: a line for each value of a second field.

    Nothing where no trial is done.
    """
    candidates = outcome.choice.candidates
    names = sorted(candidates, key=lambda name: (name != "strength", not is_numeric(candidates[name])))
    done = [trial for trial in outcome.tried if trial.value is not None]
    if not done:
        return []
    with styled():
        figure, axes = plt.subplots(figsize=(5.2, 4.0), layout="constrained")
        across = _Across(names[0], outcome, axes)
        lines: dict[str, list[Tried]] = {}
        for trial in done:
            others = {name: trial.settings[name] for name in names[1:]}
            lines.setdefault(", ".join(f"{_name(k)} {text_of(v)}" for k, v in others.items()), []).append(trial)
        if len(lines) == 1 or len(done) > len(lines) <= _MOST_LINES:
            _lines(axes, across, lines, outcome)
        else:
            _cloud(axes, across, done, names)
        for state, marker in (("pruned", "|"), ("diverged", "x")):
            at = [across.of(trial.settings) for trial in outcome.tried if trial.state == state]
            if at:
                below = {"transform": axes.get_xaxis_transform(), "clip_on": False, "linestyle": "none"}
                # Above the axis, whose ticks they would else be taken for.
                axes.plot(at, [0.04] * len(at), marker=marker, markersize=9, color="#888888", label=state, **below)
        if outcome.chosen is not None:
            best = outcome.chosen
            words = ", ".join(f"{_name(name)} {text_of(value)}" for name, value in best.settings.items())
            ring = {"marker": "o", "markersize": 11, "markerfacecolor": "none", "linestyle": "none", "zorder": 5}
            axes.plot(
                [across.of(best.settings)], [best.value or 0.0], color="#000000", label=f"chosen: {words}", **ring
            )
        if outcome.adams_newest is not None:
            axes.axhline(outcome.adams_newest, color=look("adam", [])[0], linewidth=1.0, label="adam")
        axes.set_ylabel("Validation accuracy")
        entitle(figure, title)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
        return save(figure, stem)


class _Across:
    """The axis to the right: logarithmic where it can be, names one after the other."""

    def __init__(self, name: str, outcome: Outcome, axes: Axes) -> None:
        self._name = name
        candidates = outcome.choice.candidates[name]
        self._places = None if is_numeric(candidates) else list(candidates)
        axes.set_xlabel(_name(name))
        values = [self.of(trial.settings) for trial in outcome.tried]
        if self._places is not None:
            axes.set_xticks(range(len(self._places)), [text_of(each) for each in self._places])
        elif min(values) > 0:
            axes.set_xscale("log")
            axes.set_xlim(min(values) / 1.5, max(values) * 1.5)  # matplotlib finds none for a single point

    def of(self, settings: Mapping[str, Any]) -> float:
        value = settings[self._name]
        return value if self._places is None else self._places.index(value)


def _lines(axes: Axes, across: _Across, lines: dict[str, list[Tried]], outcome: Outcome) -> None:
    colour, marker = look(outcome.choice.method, [outcome.choice.method])
    colours = (
        [colour] if len(lines) == 1 else list(plt.get_cmap("viridis")([i / len(lines) for i in range(len(lines))]))
    )
    for shade, (label, trials) in zip(colours, lines.items()):
        trials.sort(key=lambda trial: across.of(trial.settings))
        axes.errorbar(
            [across.of(trial.settings) for trial in trials],
            [trial.value or 0.0 for trial in trials],
            yerr=[trial.stderr or 0.0 for trial in trials],
            color=shade,
            marker=marker,
            label=label or outcome.choice.method,
            **LINE,
        )


def _cloud(axes: Axes, across: _Across, trials: list[Tried], names: list[str]) -> None:
    """Where lines would be too many, or of one point each: points, with a second number as their colour."""
    heights = [trial.value or 0.0 for trial in trials]
    other = [trial.settings[names[1]] for trial in trials]
    shades = other if is_numeric(other) else [1.0] * len(trials)
    norm = LogNorm() if min(shades) > 0 else Normalize()
    drawn = axes.scatter([across.of(trial.settings) for trial in trials], heights, c=shades, s=16, norm=norm)
    if is_numeric(other):
        axes.figure.colorbar(drawn, ax=axes, label=_name(names[1]))


def _name(field: str) -> str:
    return _NAMES.get(field, field)
