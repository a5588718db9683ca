"""A model on another device than the CPU, where a memory's items may come from or be kept."""

import pytest
import torch
from torch import Tensor, nn

from pretend_device import Elsewhere, pretending
from selfreminder.memory.memory import Memory
from selfreminder.reminder.reminder import Reminder

X = torch.randint(0, 256, (60, 4), generator=torch.Generator().manual_seed(0)) / 255
Y = torch.arange(60) % 3


def model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(4, 3)


def test_the_pretended_device_refuses_what_a_real_one_would() -> None:
    with pretending() as device:
        there = X.to(device)
        assert isinstance(there, Elsewhere)
        assert there.device == device
        assert torch.equal((there + 1).cpu(), X + 1)
        with pytest.raises(RuntimeError, match="same device"):
            _ = there + X
        with pytest.raises(RuntimeError, match="numpy"):
            there.numpy()


@pytest.mark.parametrize("batch_size", [10, 1000])
@pytest.mark.parametrize("codec", ["raw", "auto", "compressed", "affine8", "affine8+zlib"])
def test_everything_there_gives_what_it_gives_here(codec: str, batch_size: int) -> None:
    def life(device: torch.device | str) -> list[Tensor]:
        """Two tasks, a stream, a budget, a checkpoint, training."""
        found, new = [], model(1).to(device)
        reminder = Reminder(codec=codec, batch_size=batch_size)
        reminder.remember(model().to(device), X, Y, per_task=20)
        reminder.remember(model().to(device), X.to(device), Y.to(device), budget=reminder.memory.nbytes)
        for start in range(0, 60, 20):
            reminder.observe(new, X[start : start + 20], Y[start : start + 20], per_task=15)
        found.append(torch.tensor([row.penalty for row in reminder.report(new).tasks]))
        again = Reminder(codec=codec, batch_size=batch_size)
        state = reminder.state_dict()  # put where torch.load's map_location puts it
        state["columns"] = {name: column.to(device) for name, column in state["columns"].items()}
        again.load_state_dict(state)
        for each in (reminder, again):
            each.penalty(model(2).to(device)).backward()
            logits, penalty = each.forward(trained := model(3).to(device), X.to(device))
            (logits.sum() + penalty).backward()
            found += [penalty.detach(), *(p.grad for p in trained.parameters() if p.grad is not None)]
        return [each.cpu() for each in found]

    with pretending() as device:
        there = life(device)
    for ours, theirs in zip(life("cpu"), there, strict=True):
        assert torch.equal(ours, theirs)


def test_deflated_inputs_that_are_not_kept_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfreminder.memory.sampling._FITS", 0)
    with pretending() as device:
        for batch_size in (10, 1000):
            reminder = Reminder(codec="compressed", batch_size=batch_size)
            reminder.remember(model().to(device), X, Y, per_task=20)
            assert reminder.penalty(model().to(device)).item() == 0.0


def test_a_stream_goes_on_after_it_was_loaded() -> None:
    """The file's memory is on the CPU, what enters is on the model's device."""
    reminder = Reminder()
    reminder.observe(model(), X[:30], Y[:30], per_task=15)
    with pretending() as device:
        reminder.observe(model().to(device), X[30:], Y[30:], per_task=15)
        assert {column.device for column in reminder.memory.columns.values()} == {device}
    here = Reminder()
    here.observe(model(), X, Y, per_task=15)
    assert reminder.memory.sources.tolist() == here.memory.sources.tolist()


def test_draws_need_no_double_precision_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfreminder.memory.sampling._SINGLE", ("lazy",))
    with pretending(double=False) as device:
        x = torch.arange(60.0)[:, None]
        memory = Memory.of({"x": x}, torch.zeros(60, 3, device=device), task=0)
        drawn = memory.draw(20, torch.Generator(device).manual_seed(0)).inputs["x"]
        assert (drawn.flatten().long() // 3).tolist() == list(range(20))  # one of each three


def test_codecs_join_on_the_device() -> None:
    with pretending() as device:
        parts = [
            Memory.of({"x": X[:5]}, torch.zeros(5, 3, device=device), task=0, codecs=codec)
            for codec in ("auto", "compressed", "raw", "raw+zlib")
        ]
        for first in parts:
            for second in parts:
                joined = (first + second).inputs["x"]
                assert torch.equal(joined.decode().cpu(), torch.cat([X[:5], X[:5]]))
                assert (joined.device == device) == any(not piece.is_deflated for piece in joined.pieces)
