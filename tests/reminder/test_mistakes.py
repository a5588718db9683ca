"""Mistakes that are easily made with a reminder: each is said in a sentence, with what to do instead."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import TensorDataset

from selfreminder._base.errors import SelfReminderError
from selfreminder.reminder.model_call import unwrap_model
from selfreminder.reminder.reminder import Reminder

X, Y = torch.randn(30, 6, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3


def made(**settings: Any) -> tuple[nn.Module, Reminder]:
    torch.manual_seed(0)
    model, reminder = nn.Linear(6, 3), Reminder(**{"strength": 1.0, **settings})
    reminder.remember(model, X, Y, per_class=4)
    return model, reminder


# Optimizers -----------------------------------------------------------------------------------------------


def test_attached_twice() -> None:
    model, reminder = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = reminder.attach(model, optimizer)
    for again in (model, nn.DataParallel(model)):
        with pytest.raises(SelfReminderError, match=r"attached to this model and optimizer already.*remove\(\)"):
            reminder.attach(again, optimizer)
    reminder.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))  # another optimizer of the same
    Reminder(reminder.memory, strength=1.0).attach(model, optimizer)  # another reminder
    handle.remove()
    reminder.attach(model, optimizer).remove()
    copied = copy.deepcopy(model)
    reminder.attach(copied, torch.optim.SGD(copied.parameters(), lr=0.1))


def test_attached_to_the_optimizer_of_another_model() -> None:
    model, reminder = made()
    other = copy.deepcopy(model)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    for wrong in (model, AveragedModel(other)):
        with pytest.raises(SelfReminderError, match="none of the optimizer's parameters is one of the model's"):
            reminder.attach(wrong, optimizer)
    reminder.attach(other, torch.optim.SGD([other.bias], lr=0.1))  # some are enough
    outside = nn.Linear(3, 3)
    knows = Reminder(logits_of=lambda model, x, task: outside(model(x)))
    knows.remember(model, X, Y, per_class=4)
    knows.attach(model, torch.optim.SGD(outside.parameters(), lr=0.1))


# Averaged weights -----------------------------------------------------------------------------------------


def test_a_model_of_averaged_weights() -> None:
    """Its layers are those of the model inside, whatever counts beside them."""
    model, reminder = made()
    averaged = AveragedModel(nn.DataParallel(model), multi_avg_fn=get_ema_multi_avg_fn(0.9))
    averaged.update_parameters(nn.DataParallel(model))
    assert isinstance(unwrap_model(averaged), nn.Linear)
    assert reminder.penalty(averaged).item() == pytest.approx(0.0, abs=1e-9)
    assert reminder.report(averaged).tasks[0].agreement == 1.0
    reminder.remember(averaged, X, Y, per_class=4)
    assert len(reminder.memory.fingerprints) == 2
    assert reminder.penalty(model).item() == pytest.approx(0.0, abs=1e-9)


# Models and losses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "count"), [(lambda z: z[1:], 8), (lambda z: torch.cat([z, z]), 18)])
def test_more_or_fewer_rows_than_items(rows: Callable[[Tensor], Tensor], count: int) -> None:
    model, reminder = made()
    settings = {"logits_of": lambda model, x, task: rows(model(x)), "strength": 1.0}
    with pytest.raises(SelfReminderError, match=r"the model gives \d+ rows of logits for \d+ items: .*one row"):
        Reminder(reminder.memory, **settings).penalty(model)
    with pytest.raises(SelfReminderError, match=f"the model gives {count} rows of logits for 9 items"):
        Reminder(**settings).remember(model, X, Y, per_class=4)  # witnesses have a pass of their own


CONTRACT = r"a loss of your own gets \(logits now, MemoryBatch\).*gives one number an item, \(n,\)"


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda z, kept: F.mse_loss(z, kept.logits), r"the loss gives a tensor of shape \(\) for \d+ items"),
        (lambda z, kept: z - kept.logits, r"the loss gives a tensor of shape \(\d+, 3\) for \d+ items"),
        (lambda z, kept: 0.0, "the loss gives a float"),
        (F.mse_loss, "does not take what it is given"),
        (lambda z: z.sum(1), "does not take what it is given .*takes 1 positional argument"),
        (lambda z, kept: kept.logit, "no attribute 'logit'"),
    ],
)
def test_losses_of_ones_own(loss: Any, message: str) -> None:
    model, reminder = made(loss=loss)
    for call in (reminder.penalty, reminder.report):
        with pytest.raises(SelfReminderError, match=f"{message}.*{CONTRACT}"):
            call(model)


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.MSELoss(reduction="none"), nn.CrossEntropyLoss()])
def test_losses_of_torch(loss: nn.Module) -> None:
    for strength in (1.0, "auto"):
        with pytest.raises(SelfReminderError, match=f"{type(loss).__name__} compares tensors: {CONTRACT}"):
            Reminder(loss=loss, strength=strength)  # pyright: ignore[reportArgumentType]
    model, reminder = made(loss=lambda z, kept: (z - kept.logits).abs().sum(1))
    assert reminder.penalty(model).item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("size", [1e19, 1e20, -1e30])
def test_logits_that_are_too_large_to_square(size: float) -> None:
    model = nn.Linear(6, 3)
    with torch.no_grad():
        model.bias[1] = size
    for keep in (Reminder().remember, Reminder().observe):
        with pytest.raises(SelfReminderError, match=r"logits of task 0 as large as 1\.0e\+\d\d, whose squares"):
            keep(model, X, Y, per_task=5)
    with torch.no_grad():
        model.bias[1] = -1e4
    Reminder().remember(model, X, torch.zeros(30).long(), per_task=5, select=lambda found: torch.arange(30))


def test_a_label_beyond_the_outputs() -> None:
    with pytest.raises(SelfReminderError, match=r"label 3 of task 0 has no logit, the model gives 3.*widen the model"):
        Reminder(loss="logit+label").remember(nn.Linear(6, 3), X, Y + 1, per_class=4)


# Inputs ---------------------------------------------------------------------------------------------------


def test_tables() -> None:
    model, reminder = made()
    frame = pd.DataFrame(X.numpy())
    for keep in (reminder.remember, reminder.observe):
        with pytest.raises(SelfReminderError, match=r"the data is a DataFrame: .*torch\.tensor\(frame\.to_numpy\(\)\)"):
            keep(model, frame, Y, per_task=4)
        with pytest.raises(SelfReminderError, match="'a' is a Series"):
            keep(model, {"a": frame[0]}, Y, per_task=4)
    reminder.remember(model, torch.tensor(frame.to_numpy()), pd.Series(Y.numpy()), per_class=4)


def test_items_in_a_list() -> None:
    model, reminder = made()
    with pytest.raises(SelfReminderError, match=r"a list of 30 tensors, .*torch\.stack\(items\)"):
        reminder.remember(model, list(X), Y, per_class=4)
    with pytest.raises(SelfReminderError, match=r"the model does not take 30 inputs.*torch\.stack\(items\)"):
        reminder.remember(model, list(X), per_task=4)
    reminder.remember(model, torch.stack(list(X)), Y, per_class=4)


# Transforms -----------------------------------------------------------------------------------------------


class Centred:
    def __init__(self, mean: Tensor) -> None:
        self.mean = mean

    def __call__(self, x: Tensor) -> Tensor:
        return x - self.mean


class CentredModule(nn.Module):
    def __init__(self, mean: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)

    def forward(self, x: Tensor) -> Tensor:
        return x - self.mean


def one(x: Tensor) -> Tensor:
    return x - 0.25


def another(image: Tensor) -> Tensor:
    """Other words for the same."""
    return image.sub(0.25)


@pytest.mark.parametrize("kind", [Centred, CentredModule])
def test_a_transform_whose_mean_changed(kind: Any, tmp_path: Path) -> None:
    transform = kind(torch.full((6,), 0.25))
    model, reminder = made(transform=transform)
    reminder.penalty(model)
    reminder.save(tmp_path / "m")
    for same in (transform, kind(torch.full((6,), 0.25)), one, another):
        Reminder.load(tmp_path / "m", transform=same).penalty(model)
    transform.mean = torch.tensor([0.25] * 5 + [0.26])
    with pytest.raises(SelfReminderError, match="a transform that made something else of the same item"):
        Reminder.load(tmp_path / "m", transform=transform).penalty(model)
    with pytest.raises(SelfReminderError, match="a transform that made something else of the same item"):
        reminder.remember(model, TensorDataset(X, Y), per_class=4)  # the same reminder, before it mixes both
    assert reminder.memory.counts == {0: 12}
