"""The paper's figures of what a network says of the first task before and after the second."""

import math

from selfreminder.report.charts import Bars, Series
from selfreminder.report.curves import Estimate
from selfreminder.report.findings import Entry
from selfreminder.report.paper_figures import BarPanel, HeatPanel, Plate, Shown, limits

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
    # Before there is anything to remember, all of them train alike, unless their step sizes differ.
    alike = len({line.experiment.lr for line in shown.lines}) == 1
    asked = [(line, 0, f"After task 1: {'all methods' if alike else line.method}") for line in shown.lines[:1]]
    for line in shown.of("adam", "fsr-logit", "fsr-distill"):
        size = "" if line.method == "adam" else f", {line.experiment.size}"
        asked.append((line, 1, f"After task 2: {line.method}{size}"))
    panels = []
    for line, task, title in asked:
        seeds = [_shares(run.tasks[task]["probe"]["confusion"]) for run in line.runs]
        matrix = [[Estimate.of(list(cell)) for cell in zip(*rows)] for rows in zip(*seeds)]
        classes = tuple(str(k) for k in range(len(matrix)))
        panels.append(HeatPanel(title, matrix, classes, classes, "True class", "Predicted class"))
    note = "Validation part of the first task: the share of each true class that is predicted as each class."
    return Plate(tuple(panels), note=note)


def _shares(counts: list[list[float]]) -> list[list[float]]:
    return [[count / (sum(row) or 1) for count in row] for row in counts]


def _over_seeds(line: Entry, task: int, name: str) -> list[list[float]]:
    matrices = [run.tasks[task]["probe"][name] for run in line.runs]
    return [[math.fsum(cell) / len(cell) for cell in zip(*rows)] for rows in zip(*matrices)]
