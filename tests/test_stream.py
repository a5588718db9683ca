import pytest
import torch

from selfreminder import data
from selfreminder.errors import SelfReminderError
from selfreminder.stream import Stream, flat_parts, permuted


def test_permutations_are_permutations(digits: Stream) -> None:
    """The same pixels in another order: one order for all images of a task, another for each task."""
    first, second = digits[0].train.x, digits[1].train.x
    assert torch.equal(first.sort(1).values, second.sort(1).values)
    assert not torch.equal(first, second)
    columns = [sorted(tuple(column.tolist()) for column in x.T) for x in (first, second)]
    assert columns[0] == columns[1]


def test_a_task_is_the_same_each_time_and_for_all_parts(digits: Stream) -> None:
    task, again = digits[1], digits[1]
    assert torch.equal(task.test.x, again.test.x)
    order = task.transform(torch.arange(784.0)[None])[0].long()
    for part, plain in ((task.train, task.parts.train), (task.test, task.parts.test)):
        assert torch.equal(part.x, plain.x[:, order])
        assert torch.equal(part.y, plain.y)


def test_seeds_differ() -> None:
    images = data.load("embedded-mnist")
    a, b = (permuted(flat_parts(images, seed=s, count=100), tasks=1, seed=s)[0].train for s in (0, 1))
    assert not torch.equal(a.x, b.x)


def test_parts_are_stratified_and_apart() -> None:
    images = data.load("embedded-mnist")
    parts = flat_parts(images, seed=3, count=1000)
    assert torch.bincount(parts.train.y).tolist() == [90] * 10
    assert torch.bincount(parts.validation.y).tolist() == [10] * 10
    assert len(parts.test) == 2000
    assert len(torch.cat([parts.train.x, parts.validation.x]).unique(dim=0)) == 1000
    assert torch.equal((parts.train.x * 255).round() / 255, parts.train.x)


def test_bad_input(digits: Stream) -> None:
    with pytest.raises(SelfReminderError, match="7000 training images were asked for, the data has 6000"):
        flat_parts(data.load("embedded-mnist"), seed=0, count=7000)
    with pytest.raises(SelfReminderError, match="0 tasks"):
        permuted(digits[0].parts, tasks=0, seed=0)
    with pytest.raises(IndexError):
        digits[3]
