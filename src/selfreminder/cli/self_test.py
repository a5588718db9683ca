"""A ten-second trial of all that a reminder does, on the digits that come with selfreminder."""

import copy
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from selfreminder.data import load
from selfreminder.reminder import Reminder


def update_digits() -> dict[str, float]:
    """Update a classifier of digits on inverted ones; gives its accuracy on the old ones: before, lost, kept."""
    digits = load("embedded-mnist")
    x, y = torch.tensor(digits.train_x[:2000]).flatten(1) / 127.5 - 1, torch.tensor(digits.train_y[:2000]).long()
    test_x, test_y = torch.tensor(digits.test_x).flatten(1) / 127.5 - 1, torch.tensor(digits.test_y).long()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        deployed = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
        _train(deployed, x, y, Reminder())
        reminder = Reminder()
        reminder.remember(deployed, x, y, per_class=10)
        with tempfile.TemporaryDirectory() as folder:
            reminder.save(Path(folder) / "memory.safetensors")
            reminder = Reminder.load(Path(folder) / "memory.safetensors")
        without = _train(copy.deepcopy(deployed), -x, y, Reminder())
        reminded = _train(copy.deepcopy(deployed), -x, y, reminder)
    models = {"before": deployed, "lost": without, "kept": reminded}
    return {name: _accuracy(model, test_x, test_y) for name, model in models.items()}


def _train(model: nn.Module, x: Tensor, y: Tensor, reminder: Reminder) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(5):
        for batch in torch.randperm(len(x)).split(64):
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch]) + reminder.penalty(model)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


@torch.no_grad()
def _accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return (model(x).argmax(1) == y).float().mean().item()
