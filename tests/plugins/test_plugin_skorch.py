import copy
import importlib
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

pytest.importorskip("skorch")

from sklearn.base import clone
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback, Checkpoint, GradientNormClipping, LRScheduler
from skorch.dataset import ValidSplit

from selfreminder._base.errors import MissingExtraError, SelfReminderError
from selfreminder.plugins.skorch import ReminderCallback, log_probabilities
from selfreminder.reminder.reminder import Reminder

SAME = {"rtol": 0.0, "atol": 1e-6}
"""float32 sums in another order, over a dozen steps of weights below 1"""
MANY = 1e3 * SAME["atol"]


class Classifier(nn.Module):
    def __init__(self, softmax: bool = False) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        self.softmax = softmax

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).softmax(1) if self.softmax else self.layers(x)


class Accumulates(NeuralNetClassifier):
    """A step every third batch, by a `train_step` of its own that tells no callback."""

    def train_step(self, batch: Any, **fit_params: Any) -> Any:
        step = self.train_step_single(batch, **fit_params)
        if len(self.history[-1, "batches"]) % 3 == 0:
            self.optimizer_.step()
            self.optimizer_.zero_grad()
        return step

    def get_loss(self, *args: Any, **kwargs: Any) -> Tensor:
        return super().get_loss(*args, **kwargs) / 3


def task(seed: int, count: int = 96) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=generator)
    return x, (x @ torch.randn(8, 3, generator=generator)).argmax(1)


def reminded(**settings: Any) -> Reminder:
    """A memory larger than a draw, of a model unlike the one that learns."""
    torch.manual_seed(1)
    reminder = Reminder(**{"strength": 0.1, "batch_size": 8, **settings})
    reminder.remember(Classifier(), *task(1), per_class=10)
    return reminder


def net_of(*callbacks: Any, kind: type[NeuralNetClassifier] = NeuralNetClassifier, **settings: Any) -> Any:
    torch.manual_seed(0)
    settings = {"criterion": nn.CrossEntropyLoss, "optimizer": torch.optim.SGD, "lr": 0.1, **settings}
    net = kind(
        Classifier, callbacks=list(callbacks), **{"max_epochs": 2, "batch_size": 16, "train_split": None, **settings}
    )
    return net.set_params(verbose=0).initialize()


def fit(*callbacks: Any, data: Any = None, **settings: Any) -> nn.Module:
    return net_of(*callbacks, **settings).partial_fit(*(data or task(2))).module_


def loop(reminder: Reminder, *, optimizer: str = "SGD", accumulate: int = 1, clip: float | None = None) -> nn.Module:
    """skorch's order by hand: gradients of the batches, then clipping, then the penalty's, then a step."""
    torch.manual_seed(0)
    model = Classifier()
    steps = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1)
    for _ in range(2):
        for i, (x, y) in enumerate(DataLoader(TensorDataset(*task(2)), batch_size=16), 1):
            (F.cross_entropy(model(x), y) / accumulate).backward()
            if i % accumulate == 0:
                if clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                reminder.penalty(model).backward()
                steps.step()
                steps.zero_grad()
    return model


def assert_same(ours: nn.Module, theirs: nn.Module) -> None:
    for name, weight in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], weight, **SAME)


def distance(ours: nn.Module, theirs: nn.Module) -> float:
    return max((a - b).abs().max().item() for a, b in zip(ours.parameters(), theirs.parameters()))


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_weights_are_those_of_the_plain_loop(optimizer: str) -> None:
    settings = {"optimizer": getattr(torch.optim, optimizer)}
    ours = fit(ReminderCallback(reminded()), **settings)
    assert_same(ours, loop(reminded(), optimizer=optimizer))
    assert distance(ours, fit(**settings)) > MANY, "the penalty should be felt"


@pytest.mark.parametrize("reminder_first", [True, False])
def test_clipping_is_of_the_new_alone_wherever_it_is_listed(reminder_first: bool) -> None:
    callbacks = [ReminderCallback(reminded()), GradientNormClipping(0.05)]
    ours = fit(*callbacks[:: 1 if reminder_first else -1])
    assert_same(ours, loop(reminded(), clip=0.05))
    assert distance(ours, loop(reminded())) > MANY, "the clipping should be felt"


def test_accumulated_batches_are_one_step() -> None:
    ours = fit(ReminderCallback(reminded()), kind=Accumulates)
    assert_same(ours, loop(reminded(), accumulate=3))


def test_accumulation_by_accelerate_is_one_step() -> None:
    accelerate = pytest.importorskip("accelerate")
    hf = importlib.import_module("skorch.hf")
    kind = type("Accelerated", (hf.AccelerateMixin, NeuralNetClassifier), {})
    calls, reminder = [], reminded()
    reminder.add_gradient = lambda module, optimizer: calls.append(type(optimizer))
    accelerator = accelerate.Accelerator(gradient_accumulation_steps=3, cpu=True)
    fit(ReminderCallback(reminder), kind=kind, accelerator=accelerator)
    assert calls == [torch.optim.SGD] * 4  # 2 epochs of 6 batches


def test_a_scheduler_beside_it_does_its_work() -> None:
    ours = fit(ReminderCallback(reminded()), LRScheduler(torch.optim.lr_scheduler.ConstantLR, factor=1.0))
    assert_same(ours, loop(reminded()))


