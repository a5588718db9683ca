import gc
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.utils import DistributedType
from datasets import Dataset
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from selfreminder._base.errors import MissingExtraError, SelfReminderError
from selfreminder.plugins.transformers import FILE, ReminderCallback
from selfreminder.reminder.reminder import Reminder

SAME = {"rtol": 0.0, "atol": 1e-6}
"""float32 sums in another order, over a dozen steps of weights below 1"""


@pytest.fixture(scope="module", autouse=True)
def no_old_garbage() -> Iterator[None]:
    """The Trainer collects garbage each time: let it look at its own only."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever would go to the hub fails at once."""
    monkeypatch.setattr("socket.socket.connect", None)


def made(seed: int = 0, dropout: float = 0.0) -> BertForSequenceClassification:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    noise = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout, "initializer_range": 0.2}
    config = BertConfig(vocab_size=20, max_position_embeddings=8, num_labels=3, **sizes, **noise)
    model = BertForSequenceClassification(config)
    model.accepts_loss_kwargs = False  # else the Trainer leaves the mean over micro-batches to BERT, which takes none
    return model


def task(seed: int, count: int = 96) -> Dataset:
    """Six words of which the first five say the class; a column `idx` that no model takes."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(1, 20, (count, 6), generator=generator)
    mask = torch.ones_like(words)
    mask[::2, 5] = 0
    columns = {"idx": torch.arange(count), "input_ids": words * mask, "attention_mask": mask, "label": words.sum(1) % 3}
    return Dataset.from_dict({name: column.tolist() for name, column in columns.items()})


def tensors(data: Dataset) -> tuple[dict[str, Tensor], Tensor]:
    columns = data.with_format("torch")[:]
    return {name: columns[name] for name in ("input_ids", "attention_mask")}, columns["label"]


def reminded(strength: float = 0.1) -> Reminder:
    """A memory larger than a draw, of a model unlike the one that learns."""
    reminder = Reminder(strength=strength, batch_size=8)
    reminder.remember(made(seed=1), *tensors(task(1)), per_class=10)
    return reminder


def trainer_of(folder: Path, model: nn.Module, *callbacks: ReminderCallback, **settings: Any) -> Trainer:
    quiet = {"report_to": "none", "disable_tqdm": True, "logging_strategy": "no", "use_cpu": True}
    settings = {"max_steps": 12, "save_strategy": "no", "max_grad_norm": 0.0, **quiet, **settings}
    args = TrainingArguments(
        str(folder), per_device_train_batch_size=16, train_sampling_strategy="sequential", **settings
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    constant = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    return Trainer(model, args, train_dataset=task(2), optimizers=(optimizer, constant), callbacks=list(callbacks))


def loop(model: nn.Module, reminder: Reminder, *, steps: int = 12, accumulate: int = 1, clip: float = 0.0) -> nn.Module:
    """The Trainer's order by hand: gradients of the batches, then clipping, then the penalty's, then a step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    inputs, labels = tensors(task(2))
    batches = torch.arange(len(labels)).split(16)
    for step in range(steps):
        for micro in range(accumulate):
            rows = batches[(step * accumulate + micro) % len(batches)]
            given = {name: x[rows] for name, x in inputs.items()}
            (model(**given, labels=labels[rows]).loss / accumulate).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        reminder.penalty(model).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def assert_same(ours: nn.Module, theirs: nn.Module, **tolerance: float) -> None:
    for name, weight in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], weight, **(tolerance or SAME))


def distance(ours: nn.Module, theirs: nn.Module) -> float:
    return max((a - b).abs().max().item() for a, b in zip(ours.parameters(), theirs.parameters()))


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_weights_are_those_of_the_plain_loop(tmp_path: Path, accumulate: int, clip: float) -> None:
    settings: dict[str, Any] = {"gradient_accumulation_steps": accumulate, "max_grad_norm": clip}
    trainer_of(tmp_path, ours := made(), ReminderCallback(reminded()), **settings).train()
    assert_same(ours, loop(made(), reminded(), accumulate=accumulate, clip=clip))
    trainer_of(tmp_path, unreminded := made(), **settings).train()
    assert distance(ours, unreminded) > 1e3 * SAME["atol"], "the penalty should be felt"


def test_an_empty_memory_changes_nothing(tmp_path: Path) -> None:
    trainer_of(tmp_path, ours := made(), ReminderCallback(Reminder())).train()
    trainer_of(tmp_path, theirs := made()).train()
    assert_same(ours, theirs, rtol=0.0, atol=0.0)


def test_the_reminder_leaves_the_trainers_random_numbers_alone(tmp_path: Path) -> None:
    """With dropout, and a penalty too weak to be felt."""
    trainer_of(tmp_path, ours := made(dropout=0.3), ReminderCallback(reminded(strength=0.0))).train()
    trainer_of(tmp_path, theirs := made(dropout=0.3)).train()
    assert_same(ours, theirs, rtol=0.0, atol=0.0)


