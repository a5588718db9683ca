"""From the accuracy matrix to numbers. Row t has the accuracies on tasks 1…t after learning task t.

In the equations R[t][τ] is the matrix, with tasks counted from 1, and T the last task. A value that nobody measured is
nan, and left out: then means are over the tasks that were evaluated. R[t][t] is always measured.
"""

import math
from collections.abc import Iterable, Sequence
from functools import cache

from selfreminder._base.errors import SelfReminderError

Matrix = Sequence[Sequence[float]]


def task_average(matrix: Matrix) -> list[float]:
    """Mean accuracy over the tasks so far, after each task.

    >>> task_average([[0.9], [0.5, 0.7]])
    [0.9, 0.6]
    >>> task_average([[0.9], [math.nan, 0.7]])
    [0.9, 0.7]
    """
    return [_mean(_measured(row)) for row in matrix]


def first_task(matrix: Matrix) -> list[float]:
    """Accuracy on the first task, after each task.

    >>> first_task([[0.9], [0.5, 0.7]])
    [0.9, 0.5]
    """
    return [row[0] for row in matrix]


def forgetting(matrix: Matrix) -> float | None:
    """Mean over old tasks of (best accuracy before the last task − accuracy at the end); None with one task.

    >>> round(forgetting([[0.9], [0.8, 0.7], [0.5, 0.8, 0.9]]), 6)  # ((0.9 − 0.5) + (0.7 − 0.8)) / 2
    0.15
    """
    last = len(matrix) - 1
    drops = [max(_measured(matrix[t][task] for t in range(task, last))) - matrix[last][task] for task in range(last)]
    drops = _measured(drops)
    return _mean(drops) if drops else None


def backward_transfer(matrix: Matrix) -> float | None:
    """BWT = mean over τ < T of R[T][τ] − R[τ][τ] (GEM, 2017): negative when it forgets; None with one task.

    >>> round(backward_transfer([[0.9], [0.8, 0.7], [0.5, 0.8, 0.9]]), 6)  # ((0.5 − 0.9) + (0.8 − 0.7)) / 2
    -0.15
    """
    last = len(matrix) - 1
    changes = _measured(matrix[last][task] - matrix[task][task] for task in range(last))
    return _mean(changes) if changes else None


def forward_transfer(next_accuracy: Sequence[float], untrained: Sequence[float]) -> float | None:
    """FWT = mean over i = 2…T of R[i−1][i] − b[i] (GEM, 2017); None with one task.

    Both sequences are for the tasks 2…T: `next_accuracy` on the task just before learning it, `untrained` of
    the model that has learned nothing.

    >>> round(forward_transfer([0.3, 0.5], [0.1, 0.2]), 6)
    0.25
    """
    if len(next_accuracy) != len(untrained):
        raise SelfReminderError(
            f"{len(next_accuracy)} accuracies before learning, {len(untrained)} of the untrained model: "
            "give both for tasks 2 to T"
        )
    gains = [accuracy - before for accuracy, before in zip(next_accuracy, untrained)]
    return _mean(gains) if gains else None


def intransigence(matrix: Matrix, joint: Matrix) -> float:
    """I = mean over t of J[t][t] − R[t][t] (Chaudhry et al. 2018): how much worse a new task is learned.

    J is the matrix of joint training on the tasks 1…t.

    >>> round(intransigence([[0.9], [0.5, 0.6]], joint=[[0.9], [0.8, 0.8]]), 6)
    0.1
    """
    _same_tasks(matrix, joint)
    return _mean([joint[t][t] - matrix[t][t] for t in range(len(matrix))])


def rho(matrix: Matrix, joint: Matrix, chance: Sequence[float], *, growing: bool = False) -> list[float | None]:
    """HAT's forgetting ratio (Serrà et al. 2018) after each task: 0 is as good as joint training, −1 is guessing.

    ρ[t] = mean over τ ≤ t of (R[t][τ] − c[τ]) / (J[t][τ] − c[τ]) − 1, with J the matrix of joint training on
    the tasks 1…t and c the accuracy of guessing, see `stratified_chance`. None for a t where J[t][τ] − c[τ] is
    less than 0.05 for some τ ≤ t: joint training is too near to guessing there for a ratio to mean anything.
    Where predictions choose among the classes of all tasks so far, `growing`, guessing is c[t] for every τ.

    >>> rho([[0.75], [0.5, 1.0]], joint=[[1.0], [1.0, 1.0]], chance=[0.5, 0.5])
    [-0.5, -0.5]
    """
    _same_tasks(matrix, joint)
    if len(chance) < len(matrix):
        raise SelfReminderError(f"{len(matrix)} tasks, chance for {len(chance)}: give it for every task")
    ratios: list[float | None] = []
    for t in range(len(matrix)):
        both = [task for task in range(t + 1) if not math.isnan(matrix[t][task] - joint[t][task])]
        guessed = {task: chance[t if growing else task] for task in both}
        margins = [joint[t][task] - guessed[task] for task in both]
        if min(margins) < 0.05 - 1e-9:  # in floating point 0.15 − 0.1 is a little less than 0.05
            ratios.append(None)
        else:
            ratios.append(_mean([(matrix[t][task] - guessed[task]) / of - 1 for task, of in zip(both, margins)]))
    return ratios


