"""A digit classifier learns a new scanner's images in a plain PyTorch loop, with and without a reminder.

The old scanner gave white digits on black, the new one gives black digits on white. Fine-tuned on the new images
alone, the network forgets the old ones. With 10 old images of each class in a reminder it learns the new ones as well,
and still reads the old.

    python examples/own_loop_digits.py
"""

import copy
import json

import torch
from torch import Tensor, nn

from selfreminder import Reminder, data

Images = tuple[Tensor, Tensor]
"""(n, 784) pixels from -1 to 1, and (n,) digits"""


def train(model: nn.Module, images: Images, reminder: Reminder) -> nn.Module:
    """Five epochs of Adam; the penalty is 0 while nothing is remembered."""
    x, y = images
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(5):
        for batch in torch.randperm(len(x)).split(64):
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            loss = loss + reminder.penalty(model)  # [reminder]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


@torch.no_grad()
def accuracy(model: nn.Module, images: Images) -> float:
    x, y = images
    return round((model(x).argmax(1) == y).float().mean().item(), 4)


def inverted(images: Images) -> Images:
    x, y = images
    return -x, y


def main() -> dict[str, float]:
    digits = data.load("embedded-mnist")
    old = torch.tensor(digits.train_x).flatten(1) / 127.5 - 1, torch.tensor(digits.train_y).long()
    old_test = torch.tensor(digits.test_x).flatten(1) / 127.5 - 1, torch.tensor(digits.test_y).long()
    new, new_test = inverted(old), inverted(old_test)

    torch.manual_seed(0)
    reminder = Reminder()  # [reminder]
    deployed = train(nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10)), old, reminder)
    reminder.remember(deployed, *old, per_class=10)  # [reminder] keeps 100 images
    without = train(copy.deepcopy(deployed), new, Reminder())
    with_reminder = train(copy.deepcopy(deployed), new, reminder)

    result = {
        "old_before": accuracy(deployed, old_test),
        "old_without": accuracy(without, old_test),
        "old_with": accuracy(with_reminder, old_test),
        "new_without": accuracy(without, new_test),
        "new_with": accuracy(with_reminder, new_test),
    }
    print(f"{'accuracy on':<24}{'old scans':>10}{'new scans':>10}")
    print(f"{'before the update':<24}{result['old_before']:>10.1%}{accuracy(deployed, new_test):>10.1%}")
    print(f"{'updated':<24}{result['old_without']:>10.1%}{result['new_without']:>10.1%}")
    print(f"{'updated with a reminder':<24}{result['old_with']:>10.1%}{result['new_with']:>10.1%}")
    print("\nThe reminder's report on the update:", reminder.report(with_reminder, new=new), sep="\n")
    print("\nand on the update without it:", reminder.report(without, new=new), "", sep="\n")
    return result


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main()))
