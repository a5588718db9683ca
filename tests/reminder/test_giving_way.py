"""With a tolerance the new weighs less, whichever way the penalty is added; without one, nothing is touched."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder.reminder.reminder import Reminder
from selfreminder.reminder.tolerance import Tolerance

WEIGHT = 0.25


class WithLoss(nn.Module):
    """A model that gives its loss beside the logits that it came from, as Hugging Face's do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.layer(x)
        return {"logits": logits} if labels is None else {"loss": F.cross_entropy(logits, labels), "logits": logits}


def story(model: nn.Module) -> tuple[Reminder, Tensor, Tensor]:
    """A tolerance in the midst of training: the model has moved, and nothing is looked at in the next steps."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(32, 4, generator=generator), torch.arange(32) % 3
    reminder = Reminder(max_drop=0.01)
    reminder.remember(model, x[:30].flip(1), y[:30], per_class=10)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator))
    assert reminder.tolerance is not None
    reminder.tolerance.weight_of_new, reminder.tolerance.steps = torch.tensor(WEIGHT), 1
    return reminder, x, y


def gradients(model: nn.Module) -> list[Tensor]:
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return found


def wanted(model: nn.Module, reminder: Reminder, x: Tensor, y: Tensor) -> list[Tensor]:
    """w · that of the new + that of the penalty."""
    plain = Reminder(reminder.memory, strength=reminder.current_strength)
    old = torch.autograd.grad(plain.penalty(model), list(model.parameters()))
    new = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    return [WEIGHT * a + b for a, b in zip(new, old)]


@pytest.mark.parametrize("route", ["penalty", "forward", "attach"])
def test_the_new_weighs_less_by_every_route(route: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    reminder, x, y = story(model)
    expected = wanted(model, reminder, x, y)
    if route == "penalty":
        first = F.cross_entropy(model(x), y) + reminder.penalty(model)
        first.backward()  # a step without a hook on its pass: the whole of it weighs less
        all_of_it = gradients(model)
        (F.cross_entropy(model(x), y) + reminder.penalty(model)).backward()
        assert all(a.norm() < b.norm() for a, b in zip(all_of_it, expected))
    elif route == "forward":
        logits, penalty = reminder.forward(model, x)
        (F.cross_entropy(logits, y) + penalty).backward()
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        reminder.attach(model, optimizer)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    torch.testing.assert_close(gradients(model), expected)


def test_a_loss_among_the_outputs_weighs_less_once() -> None:
    torch.manual_seed(0)
    model = WithLoss()
    reminder, x, y = story(model)
    alone = torch.autograd.grad(model(x, y)["loss"], list(model.parameters()))
    (model(x, y)["loss"] + 0 * reminder.penalty(model)).backward()
    gradients(model)
    (model(x, y)["loss"] + 0 * reminder.penalty(model)).backward()
    torch.testing.assert_close(gradients(model), [WEIGHT * each for each in alone])


def test_nothing_is_touched_without_a_tolerance_in_copies_or_afterwards() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    reminder, x, y = story(model)
    for _ in range(2):
        (F.cross_entropy(model(x), y) + reminder.penalty(model)).backward()
    alone = torch.autograd.grad(F.cross_entropy(F.linear(x, model.weight, model.bias), y), list(model.parameters()))
    copied = copy.deepcopy(model)
    torch.testing.assert_close(torch.autograd.grad(F.cross_entropy(copied(x), y), list(copied.parameters())), alone)
    assert model._forward_hooks
    del reminder
    assert not model._forward_hooks
    plain = Reminder()
    plain.remember(model, x, y, per_class=5)
    plain.penalty(model).backward()
    assert not model._forward_hooks


def test_where_nothing_can_weigh_less_the_penalty_is_stiffer() -> None:
    """A loop that calls parts of the model: its forward is never seen."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    reminder, x, _ = story(model)
    seen = []
    for _ in range(2):
        logits = model[2](model[1](model[0](x)))
        seen.append(reminder.penalty(model).item() + 0 * logits.sum().item())
    assert seen[1] == pytest.approx(2.5 * seen[0], rel=1e-4)


def test_witnesses_tell_how_much_is_lost() -> None:
    """Margins that fell as far as they are wide: nothing is left for the new. That rose: all."""
    torch.manual_seed(0)
    reminder, weights = Reminder(), []
    reminder.remember(nn.Linear(4, 3), torch.rand(30, 4), per_task=30)  # without labels, what is predicted is right
    witnesses = reminder.memory.draw_witnesses(64)
    for scale in (-1.0, 2.0):
        tolerance = Tolerance(0.01)
        for steps in range(6):
            tolerance.steps = steps
            now = witnesses.logits * (scale if steps else 1.0)  # as they were, at first
            tolerance.look(reminder.memory, now, witnesses, held=False)
        weights.append(tolerance.weight_of_new.item())
    assert weights[0] == pytest.approx(0.01) and weights[1] == 1.0


def test_what_earlier_tasks_have_lost_leaves_a_third() -> None:
    torch.manual_seed(0)
    reminder, tolerance = Reminder(), Tolerance(0.01)
    reminder.remember(nn.Linear(4, 3), torch.rand(30, 4), per_task=30)
    witnesses = reminder.memory.draw_witnesses(64)
    for steps in range(6):
        tolerance.steps = steps
        tolerance.look(reminder.memory, -witnesses.logits, witnesses, held=False)
    assert tolerance.weight_of_new.item() == pytest.approx(1 / 3, rel=1e-4)
