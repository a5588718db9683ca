import importlib
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset

pytest.importorskip("avalanche")

from avalanche.benchmarks import NCScenario, nc_benchmark, split_online_stream
from avalanche.models import IncrementalClassifier, MTSimpleMLP
from avalanche.training import Naive
from avalanche.training.plugins import SupervisedPlugin

from selfreminder._base.errors import MissingExtraError, SelfReminderError
from selfreminder.plugins.avalanche import ReminderPlugin, task_logits
from selfreminder.reminder.reminder import Reminder

pytestmark = pytest.mark.filterwarnings("ignore:No loggers specified")

SAME = {"rtol": 0.0, "atol": 1e-6}
"""float32 sums in another order, over a dozen steps of weights below 1"""
MANY = 1e3 * SAME["atol"]


def samples(seed: int) -> TensorDataset:
    """96 samples of 6 classes, as many of each, in no order."""
    generator = torch.Generator().manual_seed(seed)
    y = (torch.arange(96) % 6)[torch.randperm(96, generator=generator)]
    x = F.one_hot(y, 8) + 0.5 * torch.randn(96, 8, generator=generator)
    data = TensorDataset(x, y)
    data.targets = y.tolist()  # pyright: ignore[reportAttributeAccessIssue]
    return data


def benchmark(**settings: Any) -> NCScenario:
    """Three experiences of two classes each."""
    settings = {"task_labels": False, "fixed_class_order": [4, 1, 0, 5, 3, 2], **settings}
    return nc_benchmark(samples(0), samples(1), 3, **settings)


def in_order(*classes: int) -> Subset[Any]:
    """The samples of an experience as Avalanche has them: class by class."""
    data = samples(0)
    return Subset(data, [i for label in classes for i in (data.tensors[1] == label).nonzero().flatten().tolist()])


def classifier() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.0), nn.Linear(16, 6))


class Grows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(8, 16), nn.ReLU()), IncrementalClassifier(16)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class Clips(SupervisedPlugin):
    def before_update(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        nn.utils.clip_grad_norm_(strategy.model.parameters(), 0.05)


def strategy_of(model: nn.Module, *plugins: SupervisedPlugin, epochs: int = 2) -> Naive:
    return Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        train_mb_size=8,
        train_epochs=epochs,
        eval_mb_size=8,
        plugins=list(plugins),
        evaluator=None,
    )


def fit(*plugins: SupervisedPlugin) -> nn.Module:
    strategy = strategy_of(classifier(), *plugins)
    for experience in benchmark().train_stream:
        strategy.train(experience, shuffle=False)
    return strategy.model


