"""A reminder in anybody's own loop: precision, accumulation, clipping, compilation, frozen layers, adapters, growth."""

import copy
import math
import pickle
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks.models import build_model
from selfreminder.benchmarks.stream import Stream
from selfreminder.memory import open_memory
from selfreminder.reminder.losses import logit_match
from selfreminder.reminder.reminder import Reminder
from selfreminder.samples import knows_positions


def digits_model(seed: int = 0) -> nn.Module:
    return build_model("mnist-mlp", width=1 / 16, seed=seed)


def batches(stream: Stream, steps: int = 6, size: int = 32) -> list[tuple[Tensor, Tensor]]:
    data = stream[1].train
    return [(data.x[i * size : (i + 1) * size], data.y[i * size : (i + 1) * size]) for i in range(steps)]


def reminders(model: nn.Module, stream: Stream, **settings: object) -> tuple[Reminder, Reminder]:
    """Two alike, each with a memory larger than its batch, so that items are drawn."""
    both = tuple(Reminder(batch_size=50, **settings) for _ in range(2))  # pyright: ignore[reportArgumentType]
    for reminder in both:
        reminder.remember(model, stream[0].train.x, stream[0].train.y, per_class=10)
    return both[0], both[1]


def assert_same_weights(ours: nn.Module, theirs: nn.Module, tolerance: float = 1e-5) -> None:
    for a, b in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(a, b, rtol=0.0, atol=tolerance)


def test_attach_comes_after_clipping_and_accumulation(digits: Stream) -> None:
    """step = clip(mean of micro-batches' gradients) + the penalty's gradient, once."""
    by_hand = digits_model()
    attached = copy.deepcopy(by_hand)
    ours, theirs = reminders(digits_model(1), digits, strength=0.1)
    optimizer = torch.optim.SGD(attached.parameters(), lr=0.05)
    ours.attach(attached, optimizer)
    for x, y in batches(digits):
        optimizer.zero_grad()
        for part in range(2):
            (F.cross_entropy(attached(x[part::2]), y[part::2]) / 2).backward()
        nn.utils.clip_grad_norm_(attached.parameters(), 0.1)
        optimizer.step()

        by_hand.zero_grad()
        F.cross_entropy(by_hand(x), y).backward()
        nn.utils.clip_grad_norm_(by_hand.parameters(), 0.1)
        theirs.penalty(by_hand).backward()
        with torch.no_grad():
            for parameter in by_hand.parameters():
                assert parameter.grad is not None
                parameter -= 0.05 * parameter.grad
    assert_same_weights(attached, by_hand)  # float32 sums in another order


def test_bfloat16_autocast(digits: Stream) -> None:
    """Under autocast the model computes in bfloat16, the loss in float32; right after remembering it is still 0."""
    model = digits_model()
    reminder = Reminder(strength=1.0)
    with torch.autocast("cpu", torch.bfloat16):
        reminder.remember(model, digits[0].train.x, digits[0].train.y, per_class=5)
        penalty = reminder.penalty(model)
        assert penalty.item() == 0.0
        assert penalty.dtype == torch.float32
    assert 0 < reminder.penalty(model).item() < 0.01  # in float32 the same model says almost the same


def test_a_model_in_bfloat16(digits: Stream) -> None:
    model = digits_model().bfloat16()
    reminder = Reminder(strength=1.0)
    reminder.remember(model, digits[0].train.x, digits[0].train.y, per_class=5)
    assert reminder.penalty(model).item() == 0.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    reminder.attach(model, optimizer)
    for x, y in batches(digits, steps=2):
        optimizer.zero_grad()
        F.cross_entropy(model(x.bfloat16()).float(), y).backward()
        optimizer.step()
    assert reminder.penalty(model).item() > 0
    assert reminder.forward(model, x.bfloat16())[1].item() > 0
    assert all(p.dtype == torch.bfloat16 for p in model.parameters())


