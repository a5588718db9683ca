import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder.memory.file import open_memory, save_memory
from selfreminder.memory.fingerprint import (
    Fingerprint,
    Outputs,
    are_close,
    digest_transform,
    find_staleness,
    fingerprint_model,
)
from selfreminder.memory.memory import Memory
from selfreminder.reminder.reminder import Reminder


class Compiled(nn.Module):
    """Wraps a model as torch.compile does."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._orig_mod = model


def network(width: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.Linear(width, 2))


# Models ---------------------------------------------------------------------------------------------------


def test_a_model_is_known_by_its_layers_not_by_its_weights() -> None:
    known = fingerprint_model(network())
    assert fingerprint_model(network()) == known
    assert len(known) == 16
    others = [network(5), network().half(), nn.Sequential(*network(), nn.Linear(2, 2)), nn.Sequential(network())]
    assert len({known, *map(fingerprint_model, others)}) == 5


def test_the_order_of_layers_in_the_code_makes_no_difference() -> None:
    one, other = nn.Module(), nn.Module()
    one.a, one.b = nn.Linear(1, 2), nn.Linear(3, 4)
    other.b, other.a = nn.Linear(3, 4), nn.Linear(1, 2)
    assert fingerprint_model(one) == fingerprint_model(other)


def test_wrappers_make_no_difference() -> None:
    known = fingerprint_model(network())
    inside = network()
    inside[0] = Compiled(inside[0])
    for wrapped in (nn.DataParallel(network()), Compiled(network()), Compiled(nn.DataParallel(network())), inside):
        assert fingerprint_model(wrapped) == known


def test_only_what_a_checkpoint_holds_counts() -> None:
    model = network()
    known = fingerprint_model(model)
    model.register_buffer("cache", torch.zeros(3), persistent=False)
    assert fingerprint_model(model) == known
    model.register_buffer("scale", torch.zeros(3))
    assert fingerprint_model(model) != known
    model.set_extra_state = model.get_extra_state = lambda *_: "no tensor"
    assert len(fingerprint_model(model)) == 16


# Transforms -----------------------------------------------------------------------------------------------

ITEM = {"x": (torch.arange(48).reshape(1, 3, 4, 4) * 37 % 256).to(torch.uint8)}


def digest(transform: Callable[[Any], Any], inputs: dict[str, Tensor] = ITEM) -> Outputs:
    return digest_transform(transform, inputs)


def differ(one: Any, other: Any, inputs: dict[str, Tensor] = ITEM) -> bool:
    return not are_close(digest(one, inputs), digest(other, inputs))


def scaled(x: Tensor, by: float = 255.0, *, shift: float = 0.0) -> Tensor:
    """To [0, 1]."""
    return x.float() / by + shift


def also_scaled(x: Tensor, by: float = 255.0, *, shift: float = 0.0) -> Tensor:
    """Another name and docstring."""
    return x.float() / by + shift


def centred(mean: Any) -> Any:
    return lambda x: x.float() - mean


def nested(factor: float) -> Any:
    def outer(x: Tensor) -> Tensor:
        def inner(y: Tensor) -> Tensor:
            return outer(y[..., 0]) * factor if y.ndim > 2 else y.float()

        return inner(x)

    return outer


class Plain:
    def __init__(self, by: float = 1) -> None:
        self.by = by

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.by


class Normalise(nn.Module):
    def __init__(self, mean: float) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean))

    def forward(self, x: Tensor) -> Tensor:
        return x.float() / 255 - self.mean


MEANS = torch.tensor([0.5, 0.4, 0.3])[:, None, None]
DIFFERENT = [
    scaled,
    partial(scaled, by=2.0),
    partial(scaled, by=3.0),
    partial(scaled, shift=0.01),
    lambda x: x / 127,
    lambda x: x / 256,
    lambda x: (x - 3.0) / 5,
    lambda x: (x - 5.0) / 3,
    lambda x: x.float().mean(dim=1),
    lambda x: x.float().mean(dim=2),
    lambda x: x[:, 1:3],
    lambda x: x[:, 1:4, :2],
    lambda x: x.flip(-1),
    lambda x: x.transpose(2, 3),
    lambda x: (x,),
    lambda x: [x, x],
    lambda x: {"pixels": x},
    lambda x: {"pixels": x, "more": "text"},
    lambda x: {"pixels": x, "more": 1},
    lambda x: x.to(torch.complex64),
    lambda x: x[:0],
    centred(0.5),
    centred(MEANS),
    centred(MEANS + 1),
    nested(2.0),
    nested(3.0),
    lambda x: torch.tanh(x.float()),
    lambda x: torch.sin(x.float()),
    Tensor.float,
    Plain(),
    Plain(2),
    Plain(3),
    nn.Flatten(),
    Normalise(0.25),
    Normalise(0.26),
]


def test_transforms_that_do_different_things_differ() -> None:
    digests = [digest(each) for each in DIFFERENT]
    for i, one in enumerate(digests):
        assert [are_close(one, other) for other in digests] == [i == j for j in range(len(digests))]
    hashes = {Fingerprint.of(network(), {}, 2, each).transform_hash for each in digests}
    assert len(hashes) == len(digests)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (scaled, also_scaled),
        (scaled, lambda image: image.div(255)),
        (scaled, lambda x: torch.from_numpy(x.numpy() / np.float32(255))),
        (lambda x: x.mean(dim=1, dtype=torch.float32), lambda x: x.float().mean(axis=1)),
        (Plain(2), lambda x: x + x),
        (centred(MEANS), centred(MEANS.clone())),
        (nested(2.0), nested(2.0)),
        (partial(scaled, by=2.0, shift=1.0), partial(scaled, shift=1.0, by=2.0)),
        (Normalise(0.25), lambda x: scaled(x) - 0.25),
        (nn.Flatten(), lambda x: x.reshape(len(x), -1)),
        (lambda x: {"a": x, "b": x * 2}, lambda x: {"b": x + x, "a": x}),
        (lambda x: (x, "text"), lambda x: [x, "other text"]),
    ],
)
def test_a_transform_that_was_written_otherwise_is_the_same(one: Any, other: Any) -> None:
    assert not differ(one, other)
    assert digest(one)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_rounding_makes_no_difference(dtype: torch.dtype) -> None:
    assert not differ(scaled, lambda x: scaled(x).to(dtype))
    assert not differ(scaled, lambda x: x.to(torch.float64) * (1 / 255))
    assert not differ(lambda x: scaled(x).to(dtype), scaled)
    assert differ(scaled, lambda x: (scaled(x) * 1.05).to(dtype))
    assert differ(scaled, lambda x: scaled(x).round().to(torch.int64))


def test_several_inputs_and_structures() -> None:
    inputs = {"0": torch.rand(1, 4), "1": torch.ones(1, 4, dtype=torch.bool)}
    assert not differ(lambda given: given[0] * given[1], lambda given: given[0], inputs)
    assert differ(lambda given: given[0] * given[1], lambda given: given[0] * ~given[1], inputs)
    named = {"ids": torch.arange(4)[None], "mask": torch.ones(1, 4)}
    assert differ(lambda given: dict(given), lambda given: {**given, "ids": given["ids"] + 1}, named)


def test_what_a_transform_changes_makes_no_difference() -> None:
    """Neither a count of its own nor its input, which it may overwrite."""
    calls = []

    def counts(x: Tensor) -> Tensor:
        calls.append(len(x))
        return x.add_(1)

    item = {"x": torch.zeros(1, 3)}
    assert not differ(counts, counts, item) and digest(counts, item)
    assert set(calls) == {1}
    assert torch.equal(item["x"], torch.zeros(1, 3))


@pytest.mark.parametrize(
    "transform",
    [
        lambda x: x + torch.rand(()),
        lambda x: x * random.random(),
        lambda x: x / 0.0 - x / 0.0,  # nothing but NaN
        lambda x: x.reshape(-1, 7),  # fails on a single item
    ],
)
def test_a_transform_that_is_random_or_fails_is_not_compared(transform: Any) -> None:
    state = torch.get_rng_state()
    assert digest(transform) == {}
    assert torch.equal(torch.get_rng_state(), state)
    image = {"x": ITEM["x"].expand(2, 3, 4, 4)}
    for then, now in ((scaled, transform), (transform, scaled)):
        known = Fingerprint.of(network(), image, 2, digest(then))
        memory = Memory.of(image, torch.zeros(2, 2), task=0, fingerprint=known)
        assert find_staleness(memory, network(), now, grown=False) == ""


def test_numbers_are_the_same_in_every_process() -> None:
    """Written down: neither addresses nor the order of sets, which every process has its own of, come in."""
    ((place, numbers),) = digest(partial(scaled, by=2.0)).items()
    assert place == " float (1, 3, 4, 4)"
    assert numbers[0] == pytest.approx(0.0691498976)
    assert numbers[1:] == pytest.approx(
        [58.75, 69.1498976, -37.9716121, -27.8277273, 119.631683, -100.737409], rel=1e-6
    )
    assert fingerprint_model(network()) == "f5cc93e803768ef4"


# In a memory ----------------------------------------------------------------------------------------------

X, Y = torch.randint(256, (60, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8), torch.arange(60) % 3


def remembered(transform: Any, **size: Any) -> tuple[nn.Module, Reminder]:
    torch.manual_seed(0)
    model, reminder = nn.Linear(4, 3), Reminder(transform=transform)
    for _ in range(2):
        reminder.remember(model, X, Y, **(size or {"per_class": 2}))
    return model, reminder


def is_stale(memory: Memory, model: nn.Module, transform: Any) -> bool:
    try:
        Reminder(memory, transform=transform).penalty(model)
    except SelfReminderError as error:
        assert "is stale: it was recorded with" in str(error)
        return True
    return False


def test_a_module_whose_buffer_changed_is_stale(tmp_path: Path) -> None:
    transform = Normalise(0.25)
    model, reminder = remembered(transform)
    reminder.save(tmp_path / "memory")
    memory = open_memory(tmp_path / "memory")
    assert not is_stale(memory, model, transform)
    assert not is_stale(memory, model, lambda x: x.float() / 255 - 0.25)
    transform.mean.fill_(0.5)
    assert is_stale(memory, model, transform)
    with pytest.raises(SelfReminderError, match=r"task 0, 1 is stale: .* made something else of the same item"):
        Reminder(memory, transform=transform).remember(model, X, Y, per_class=2)
    with pytest.warns(UserWarning, match="something else"):
        Reminder(memory, transform=transform, stale="warn").penalty(model)
    reminder.transform = transform  # another one, for all that it knows
    with pytest.raises(SelfReminderError, match="something else"):
        reminder.penalty(model)


def test_a_random_transform_is_no_error() -> None:
    model, reminder = remembered(lambda x: x / 255 + torch.rand(()))
    assert not is_stale(reminder.memory, model, lambda x: x / 255 + torch.rand(()))
    assert not is_stale(reminder.memory, model, scaled)
    assert is_stale(reminder.memory, model, None)


def test_the_check_goes_where_the_items_go(tmp_path: Path) -> None:
    """Through merges with new ids, deletions of other items, a budget and files."""
    model, reminder = remembered(scaled)
    memory = reminder.memory
    items = [fingerprint.item for fingerprint in memory.fingerprints.values()]
    assert items == [0, 6]
    other = remembered(partial(scaled, by=127.0))[1].memory
    both = memory.take(memory.tasks == 0) + other.take(other.tasks == 1)
    assert [fingerprint.item for fingerprint in both.fingerprints.values()] == [0, 18]
    save_memory(both.take(torch.arange(len(both)) % 3 == 0).shrink(120), tmp_path / "memory")
    few = open_memory(tmp_path / "memory")
    assert few.fingerprints == both.fingerprints and 2 <= len(few) < 4
    assert is_stale(few.take(few.tasks == 1), model, scaled)
    assert not is_stale(few.take(few.tasks == 0), model, scaled)


def test_without_its_item_only_that_there_was_a_transform_is_known() -> None:
    """Until items are added to the task: then the first of those is looked at."""
    model, reminder = remembered(scaled)
    left = reminder.memory.take(reminder.memory.ids != 0)
    assert [fingerprint.item for fingerprint in left.fingerprints.values()] == [None, 6]
    assert not is_stale(left.take(left.tasks == 0), model, torch.sigmoid)
    assert is_stale(left.take(left.tasks == 0), model, None)
    assert is_stale(left, model, torch.sigmoid)  # by the other task
    going_on = Reminder(left, transform=scaled)
    going_on.remember(model, X, Y, per_class=2, task=0)
    memory = going_on.memory
    assert memory.fingerprints[0].item == 12
    assert is_stale(memory.take(memory.tasks == 0), model, torch.sigmoid)


def test_of_a_stream_the_check_stays() -> None:
    torch.manual_seed(0)
    model, reminder = nn.Linear(4, 3), Reminder(transform=scaled)
    for start in range(0, 60, 5):
        reminder.observe(model, X[start : start + 5], per_task=4)
        item = reminder.memory.fingerprints[0].item
        assert item is None or item in reminder.memory.ids
    assert not is_stale(reminder.memory, model, also_scaled)
    assert reminder.memory.fingerprints[0].item is None or is_stale(reminder.memory, model, torch.sigmoid)


# Fingerprints ------------------------------------------------------------------------------------------------


@pytest.fixture
def fingerprint() -> Fingerprint:
    inputs = {"x": torch.zeros(7, 3), "mask": torch.zeros(7, 5, 5, dtype=torch.bool)}
    return Fingerprint.of(network(), inputs, classes=2, transform=digest(scaled))


def find_differences(then: Fingerprint, model: nn.Module, transform: Any, *, grown: bool = False) -> str:
    memory = Memory.of(ITEM, torch.zeros(1, 2), task=0, fingerprint=then)
    return find_staleness(memory, model, transform, grown=grown).replace("the memory of task 0 is stale: ", "")


def test_no_differences(fingerprint: Fingerprint) -> None:
    assert find_differences(fingerprint, nn.DataParallel(network()), also_scaled) == ""


def test_differences_in_words(fingerprint: Fingerprint) -> None:
    other = f"(fingerprint {fingerprint.model}, now {fingerprint_model(network(9))})"
    assert find_differences(fingerprint, network(9), None) == (
        f"it was recorded by a model with other layers, shapes or dtypes {other}; "
        "it was recorded with a transform, now there is no transform"
    )
    assert find_differences(fingerprint, network(9), scaled, grown=True) == ""
    without = replace(fingerprint, transform=None, item=None)
    assert find_differences(without, network(), None) == ""
    assert find_differences(without, network(), scaled) == "it was recorded with no transform, now there is a transform"
    assert find_differences(fingerprint, network(), lambda x: torch.sigmoid(x.float())) == (
        "it was recorded with a transform that made something else of the same item"
    )


def test_json(fingerprint: Fingerprint) -> None:
    assert Fingerprint.from_facts(json.loads(json.dumps(fingerprint.facts))) == fingerprint
