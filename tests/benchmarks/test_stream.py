import re
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from selfreminder import data
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks.color_cifar10 import recolour_images
from selfreminder.benchmarks.mixture import mix_data_sets
from selfreminder.benchmarks.nonlinear_mnist import SLOPE, apply_layers, distort_pixels, orthogonal_weights
from selfreminder.benchmarks.permuted_mnist import permute_pixels
from selfreminder.benchmarks.stream import Parts, Stream, image_parts, split_classes


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
    a, b = (permute_pixels(image_parts(images, seed=s, count=100).flatten(), tasks=1, seed=s)[0].train for s in (0, 1))
    assert not torch.equal(a.x, b.x)


def test_parts_are_stratified_and_apart() -> None:
    images = data.load("embedded-mnist")
    parts = image_parts(images, seed=3, count=1000).flatten()
    assert torch.bincount(parts.train.y).tolist() == [90] * 10
    assert torch.bincount(parts.validation.y).tolist() == [10] * 10
    assert len(parts.test) == 2000
    assert len(torch.cat([parts.train.x, parts.validation.x]).unique(dim=0)) == 1000
    assert torch.equal((parts.train.x * 255).round() / 255, parts.train.x)


@pytest.mark.parametrize("fraction", [0.01, 0.99])
def test_both_parts_have_items_of_every_class(fraction: float) -> None:
    parts = image_parts(data.load("embedded-mnist"), seed=0, count=100, validation=fraction).flatten()
    counts = sorted((min(part.y.bincount().tolist()), len(part)) for part in (parts.train, parts.validation))
    assert counts == [(1, 10), (9, 90)]


def test_bad_input(digits: Stream) -> None:
    with pytest.raises(SelfReminderError, match="7000 training images were asked for, the data has 6000"):
        image_parts(data.load("embedded-mnist"), seed=0, count=7000).flatten()
    with pytest.raises(SelfReminderError, match="10 training images leave none for validation"):
        image_parts(data.load("embedded-mnist"), seed=0, count=10).flatten()
    with pytest.raises(SelfReminderError, match="0 tasks"):
        permute_pixels(digits[0].parts, tasks=0, seed=0)
    with pytest.raises(IndexError):
        digits[3]


def images(name: str, count: int | None = None) -> Parts:
    return image_parts(data.load(name), seed=0, count=count)


def test_nonlinear_is_invertible() -> None:
    """Undoing scale, leaky ReLUs and rotations gives the image back; test images use the training images' scale."""
    parts = image_parts(data.load("embedded-mnist"), seed=0, count=500).flatten()
    task = distort_pixels(parts, tasks=2, seed=4)[1]
    assert task.train.x.min() == 0
    assert task.train.x.max() == 1
    weights = orthogonal_weights(784, layers=4, generator=torch.Generator().manual_seed(seed_for(4, "transformer", 1)))
    low, high = apply_layers(parts.train.x, weights).aminmax()
    for given, plain in ((task.train.x, parts.train.x), (task.test.x, parts.test.x)):
        x = given.double() * (high - low) + low
        for weight in reversed(weights):
            x = torch.where(x < 0, x / SLOPE, x) @ weight.double()
        assert (x - plain).abs().max() < 1e-4


def test_nonlinear_tasks_differ_and_are_computed_once() -> None:
    parts = image_parts(data.load("embedded-mnist"), seed=0, count=100).flatten()
    stream = distort_pixels(parts, tasks=2, seed=0)
    task = stream[0]
    assert task.train is task.train
    assert torch.equal(task.train.x, stream[0].train.x)
    assert not torch.allclose(task.train.x, stream[1].train.x, atol=0.1)
    with_test = task.test.x
    assert with_test.min() > -0.5
    assert with_test.max() < 1.5


def test_nonlinear_tasks_are_scaled_once_however_often_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = image_parts(data.load("embedded-mnist"), seed=0, count=100).flatten()
    stream, sizes = distort_pixels(parts, tasks=2, seed=0), []
    monkeypatch.setattr(
        "selfreminder.benchmarks.nonlinear_mnist.apply_layers",
        lambda x, weights: sizes.append(len(x)) or apply_layers(x, weights),
    )
    assert torch.equal(stream[1].validation.x, stream[1].validation.x)
    assert sizes == [90, 10, 10]


def test_recoloured() -> None:
    stream = recolour_images(images("generated-10"))
    assert [task.name for task in stream] == ["rgb", "yiq", "yuv", "hsv", "hed"]
    rgb, yuv = stream[0].train.x, stream[2].train.x
    grey = 0.299 * rgb[:, 0] + 0.587 * rgb[:, 1] + 0.114 * rgb[:, 2]
    torch.testing.assert_close(yuv[:, 0], grey, rtol=0, atol=1e-5)
    assert stream.heads == (10,)
    with pytest.raises(SelfReminderError, match="there are 5 colour spaces"):
        recolour_images(images("generated-10"), tasks=6)


