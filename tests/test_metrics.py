import math

import pytest

from selfreminder.metrics import first_task, forgetting, mean_and_stderr, task_average

MATRIX = [[0.9], [0.6, 0.8], [0.7, 0.5, 0.9], [0.4, 0.6, 0.8, 1.0]]


def test_by_hand() -> None:
    assert task_average(MATRIX) == pytest.approx([0.9, 0.7, 0.7, 0.7])
    assert first_task(MATRIX) == [0.9, 0.6, 0.7, 0.4]
    # best before the last task: .9, .8, .9; at the end: .4, .6, .8
    assert forgetting(MATRIX) == pytest.approx((0.5 + 0.2 + 0.1) / 3)
    assert forgetting(MATRIX[:1]) is None


def test_a_task_that_got_better_counts_as_negative_forgetting() -> None:
    assert forgetting([[0.5], [0.7, 0.9]]) == pytest.approx(-0.2)


def test_standard_error() -> None:
    mean, error = mean_and_stderr([1.0, 2.0, 3.0, 6.0])
    assert mean == 3.0
    assert error == pytest.approx(math.sqrt(14 / 3 / 4))
    assert mean_and_stderr([2.0]) == (2.0, None)
