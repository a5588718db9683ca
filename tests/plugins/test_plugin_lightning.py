import importlib
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from selfreminder._base.errors import MissingExtraError, SelfReminderError
from selfreminder.plugins.lightning import ReminderCallback
from selfreminder.reminder.reminder import Reminder

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*is deprecated"),
]

SAME = {"rtol": 0.0, "atol": 1e-6}
"""float32 sums in another order, over a dozen steps of weights below 1"""


class Classifier(pl.LightningModule):
    def __init__(self, optimizer: str = "SGD", **settings: Any) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        self.optimizer, self.settings = optimizer, {"lr": 0.1, **settings}

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return F.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return getattr(torch.optim, self.optimizer)(self.parameters(), **self.settings)


class TwoOptimizers(Classifier):
    """Manual optimisation: a fast head and a slow body."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        body, head = self.optimizers()  # pyright: ignore[reportGeneralTypeIssues]
        body.zero_grad()
        head.zero_grad()
        self.manual_backward(F.cross_entropy(self(batch[0]), batch[1]))
        body.step()
        head.step()

    def configure_optimizers(self) -> Any:
        body, head = self.layers[0], self.layers[2]
        return torch.optim.SGD(body.parameters(), lr=0.05), torch.optim.SGD(head.parameters(), lr=0.2)


def made(kind: type[Classifier] = Classifier, **settings: Any) -> Classifier:
    torch.manual_seed(0)
    return kind(**settings)


def task(seed: int, count: int = 96) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=generator)
    return TensorDataset(x, (x @ torch.randn(8, 3, generator=generator)).argmax(1))


def reminded(strength: float = 0.1) -> Reminder:
    """A memory larger than a draw, of a model unlike the one that learns."""
    torch.manual_seed(1)
    reminder = Reminder(strength=strength, batch_size=8)
    reminder.remember(Classifier(), *task(1).tensors, per_class=10)
    return reminder


def trainer_of(*callbacks: Any, epochs: int = 2, **settings: Any) -> pl.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    settings = {"accelerator": "cpu", "enable_checkpointing": False, **quiet, **settings}
    return pl.Trainer(max_epochs=epochs, callbacks=list(callbacks), **settings)


def fit(model: Classifier, *callbacks: Any, **settings: Any) -> Classifier:
    trainer_of(*callbacks, **settings).fit(model, DataLoader(task(2), batch_size=16))
    return model


def loop(
    model: Classifier,
    reminder: Reminder,
    *,
    epochs: int = 2,
    accumulate: int = 1,
    clip: float | None = None,
    autocast: AbstractContextManager[Any] | None = None,
) -> Classifier:
    """Lightning's order by hand: gradients of the batches, then of the penalty, then clipping, then a step."""
    optimizer, autocast = model.configure_optimizers(), autocast or nullcontext()
    for _ in range(epochs):
        for i, (x, y) in enumerate(DataLoader(task(2), batch_size=16), 1):
            with autocast:
                loss = F.cross_entropy(model(x), y)
            (loss / accumulate).backward()
            if i % accumulate == 0:
                with autocast:
                    penalty = reminder.penalty(model)
                penalty.backward()
                if clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
    return model


def assert_same(ours: nn.Module, theirs: nn.Module, **tolerance: float) -> None:
    for name, weight in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], weight, **(tolerance or SAME))


def distance(ours: nn.Module, theirs: nn.Module) -> float:
    pairs = zip(ours.parameters(), theirs.parameters())
    return max((a - b).abs().max().item() for a, b in pairs)


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("clip", [None, 0.05])
def test_weights_are_those_of_the_plain_loop(accumulate: int, clip: float | None) -> None:
    callback = ReminderCallback(reminded())
    ours = fit(made(), callback, accumulate_grad_batches=accumulate, gradient_clip_val=clip)
    assert_same(ours, loop(made(), reminded(), accumulate=accumulate, clip=clip))
    unreminded = fit(made(), accumulate_grad_batches=accumulate, gradient_clip_val=clip)
    assert distance(ours, unreminded) > 1e3 * SAME["atol"], "the penalty should be felt"


