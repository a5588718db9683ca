from pathlib import Path
from typing import Any

import pytest

from selfreminder.experiment.tuning.search import Choice
from selfreminder.experiment.tuning.study import TrialResult
from selfreminder.report.figures import draw_tuning
from tunings import tuning


def choice_of(tried: list[TrialResult], values: dict[str, tuple[Any, ...]], method: str = "ewc") -> Choice:
    (candidates,) = tuning(method, values=values).candidates
    return Choice(candidates, tried, "study", 0.8 if candidates.reference else None)


@pytest.mark.parametrize("kind", ["curve", "lines", "cloud", "names", "zero", "sgd", "one"])
def test_figures(tmp_path: Path, kind: str) -> None:
    if kind == "curve":
        tried = [TrialResult({"strength": 10.0**i}, "done", 0.5 + i / 10, (0.4, 0.6)) for i in range(3)]
        tried += [TrialResult({"strength": 1e3}, "diverged"), TrialResult({"strength": 1e4}, "pruned")]
        choice = choice_of(tried, {"strength": tuple(10.0**i for i in range(5))})
    elif kind == "names":
        tried = [TrialResult({"over_tasks": name}, "done", 0.5) for name in ("sum", "mean")]
        choice = choice_of(tried, {"over_tasks": ("sum", "mean")}, "fsr-logit")
    elif kind == "zero":
        choice = choice_of([TrialResult({"strength": i}, "done", 0.5) for i in (0.0, 1.0)], {"strength": (0.0, 1.0)})
    elif kind == "one":
        choice = choice_of([TrialResult({"lr": 3.9e-5}, "done", 0.1, (0.1,))], {"lr": (1e-4, 1e-3)}, "adam")
    elif kind == "sgd":
        choice = choice_of([TrialResult({"lr": i}, "done", i) for i in (0.1, 1.0)], {"lr": (0.1, 1.0)}, "sgd")
    else:
        lrs = (0.1, 0.2) if kind == "lines" else tuple(0.01 * i for i in range(1, 13))
        tried = [TrialResult({"strength": 1.0 + i % 4, "lr": lrs[i % len(lrs)]}, "done", i / 12) for i in range(12)]
        choice = choice_of(tried, {"strength": (1.0, 2.0, 3.0, 4.0), "lr": lrs})
    for name in ("a", "b"):
        png, svg = draw_tuning(choice, "title", tmp_path / name)
        assert png.read_bytes()[:4] == b"\x89PNG"
        assert b"<svg" in svg.read_bytes()
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_title_does_not_run_over_the_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    monkeypatch.setattr("selfreminder.report.figures.save", lambda figure, _: kept.append(figure) or [])
    choice = choice_of([TrialResult({"strength": 1.0}, "done", 0.5)], {"strength": (1.0,)})
    long = "fsr-logitlab on nonlinear-mnist (embedded-mnist), scale small, memory of 10 per class and some more words"
    draw_tuning(choice, f"{long}\nall tasks at the end; one seed", tmp_path / "x")
    (figure,) = kept
    assert figure.get_suptitle().endswith("\nall tasks at the end; one seed")
    figure.draw_without_rendering()
    of_title, of_all = figure._suptitle.get_window_extent(), figure.bbox
    assert of_all.x0 <= of_title.x0 < of_title.x1 <= of_all.x1


def test_no_figure_of_nothing(tmp_path: Path) -> None:
    assert draw_tuning(choice_of([], {"strength": (1.0,)}), "title", tmp_path / "x") == []