def test_split_partitions_the_classes() -> None:
    parts = images("generated-100")
    stream = split_classes(parts, tasks=10, seed=0, classes=100)
    assert stream.heads == (10,) * 10
    seen = []
    for index, task in enumerate(stream):
        assert task.head == task.index == index
        assert sorted(task.train.y.unique().tolist()) == list(range(10))
        classes = [int(name) for name in task.name.removeprefix("classes ").split(", ")]
        rows = torch.isin(parts.test.y, torch.tensor(classes)).nonzero().flatten()
        assert torch.equal(task.test.x, parts.test.x[rows])
        assert [classes[y] for y in task.test.y] == parts.test.y[rows].tolist()
        seen += classes
    assert sorted(seen) == list(range(100))
    assert split_classes(parts, tasks=10, seed=1, classes=100)[0].name != stream[0].name
    with pytest.raises(SelfReminderError, match="do not divide into 7 tasks"):
        split_classes(parts, tasks=7, seed=0, classes=100)
    with pytest.raises(SelfReminderError, match="100 tasks of 100 classes have one each"):
        split_classes(parts, tasks=100, seed=0, classes=100)
    with pytest.raises(SelfReminderError, match=r"task \d+ has no validation images"):
        split_classes(images("generated-100", 101), tasks=10, seed=0, classes=100)  # two of one class only


def test_mixture_is_all_rgb() -> None:
    sets = [("digits", images("embedded-mnist", 100), 10), ("made", images("generated-100"), 100)]
    orders = {tuple(task.name for task in mix_data_sets(sets, seed=seed)) for seed in range(10)}
    assert orders == {("digits", "made"), ("made", "digits")}
    stream = mix_data_sets(sets, seed=0)
    assert sorted(stream.heads) == [10, 100]
    for task in stream:
        assert task.train.x.shape[1:] == (3, 32, 32)
        assert stream.heads[task.index] == task.classes
    (digits,) = (task for task in stream if task.name == "digits")
    assert torch.equal(digits.train.x[:, 1, 2:30, 2:30], sets[0][1].train.x)


X, Y = torch.rand(40, 4, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2


@pytest.mark.parametrize(
    "task",
    [
        (X.numpy(), Y.numpy()),
        (X.double().numpy()[::-1][::-1], Y.tolist()),
        (X.tolist(), tuple(Y.tolist())),
        [X, Y.numpy().astype(np.uint8)],
        TensorDataset(X, Y),
    ],
)
def test_arrays_lists_and_data_sets_are_as_tensors(task: Any) -> None:
    digest = Stream.of([(X, Y)]).digest()
    assert Stream.of([task]).digest() == digest
    parted = Stream.of([(TensorDataset(X, Y), TensorDataset(X[:7], Y[:7]))])[0]
    assert torch.equal(parted.test.x, X[:7])


def with_value(value: float) -> torch.Tensor:
    x = X.clone()
    x[3, 1] = value
    return x


@pytest.mark.parametrize(
    ("tasks", "names", "message"),
    [
        ([(X, ["a", "b"] * 20)], None, "task 1: labels are whole numbers (n,), one for each of the n inputs"),
        ([(X, np.array(["a", "b"] * 20))], ["shop"], "shop: labels are whole numbers"),
        ([(X, Y[:30])], None, "task 1: labels are whole numbers"),
        ([([[1.0, 2.0], [3.0]], [0, 1])], None, "task 1: inputs are numbers (n, …), as a tensor or an array"),
        ([X, Y], None, "task 1 is a Tensor: give (x, y), or ((x, y), (x, y)) with a test part, or a data set"),
        ([(X, Y), (X, Y, Y)], None, "task 2 is a tuple: give (x, y)"),
        ([TensorDataset(X)], None, "task 1 is a list: give (x, y)"),
        ([[object()]], None, "task 1 is a list: give (x, y)"),
        ([(X, Y), (X[:, :3], Y)], ["a", "b"], "an input of a has the shape (4,), one of b (3,): give all the same"),
        ([((X, Y), (X[:, :3], Y))], None, "an input of task 1 has the shape (4,), one of task 1 (3,)"),
        ([(X, Y), (with_value(float("nan")), Y)], None, "task 2: input 3 is not finite (NaN or inf)"),
        ([(with_value(float("-inf")), Y)], None, "task 1: input 3 is not finite"),
        ([(X, Y), (X, Y)], ["a", "a"], "two tasks have the name 'a': give each one of its own"),
        ([], None, "a stream of no tasks"),
    ],
)
def test_what_makes_no_stream_is_said(tasks: Any, names: list[str] | None, message: str) -> None:
    with pytest.raises(SelfReminderError, match=re.escape(message)) as error:
        Stream.of(tasks, names=names)
    assert "\n" not in str(error.value)


def test_a_data_set_that_raises_is_named() -> None:
    class Broken(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            raise KeyError(index)

    with pytest.raises(SelfReminderError, match=r"task 1: its data set gives no .* KeyError: 0"):
        Stream.of([Broken(X, Y)])
