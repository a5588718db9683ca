"""The paper's figures of what a network says of the first task before and after the second."""

import math

from selfreminder.metrics import diagonal
from selfreminder.paper.figures import BarPanel, HeatPanel, Plate, Shown, limits
from selfreminder.report.curves import Estimate
from selfreminder.report.findings import Entry
from selfreminder.report.html.markup import decimal
from selfreminder.report.svg.charts import Bars, Series

_BEFORE = "#999999"


def logit_bars(shown: Shown) -> Plate:
    """Means and deviations of logits by true class."""
    (line,) = shown.lines
    of_task: list[list[Bars]] = []
    for task, colour in ((0, _BEFORE), (1, line.colour)):
        means, deviations = (_over_seeds(line, task, name) for name in ("logit_mean", "logit_deviation"))
        of_classes = [[Estimate(*pair) for pair in zip(*of_class)] for of_class in zip(means, deviations)]
        of_task.append([Bars(f"after task {task + 1}", colour, values) for values in of_classes])
    every = [Series("", "", "", range(len(bars.values)), bars.values) for classes in of_task for bars in classes]
    shared, classes = limits(every, 0.0, step=2.0), tuple(str(k) for k in range(len(of_task[0])))
    panels = tuple(
        BarPanel(f"Class {k}", classes, pair, "Class of the logit", "Logit", shared)
        for k, pair in zip(classes, zip(*of_task))
    )
    note = "Validation part of the first task, by true class. After task 2: fsr-logit with 10 images per class."
    return Plate(panels, panels[0].bars, note, "deviation over images")


def heatmaps(shown: Shown) -> Plate:
    """Predictions by true class."""
    lines = shown.of("adam", "fsr-logit", "fsr-distill")
    # Before there is anything to remember, methods of one step size train alike.
    alike: dict[float | None, list[Entry]] = {}
    for line in lines:
        alike.setdefault(line.experiment.lr, []).append(line)
    asked: list[tuple[Entry, int, str]] = []
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
    return Plate(tuple(panels), note=note)


def _kept(line: Entry) -> float:
    """What of the diagonal after the first task is there after the second, mean over seeds."""
    diagonals = [[diagonal(task["probe"]["confusion"]) for task in run.tasks[:2]] for run in line.runs]
    return math.fsum(after / before if before else math.nan for before, after in diagonals) / len(diagonals)


def _shares(counts: list[list[float]]) -> list[list[float]]:
    return [[count / (sum(row) or 1) for count in row] for row in counts]


def _over_seeds(line: Entry, task: int, name: str) -> list[list[float]]:
    matrices = [run.tasks[task]["probe"][name] for run in line.runs]
    return [[math.fsum(cell) / len(cell) for cell in zip(*rows)] for rows in zip(*matrices)]
