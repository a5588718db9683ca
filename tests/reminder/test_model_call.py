"""Whatever a model takes and gives, a reminder finds its logits; what is no classifier is refused."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder.reminder.model_call import check_logits
from selfreminder.reminder.reminder import Reminder
from selfreminder.samples import name_inputs, restore_structure


@dataclass
class Output:
    loss: Tensor | None
    logits: Tensor


class Pair(NamedTuple):
    scores: Tensor
    hidden: Tensor


class Shaped(nn.Module):
    """A classifier whose output has the shape that `give` makes of its logits and features."""

    def __init__(self, give: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.wide = nn.Linear(4, 3), nn.Linear(4, 5)
        self.give = give

    def forward(self, x: Tensor) -> Any:
        return self.give(self.layer(x), self.wide(x))


X, Y = torch.rand(30, 4, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3


@pytest.mark.parametrize(
    ("give", "head"),
    [
        (lambda z, h: z, None),
        (lambda z, h: (z, h), None),
        (lambda z, h: [z, h], 0),
        (lambda z, h: (h, z), 1),
        (lambda z, h: (h, z), -1),
        (lambda z, h: Pair(z, h), None),
        (lambda z, h: Pair(z, h), "scores"),
        (lambda z, h: {"logits": z, "features": h}, None),
        (lambda z, h: {"only": z}, None),
        (lambda z, h: {"a": h, "b": z}, "b"),
        (lambda z, h: Output(None, z), None),
        (lambda z, h: Output(None, z), "logits"),
    ],
)
def test_every_shape_of_output(give: Callable[[Tensor, Tensor], Any], head: Any) -> None:
    model = Shaped(give)
    reminder = Reminder(strength=1.0, head=head)
    reminder.remember(model, X, Y, per_class=4)
    torch.testing.assert_close(reminder.memory.logits, model.layer(X[reminder.memory.sources]).detach())
    assert reminder.penalty(model).item() == 0.0
    with torch.no_grad():
        model.layer.bias += 1.0
    assert reminder.penalty(model).item() == pytest.approx(3.0, rel=1e-5)


def test_one_pass_where_the_output_is_no_tensor() -> None:
    """Both parts come out right, in two passes."""
    model = Shaped(lambda z, h: {"logits": z, "features": h})
    reminder = Reminder(strength=1.0)
    reminder.remember(model, X, Y, per_class=4)
    with torch.no_grad():
        model.layer.bias += 1.0
    for _ in range(2):
        output, penalty = reminder.forward(model, X[:5])
        torch.testing.assert_close(output["logits"], model.layer(X[:5]))  # pyright: ignore[reportArgumentType, reportCallIssue]
        assert penalty.item() == pytest.approx(3.0, rel=1e-5)


def test_a_head_for_each_task() -> None:
    """Each item is matched at its own task's head, whatever their widths, in one pass."""
    model = Shaped(lambda z, h: {"old": z, "new": h})
    reminder = Reminder(strength=1.0, head={0: "old", 1: "new"})
    reminder.remember(model, X, Y, per_class=2)
    assert reminder.memory.logits.shape == (6, 3)
    assert reminder.penalty(model).item() == 0.0  # although the other head is wider
    reminder.remember(model, X, Y, per_class=2)
    assert reminder.memory.widths.tolist() == [3] * 6 + [5] * 6
    assert reminder.penalty(model).item() == pytest.approx(0.0, abs=1e-12)  # one pass for both tasks
    with torch.no_grad():
        model.wide.bias += 1.0
    assert reminder.penalty(model).item() == pytest.approx(5.0, rel=1e-5)
    assert reminder.report(model).tasks[0].drift == 0.0
    reminder.remember(model, X, Y, per_class=2, task=0)
    with pytest.raises(SelfReminderError, match="task 2 has no head"):
        reminder.remember(model, X, Y, per_class=2)


def test_heads_of_tasks_that_are_not_remembered_get_no_gradient() -> None:
    """Zeros would let AdamW decay what the new task has just learned."""
    model = Shaped(lambda z, h: {"old": z, "new": h})
    reminder = Reminder(strength=1.0, head={0: "old", 1: "new"})
    reminder.remember(model, X, Y, per_class=2)
    reminder.penalty(model).backward()
    assert model.layer.weight.grad is not None
    assert model.wide.weight.grad is None
    reminder.remember(model, X, Y, per_class=2)
    reminder.penalty(model).backward()
    assert model.wide.weight.grad is not None


