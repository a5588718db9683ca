"""Selections by name, the choice by classes, and sizes."""

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from selfreminder import Reminder, selection
from selfreminder._base import factories
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import Size, parse_bytes, share_evenly
from selfreminder.benchmarks.models import build_model
from selfreminder.benchmarks.stream import Stream
from selfreminder.gradients.per_sample import gradient_norms
from selfreminder.methods.base import EARLY
from selfreminder.methods.fsr_logit import FsrLogit
from selfreminder.selection.base import Candidates, choose, count_per_class
from selfreminder.training import Training, train

labels_strategy = st.lists(st.integers(0, 4), min_size=1, max_size=60).map(torch.tensor)


def candidates(labels: Tensor, seed: int = 0) -> Candidates:
    return Candidates(
        inputs=torch.zeros(len(labels), 2),
        labels=labels,
        count=len(labels),
        generator=torch.Generator().manual_seed(seed),
        model=nn.Linear(2, 2),
        logits_of=lambda model, x: model(x),
    )


def at_random(labels: Tensor, seed: int, **size: int) -> Tensor:
    return choose(selection.find("random")(candidates(labels, seed)), labels, count_per_class(labels, **size))


@given(labels_strategy, st.integers(1, 60), st.integers(0, 1000))
def test_any_front_is_balanced(labels: Tensor, total: int, seed: int) -> None:
    """No duplicates; every leading part is balanced within one, except where a class is used up."""
    total = min(total, len(labels))
    chosen = at_random(labels, seed, total=total)
    assert len(set(chosen.tolist())) == total
    for front in range(1, total + 1):
        counts = torch.bincount(labels[chosen[:front]], minlength=5)
        capacity = torch.bincount(labels, minlength=5)
        still_open = counts < capacity
        if still_open.any():
            assert counts.max() - counts[still_open].min() <= 1


@given(labels_strategy, st.integers(1, 10))
def test_per_class(labels: Tensor, per_class: int) -> None:
    counts = torch.bincount(labels, minlength=5)
    if per_class > counts.max():
        with pytest.raises(SelfReminderError, match="larger than the data"):
            count_per_class(labels, per_class=per_class)
    else:
        chosen = at_random(labels, 0, per_class=per_class)
        assert torch.equal(torch.bincount(labels[chosen], minlength=5), counts.clamp(max=per_class))


def test_random_is_fair_and_deterministic() -> None:
    labels = torch.zeros(20, dtype=torch.long)
    draws = [at_random(labels, seed, total=5) for seed in range(2000)]
    assert torch.equal(draws[7], at_random(labels, 7, total=5))
    counts = torch.bincount(torch.cat(draws), minlength=20).float()
    chi_square = ((counts - 500) ** 2 / 500).sum()
    assert chi_square < 43.8  # 99.9 % of chi-square with 19 degrees of freedom


# By name ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", selection.names())
def test_every_selection_is_a_choice(name: str, digits: Stream) -> None:
    """Each keeps what is asked for, class by class, the same for the same seed, and leaves the model as it was."""
    task = digits[0]
    model = build_model("mnist-mlp", width=0.05, seed=0)
    train(model, task, FsrLogit(), Training(epochs=1, lr=1e-3))
    model.train().zero_grad()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    kept = []
    for _ in range(2):
        reminder = Reminder()
        validation = (task.validation.x, task.validation.y)
        reminder.remember(model, task.train.x, task.train.y, per_class=3, select=name, validation=validation)
        kept.append(reminder.memory)
    assert torch.bincount(kept[0].labels.long()).tolist() == [3] * 10
    assert torch.equal(kept[0].sources, kept[1].sources)
    assert kept[0].selection_names == (name,)
    assert model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert selection.summary(name)


def test_a_function_of_yours() -> None:
    def brightest(candidates: Candidates) -> Tensor:
        assert isinstance(candidates.inputs, Tensor)
        return candidates.inputs.sum(1).argsort(descending=True)

    x, reminder = torch.rand(40, 3, generator=torch.Generator().manual_seed(0)), Reminder()
    labels = torch.arange(40) % 2
    reminder.remember(nn.Linear(3, 2), x, labels, per_class=2, select=brightest)
    brightness = x.sum(1)
    for label in (0, 1):
        ours = brightness[labels == label].topk(2).values
        kept = brightness[reminder.memory.sources[reminder.memory.labels == label].long()]
        assert torch.equal(kept, ours)
    assert reminder.memory.selection_names == ("brightest",)


