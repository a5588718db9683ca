"""Herding against its definition, evaluated for every candidate at every step."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from selfreminder import data, selection
from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks.models import build_model
from selfreminder.gradients.per_sample import Inputs
from selfreminder.selection import herding
from selfreminder.selection.base import Candidates
from selfreminder.selection.herding import herd, select

small_ints = st.integers(1, 3).flatmap(
    lambda d: st.lists(st.lists(st.integers(-3, 3), min_size=d, max_size=d), min_size=1, max_size=8)
)
seeds = st.integers(0, 10**6)


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def exactly(points: list[list[int]], literal: bool = False) -> list[int]:
    """All points by the definition with the linear kernel, in exact fractions."""
    mu = [Fraction(sum(column), len(points)) for column in zip(*points)]
    order: list[int] = []
    while len(order) < len(points):
        taken = [points[i] for i in order]
        k = len(order) + 1

        def objective(i: int, taken: list[list[int]] = taken, k: int = k) -> Fraction:
            x = points[i]
            if literal:
                target = [k * m - sum(p[j] for p in taken) for j, m in enumerate(mu)]
                return -sum((a * b for a, b in zip(x, target)), Fraction())
            mean = [Fraction(sum(p[j] for p in [*taken, x]), k) for j in range(len(mu))]
            return sum(((m - a) ** 2 for m, a in zip(mu, mean)), Fraction())

        order.append(min((i for i in range(len(points)) if i not in order), key=objective))
    return order


def by_kernel(kernel: Tensor, count: int) -> list[int]:
    """By the definition, ‖μ − mean‖² as the quadratic form of a whole kernel matrix; near ties to the first."""
    n, order = len(kernel), []
    while len(order) < count:
        objective = torch.full((n,), math.inf, dtype=torch.float64)
        for i in set(range(n)) - set(order):
            weight = torch.full((n,), 1 / n, dtype=torch.float64)
            weight[[*order, i]] -= 1 / (len(order) + 1)
            objective[i] = weight @ kernel @ weight
        order.append(int((objective <= objective.min() + 1e-13).nonzero()[0]))
    return order


def gaussian_matrix(x: Tensor, width: float) -> Tensor:
    distances = (x.double()[:, None] - x.double()).square().sum(2).sqrt()
    apart = sorted(d for i in range(len(x)) for d in distances[i, :i].tolist() if d > 0)
    median = apart[(len(apart) - 1) // 2] if apart else 1.0
    return torch.exp(-(distances**2) / (2 * (width * median) ** 2))


# The definition -----------------------------------------------------------------------------------------------


@given(small_ints, st.booleans())
def test_linear_is_exact_ties_included(points: list[list[int]], literal: bool) -> None:
    """Small whole numbers are full of ties and duplicates: of equals, the first."""
    x = torch.tensor(points)
    assert herd(x, len(x), literal=literal).tolist() == exactly(points, literal)


@given(small_ints, st.sampled_from([0.3, 1.0, 4.0]), st.booleans())
def test_gaussian_is_the_definition(points: list[list[int]], width: float, literal: bool) -> None:
    """With ties and duplicates; and it is the same literally, because all points have the same length."""
    x = torch.tensor(points)
    wanted = by_kernel(gaussian_matrix(x, width), len(x))
    assert herd(x, len(x), kernel="gaussian", width=width, literal=literal).tolist() == wanted


@given(seeds, st.integers(1, 25), st.integers(1, 6))
def test_real_numbers(seed: int, n: int, d: int) -> None:
    x = randn(seed, n, d)
    assert herd(x, n).tolist() == by_kernel(x.double() @ x.double().T, n)
    assert herd(x, n, kernel="gaussian").tolist() == by_kernel(gaussian_matrix(x, 1.0), n)


@given(seeds, st.sampled_from(herding.KERNELS), st.sampled_from([2.0**-40, 1.0, 2.0**40]))
def test_scale_and_origin_do_not_matter(seed: int, kernel: str, scale: float) -> None:
    """However far from 0 all points are: no precision is lost."""
    x = randn(seed, 30, 4).mul(2**16).round().double() / 2**16  # so that the sum below is exact
    assert torch.equal(herd((x + 2**20) * scale, 30, kernel=kernel), herd(x, 30, kernel=kernel))


@given(seeds, st.sampled_from(herding.KERNELS), st.booleans())
def test_the_order_of_the_rows_does_not_matter(seed: int, kernel: str, literal: bool) -> None:
    x = randn(seed, 30, 4)
    shuffle = torch.randperm(30, generator=torch.Generator().manual_seed(seed))
    order = herd(x, 12, kernel=kernel, literal=literal)
    assert torch.equal(shuffle[herd(x[shuffle], 12, kernel=kernel, literal=literal)], order)


@given(seeds, st.sampled_from(herding.KERNELS), st.integers(0, 40), st.booleans())
def test_a_shorter_herding_is_the_front_of_a_longer(seed: int, kernel: str, count: int, literal: bool) -> None:
    x = randn(seed, 30, 4)
    whole = herd(x, 30, kernel=kernel, literal=literal)
    assert sorted(whole.tolist()) == list(range(30))
    assert torch.equal(herd(x, count, kernel=kernel, literal=literal), whole[:count])


def test_equal_rows_are_taken_in_turn() -> None:
    for kernel in herding.KERNELS:
        assert herd(torch.full((40, 7), 0.1), 40, kernel=kernel).tolist() == list(range(40))
        twice = (randn(0, 50, 33).double() + 1e4).repeat(2, 1)
        order = herd(twice, 100, kernel=kernel)
        places = torch.argsort(order)
        assert bool((places[:50] < places[50:]).all())


@pytest.mark.parametrize("width", [1e-12, 1e12])
def test_a_width_beyond_all_sense_still_takes_each_row_once(width: float) -> None:
    assert sorted(herd(randn(0, 50, 33), 50, kernel="gaussian", width=width).tolist()) == list(range(50))


@pytest.mark.parametrize("chunk", [1, 70, 1000])
def test_pieces_of_the_kernel_matrix(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = randn(1, 30, 4)
    monkeypatch.setattr(herding, "_CHUNK", chunk)
    assert herd(x, 30, kernel="gaussian").tolist() == by_kernel(gaussian_matrix(x, 1.0), 30)


def test_the_median_of_many_rows_is_that_of_evenly_spaced_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(herding, "_MEDIAN_ROWS", 4)
    x = torch.tensor([[0.0], [50.0], [1.0], [60.0], [2.0], [70.0], [4.0], [80.0], [90.0]])  # rows 0, 2, 4, 6
    assert herding._median_distance(x.double()) == 2  # of 1, 1, 2, 2, 3, 4
    assert herding._median_distance(torch.zeros(3, 2)) == 1


# Real digits --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor]:
    """1,500 images (n, 28, 28) of 0 to 255, and their classes."""
    images = data.load("embedded-mnist")
    return torch.tensor(images.train_x[:1500]), torch.tensor(images.train_y[:1500]).long()


def candidates(inputs: Inputs, labels: Tensor, count: int, model: nn.Module | None = None, **changes: object):
    settings = {"logits_of": lambda model, batch: model(batch), "generator": torch.Generator(), **changes}
    return Candidates(inputs=inputs, labels=labels, count=count, model=model or nn.Identity(), **settings)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("literal", [False, True])
def test_the_first_digit(digits: tuple[Tensor, Tensor], literal: bool) -> None:
    """Of each class the nearest to the mean; literally, one of the most inked."""
    x, y = digits
    chosen = select(candidates(x, y, 1), literal=literal)
    assert y[chosen].tolist() == list(range(10))
    for digit, first in enumerate(chosen):
        members = (y == digit).nonzero().flatten()
        pixels = x[members].flatten(1).double()
        distance, along = (pixels - pixels.mean(0)).norm(dim=1), pixels @ pixels.mean(0)
        assert first == members[along.argmax() if literal else distance.argmin()]
        inked = (pixels.sum(1) < x[first].sum()).double().mean()
        assert inked > 0.95 if literal else inked < 0.8


@pytest.mark.parametrize("kernel", herding.KERNELS)
def test_the_mean_is_nearer_than_that_of_random_digits(digits: tuple[Tensor, Tensor], kernel: str) -> None:
    x, y = digits
    pixels = x[y == 3].flatten(1).double() / 255

    def distance(index: Tensor) -> float:
        return float((pixels[index].mean(0) - pixels.mean(0)).norm())

    generator = torch.Generator().manual_seed(0)
    at_random = [distance(torch.randperm(len(pixels), generator=generator)[:10]) for _ in range(100)]
    assert distance(herd(pixels, 10, kernel=kernel)) < min(at_random)


def test_each_class_for_itself(digits: tuple[Tensor, Tensor]) -> None:
    """`count` of each class, or all of a smaller one; a name with options is the same."""
    x, y = digits[0][:300], digits[1][:300]
    y = torch.cat([y, torch.tensor([11, 11])])
    x = torch.cat([x, x[:2]])
    wanted = [
        members[herd(x[members].flatten(1), 5, kernel="gaussian", width=2)]
        for members in ((y == label).nonzero().flatten() for label in (*range(10), 11))
    ]
    assert [len(part) for part in wanted] == [5] * 10 + [2]
    chosen = selection.find("herding:kernel=gaussian,width=2")(candidates(x, y, 5))
    assert torch.equal(chosen, torch.cat(wanted))


def test_inputs_of_any_shape_and_name() -> None:
    a, b, y = randn(0, 20, 3, 2), randn(1, 20), torch.arange(20) % 2
    joined = torch.cat([a.flatten(1), b[:, None]], 1)
    chosen = select(candidates({"a": a, "b": b}, y, 10))
    assert torch.equal(chosen, select(candidates(joined, y, 10)))
    assert not torch.equal(chosen, select(candidates(a, y, 10)))
    assert torch.equal(
        select(candidates((b * 9).long(), y, 10)), select(candidates((b * 9).long()[:, None].float(), y, 10))
    )


# Features -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [(10,), (10, 12, 10)])
def test_features_are_what_the_last_linear_layer_is_given(
    digits: tuple[Tensor, Tensor], heads: tuple[int, ...]
) -> None:
    """In several batches, at any head, and at several in one forward."""
    x, y = digits[0][:1100] / 255, digits[1][:1100]
    model = build_model("mnist-mlp", width=0.05, seed=0, heads=heads)
    with torch.no_grad():
        by_hand = model.body(x)
    last = len(heads) - 1
    each = torch.arange(512) % len(heads)
    calls = [
        lambda model, batch: model(batch, last),
        lambda model, batch: model(batch, each[: len(batch)], range(len(heads))),
    ]
    wanted = select(candidates(by_hand, y, 4))
    for call in calls:
        given = candidates(x, y, 4, model, logits_of=call)
        features = herding._find_points(given, "features")
        assert torch.allclose(features, by_hand, atol=1e-6)
        assert not features.requires_grad
        assert torch.equal(select(given, on="features"), wanted)
        assert torch.equal(select(given, on="body"), wanted)
    assert not torch.equal(wanted, select(candidates(x, y, 4)))


class Odd(nn.Module):
    """Several inputs, layers out of order, one of them called by keyword, dropout, a change in place."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)
        self.first = nn.Linear(4, 6)
        self.drop = nn.Dropout(0.9)
        self.both = nn.Identity()
        self.unused = nn.Linear(6, 3)
        self.rnn = nn.RNN(4, 2, batch_first=True)
        self.mean = nn.AdaptiveAvgPool1d(1)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        self.rnn(a[:, None])
        self.mean(a.T)
        hidden = self.first(a)
        features = self.both(self.drop(hidden.relu_() + b))
        return self.last(input=features)