def loop(reminder: Reminder, *, clip: float | None = None) -> nn.Module:
    """Avalanche's order by hand: gradients of the batch and the penalty, then clipping, then a step."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for task in (in_order(1, 4), in_order(0, 5), in_order(2, 3)):
        for _ in range(2):
            for x, y in DataLoader(task, batch_size=8):
                optimizer.zero_grad()
                (F.cross_entropy(model(x), y) + reminder.penalty(model)).backward()
                if clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
        reminder.remember(model, task, per_class=5)
    return model


def reminder_of(**settings: Any) -> Reminder:
    """Of draws smaller than the memory."""
    return Reminder(**{"strength": 0.5, "batch_size": 6, **settings})


def assert_same(ours: nn.Module, theirs: nn.Module) -> None:
    for name, weight in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], weight, **SAME)


def distance(ours: nn.Module, theirs: nn.Module) -> float:
    return max((a - b).abs().max().item() for a, b in zip(ours.parameters(), theirs.parameters()))


def test_weights_and_memory_are_those_of_the_plain_loop() -> None:
    ours, theirs = reminder_of(), reminder_of()
    model = fit(ReminderPlugin(ours, per_class=5))
    assert_same(model, loop(theirs))
    assert ours.memory.counts == theirs.memory.counts == {0: 10, 1: 10, 2: 10}
    assert torch.equal(ours.memory.sources, theirs.memory.sources)
    torch.testing.assert_close(ours.memory.logits, theirs.memory.logits, rtol=0.0, atol=1e-5)
    assert distance(model, fit()) > MANY, "the penalty should be felt"


@pytest.mark.parametrize("reminder_first", [True, False])
def test_clipping_is_of_the_sum_wherever_it_is_listed(reminder_first: bool) -> None:
    plugins = [ReminderPlugin(reminder_of(), per_class=5), Clips()]
    model = fit(*plugins[:: 1 if reminder_first else -1])
    assert_same(model, loop(reminder_of(), clip=0.05))
    assert distance(model, loop(reminder_of())) > MANY, "the clipping should be felt"


def test_while_nothing_is_remembered_training_is_as_without() -> None:
    reminder = Reminder()
    assert distance(fit(ReminderPlugin(reminder)), fit()) == 0.0
    assert not len(reminder.memory)


def test_the_loss_that_loggers_see_has_the_penalty_in_it() -> None:
    class Sees(SupervisedPlugin):
        losses: list[float]

        def after_backward(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
            self.losses.append(strategy.loss.item())

    def seen(*plugins: SupervisedPlugin) -> float:
        sees = Sees()
        sees.losses = []
        strategy_of(classifier(), *plugins, sees, epochs=1).train(benchmark().train_stream[0], shuffle=False)
        return sees.losses[0]

    reminder = Reminder(strength=0.5)
    reminder.remember(classifier(), samples(2), per_class=2)
    reminder.memory = reminder.memory.with_logits(reminder.memory.logits + 1)
    penalty = reminder.penalty(classifier()).item()
    assert penalty > 1 and seen(ReminderPlugin(reminder)) == pytest.approx(seen() + penalty, abs=1e-5)


def test_it_remembers_what_eval_transforms_give() -> None:
    streams = benchmark(train_transform=lambda x: x + 100, eval_transform=lambda x: x - 1)
    reminder = Reminder()
    strategy = strategy_of(classifier(), ReminderPlugin(reminder, per_task=7), epochs=1)
    strategy.train(streams.train_stream[0], shuffle=False)
    x, y = next(iter(DataLoader(in_order(1, 4), batch_size=32)))
    kept, rows = reminder.memory.read(), reminder.memory.sources.long()
    assert torch.equal(kept.inputs["x"], x[rows] - 1)
    assert torch.equal(kept.labels.long(), y[rows])
    strategy.model.eval()
    # What it was trained on is so large that its logits are tens of thousands.
    torch.testing.assert_close(strategy.model(kept.inputs["x"]).detach(), kept.logits, rtol=1e-5, atol=0.0)


def test_a_task_label_is_a_head() -> None:
    reminder = reminder_of(grow=True, logits_of=task_logits, batch_size=100)
    torch.manual_seed(0)
    model = MTSimpleMLP(input_size=8, hidden_size=16)
    strategy = strategy_of(model, ReminderPlugin(reminder, per_class=5))
    for experience in benchmark(task_labels=True).train_stream:
        strategy.train(experience, shuffle=False)
    assert reminder.memory.counts == {0: 10, 1: 10, 2: 10}
    model.eval()
    expected = 0.0
    for task, classes in enumerate(([1, 4], [0, 5], [2, 3])):
        kept = reminder.memory.take((reminder.memory.tasks == task) & ~reminder.memory.witnesses)
        assert sorted(set(kept.labels.tolist())) == classes
        x = kept.read().inputs["x"]
        now = model.classifier.classifiers[str(task)](model.features(x))[:, classes]
        expected += 0.5 * (now - kept.logits[:, classes]).square().sum(1).mean().item()
        others = [k for k in range(kept.logits.shape[1]) if k not in classes]
        assert not kept.logits[:, others].any(), "outputs of other classes are masked"
    assert reminder.penalty(model).item() == pytest.approx(expected, rel=1e-4)
    assert expected > 1e-4


def test_outputs_may_grow() -> None:
    reminder = reminder_of(grow=True, logits_of=task_logits)
    torch.manual_seed(0)
    strategy = strategy_of(Grows(), ReminderPlugin(reminder, per_class=5))
    for experience in benchmark(fixed_class_order=[1, 0, 2, 3, 5, 4]).train_stream:
        strategy.train(experience, shuffle=False)
    assert reminder.memory.widths.unique().tolist() == [6]  # old items have the logits of new classes, too
    assert reminder.memory.logits.abs().max() < 100
    first = reminder.report(strategy.model).tasks[0]
    assert first.drift < 0.3  # held where they were, though outputs that came later may be larger


@pytest.mark.parametrize("settings", [{}, {"grow": True}, {"logits_of": task_logits}])
def test_a_model_that_adapts_needs_a_reminder_that_does(settings: dict[str, Any]) -> None:
    for model in (Grows(), MTSimpleMLP(input_size=8)):
        strategy = strategy_of(model, ReminderPlugin(Reminder(**settings), per_class=5))
        with pytest.raises(SelfReminderError, match=r"Reminder\(grow=True, logits_of=task_logits\)"):
            strategy.train(benchmark().train_stream[0])


def test_an_online_stream_is_one_task() -> None:
    reminder, streams = Reminder(), benchmark()
    strategy = strategy_of(classifier(), ReminderPlugin(reminder, per_task=20), epochs=1)
    seen = []
    for part in split_online_stream(streams.train_stream, experience_size=8, seed=0):
        strategy.train(part)
        seen.append(reminder.memory.counts)
    assert seen == [{0: 8}, {0: 16}] + [{0: 20}] * 10
    assert len(reminder.memory.labels.unique()) == 6


def test_without_avalanche_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "avalanche.benchmarks", None)
    monkeypatch.delitem(sys.modules, "selfreminder.plugins.avalanche")
    with pytest.raises(MissingExtraError, match=r"pip install 'selfreminder\[avalanche\]'"):
        importlib.import_module("selfreminder.plugins.avalanche")
