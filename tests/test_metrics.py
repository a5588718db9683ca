import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreminder._base.errors import SelfReminderError
from selfreminder.metrics import (
    backward_transfer,
    first_task,
    forgetting,
    forward_transfer,
    intransigence,
    mean_and_stderr,
    negative_flips,
    rho,
    stratified_chance,
    student_quantile,
    t_interval,
    task_average,
)

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


def test_backward_transfer_compares_the_end_with_when_it_was_learned() -> None:
    # just learned: .9, .8, .9; at the end: .4, .6, .8. The last task itself does not count.
    assert backward_transfer(MATRIX) == pytest.approx((-0.5 - 0.2 - 0.1) / 3)
    # The best came between: forgetting sees it, backward transfer does not.
    between = [[0.5], [0.9, 0.6], [0.7, 0.6, 0.1]]
    assert backward_transfer(between) == pytest.approx(0.1)
    assert forgetting(between) == pytest.approx(0.1)
    assert backward_transfer([[0.5], [0.25, 0.9]]) == -0.25
    assert backward_transfer([[0.5]]) is None
    assert backward_transfer([]) is None


def test_forward_transfer() -> None:
    # tasks 2, 3, 4: .25 − .125, .5 − .125, .125 − .25
    assert forward_transfer([0.25, 0.5, 0.125], [0.125, 0.125, 0.25]) == (0.125 + 0.375 - 0.125) / 3
    assert forward_transfer([0.1], [0.3]) == pytest.approx(-0.2)
    assert forward_transfer([], []) is None
    with pytest.raises(SelfReminderError, match="1 accuracies before learning, 2 of the untrained model"):
        forward_transfer([0.1], [0.1, 0.2])


JOINT = [[0.9], [0.9, 0.9], [0.8, 0.9, 0.95], [0.9, 0.9, 0.9, 0.9]]


def test_intransigence_compares_each_task_when_it_was_learned() -> None:
    # joint's diagonal: .9, .9, .95, .9; the method's: .9, .8, .9, 1
    assert intransigence(MATRIX, JOINT) == pytest.approx((0 + 0.1 + 0.05 - 0.1) / 4)
    assert intransigence([[0.5]], [[0.75]]) == 0.25
    assert intransigence(MATRIX, MATRIX) == 0
    with pytest.raises(SelfReminderError, match="4 tasks, those of joint 3"):
        intransigence(MATRIX, JOINT[:3])
    with pytest.raises(SelfReminderError, match="nothing to average"):
        intransigence([], [])


def test_rho_by_hand() -> None:
    matrix = [[0.6], [0.35, 0.7], [0.1, 0.9, 0.5]]
    joint = [[0.6], [0.6, 0.8], [0.5, 0.6, 0.9]]
    chance = [0.1, 0.5, 0.1]
    first = 0.0  # (.6 − .1) / (.6 − .1) − 1
    second = ((0.25 / 0.5 - 1) + (0.2 / 0.3 - 1)) / 2
    third = ((0.0 / 0.4 - 1) + (0.4 / 0.1 - 1) + (0.4 / 0.8 - 1)) / 3  # better than joint on the second
    assert rho(matrix, joint, chance) == pytest.approx([first, second, third])
    assert third > 0 > second


def test_rho_of_joint_is_0_and_of_chance_is_minus_1() -> None:
    chance = [0.1, 0.2, 0.5, 0.1]
    assert rho(JOINT, JOINT, chance) == [0, 0, 0, 0]
    guessing = [chance[: t + 1] for t in range(4)]
    assert rho(guessing, JOINT, chance) == [-1, -1, -1, -1]


