"""The time of an update beside that of the plain training loop on the same data: `python benchmarks/update.py`.

A deployed network, 50 remembered items of each class, 3,000 new digits, two epochs, batches of 32, AdamW, one thread.
The plain loop is written by hand. The update is all of `train_candidate`: a step size of two, training with the
reminder, λ from a grid, interpolations, remembering; its state is saved. Reading data and the gate are no part of it.
CPU seconds, the median over rounds of the ratio within a round. `--json FILE` keeps them.
"""

import argparse
import copy
import json
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder import data
from selfreminder._base.sizes import Size
from selfreminder.reminder.reminder import Reminder
from selfreminder.samples import read_samples
from selfreminder.store.candidate import train_candidate
from selfreminder.store.train_settings import TrainSettings

NETWORKS = {
    "MLP": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10)
    ),
    "CNN with batch norm": lambda: nn.Sequential(
        nn.Conv2d(1, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 10),
    ),
}  # fmt: skip
EPOCHS, BATCH = 2, 32
SETTINGS = TrainSettings(epochs=EPOCHS, batch_size=BATCH)


def to_float(images: Tensor) -> Tensor:
    return images.float() / 255


def train_plainly(model: nn.Module, x: Tensor, y: Tensor) -> None:
    """As one would write it."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0, fused=True)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(BATCH):
            loss = F.cross_entropy(model(to_float(x[rows])), y[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="a file to write what was measured to")
    options = parser.parse_args()
    rounds, found = options.rounds, []
    torch.set_num_threads(1)
    images = data.load("embedded-mnist")
    x, y = torch.tensor(images.train_x).unsqueeze(1), torch.tensor(images.train_y).long()
    (old, old_y), (new, new_y), (check, check_y) = (
        (x[a:b], y[a:b]) for a, b in ((0, 2600), (2600, 5600), (5600, 6000))
    )
    print(f"{'network':22}{'plain s':>9}{'update s':>10}{'ratio':>7}")
    for name, build in NETWORKS.items():
        torch.manual_seed(0)
        deployed = build()
        train_plainly(deployed, old, old_y)
        memory = Reminder(transform=to_float, codec="compressed")
        memory.remember(deployed, old, old_y, per_class=50)
        times = []
        for _ in range(rounds):
            started = time.process_time()
            train_plainly(copy.deepcopy(deployed), 255 - new, new_y)
            plain = time.process_time() - started
            reminder = Reminder(memory.memory, transform=to_float, codec="compressed")
            samples = read_samples(255 - new, new_y), read_samples(255 - check, check_y)
            with tempfile.TemporaryDirectory() as folder:
                started = time.process_time()
                train_candidate(
                    copy.deepcopy(deployed), reminder, *samples,
                    settings=SETTINGS, size=Size(per_class=50), folder=Path(folder),
                )  # fmt: skip
                times.append((plain, time.process_time() - started))
        plain, ours = (median(each) for each in zip(*times))
        ratio = median(b / a for a, b in times)
        found.append({"network": name, "rounds": rounds, "plain_s": plain, "update_s": ours, "ratio": ratio})
        print(f"{name:22}{plain:9.2f}{ours:10.2f}{ratio:7.2f}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