def test_a_compiled_model(digits: Stream) -> None:
    """Compiled or not, it is the same model: to the memory's fingerprint, and to its numbers."""
    plain = nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.BatchNorm1d(16), nn.Dropout(), nn.Linear(16, 10))
    compiled = torch.compile(plain, backend="aot_eager")
    reminder = Reminder(strength=1.0)
    reminder.remember(compiled, digits[0].train.x, digits[0].train.y, per_class=5)  # pyright: ignore[reportArgumentType]
    for model in (compiled, plain):
        assert reminder.penalty(model).item() == pytest.approx(0.0, abs=1e-9)  # pyright: ignore[reportArgumentType]
    loss = compiled(digits[1].train.x[:8]).square().mean()
    (loss + reminder.penalty(compiled)).backward()  # pyright: ignore[reportArgumentType]
    assert plain.training
    assert all(p.grad is not None for p in plain.parameters())


def test_channels_last() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 4))
    model = model.to(memory_format=torch.channels_last)
    x = torch.rand(20, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    reminder = Reminder()
    reminder.remember(model, x, torch.arange(20) % 4, per_class=3)
    assert reminder.penalty(model).item() == 0.0
    torch.testing.assert_close(reminder.memory.read().inputs["x"], x[reminder.memory.sources])


class Adapted(nn.Module):
    """A linear layer with a low-rank addition, as an adapter has it."""

    def __init__(self, layer: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.layer = layer
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) * 0.1)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + x @ self.down.T @ self.up.T


def test_adapters_on_a_frozen_model(digits: Stream) -> None:
    """The layers are others than those that recorded: the user says that this is meant, and adapters are trained."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    strict = Reminder(strength=1.0)
    strict.remember(model, digits[0].train.x, digits[0].train.y, per_class=5)
    assert strict.penalty(model).item() == 0.0
    model.requires_grad_(False)
    model[0], model[2] = Adapted(model[0]), Adapted(model[2])  # pyright: ignore[reportArgumentType]
    copied = copy.deepcopy(model)
    with pytest.raises(SelfReminderError, match=r'other layers.*stale="warn"'):
        strict.penalty(copied)

    reminder = Reminder(strict.memory, strength=1.0, stale="warn")
    with pytest.warns(UserWarning, match="other layers"):
        assert reminder.penalty(model).item() == pytest.approx(0.0, abs=1e-8)
    adapters = [p for p in model.parameters() if p.requires_grad]
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    optimizer = torch.optim.SGD(adapters, lr=0.1)
    reminder.attach(model, optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        for x, y in batches(digits, steps=3):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert all(torch.equal(p, frozen[name]) for name, p in model.named_parameters() if name in frozen)
    assert reminder.penalty(model).item() > 0


def test_classes_are_added(digits: Stream) -> None:
    """A grown head: old items keep the logits that they have, and get the wider model's for the new classes."""
    old = nn.Linear(784, 10)
    new = nn.Linear(784, 12)
    with torch.no_grad():
        new.weight[:10], new.bias[:10] = old.weight, old.bias
    reminder = Reminder(strength=1.0, grow=True)
    reminder.remember(old, digits[0].train.x, digits[0].train.y, per_class=5)
    assert reminder.penalty(new).item() == pytest.approx(0.0, abs=1e-10)  # the product of another width
    assert reminder.memory.widths.tolist() == [12] * 50
    assert reminder.report(new).tasks[0].drift < 1e-6

    reminder.remember(new, digits[1].train.x, digits[1].train.y, per_class=5)
    assert reminder.memory.widths.tolist() == [12] * 100
    assert reminder.penalty(new).item() == pytest.approx(0.0, abs=1e-10)
    with torch.no_grad():
        new.bias[11] += 1.0
    assert reminder.penalty(new).item() == pytest.approx(2.0, rel=1e-5)  # of both tasks
    with torch.no_grad():
        new.bias[10] += 100.0
    assert reminder.report(new).tasks[0].accuracy == 0.0  # all are taken for a class that the old ones had not
    with pytest.raises(SelfReminderError, match="holds 12 logits an item, the model gives 10"):
        reminder.penalty(old)
    with pytest.raises(SelfReminderError, match="grow=True"):
        Reminder(reminder.memory.take(reminder.memory.tasks == 0), stale="warn").report(nn.Linear(784, 13))


