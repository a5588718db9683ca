"""A classifier of tables in skorch learns what a new device measures, with and without a reminder of the old one.

Each row has 64 numbers: how many pixels of each block of a handwritten digit are dark (scikit-learn's `load_digits`).
The new device counts the light ones instead. Fine-tuned on its rows alone, the network forgets the old device, though
that is still in use. With 10 old rows of each class in a reminder it learns the new ones as well, and knows the old.

    pip install '.[skorch]'
    python examples/skorch_tabular.py
"""

import json
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from skorch import NeuralNetClassifier
from torch import nn

from selfreminder import Reminder
from selfreminder.plugins.skorch import ReminderCallback  # [reminder]


def network() -> nn.Module:
    hidden = nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU()
    return nn.Sequential(*hidden, nn.Linear(100, 10))


def net_of(*callbacks: Any) -> NeuralNetClassifier:
    return NeuralNetClassifier(
        network,
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        lr=1e-3,
        max_epochs=30,
        batch_size=64,
        iterator_train__shuffle=True,
        callbacks=list(callbacks),
        verbose=0,
    )


def update(deployed: NeuralNetClassifier, rows: np.ndarray, labels: np.ndarray, *callbacks: Any) -> NeuralNetClassifier:
    net = net_of(*callbacks).initialize()
    net.module_.load_state_dict(deployed.module_.state_dict())
    return net.partial_fit(rows, labels)


def main() -> dict[str, float]:
    table, labels = load_digits(return_X_y=True)
    old = (table / 16).astype(np.float32)
    new = 1 - old
    train, test = train_test_split(np.arange(len(labels)), test_size=500, stratify=labels, random_state=0)

    def accuracy(net: NeuralNetClassifier, rows: np.ndarray) -> float:
        return round(net.score(rows[test], labels[test]), 4)

    torch.manual_seed(0)
    reminder = Reminder()  # [reminder]
    remembers = ReminderCallback(reminder, per_class=10)  # [reminder] keeps 100 rows when fit ends
    deployed = net_of(remembers).fit(old[train], labels[train])
    without = update(deployed, new[train], labels[train])
    with_reminder = update(deployed, new[train], labels[train], ReminderCallback(reminder))  # [reminder]

    result = {
        "old_before": accuracy(deployed, old),
        "old_without": accuracy(without, old),
        "old_with": accuracy(with_reminder, old),
        "new_without": accuracy(without, new),
        "new_with": accuracy(with_reminder, new),
    }
    print(f"{'accuracy on':<24}{'old device':>11}{'new device':>11}")
    print(f"{'before the update':<24}{result['old_before']:>11.1%}{accuracy(deployed, new):>11.1%}")
    print(f"{'updated':<24}{result['old_without']:>11.1%}{result['new_without']:>11.1%}")
    print(f"{'updated with a reminder':<24}{result['old_with']:>11.1%}{result['new_with']:>11.1%}")
    return result


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main()))