class Takes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return self.layer(first - second)


@pytest.mark.parametrize("inputs", [(X, X.flip(0)), {"second": X.flip(0), "first": X}])
def test_tuples_and_dicts_are_fed_as_they_were_given(inputs: Any) -> None:
    model, reminder = Takes(), Reminder()
    reminder.remember(model, inputs, Y, per_class=3)
    rows = reminder.memory.sources.long()
    torch.testing.assert_close(reminder.memory.logits, model(X[rows], X.flip(0)[rows]).detach())
    assert reminder.penalty(model).item() == 0.0


@pytest.mark.parametrize("inputs", [(X, X.flip(0)), {"second": X.flip(0), "first": X}])
def test_validation_data_is_given_as_the_data_is(inputs: Any) -> None:
    model, reminder = Takes(), Reminder()
    reminder.remember(model, inputs, Y, per_class=3, select="influence", validation=(inputs, Y))
    assert reminder.penalty(model).item() == 0.0
    with pytest.raises(SelfReminderError, match="inputs are a tensor, a tuple of tensors or tensors by name"):
        reminder.remember(model, inputs, Y, per_class=3, select="influence", validation=([1.0], Y))


def test_the_model_comes_first() -> None:
    with pytest.raises(SelfReminderError, match=r"the model is a tensor of shape \(30, 4\)"):
        Reminder().remember(X, nn.Linear(4, 3), per_class=1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SelfReminderError, match="no state of a reminder: it lacks columns, draws, facts"):
        Reminder().load_state_dict({})


def test_labels_are_no_inputs() -> None:
    with pytest.raises(SelfReminderError, match="labels come beside"):
        Reminder().remember(nn.Linear(4, 3), (X, Y), per_class=1)


def test_names_round_trip() -> None:
    for inputs in (X, (X, Y), {"ids": X, "mask": Y}):
        back = restore_structure(name_inputs(inputs))
        assert type(back) is type(inputs)
        assert name_inputs(back).keys() == name_inputs(inputs).keys()
    for wrong in ([], {}, "text", {"x": 3}, 7):
        with pytest.raises(SelfReminderError, match="inputs are a tensor"):
            name_inputs(wrong)
    with pytest.raises(SelfReminderError, match="not of one length"):
        name_inputs((X, X[:3]))


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda z, h: z[:, :1], "not a regression"),
        (lambda z, h: z[:, None].expand(-1, 7, -1), "a token"),
        (lambda z, h: z[:, 0], r"shape \(3,\)"),
        (lambda z, h: z.argmax(1, keepdim=True).expand(-1, 3), "logits of a classifier"),
        (lambda z, h: {"a": z, "b": h}, "dict of a, b with no logits"),
        (lambda z, h: "yes", "a str"),
    ],
)
def test_what_is_no_classifier_is_refused(give: Callable[[Tensor, Tensor], Any], message: str) -> None:
    with pytest.raises(SelfReminderError, match=message):
        Reminder().remember(Shaped(give), X, Y, per_class=1)


def test_one_logit_becomes_two() -> None:
    def both(model: nn.Module, inputs: Any, task: Tensor | int) -> Tensor:
        z = model(inputs)
        return torch.cat([torch.zeros_like(z), z], 1)

    model, reminder = nn.Linear(4, 1), Reminder(logits_of=both)
    reminder.remember(model, X, per_task=10)
    assert reminder.memory.logits.shape == (10, 2)
    assert reminder.penalty(model).item() == 0.0


def test_heads_that_are_not_there() -> None:
    pair, mapping = Shaped(lambda z, h: (z, h)), Shaped(lambda z, h: {"a": z})
    for model, head in ((pair, 2), (pair, "b"), (mapping, "b"), (mapping, 0)):
        with pytest.raises(SelfReminderError, match="no head"):
            Reminder(head=head).remember(model, X, Y, per_class=1)
    with pytest.raises(SelfReminderError, match="pass one of them"):
        Reminder(head=0, logits_of=lambda model, x, task: model(x))
    check_logits(torch.zeros(3, 2))
