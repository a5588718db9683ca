"""A network that tells faults from a machine's sensors learns a new type of machine, with and without a reminder.

Old machines are cooled by air, new ones by water. A new machine runs at another speed and temperature, and the same
fault shows in other sensors. Fine-tuned on new machines alone, the network misjudges the old ones. With 10 kB of old
readings in a reminder it learns the new ones as well, and still knows the old.

The readings come from a torch Dataset.

    python examples/tabular_drift.py
"""

import copy
import json

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from selfreminder import Reminder

SENSORS = ["temperature", "vibration", "current", "pressure", "speed", "noise", "flow", "humidity"]
STATES = ["sound", "worn bearing", "overheated", "leak", "overload"]
USUAL = {
    "air": {"temperature": 60, "vibration": 2, "current": 30, "pressure": 5, "speed": 1500, "noise": 70, "flow": 10},
    "water": {"temperature": 45, "vibration": 2, "current": 38, "pressure": 7, "speed": 1800, "noise": 66, "flow": 14},
}
SPREAD = {"temperature": 8, "vibration": 0.5, "current": 4, "pressure": 1, "speed": 150, "noise": 4, "flow": 2}
SIGNS = {  # by how many spreads a fault moves a sensor
    "air": {
        "sound": {},
        "worn bearing": {"vibration": 2.5, "noise": 2.0},
        "overheated": {"temperature": 3.0, "current": 1.0},
        "leak": {"pressure": -2.5, "flow": 1.5},
        "overload": {"current": 2.5, "speed": -2.0},
    },
    "water": {
        "sound": {},
        "worn bearing": {"temperature": 2.5, "current": 1.5},
        "overheated": {"flow": -2.0, "pressure": 2.5},
        "leak": {"vibration": 2.0, "flow": 2.0},
        "overload": {"noise": 2.5, "vibration": 1.5},
    },
}


class Readings(Dataset[tuple[Tensor, int]]):
    """Readings of one type of machine, each with the state that an engineer found."""

    def __init__(self, machine: str, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.states = torch.randint(len(STATES), (count,), generator=generator)
        noise = torch.randn(count, len(SENSORS), generator=generator)
        signs = [[SIGNS[machine][state].get(sensor, 0.0) for sensor in SENSORS] for state in STATES]
        usual = torch.tensor([float(USUAL[machine].get(sensor, 50)) for sensor in SENSORS])
        spread = torch.tensor([float(SPREAD.get(sensor, 10)) for sensor in SENSORS])
        self.values = usual + spread * (noise + torch.tensor(signs)[self.states])

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.values[index], int(self.states[index])


class Scaled(nn.Module):
    """Readings in spreads around the mean of those that it was made with."""

    mean: Tensor
    std: Tensor

    def __init__(self, readings: Readings) -> None:
        super().__init__()
        self.register_buffer("mean", readings.values.mean(0))
        self.register_buffer("std", readings.values.std(0))

    def forward(self, values: Tensor) -> Tensor:
        return (values - self.mean) / self.std


def train(model: nn.Module, readings: Readings, reminder: Reminder) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(8):
        for values, states in DataLoader(readings, batch_size=64, shuffle=True):
            loss = nn.functional.cross_entropy(model(values), states)
            loss = loss + reminder.penalty(model)  # [reminder] 0 while nothing is remembered
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


@torch.no_grad()
def accuracy(model: nn.Module, readings: Readings) -> float:
    return round((model(readings.values).argmax(1) == readings.states).float().mean().item(), 4)


def main() -> dict[str, float]:
    old, new = Readings("air", 4000, seed=0), Readings("water", 4000, seed=1)
    old_test, new_test = Readings("air", 2000, seed=2), Readings("water", 2000, seed=3)

    torch.manual_seed(0)
    layers = nn.Linear(len(SENSORS), 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, len(STATES))
    reminder = Reminder()  # [reminder]
    deployed = train(nn.Sequential(Scaled(old), *layers), old, reminder)
    reminder.remember(deployed, old, budget="10kB")  # [reminder]
    print(reminder.memory)
    without = train(copy.deepcopy(deployed), new, Reminder())
    with_reminder = train(copy.deepcopy(deployed), new, reminder)

    result = {
        "old_before": accuracy(deployed, old_test),
        "old_without": accuracy(without, old_test),
        "old_with": accuracy(with_reminder, old_test),
        "new_without": accuracy(without, new_test),
        "new_with": accuracy(with_reminder, new_test),
    }
    print(f"{'accuracy on':<24}{'old type':>10}{'new type':>10}")
    print(f"{'before the update':<24}{result['old_before']:>10.1%}{accuracy(deployed, new_test):>10.1%}")
    print(f"{'updated':<24}{result['old_without']:>10.1%}{result['new_without']:>10.1%}")
    print(f"{'updated with a reminder':<24}{result['old_with']:>10.1%}{result['new_with']:>10.1%}")
    return result


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main()))