def test_both_names_of_the_package_do() -> None:
    other = pytest.importorskip("pytorch_lightning")

    class Other(other.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = made().layers

        forward, training_step = Classifier.forward, Classifier.training_step

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = other.Trainer(
        max_epochs=2, accelerator="cpu", enable_checkpointing=False, callbacks=[ReminderCallback(reminded())], **quiet
    )
    trainer.fit(ours := Other(), DataLoader(task(2), batch_size=16))
    assert_same(ours, loop(made(), reminded()))


def test_an_empty_memory_changes_nothing() -> None:
    assert_same(fit(made(), ReminderCallback(Reminder())), fit(made()), rtol=0.0, atol=0.0)


def test_each_optimizer_that_steps_gets_its_own_parameters_gradient() -> None:
    ours = fit(made(TwoOptimizers), ReminderCallback(reminded()))
    theirs, reminder = made(TwoOptimizers), reminded()
    optimizers = theirs.configure_optimizers()
    for x, y in [batch for _ in range(2) for batch in DataLoader(task(2), batch_size=16)]:
        theirs.zero_grad()
        F.cross_entropy(theirs(x), y).backward()
        for optimizer in optimizers:
            parameters = optimizer.param_groups[0]["params"]
            for parameter, gradient in zip(parameters, torch.autograd.grad(reminder.penalty(theirs), parameters)):
                parameter.grad += gradient
            optimizer.step()
    assert_same(ours, theirs)


@pytest.mark.parametrize("fused", [False, True])
def test_a_scaler_scales_the_penalty_as_it_does_the_loss(fused: bool) -> None:
    """A fused optimiser gets scaled gradients: a penalty that is not would be lost, 1024 times too small."""
    precision = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=1024.0))
    ours = fit(made(fused=fused), ReminderCallback(reminded()), plugins=[precision])
    half = torch.autocast("cpu", torch.float16, cache_enabled=False)
    # Half precision rounds by 2^-11; scaled gradients round elsewhere than unscaled ones.
    assert_same(ours, loop(made(), reminded(), autocast=half), rtol=0.0, atol=3e-3)
    assert distance(ours, fit(made())) > 3e-2


def test_bfloat16_is_for_old_items_too() -> None:
    ours = fit(made(), ReminderCallback(reminded()), precision="bf16-mixed")
    bfloat16 = torch.autocast("cpu", torch.bfloat16, cache_enabled=False)
    assert_same(ours, loop(made(), reminded(), autocast=bfloat16))


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* is not empty")
def test_resuming_equals_no_interruption(tmp_path: Path) -> None:
    """Draws go on where they were, and the memory comes from the checkpoint alone."""
    through = fit(made(momentum=0.9), ReminderCallback(reminded()), epochs=4)
    saves = ModelCheckpoint(tmp_path, filename="halfway")
    fit(made(momentum=0.9), ReminderCallback(reminded()), saves, epochs=2, enable_checkpointing=True)
    halfway = tmp_path / "halfway.ckpt"
    assert "ReminderCallback" in torch.load(halfway, weights_only=True)["callbacks"]

    resumed, reminder = made(momentum=0.9), Reminder(strength=0.1, batch_size=8)
    trainer = trainer_of(ReminderCallback(reminder), ModelCheckpoint(tmp_path), epochs=4, enable_checkpointing=True)
    trainer.fit(resumed, DataLoader(task(2), batch_size=16), ckpt_path=halfway, weights_only=True)
    assert len(reminder.memory) == 30
    assert_same(resumed, through, rtol=0.0, atol=0.0)