def test_bfloat16_is_for_old_items_too(tmp_path: Path) -> None:
    """The Trainer's model computes in bfloat16 whoever calls it, and gives float32."""
    reminder, model = Reminder(strength=0.1), made()
    trainer_of(tmp_path, model, ReminderCallback(reminder, task(2), per_class=4), bf16=True).train()
    inputs, _ = tensors(task(2))
    sources = reminder.memory.sources
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        again = model.eval()(**{name: x[sources] for name, x in inputs.items()}).logits.float()
    torch.testing.assert_close(reminder.memory.read().logits, again, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("unscaled", [False, True])
def test_scaled_gradients_are_unscaled_first(unscaled: bool) -> None:
    """The Trainer's clipping unscales; where nothing has, the callback does, and the scaler knows."""
    model, reminder, scaler = made(), reminded(), torch.amp.GradScaler("cpu", init_scale=1024.0)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler.scale(model(**tensors(task(2))[0]).logits.square().mean()).backward()
    wrapped = SimpleNamespace(optimizer=plain, scaler=scaler, param_groups=plain.param_groups)
    if unscaled:
        scaler.unscale_(plain)
    ReminderCallback(reminder).on_pre_optimizer_step(None, None, None, model=model, optimizer=wrapped)  # pyright: ignore
    scaler.step(plain)

    other = made()
    other(**tensors(task(2))[0]).logits.square().mean().backward()
    reminded().penalty(other).backward()
    torch.optim.SGD(other.parameters(), lr=0.1).step()
    assert_same(model, other)


@pytest.mark.parametrize("saved", [3, 8], ids=["within an epoch", "in the next epoch"])
def test_resuming_equals_no_interruption(tmp_path: Path, saved: int) -> None:
    """Draws go on where they were, and the memory comes from the checkpoint alone."""
    trainer_of(tmp_path, through := made(dropout=0.1), ReminderCallback(reminded())).train()
    settings: dict[str, Any] = {"save_strategy": "steps", "save_steps": saved}
    trainer_of(tmp_path, made(dropout=0.1), ReminderCallback(reminded()), max_steps=saved, **settings).train()

    reminder = Reminder(strength=0.1, batch_size=8)
    trainer = trainer_of(tmp_path, resumed := made(dropout=0.1), ReminderCallback(reminder))
    trainer.train(resume_from_checkpoint=True)
    assert len(reminder.memory) == 30
    assert_same(resumed, through, rtol=0.0, atol=0.0)


def test_a_checkpoint_without_a_reminder_is_no_place_to_go_on_from(tmp_path: Path) -> None:
    trainer_of(tmp_path, made(), max_steps=2, save_strategy="steps", save_steps=2).train()
    trainer = trainer_of(tmp_path, made(), ReminderCallback(reminder := reminded()))
    with pytest.raises(SelfReminderError, match=r"no .*checkpoint-2.reminder\.safetensors: .* by reminder\.save"):
        trainer.train(resume_from_checkpoint=True)
    reminder.save(tmp_path / "checkpoint-2" / FILE)
    trainer_of(tmp_path, made(), ReminderCallback(again := Reminder())).train(resume_from_checkpoint=True)
    assert len(again.memory) == 30


def test_training_ends_with_remembering_what_it_was_told_to(tmp_path: Path) -> None:
    """The label is not fed, nor what the model does not take."""
    reminder = Reminder()
    trainer_of(tmp_path, model := made(), ReminderCallback(reminder, task(2), per_class=4), max_steps=2).train()
    assert reminder.memory.inputs.keys() == {"input_ids", "attention_mask"}
    assert reminder.memory.labels.bincount().tolist() == [4, 4, 4]
    assert reminder.penalty(model).item() == 0.0


def test_gradients_in_shards_are_refused() -> None:
    optimizer = SimpleNamespace(accelerator_state=SimpleNamespace(distributed_type=DistributedType.FSDP))
    with pytest.raises(SelfReminderError, match="FSDP keeps gradients in shards"):
        ReminderCallback(Reminder()).on_train_begin(None, None, None, optimizer=optimizer)  # pyright: ignore


def test_how_much_and_of_what_belong_together() -> None:
    with pytest.raises(SelfReminderError, match="pass data="):
        ReminderCallback(Reminder(), per_class=4)
    with pytest.raises(SelfReminderError, match="exactly one of per_class, per_task, items and budget, not 0"):
        ReminderCallback(Reminder(), task(2))


def test_without_transformers_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "selfreminder.plugins.transformers")
    with pytest.raises(MissingExtraError, match=r"pip install 'selfreminder\[transformers\]'"):
        importlib.import_module("selfreminder.plugins.transformers")
