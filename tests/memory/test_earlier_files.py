"""Memory files of an earlier layout, committed as they were written then, are read as they always were."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder.memory.file import memory_hash, open_memory, save_memory
from selfreminder.memory.memory import Memory
from selfreminder.reminder.reminder import Reminder

FOLDER = Path(__file__).parent / "earlier"
IMAGES = (torch.arange(480) * 37 % 256).to(torch.uint8).reshape(30, 1, 4, 4)
LABELS = torch.arange(30) % 3
IDS, MASK = torch.arange(48).reshape(12, 4), torch.arange(48).reshape(12, 4) % 5 > 0


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.layer(ids.float() * mask)


def with_even_weights(model: nn.Module) -> nn.Module:
    """Weights that do not depend on how a version of torch draws them."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape))
    return model


def one_input() -> nn.Module:
    return with_even_weights(nn.Sequential(nn.Flatten(), nn.Linear(16, 3)))


def two_inputs() -> nn.Module:
    return with_even_weights(TwoInputs())


def scale(x: Tensor) -> Tensor:
    return x.float() / 255


SAMPLES = {
    "plain": (one_input, {}),
    "compressed": (one_input, {}),
    "inputs": (two_inputs, {}),
    "transform": (one_input, {"transform": scale}),
    "reservoir": (one_input, {}),
}
HASHES = {
    "plain": "6adb4f11c7b193d7",
    "compressed": "1ce7339c86ee1552",
    "inputs": "e32d0bdcdca10b2c",
    "transform": "9e933aa2e43098a1",
    "reservoir": "10fd1517adc2058e",
}


def read(name: str) -> Memory:
    return open_memory(FOLDER / f"{name}.safetensors")


def given(name: str, sources: Tensor) -> dict[str, Tensor]:
    """What was remembered."""
    if name == "inputs":
        return {"ids": IDS[sources], "mask": MASK[sources]}
    if name == "transform":
        return {"x": IMAGES[sources]}
    if name == "plain":  # the second task has the images in reverse
        return {"x": torch.cat([IMAGES[sources[:6]], IMAGES.flip(0)[sources[6:]]]) / 255}
    return {"x": IMAGES[sources] / 255 - 0.5 * (name == "compressed")}


@pytest.mark.parametrize("name", SAMPLES)
def test_items_logits_and_hash(name: str) -> None:
    memory = read(name)
    assert memory_hash(FOLDER / f"{name}.safetensors").startswith(HASHES[name])
    assert len(memory) == sum(memory.counts.values()) == {"plain": 9, "reservoir": 4}.get(name, 6)
    inputs, half = given(name, memory.sources), name == "compressed"
    batch = memory.draw(len(memory))
    assert batch.inputs.keys() == inputs.keys()
    for key, x in inputs.items():
        torch.testing.assert_close(batch.inputs[key], x, rtol=0, atol=2**-12 if half else 0)
    assert torch.equal(memory.labels.long(), LABELS[memory.sources])
    model, settings = SAMPLES[name]
    fed: Any = tuple(batch.inputs.values()) if name == "inputs" else (batch.inputs["x"],)
    fed = tuple(settings["transform"](x) for x in fed) if settings else fed
    torch.testing.assert_close(memory.logits, model()(*fed).detach(), rtol=1e-3 if half else 1e-5, atol=1e-2)


@pytest.mark.parametrize("name", SAMPLES)
def test_penalty(name: str) -> None:
    """No logit has moved; then each of the three by 1, in every task."""
    (make, settings), memory = SAMPLES[name], read(name)
    model, reminder = make(), Reminder(memory, strength=1.0, **settings)
    half = name == "compressed"
    assert reminder.penalty(model).item() == pytest.approx(0, abs=1e-4 if half else 1e-9)
    with torch.no_grad():
        list(model.parameters())[-1].add_(1.0)
    assert reminder.penalty(model).item() == pytest.approx(3 * len(memory.counts), rel=1e-2 if half else 1e-5)


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "transform"])
def test_the_same_bytes_when_saved_again(name: str, tmp_path: Path) -> None:
    save_memory(read(name), tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (FOLDER / f"{name}.safetensors").read_bytes()


@pytest.mark.parametrize("name", ["plain", "compressed", "inputs", "reservoir"])
def test_what_is_remembered_now_is_what_was_then(name: str, tmp_path: Path) -> None:
    """The same samples of the same model are chosen and kept alike, but for the last digits of logits."""
    model = SAMPLES[name][0]()
    codecs = {"codec": "float16+zlib", "logit_codec": "float16"} if name == "compressed" else {}
    reminder = Reminder(witnesses=0, **codecs)
    if name == "plain":
        reminder.remember(model, IMAGES / 255, LABELS, per_class=2)
        reminder.remember(model, IMAGES.flip(0) / 255, LABELS, per_class=1, time=1_700_000_000)
    elif name == "compressed":
        reminder.remember(model, IMAGES / 255 - 0.5, LABELS, per_class=2)
    elif name == "inputs":
        reminder.remember(model, {"ids": IDS, "mask": MASK}, LABELS[:12], per_class=2)
    else:
        for start in (0, 10, 20):
            reminder.observe(model, IMAGES[start : start + 10] / 255, LABELS[start : start + 10], per_task=4)
    reminder.save(tmp_path / "again")
    again, then = open_memory(tmp_path / "again"), read(name)
    assert again.facts == then.facts | {"settings": again.settings}
    torch.testing.assert_close(again.logits, then.logits, rtol=1e-3, atol=1e-2)
    for column in then.columns.keys() - {"logits"}:
        assert torch.equal(again.columns[column], then.columns[column]), column


def test_a_reservoir_goes_on(tmp_path: Path) -> None:
    model, whole = one_input(), Reminder()
    goes_on = Reminder(read("reservoir"))
    more = IMAGES.flip(0) / 255
    for reminder in (whole, goes_on):
        if reminder is whole:
            reminder.observe(model, IMAGES / 255, LABELS, per_task=4)
        reminder.observe(model, more, LABELS, per_task=4)
    assert goes_on.memory.sources.tolist() == whole.memory.sources.tolist()
    assert goes_on.memory.reservoirs == whole.memory.reservoirs


def test_of_an_earlier_transform_only_that_there_was_one_is_known() -> None:
    model, memory = one_input(), read("transform")
    assert Reminder(memory, transform=lambda x: x.float() / 255).penalty(model).item() < 1e-9
    with pytest.raises(SelfReminderError, match="now there is no transform"):
        Reminder(memory).penalty(model)