def test_the_penalty_is_logged() -> None:
    trainer = trainer_of(ReminderCallback(reminded()), max_steps=1)
    before = reminded().penalty(made())
    trainer.fit(made(), DataLoader(task(2), batch_size=16))
    assert trainer.logged_metrics["reminder_penalty"] == before
    trainer = trainer_of(ReminderCallback(Reminder()), max_steps=1)
    trainer.fit(made(), DataLoader(task(2), batch_size=16))
    assert "reminder_penalty" not in trainer.logged_metrics


@pytest.mark.parametrize("data", [task(2), DataLoader(task(2), batch_size=20)], ids=["dataset", "loader"])
def test_fit_ends_with_remembering_what_it_was_told_to(data: Any) -> None:
    reminder = Reminder()
    callback = ReminderCallback(reminder, data, per_class=4)
    model = fit(made(), callback, epochs=1)
    assert reminder.memory.labels.bincount().tolist() == [4, 4, 4]
    assert reminder.penalty(model).item() == 0.0
    fit(model, callback, epochs=1)
    assert list(reminder.memory.counts.values()) == [12, 12]


def test_a_checkpoint_after_fit_has_what_was_remembered_at_its_end(tmp_path: Path) -> None:
    callback = ReminderCallback(Reminder(), task(2), per_class=4)
    trainer = trainer_of(callback, epochs=1)
    trainer.fit(made(), DataLoader(task(2), batch_size=16))
    trainer.save_checkpoint(tmp_path / "end.ckpt")
    again = ReminderCallback(Reminder())
    again.load_state_dict(torch.load(tmp_path / "end.ckpt", weights_only=True)["callbacks"]["ReminderCallback"])
    assert len(again.reminder.memory) == 12


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* is not empty")
def test_testing_with_a_checkpoint_takes_nothing_away(tmp_path: Path) -> None:
    """It was saved before `fit` remembered at its end."""

    class Tested(Classifier):
        def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
            self.log("loss", F.cross_entropy(self(batch[0]), batch[1]))

    callback, loader = ReminderCallback(Reminder(), task(2), per_class=4), DataLoader(task(2), batch_size=16)
    saves = ModelCheckpoint(tmp_path, filename="end")
    trainer = trainer_of(callback, saves, epochs=1, enable_checkpointing=True)
    trainer.fit(made(Tested), loader)
    assert len(callback.reminder.memory) == 12
    trainer.test(dataloaders=loader, ckpt_path=tmp_path / "end.ckpt", verbose=False, weights_only=True)
    assert len(callback.reminder.memory) == 12
    with pytest.warns(UserWarning, match="remembers nothing yet: what is remembered by now stays"):
        again = trainer_of(callback, ModelCheckpoint(tmp_path), epochs=2, enable_checkpointing=True)
        again.fit(made(Tested), loader, ckpt_path=tmp_path / "end.ckpt", weights_only=True)
    assert list(callback.reminder.memory.counts.values()) == [12, 12]


def test_lbfgs_is_refused() -> None:
    with pytest.raises(SelfReminderError, match=r"LBFGS .* add reminder\.penalty\(self\) to the loss in training_step"):
        fit(made(optimizer="LBFGS"), ReminderCallback(reminded()))


def test_gradients_in_shards_are_refused() -> None:
    class DeepSpeedStrategy(SingleDeviceStrategy):
        pass

    with pytest.raises(SelfReminderError, match=r"DeepSpeedStrategy keeps gradients in shards.* strategy='ddp'"):
        fit(made(), ReminderCallback(reminded()), accelerator="auto", strategy=DeepSpeedStrategy(torch.device("cpu")))


def test_how_much_and_of_what_belong_together() -> None:
    with pytest.raises(SelfReminderError, match="pass data="):
        ReminderCallback(Reminder(), per_class=4)
    with pytest.raises(SelfReminderError, match="exactly one of per_class, per_task, items and budget, not 0"):
        ReminderCallback(Reminder(), task(2))


def test_without_lightning_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "selfreminder.plugins.lightning")
    with pytest.raises(MissingExtraError, match=r"pip install 'selfreminder\[lightning\]'"):
        importlib.import_module("selfreminder.plugins.lightning")