def test_a_package_can_add_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "backwards-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: backwards\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[selfreminder.selections]\nbackwards = backwards:select\nbroken = backwards:missing\n"
    )
    (tmp_path / "backwards.py").write_text(
        "import torch\ndef select(candidates, *, skip=0):\n    return torch.arange(len(candidates) - skip).flip(0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "backwards", raising=False)
    monkeypatch.setattr(selection, "installed", factories.installed.__wrapped__)  # it looks once in a process
    assert "backwards" in selection.names()
    assert selection.summary("backwards") == "from backwards:select"
    assert selection.find("backwards:skip=1")(candidates(torch.zeros(4))).tolist() == [2, 1, 0]
    with pytest.raises(SelfReminderError, match="selection 'broken' cannot be loaded: AttributeError"):
        selection.find("broken")


@pytest.mark.parametrize("epochs", [1, 20])
def test_early_gradients_are_taken_in_the_first_tenth_of_epochs(digits: Stream, epochs: int) -> None:
    task, model = digits[0], build_model("mnist-mlp", width=0.05, seed=0)
    method = FsrLogit(select="gradient", size=Size(per_class=2))
    wanted = torch.zeros(len(task.train))
    for epoch in range(epochs):
        if epoch < max(1, EARLY * epochs):
            wanted += gradient_norms(model, lambda model, x: model(x), task.train.x, task.train.y)
        method.after_epoch(model, task, epoch, epochs)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.99)
    method.after_task(model, task)
    memory = method.reminder.memory
    for label in range(10):
        members = (task.train.y == label).nonzero().flatten()
        best = members[wanted[members].argsort()[:2]]
        assert memory.sources[memory.labels == label].tolist() == best.tolist()


def test_bad_selections(digits: Stream) -> None:
    with pytest.raises(SelfReminderError, match="did you mean 'random'"):
        selection.find("randon")
    with pytest.raises(SelfReminderError, match="'kernel' in selection 'herding:kernel' is no option"):
        selection.find("herding:kernel")
    with pytest.raises(SelfReminderError, match="unknown option of herding 'kernl': did you mean 'kernel'"):
        selection.find("herding:kernl=gaussian")
    labels = torch.tensor([0, 0, 1])
    for ranked, message in (
        (torch.tensor([0, 0, 1]), "none of them twice"),
        (torch.tensor([0.5, 1.0]), "none of them twice"),
        (torch.tensor([0, 3]), "none of the 3 candidates"),
        (torch.tensor([0, 1]), "gave 0 items of class 1, 1 are to be kept"),
    ):
        with pytest.raises(SelfReminderError, match=message):
            choose(ranked, labels, {0: 1, 1: 1})
    with pytest.raises(SelfReminderError, match="7 items is larger than the data: 3 items"):
        count_per_class(torch.zeros(3), total=7)


# Sizes -----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 20), max_size=8), st.integers(0, 100))
def test_share_evenly(capacities: list[int], total: int) -> None:
    shares = share_evenly(total, capacities)
    assert sum(shares) == min(total, sum(capacities))
    assert all(share <= capacity for share, capacity in zip(shares, capacities))
    still_open = [share for share, capacity in zip(shares, capacities) if share < capacity]
    assert not still_open or max(shares) - min(still_open) <= 1


@pytest.mark.parametrize("size", [{"per_class": 0}, {"per_task": -3}, {"budget": "0KB"}])
def test_nothing_to_keep(size: dict) -> None:
    with pytest.raises(SelfReminderError, match="at least one item"):
        Size(**size)


def test_sizes() -> None:
    with pytest.raises(SelfReminderError, match="exactly one of"):
        Size()
    with pytest.raises(SelfReminderError, match="exactly one of"):
        Size(per_class=1, per_task=1)
    with pytest.raises(SelfReminderError, match="'2 apples' is no number of bytes"):
        parse_bytes("2 apples")
