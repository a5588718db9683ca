"""From the accuracy matrix to numbers. Row t has the accuracies on tasks 1…t after learning task t."""

import math
from collections.abc import Sequence

Matrix = Sequence[Sequence[float]]


def task_average(matrix: Matrix) -> list[float]:
    """Mean accuracy over the tasks so far, after each task.

    >>> task_average([[0.9], [0.5, 0.7]])
    [0.9, 0.6]
    """
    return [math.fsum(row) / len(row) for row in matrix]


def first_task(matrix: Matrix) -> list[float]:
    """Accuracy on the first task, after each task."""
    return [row[0] for row in matrix]


def forgetting(matrix: Matrix) -> float | None:
    """Mean over old tasks of (best accuracy before the last task − accuracy at the end); None with one task.

    >>> round(forgetting([[0.9], [0.8, 0.7], [0.5, 0.8, 0.9]]), 6)  # ((0.9 − 0.5) + (0.7 − 0.8)) / 2
    0.15
    """
    last = len(matrix) - 1
    if last < 1:
        return None
    drops = [max(matrix[t][task] for t in range(task, last)) - matrix[last][task] for task in range(last)]
    return math.fsum(drops) / last


def mean_and_stderr(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard error of the mean; None for the latter with a single value.

    >>> mean_and_stderr([1.0, 3.0])
    (2.0, 1.0)
    """
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n)