def test_a_memory_knows_who_recorded_it(digits: Stream, tmp_path: Path) -> None:
    model, wider = digits_model(), build_model("mnist-mlp", width=1 / 8, seed=0)
    reminder = Reminder(transform=torch.sigmoid)
    reminder.remember(model, digits[0].train.x, digits[0].train.y, per_class=2)
    reminder.save(tmp_path / "memory")
    assert Reminder.load(tmp_path / "memory", transform=torch.sigmoid).penalty(model).item() == 0.0
    with pytest.raises(SelfReminderError, match="other layers"):
        Reminder.load(tmp_path / "memory", transform=torch.sigmoid).penalty(wider)
    with pytest.raises(SelfReminderError, match="transform"):
        Reminder.load(tmp_path / "memory").penalty(model)
    with pytest.warns(UserWarning, match="transform"):
        Reminder.load(tmp_path / "memory", transform=torch.tanh, stale="warn").penalty(model)


def test_every_kind_of_data(digits: Stream) -> None:
    """From a Dataset or a DataLoader, what is kept is theirs, and where it was."""
    model, x, y = digits_model(), digits[0].train.x, digits[0].train.y
    for data in (TensorDataset(x, y), DataLoader(TensorDataset(x, y), batch_size=50)):
        reminder = Reminder()
        reminder.remember(model, data, per_class=3)
        sources = reminder.memory.sources.long()
        assert torch.equal(reminder.memory.labels.long(), y[sources])
        torch.testing.assert_close(reminder.memory.read().inputs["x"], x[sources])
        assert reminder.penalty(model).item() == 0.0
    for settings in ({"budget": 30 * 839}, {"per_task": 30}):
        reminder = Reminder(witnesses=0)
        reminder.remember(model, TensorDataset(x), **settings)
        assert len(reminder.memory) == 30
        assert (reminder.memory.labels == -1).all()
    reminder.remember(model, DataLoader(TensorDataset(x, y)), per_class=2, select="herding")
    assert len(reminder.memory) == 50


def test_pickled_it_goes_on(digits: Stream) -> None:
    old, new = digits_model(0), digits_model(1)
    reminder, other = reminders(old, digits)
    other.penalty(new)
    reminder.penalty(new)
    again = pickle.loads(pickle.dumps(reminder))
    assert again.penalty(new).item() == other.penalty(new).item()
    x = digits[1].train.x[:4]
    assert again.forward(new, x)[1].item() == other.forward(new, x)[1].item()