def test_rho_is_undefined_where_joint_hardly_beats_chance() -> None:
    matrix = [[0.9], [0.9, 0.9], [0.9, 0.9, 0.9]]
    joint = [[0.5], [0.5, 0.149], [0.5, 0.15, 0.5]]
    ratios = rho(matrix, joint, [0.1, 0.1, 0.1, 0.1])
    assert ratios[0] == pytest.approx(0.8 / 0.4 - 1)
    assert ratios[1] is None
    assert ratios[2] == pytest.approx((2 * (0.8 / 0.4 - 1) + (0.8 / 0.05 - 1)) / 3)  # 5 points are just enough
    assert rho([[0.5]], [[0.1]], [0.1]) == [None]
    assert rho([[0.5]], [[0.05]], [0.1]) == [None]


def test_rho_needs_joint_and_chance_of_every_task() -> None:
    with pytest.raises(SelfReminderError, match="4 tasks, those of joint 3"):
        rho(MATRIX, JOINT[:3], [0.1] * 4)
    with pytest.raises(SelfReminderError, match="4 tasks, chance for 3"):
        rho(MATRIX, JOINT, [0.1] * 3)


def test_stratified_chance() -> None:
    assert stratified_chance([100] * 10) == pytest.approx(0.1)
    assert stratified_chance([7]) == 1
    assert stratified_chance([1, 2, 1]) == 0.375
    assert stratified_chance([5, 0, 5]) == 0.5
    with pytest.raises(SelfReminderError, match="no samples"):
        stratified_chance([0, 0])


def test_negative_flips() -> None:
    before = [True, True, True, False, False]
    assert negative_flips(before, [True, False, False, True, False]) == 0.4  # of all five items
    assert negative_flips(before, before) == 0
    assert negative_flips([False, False], [True, True]) == 0
    assert negative_flips([True, True], [False, False]) == 1
    with pytest.raises(SelfReminderError, match="5 items before, 1 after"):
        negative_flips(before, [True])
    with pytest.raises(SelfReminderError, match="nothing to average"):
        negative_flips([], [])


@pytest.mark.parametrize(
    ("confidence", "degrees", "table"),
    [
        (0.95, 1, 12.7062),
        (0.95, 2, 4.3027),
        (0.95, 3, 3.1824),
        (0.95, 4, 2.7764),
        (0.95, 5, 2.5706),
        (0.95, 9, 2.2622),
        (0.95, 10, 2.2281),
        (0.95, 29, 2.0452),
        (0.95, 30, 2.0423),
        (0.95, 120, 1.9799),
        (0.90, 4, 2.1318),
        (0.99, 1, 63.6567),
        (0.99, 4, 4.6041),
        (0.99, 9, 3.2498),
        (0.999, 5, 6.8688),
        (0.50, 1, 1.0),
        (0.95, 100_000, 1.9600),
    ],
)
def test_student_quantiles_of_the_table(confidence: float, degrees: int, table: float) -> None:
    assert student_quantile(confidence, degrees) == pytest.approx(table, abs=1e-4)


@given(st.floats(0.001, 0.9999))
def test_student_quantiles_in_closed_form(confidence: float) -> None:
    assert student_quantile(confidence, 1) == pytest.approx(math.tan(math.pi * confidence / 2))
    assert student_quantile(confidence, 2) == pytest.approx(confidence * math.sqrt(2 / (1 - confidence**2)))


@pytest.mark.parametrize(("confidence", "degrees"), [(0.0, 3), (1.0, 3), (95, 3), (math.nan, 3), (0.95, 0)])
def test_student_quantiles_that_do_not_exist(confidence: float, degrees: int) -> None:
    with pytest.raises(SelfReminderError):
        student_quantile(confidence, degrees)


def test_t_interval() -> None:
    mean, half_width = t_interval([1.0, 2.0, 3.0, 6.0])
    assert mean == 3.0
    assert half_width == pytest.approx(3.182446 * math.sqrt(14 / 3 / 4), abs=1e-4)  # 3 degrees
    assert t_interval([1.0, 3.0], confidence=0.5) == (2.0, pytest.approx(1.0))
    assert t_interval([-0.5, -0.5, -0.5]) == (-0.5, 0.0)
    assert t_interval([2.0]) == (2.0, None)
    with pytest.raises(SelfReminderError, match="same seeds"):
        t_interval([])