def stratified_chance(class_counts: Sequence[int]) -> float:
    """Accuracy of guessing each class as often as it occurs: Σ p[k]² with p[k] the share of class k.

    >>> stratified_chance([30, 10])
    0.625
    """
    total = sum(class_counts)
    if total <= 0:
        raise SelfReminderError("no samples in any class: there is nothing to guess")
    return sum(count * count for count in class_counts) / total**2


def negative_flips(before: Sequence[bool], after: Sequence[bool]) -> float:
    """Share of all items that were right before an update and are wrong after it.

    >>> negative_flips([True, True, False, False], [True, False, True, False])
    0.25
    """
    if len(before) != len(after):
        raise SelfReminderError(f"{len(before)} items before, {len(after)} after: give the same ones in order")
    return _mean([bool(was and not now) for was, now in zip(before, after)])


def calibration_error(right: Sequence[bool], confidence: Sequence[float], bins: int = 15) -> float:
    """ECE (Guo et al. 2017): how far confidence and accuracy are apart, in bins of one width, weighted by their items.

    >>> round(calibration_error([True, False, True, True], [0.9, 0.9, 0.6, 0.6]), 6)  # (2·.4 + 2·.4) / 4
    0.4
    """
    if len(right) != len(confidence) or not right:
        raise SelfReminderError(f"{len(right)} predictions with {len(confidence)} confidences: give one for each")
    gaps = [0.0] * bins
    for is_right, sure in zip(right, confidence):
        gaps[min(int(sure * bins), bins - 1)] += is_right - sure
    return math.fsum(map(abs, gaps)) / len(right)


def diagonal(confusion: Matrix) -> float:
    """The share of a confusion matrix that is on its diagonal: what is predicted right.

    >>> diagonal([[3, 1], [0, 4]])
    0.875
    """
    return math.fsum(row[k] for k, row in enumerate(confusion)) / math.fsum(map(math.fsum, confusion))


def mean_and_stderr(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard error of the mean; None for the latter with a single value.

    >>> mean_and_stderr([1.0, 3.0])
    (2.0, 1.0)
    """
    n, mean = len(values), _mean(values)
    if n < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n)


def t_interval(differences: Sequence[float], confidence: float = 0.95) -> tuple[float, float | None]:
    """Mean of differences paired by seed and the half width of its Student interval; None for it with one value.

    mean ± q·s/√n, with s the standard deviation (n − 1) and q the two-sided quantile for n − 1 degrees. The
    difference is significant at 1 − confidence where the half width is less than the mean's size.

    >>> mean, half_width = t_interval([0.01, 0.02, 0.03])
    >>> f"{mean:.3f} ± {half_width:.4f}"
    '0.020 ± 0.0248'
    """
    if not differences:
        raise SelfReminderError("no differences: run both methods with the same seeds")
    mean, stderr = mean_and_stderr(differences)
    if stderr is None:
        return mean, None
    return mean, student_quantile(confidence, len(differences) - 1) * stderr


@cache
def student_quantile(confidence: float, degrees: int) -> float:
    """The q for which |t| ≤ q with probability `confidence`, t of Student's distribution: two-sided.

    >>> round(student_quantile(0.95, 4), 4)
    2.7764
    """
    if not 0 < confidence < 1:
        raise SelfReminderError(f"confidence {confidence}: it must be between 0 and 1, as 0.95")
    if degrees < 1:
        raise SelfReminderError(f"{degrees} degrees of freedom: there must be one at least")
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        if _student_within(middle, degrees) < confidence:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan(low)


def _student_within(angle: float, degrees: int) -> float:
    """P(|t| ≤ √degrees · tan(angle)): the finite sums of Abramowitz & Stegun, 26.7.3 and 26.7.4."""
    odd = degrees % 2
    square = math.cos(angle) ** 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for k in range(2 + odd, degrees + 1, 2):
        total += term
        term *= square * (k - 1) / k
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total


def _measured(values: Iterable[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _mean(values: Sequence[float]) -> float:
    if not values:
        raise SelfReminderError("there is nothing to average")
    return math.fsum(values) / len(values)


def _same_tasks(matrix: Matrix, joint: Matrix) -> None:
    if len(matrix) != len(joint):
        raise SelfReminderError(
            f"the accuracies have {len(matrix)} tasks, those of joint {len(joint)}: run both on the same ones"
        )