def test_nothing_to_train(digits: Stream) -> None:
    model, reminder = digits_model(), Reminder()
    reminder.remember(digits_model(1), digits[0].train.x, digits[0].train.y, per_class=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert reminder.add_gradient(model.requires_grad_(False), optimizer).item() > 0


def test_draws_go_on_after_a_checkpoint(digits: Stream, tmp_path: Path) -> None:
    old, new = digits_model(0), digits_model(1)
    reminder, other = reminders(old, digits, strength=1.0)
    other.load_state_dict(Reminder().state_dict())
    assert len(other.memory) == 0
    reminder.penalty(new)
    torch.save(reminder.state_dict(), tmp_path / "checkpoint")
    expected = [reminder.penalty(new).item() for _ in range(3)]
    other.load_state_dict(torch.load(tmp_path / "checkpoint", weights_only=True))
    assert [other.penalty(new).item() for _ in range(3)] == expected
    assert len(set(expected)) == 3


def test_draws_go_on_on_another_machine(digits: Stream) -> None:
    """A device of the same kind goes on whatever its number, one of another kind begins anew, and nothing is lost."""
    old, new = digits_model(0), digits_model(1)
    reminder, other = reminders(old, digits, strength=1.0)
    begun = [reminder.penalty(new).item() for _ in range(2)]
    state = reminder.state_dict()
    expected = reminder.penalty(new).item()
    other.load_state_dict({**state, "draws": {"cpu:1": state["draws"]["cpu"]}})
    assert other.penalty(new).item() == expected
    gpu = {"cuda:0": torch.zeros(16, dtype=torch.uint8)}
    other.load_state_dict({**state, "draws": gpu})
    assert [other.penalty(new).item() for _ in range(2)] == begun
    again = other.state_dict()["draws"]
    assert again.keys() == {"cuda:0", "cpu"}
    assert again["cuda:0"] is gpu["cuda:0"]


def test_double_precision_as_the_default(digits: Stream) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        model, x, y = nn.Linear(784, 10), digits[0].train.x.double(), digits[0].train.y
        for batch_size in (50, 1000):
            reminder = Reminder(batch_size=batch_size)
            reminder.remember(model, x, y, per_class=10)
            assert reminder.penalty(model).item() == 0.0
            assert reminder.report(model, new=(x, y)).tasks[0].drift == 0.0
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.filterwarnings("ignore:the model is sure")
def test_the_automatic_strength_knows_no_unit(digits: Stream) -> None:
    """Logits ten times as large, and moved by ten times as much, give the same penalty."""
    penalties = []
    for scale in (10.0, 100.0):
        torch.manual_seed(0)
        model, reminder = nn.Linear(784, 10), Reminder()
        with torch.no_grad():
            model.weight *= scale
            model.bias *= scale
        reminder.remember(model, digits[0].train.x, digits[0].train.y, per_class=5)
        with torch.no_grad():
            model.bias += scale * torch.arange(10) / 10
        penalties.append(reminder.penalty(model).item())
    assert penalties[1] == pytest.approx(penalties[0], rel=1e-4) != 0
    with pytest.raises(SelfReminderError, match="strength of your own"):
        Reminder(loss=lambda z, kept: (z - kept.logits).abs().sum(1))
    hardly_trained = Reminder()
    hardly_trained.remember(nn.Linear(784, 10), digits[0].train.x, digits[0].train.y, per_class=5)
    assert hardly_trained.current_strength == 1.0  # and not c / S, which would be large
    assert Reminder(loss="distill").current_strength > 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_not_finite(digits: Stream, value: float) -> None:
    """They are refused, and a report of a model that gives them is not content."""
    x, y, model = digits[0].train.x, digits[0].train.y, digits_model()
    reminder = Reminder()
    reminder.remember(model, x, y, per_class=5)
    with torch.no_grad():
        list(model.parameters())[-1][9] = value
    for keep in (reminder.remember, reminder.observe):
        wanted = "NaN for task 1: it has diverged" if math.isnan(value) else "not finite: mask by a large finite"
        with pytest.raises(SelfReminderError, match=wanted):
            keep(model, x, y, per_task=5)
    report = reminder.report(model)
    assert (report.verdict, report.tasks[0].in_words(0.05)) == ("diverged", "not finite")
    assert "logits of task 0 are not finite" in str(report)


def test_labels_that_have_no_logit(digits: Stream) -> None:
    x, y, model = digits[0].train.x, digits[0].train.y, digits_model()
    for keep in (Reminder(loss="logit+label").remember, Reminder(loss="logit+label").observe):
        with pytest.raises(SelfReminderError, match="label 10 of task 0 has no logit, the model gives 10"):
            keep(model, x, y + 1, per_task=len(x))
    reminder = Reminder()  # whose penalty does not look at them
    reminder.remember(model, x, y + 1, per_class=5)
    assert reminder.penalty(model).item() == 0.0


def test_the_report_has_words(digits: Stream) -> None:
    x, y, new = digits[0].train.x, digits[0].train.y, (digits[1].train.x, digits[1].train.y)
    model = digits_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(30):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    reminder = Reminder()
    assert "Nothing is remembered" in str(reminder.report(model))
    reminder.remember(model, x, y, per_class=20)
    report = reminder.report(model)
    assert report.verdict == "about right"
    assert "new=(inputs, labels)" in report.advice
    assert reminder.report(model, old=(x, y)).drop.low < 0.05
    assert report.to_dict()["verdict"] == "about right"
    assert reminder.report(model, new=TensorDataset(*new)) == reminder.report(model, new=new)
    stiff = reminder.report(model, new=new)  # it has not learned anything new at all
    assert stiff.verdict == "learns nothing"
    assert "Lower the strength" in str(stiff)
    forgotten = reminder.report(digits_model(5))
    assert forgotten.verdict == "forgets"
    assert "Raise the strength" in str(forgotten)
    assert forgotten.tasks[0].accuracy_then == report.tasks[0].accuracy
    with pytest.raises(SelfReminderError, match="no labels"):
        reminder.report(model, new=(digits[1].train.x, None))  # pyright: ignore[reportArgumentType]


def test_the_numbers_of_a_report(digits: Stream) -> None:
    old, new = digits_model(0), digits_model(1)
    reminder, penalties = Reminder(strength=0.7, over_tasks="mean", witnesses=0), []
    for task, count in ((0, 30), (1, 7)):
        x, y = digits[task].train.x, digits[task].train.y.clone()
        y[::2] = -1  # unknown
        reminder.remember(old, x, y, per_task=count, time=12)
        rows = reminder.memory.sources[reminder.memory.tasks == task].long()
        now, then, label = new(x[rows]), old(x[rows]), y[rows]
        row, known = reminder.report(new).tasks[task], label >= 0
        assert row.items == count
        assert row.drift == pytest.approx((now - then).abs().mean().item(), rel=1e-4)
        assert row.agreement == pytest.approx((now.argmax(1) == then.argmax(1)).float().mean().item())
        assert row.accuracy == pytest.approx((now.argmax(1) == label)[known].float().mean().item())
        assert row.accuracy_then == pytest.approx((then.argmax(1) == label)[known].float().mean().item())
        penalties.append(logit_match(now, then).mean().item())
    assert reminder.report(new).penalty == pytest.approx(0.7 * sum(penalties) / 2, rel=1e-4)
    right = (new(digits[2].test.x).argmax(1) == digits[2].test.y).float().mean().item()
    found = reminder.report(new, new=(digits[2].test.x, digits[2].test.y)).new_accuracy
    assert found == pytest.approx(right, abs=1e-3)
    assert reminder.memory.times is not None and set(reminder.memory.times.tolist()) == {12}


# What people's models and data have besides -------------------------------------------------------------


def test_attention_with_padding_is_recorded_as_the_penalty_sees_it() -> None:
    """Torch's fast path for attention, without gradients, gives other numbers at padded places."""

    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.encoder, self.head = nn.TransformerEncoder(layer, 1), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor, pad: torch.Tensor) -> torch.Tensor:
            return self.head(self.encoder(x, src_key_padding_mask=pad).mean(1))

    torch.manual_seed(0)
    model, pad = Text(), torch.zeros(12, 5, dtype=torch.bool)
    pad[::2, 3:] = True
    reminder, enabled = Reminder(strength=1.0), torch.backends.mha.get_fastpath_enabled()
    reminder.remember(model, {"x": torch.randn(12, 5, 8), "pad": pad}, torch.arange(12) % 3, per_class=4)
    assert reminder.penalty(model).item() == 0.0
    assert torch.backends.mha.get_fastpath_enabled() == enabled