def test_an_optimizer_that_is_made_anew_in_between_is_followed() -> None:
    class Anew(Callback):
        def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
            before = net.optimizer_
            net.set_params(criterion__label_smoothing=0.0)
            assert net.optimizer_ is not before

    assert_same(fit(ReminderCallback(reminded()), Anew()), loop(reminded()))


def test_while_nothing_is_remembered_training_is_as_without() -> None:
    assert distance(fit(ReminderCallback(Reminder())), fit()) == 0.0


def test_inputs_by_name() -> None:
    x, y = task(2)
    torch.manual_seed(1)
    by_name = Reminder(strength=0.1, batch_size=8)
    by_name.remember(Classifier(), {"x": task(1)[0]}, task(1)[1], per_class=10)
    ours = fit(ReminderCallback(by_name), data=({"x": x.numpy()}, y.numpy()))
    assert_same(ours, loop(reminded()))


def test_it_remembers_the_training_part_when_fit_ends() -> None:
    reminder = Reminder()
    x, y = (part.numpy() for part in task(2))
    net = net_of(ReminderCallback(reminder, per_class=4), train_split=ValidSplit(3))
    net.fit(x, y)
    trained = net.get_split_datasets(x, y)[0]
    kept, given = reminder.memory, np.stack([item[0] for item in trained])
    assert kept.labels.bincount().tolist() == [4, 4, 4]
    inputs = kept.read().inputs["x"]
    assert torch.equal(inputs, torch.from_numpy(given)[kept.sources.long()])
    torch.testing.assert_close(net.module_.eval()(inputs).detach(), kept.logits, **SAME)
    net.set_params(callbacks__ReminderCallback__per_class=2).partial_fit(x, y)
    assert kept.counts == {0: 12} and reminder.memory.counts == {0: 12, 1: 6}


def test_a_net_is_pickled_copied_and_cloned_with_its_reminder() -> None:
    net = net_of(ReminderCallback(reminded())).partial_fit(*task(2))
    expected = copy.deepcopy(net).partial_fit(*task(3)).module_
    again = pickle.loads(pickle.dumps(net))
    assert_same(again.partial_fit(*task(3)).module_, expected)
    assert distance(again.module_, net.module_) > MANY
    [callback] = clone(net).callbacks
    assert callback.reminder.memory.counts == {0: 30}


def test_a_net_is_pickled_while_it_is_trained(tmp_path: Path) -> None:
    checkpoint = Checkpoint(monitor=None, f_pickle="net.pkl", dirname=str(tmp_path))
    net = net_of(ReminderCallback(reminded(), per_class=2), checkpoint).partial_fit(*task(2))
    written = (tmp_path / "net.pkl").read_bytes()
    assert len(written) < len(pickle.dumps(net)) + 2000, "the data is no part of it"
    assert_same(pickle.loads(written).module_, net.module_)


def test_params_are_saved_and_loaded_beside_it(tmp_path: Path) -> None:
    net = net_of(ReminderCallback(reminded())).partial_fit(*task(2))
    files = {name: tmp_path / name for name in ("f_params", "f_optimizer", "f_history")}
    net.save_params(**files)
    net.callbacks[0].reminder.save(tmp_path / "memory")
    again = net_of(ReminderCallback(Reminder.load(tmp_path / "memory", strength=0.1, batch_size=8)))
    again.load_params(**files)
    assert_same(again.module_, net.module_)
    assert again.callbacks[0].reminder.memory.counts == {0: 30}


def test_after_an_error_in_a_batch_the_penalty_comes_once() -> None:
    class Fails(Callback):
        def on_grad_computed(self, net: Any, named_parameters: Any, **kwargs: Any) -> None:
            raise RuntimeError("once")

    net = net_of(("fails", Fails()), ReminderCallback(reminded()))
    with pytest.raises(RuntimeError, match="once"):
        net.partial_fit(*task(2))
    net.set_params(callbacks__fails=Callback())
    assert_same(net.partial_fit(*task(2)).module_, loop(reminded()))


def test_a_module_of_probabilities() -> None:
    settings = {"criterion": nn.NLLLoss, "module__softmax": True}
    with pytest.raises(SelfReminderError, match=r"criterion=nn\.CrossEntropyLoss, or pass .*log_probabilities"):
        fit(ReminderCallback(reminded()), **settings)
    reminder = Reminder(strength=0.1, logits_of=log_probabilities)
    net = net_of(ReminderCallback(reminder, per_class=5), **settings).partial_fit(*task(2))
    logits = net.module_.layers(reminder.memory.read().inputs["x"]).log_softmax(1).detach()
    torch.testing.assert_close(reminder.memory.logits, logits, rtol=0.0, atol=1e-4)  # log(p + 1e-7) of p above 1e-3
    before = copy.deepcopy(net.module_)
    assert distance(net.partial_fit(*task(3)).module_, before) > MANY


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(SelfReminderError, match="LBFGS"):
        fit(ReminderCallback(reminded()), optimizer=torch.optim.LBFGS)
    with pytest.raises(SelfReminderError, match="exactly one of per_class, per_task, items and budget"):
        net_of(ReminderCallback(Reminder(), per_class=3, budget="1MB"))


def test_without_skorch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skorch", None)
    monkeypatch.delitem(sys.modules, "selfreminder.plugins.skorch")
    with pytest.raises(MissingExtraError, match=r"pip install 'selfreminder\[skorch\]'"):
        importlib.import_module("selfreminder.plugins.skorch")
