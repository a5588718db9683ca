"""An image classifier of timm, in a plain PyTorch loop, learns a new camera's images, with and without a reminder.

The old camera gives white digits on black, the new one dark blue digits on yellow paper. The network is one of timm's
ResNets made narrow, with random weights: nothing is downloaded. Its batch norm has statistics of the new images in the
end; the old ones are held on to all the same, by 20 raw images of each class.

    pip install . timm
    python examples/timm_images.py
"""

import copy
import json

import timm
import torch
from torch import Tensor, nn

from selfreminder import Reminder, data

COUNT = 3000


def colored(digits: Tensor, *, ink: tuple[int, int, int], paper: tuple[int, int, int]) -> Tensor:
    """Grey digits (n, 28, 28) as raw colour images (n, 3, 28, 28)."""
    share = digits[:, None] / 255
    colors = (torch.tensor(color)[:, None, None] for color in (ink, paper))
    return (share * next(colors) + (1 - share) * next(colors)).round().byte()


def normalised(images: Tensor) -> Tensor:
    """What the network takes, from raw images."""
    return (images.float() / 255 - 0.5) / 0.5


def train(model: nn.Module, images: Tensor, labels: Tensor, reminder: Reminder | None = None) -> nn.Module:
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    if reminder is not None:
        reminder.attach(model, optimizer)  # [reminder] the loop stays as it is
    model.train()
    for _ in range(4):
        for rows in torch.randperm(len(labels)).split(64):
            loss = nn.functional.cross_entropy(model(normalised(images[rows])), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    return round((model.eval()(normalised(images)).argmax(1) == labels).float().mean().item(), 4)


def main() -> dict[str, float]:
    digits = data.load("embedded-mnist")
    train_x, train_y = torch.tensor(digits.train_x[:COUNT]), torch.tensor(digits.train_y[:COUNT]).long()
    test_x, test_y = torch.tensor(digits.test_x), torch.tensor(digits.test_y).long()
    old_camera = {"ink": (255, 255, 255), "paper": (0, 0, 0)}
    new_camera = {"ink": (25, 25, 100), "paper": (255, 230, 150)}
    old, new = colored(train_x, **old_camera), colored(train_x, **new_camera)
    old_test, new_test = colored(test_x, **old_camera), colored(test_x, **new_camera)

    torch.manual_seed(0)
    model = timm.create_model("resnet10t", num_classes=10, stem_width=8, channels=(8, 16, 32, 64))
    deployed = train(model, old, train_y)
    reminder = Reminder(transform=normalised)  # [reminder] keeps raw images
    reminder.remember(deployed, old, train_y, per_class=20)  # [reminder] 200 of them
    without = train(copy.deepcopy(deployed), new, train_y)
    with_reminder = train(copy.deepcopy(deployed), new, train_y, reminder)  # [reminder]

    result = {
        "old_before": accuracy(deployed, old_test, test_y),
        "old_without": accuracy(without, old_test, test_y),
        "old_with": accuracy(with_reminder, old_test, test_y),
        "new_without": accuracy(without, new_test, test_y),
        "new_with": accuracy(with_reminder, new_test, test_y),
    }
    print(f"{'accuracy on':<24}{'old camera':>11}{'new camera':>11}")
    print(f"{'before the update':<24}{result['old_before']:>11.1%}{accuracy(deployed, new_test, test_y):>11.1%}")
    print(f"{'updated':<24}{result['old_without']:>11.1%}{result['new_without']:>11.1%}")
    print(f"{'updated with a reminder':<24}{result['old_with']:>11.1%}{result['new_with']:>11.1%}")
    return result


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main()))