def test_an_optimizer_whose_parameters_are_all_frozen_steps_as_before() -> None:
    body, head = nn.Linear(4, 8), nn.Linear(8, 3)
    model, reminder = nn.Sequential(body, head), Reminder(strength=1.0)
    reminder.remember(model, torch.randn(9, 4), torch.arange(9) % 3, per_class=2)
    nn.init.zeros_(head.bias)
    body.requires_grad_(False)
    optimizer = torch.optim.SGD(body.parameters(), lr=0.1)
    reminder.attach(model, optimizer)
    optimizer.step()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_an_optimizer_inside_another_is_found() -> None:
    """As Accelerate's, which has no hooks."""

    class Wrapper(torch.optim.Optimizer):
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer = optimizer

        def step(self, closure: None = None) -> None:
            self.optimizer.step()

    model, reminder = nn.Linear(4, 3), Reminder(strength=1.0)
    reminder.remember(model, torch.randn(9, 4), torch.arange(9) % 3, per_class=2)
    with torch.no_grad():
        model.bias += torch.arange(3)
    wrapper = Wrapper(torch.optim.SGD(model.parameters(), lr=0.1))
    reminder.attach(model, wrapper)
    before = reminder.penalty(model).item()
    wrapper.step()
    assert reminder.penalty(model).item() < before


def test_double_precision() -> None:
    """Of the model, as Lightning's 64-true has it, or of numpy's data."""
    x, y = torch.randn(12, 4), torch.arange(12) % 3
    for model, data in ((nn.Linear(4, 3).double(), x), (nn.Linear(4, 3), x.double().numpy())):
        reminder = Reminder(strength=1.0)
        reminder.remember(model, data, y, per_class=4)
        assert reminder.penalty(model).item() == pytest.approx(0.0, abs=1e-9)