def test_features_of_an_odd_model() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Odd()
    model.first.eval()
    inputs, y = {"a": randn(0, 30, 4), "b": randn(1, 30, 6)}, torch.arange(30) % 3
    given = candidates(inputs, y, 10, model, logits_of=lambda model, batch: model(**batch))
    with torch.no_grad():
        before = inputs["a"] @ model.first.weight.T + model.first.bias
    features = before.relu() + inputs["b"]
    for on, wanted in (("features", features), ("both", features), ("first", before)):
        assert torch.allclose(herding._find_points(given, on), wanted, atol=1e-6)
        assert torch.equal(select(given, on=on), select(candidates(wanted, y, 10)))
    for on, message in (
        ("unused", "the model does not call layer 'unused'"),
        ("rnn", "the output of layer 'rnn' is a tuple, no tensor"),
        ("mean", r"layer 'mean' has the shape \(4, 1\) for 30 items"),
        ("frist", "unknown layer 'frist': did you mean 'first'"),
        ("", "unknown layer ''"),
    ):
        with pytest.raises(SelfReminderError, match=message):
            select(given, on=on)
    assert model.training and model.drop.training and not model.first.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_layers_that_have_numbers_for_names() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(inplace=True), nn.Flatten())
    x, y = randn(0, 20, 1, 5, 5), torch.zeros(20)
    given = candidates(x, y, 5, model)
    with torch.no_grad():
        wanted = select(candidates(model[0](x), y, 5))
    assert torch.equal(selection.find("herding:on=0")(given), wanted)
    with pytest.raises(SelfReminderError, match="write the layer's name in quotes"):
        selection.find("herding:on=1.10")(given)
    with pytest.raises(SelfReminderError, match="calls no Linear layer"):
        select(given, on="features")


# Mistakes -----------------------------------------------------------------------------------------------------


def test_mistakes() -> None:
    given = candidates(randn(0, 6, 2), torch.zeros(6), 2)
    for text, message in (
        ("herding:kernel=gausian", "unknown kernel 'gausian': did you mean 'gaussian'"),
        ("herding:width=0", "width is 0: it must be a number above 0"),
        ("herding:width=wide", "width is 'wide'"),
        ("herding:literal=false", "literal is 'false': it must be True or False"),
        ("herding:kernels=linear", "unknown option of herding 'kernels': did you mean 'kernel'"),
    ):
        with pytest.raises(SelfReminderError, match=message):
            selection.find(text)(given)
    for width in (-1.0, math.inf, math.nan):
        with pytest.raises(SelfReminderError, match="number above 0"):
            herd(torch.zeros(2, 2), 1, width=width)
    for bad in (math.nan, math.inf):
        for kernel in herding.KERNELS:
            with pytest.raises(SelfReminderError, match="not finite"):
                herd(torch.tensor([[0.0], [bad], [1.0]]), 1, kernel=kernel)
    assert herd(torch.empty(0, 3), 2).tolist() == []
