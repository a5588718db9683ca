import json
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from selfreminder.memory.fingerprint import Fingerprint, model_fingerprint, transform_fingerprint


class Compiled(nn.Module):
    """Wraps a model as torch.compile does."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._orig_mod = model


def network(width: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.Linear(width, 2))


# Models ---------------------------------------------------------------------------------------------------


def test_a_model_is_known_by_its_layers_not_by_its_weights() -> None:
    known = model_fingerprint(network())
    assert model_fingerprint(network()) == known
    assert len(known) == 16
    others = [network(5), network().half(), nn.Sequential(*network(), nn.Linear(2, 2)), nn.Sequential(network())]
    assert len({known, *map(model_fingerprint, others)}) == 5


def test_the_order_of_layers_in_the_code_makes_no_difference() -> None:
    one, other = nn.Module(), nn.Module()
    one.a, one.b = nn.Linear(1, 2), nn.Linear(3, 4)
    other.b, other.a = nn.Linear(3, 4), nn.Linear(1, 2)
    assert model_fingerprint(one) == model_fingerprint(other)


def test_wrappers_make_no_difference() -> None:
    known = model_fingerprint(network())
    inside = network()
    inside[0] = Compiled(inside[0])
    for wrapped in (nn.DataParallel(network()), Compiled(network()), Compiled(nn.DataParallel(network())), inside):
        assert model_fingerprint(wrapped) == known


def test_only_what_a_checkpoint_holds_counts() -> None:
    model = network()
    known = model_fingerprint(model)
    model.register_buffer("cache", torch.zeros(3), persistent=False)
    assert model_fingerprint(model) == known
    model.register_buffer("scale", torch.zeros(3))
    assert model_fingerprint(model) != known
    model.set_extra_state = model.get_extra_state = lambda *_: "no tensor"
    assert len(model_fingerprint(model)) == 16


# Transforms -----------------------------------------------------------------------------------------------


def scaled(x: Tensor, by: float = 255.0, *, shift: float = 0.0) -> Tensor:
    """To [0, 1]."""
    return x.float() / by + shift


def also_scaled(x: Tensor, by: float = 255.0, *, shift: float = 0.0) -> Tensor:
    """Another name and docstring."""
    return x.float() / by + shift


def centred(mean: object) -> object:
    return lambda x: x - mean


def grey(weights: bool) -> object:
    if weights:
        return lambda x: [channel * 0.3 for channel in x if channel in ("r", "g")]
    return lambda x: [channel * 0.3 for channel in x if channel in ("r", "b")]


def nested(factor: float) -> object:
    def outer(x: Tensor) -> Tensor:
        def inner(y: Tensor) -> Tensor:
            return outer(y) * factor if y.numel() > 9 else y

        return inner(x)

    return outer


class Plain:
    def __init__(self, by: int = 1) -> None:
        self.by = by

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.by


class Shown(Plain):
    def __repr__(self) -> str:
        return f"Shown({self.by}) at 0x{id(self):x}"


MEANS = torch.tensor([0.5, 0.4])
DIFFERENT = [
    scaled,
    also_scaled,
    partial(scaled, by=2.0),
    partial(scaled, by=3.0),
    partial(scaled, 2.0),
    lambda x: x / 255,
    lambda x: x / 127,
    lambda x: x.div(255),
    lambda x: (x - 3) / 5,
    lambda x: (x - 5) / 3,
    lambda x: x.mean(dim=1),
    lambda x: x.mean(axis=1),
    lambda x: x[:, 1:3],
    lambda x: x[:, 1:4],
    centred(0.5),
    centred([0.5, 0.4]),
    centred([0.5, 0.3]),
    centred([torch.sin]),
    centred(MEANS),
    centred(MEANS + 1),
    centred(MEANS.double().numpy()),
    centred(np.zeros(1000)),
    centred(np.zeros(1001)),
    centred(scaled),
    centred(torch.float16),
    centred({"r": 1}),
    centred({1, 2}),
    grey(True),
    grey(False),
    nested(2.0),
    nested(3.0),
    torch.tanh,
    torch.sin,
    Tensor.float,
    Plain(),
    Plain().__call__,
    Shown(1),
    Shown(2),
    nn.Flatten(),
    nn.Sequential(nn.Flatten(), nn.ReLU()),
]


def test_transforms_that_differ_have_different_fingerprints() -> None:
    prints = [transform_fingerprint(each) for each in DIFFERENT]
    assert len(set(prints)) == len(prints)
    assert prints == [transform_fingerprint(each) for each in DIFFERENT]
    assert transform_fingerprint(None) == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x / 255, lambda x: x / 255),
        (lambda x: x / 255, lambda image: image / 255),
        (Shown(1), Shown(1)),
        (Plain(1), Plain(2)),  # nothing shows what it is inside
        (centred(MEANS), centred(MEANS.clone())),
        (centred(Plain()), centred(Plain())),
        (nested(2.0), nested(2.0)),
        (partial(scaled, by=2.0, shift=1.0), partial(scaled, shift=1.0, by=2.0)),
    ],
)
def test_transforms_that_are_alike(one: object, other: object) -> None:
    assert transform_fingerprint(one) == transform_fingerprint(other)


def test_neither_the_place_of_a_function_nor_its_docstring_counts() -> None:
    class Elsewhere:
        @staticmethod
        def scaled(x: Tensor, by: float = 255.0, *, shift: float = 0.0) -> Tensor:
            """Moved."""
            return x.float() / by + shift

    assert transform_fingerprint(Elsewhere.scaled) == transform_fingerprint(scaled)


def test_what_a_transform_changes_itself_does_not_count() -> None:
    shapes: list[torch.Size] = []
    cache: dict[int, Tensor] = {}
    calls = 0

    def first(x: Tensor) -> Tensor:
        shapes.append(x.shape)
        return x

    def second(x: Tensor) -> Tensor:
        cache[len(x)] = x
        return x

    def third(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return x

    for transform in (first, second, third):
        before = transform_fingerprint(transform)
        transform(torch.zeros(2))
        assert transform_fingerprint(transform) == before
    assert (len(shapes), len(cache), calls) == (1, 1, 1)


def test_fingerprints_are_the_same_in_every_process() -> None:
    """Written down: neither addresses nor the order of sets, which every process has its own of, come in."""
    assert transform_fingerprint(partial(scaled, by=2.0)) == "978fe693e0c11f03"
    assert transform_fingerprint(grey(True)) == "7d1d59f2b51a3475"
    assert transform_fingerprint(lambda x: x in {"r", "g", "b", "h", "s", "v"}) == "33643ec8842d9d4b"
    assert model_fingerprint(network()) == "f5cc93e803768ef4"


# Recorders ------------------------------------------------------------------------------------------------


@pytest.fixture
def fingerprint() -> Fingerprint:
    inputs = {"x": torch.zeros(7, 3), "mask": torch.zeros(7, 5, 5, dtype=torch.bool)}
    return Fingerprint.of(network(), inputs, classes=2, transform=scaled)


def test_no_differences(fingerprint: Fingerprint) -> None:
    again = Fingerprint.of(
        nn.DataParallel(network()), {"mask": torch.ones(1, 5, 5) > 0, "x": torch.ones(1, 3)}, 2, transform=scaled
    )
    assert fingerprint.differences(again) == []


def test_differences_in_words(fingerprint: Fingerprint) -> None:
    inputs = {"x": torch.zeros(1, 4, dtype=torch.uint8), "lengths": torch.zeros(1)}
    now = Fingerprint.of(network(9), inputs, classes=20)
    assert fingerprint.differences(now) == [
        "it holds 2 logits an item, the model gives 20",
        "it was recorded by a model with other layers, shapes or dtypes "
        f"(fingerprint {fingerprint.model}, now {now.model})",
        f"it was recorded with transform {fingerprint.transform}, now there is no transform",
        "input 'x' had the shape (3,), now (4,)",
        "input 'x' was float32, now uint8",
        "input 'mask' is there no more",
        "input 'lengths' is new",
    ]
    assert f"with no transform, now there is transform {fingerprint.transform}" in now.differences(fingerprint)[2]


def test_json(fingerprint: Fingerprint) -> None:
    assert Fingerprint.from_facts(json.loads(json.dumps(fingerprint.facts))) == fingerprint