def test_where_items_of_a_shuffled_loader_came_from_is_not_known() -> None:
    """Their place in one pass is no index of the data set: nobody could find them by it."""
    x, y = torch.randn(30, 4), torch.arange(30) % 3
    model, data = nn.Linear(4, 3), torch.utils.data.TensorDataset(x, y)
    for loader, known in (
        (DataLoader(data, 4), True),
        (DataLoader(data, 4, shuffle=True), False),
        (DataLoader(data, 4, sampler=torch.utils.data.WeightedRandomSampler([1.0] * 30, 30)), False),
    ):
        reminder = Reminder()
        reminder.remember(model, loader, per_class=2)
        assert bool((reminder.memory.sources >= 0).all()) == known == bool((reminder.memory.sources != -1).any())
        if known:
            assert torch.equal(reminder.memory.read().inputs["x"], x[reminder.memory.sources.long()])


@pytest.mark.parametrize("shuffle", [False, True])
def test_dealt_out_in_order_positions_are_known(shuffle: bool) -> None:
    data = TensorDataset(torch.randn(30, 4))
    sampler = DistributedSampler(data, num_replicas=2, rank=1, shuffle=shuffle)
    assert knows_positions(DataLoader(data, 4, sampler=sampler)) != shuffle


def test_a_head_stays_when_a_wider_one_is_deleted() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.old, self.new = nn.Linear(4, 5), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"old": self.old(x), "new": self.new(x)}

    model, x = Two(), torch.randn(10, 4)
    reminder = Reminder(strength=1.0, head={0: "old", 1: "new"})
    reminder.remember(model, x, torch.arange(10) % 5, per_task=5)
    reminder.remember(model, x, torch.arange(10) % 2, per_task=4)
    reminder.memory = reminder.memory.take(reminder.memory.tasks == 1)
    assert reminder.penalty(model).item() == 0.0
    with torch.no_grad():
        model.new.bias += 1.0
    assert reminder.penalty(model).item() == pytest.approx(2.0, rel=1e-4)
    # What is learned now may be of a task that is remembered already.
    right = (model(x)["new"].argmax(1) == torch.arange(10) % 2).float().mean().item()
    assert reminder.report(model, new=(x, torch.arange(10) % 2), task=1).new_accuracy == pytest.approx(right)


def test_labels_without_a_logit_are_found_in_a_memory_of_before(tmp_path: Path) -> None:
    model, x = nn.Linear(4, 3), torch.randn(6, 4)
    reminder = Reminder()
    reminder.remember(model, x, torch.arange(6) + 3, per_task=6)
    reminder.save(tmp_path / "m")
    with pytest.raises(SelfReminderError, match="label 3 of task 0 has no logit, the model gives 3"):
        Reminder(open_memory(tmp_path / "m"), loss="logit+label", strength=1.0).penalty(model)


def test_numbers_of_other_libraries(tmp_path: Path) -> None:
    model, x, y = nn.Linear(4, 3), torch.randn(12, 4), torch.arange(12) % 3
    reminder = Reminder()
    many: Any = np.int64(2)
    for task in (np.int64(0), torch.tensor(1)):
        reminder.remember(model, x, y, task=task, per_class=many, time=time.time(), sources=list(range(100, 112)))  # pyright: ignore
    reminder.save(tmp_path / "m")
    memory = Reminder.load(tmp_path / "m").memory
    assert memory.counts == {0: 6, 1: 6}
    assert bool((memory.sources >= 100).all())
    with pytest.raises(SelfReminderError, match=r"per_class is 2\.5: it is a whole number"):
        reminder.remember(model, x, y, per_class=2.5)  # pyright: ignore
    with pytest.raises(SelfReminderError, match="3 sources, fewer than samples"):
        reminder.remember(model, x, y, per_class=4, sources=[1, 2, 3])


def test_small_gradients_in_half_precision_do_not_vanish() -> None:
    """Where the others' are not scaled any more; and what overflows on the way is left out."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), torch.randn(6, 4)
    reminder = Reminder(strength=1e-9)
    reminder.remember(model, x, torch.arange(6) % 3, per_task=6)
    with torch.no_grad():
        model[1].bias += 0.5
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def gradient(scale: float | None, half: bool = True) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16, enabled=half):
            reminder.add_gradient(model, optimizer, loss_scale=None if scale is None else torch.tensor(scale))
        return model[0].weight.grad

    exact = gradient(None, half=False)
    torch.testing.assert_close(gradient(1024.0, half=False), exact)
    assert not gradient(None).any()
    torch.testing.assert_close(gradient(2.0**20), exact, rtol=0.05, atol=0.05 * exact.abs().max().item())
    assert not gradient(2.0**80).any()
