"""A digit classifier follows a stream that drifts, with and without a reminder.

A scanner slips: image by image the digits turn, from upright to lying on their side. There are no tasks, no boundaries
and no second look at an image. A network that just follows the stream forgets upright digits. With a uniform sample of
300 images of the stream so far in a reminder it follows as well, and still reads the old.

    python examples/stream.py
"""

import copy
import json
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selfreminder import Reminder, data

Images = tuple[Tensor, Tensor]
"""(n, 1, 28, 28) pixels from 0 to 1, and (n,) digits"""


def turned(x: Tensor, degrees: Tensor) -> Tensor:
    """Images (n, 1, 28, 28), each turned by its own angle."""
    angle = degrees.deg2rad()
    zero = torch.zeros_like(angle)
    rows = [angle.cos(), -angle.sin(), zero], [angle.sin(), angle.cos(), zero]
    matrix = torch.stack([torch.stack(row, 1) for row in rows], 1)
    return F.grid_sample(x, F.affine_grid(matrix, list(x.shape), align_corners=False), align_corners=False)


def stream(images: Images, batches: int, size: int = 32) -> Iterator[Images]:
    """A quarter of the batches upright, half of them turning steadily, a quarter turned by 90 degrees."""
    x, y = images
    generator = torch.Generator().manual_seed(0)
    for number in range(batches):
        chosen = torch.randint(len(x), (size,), generator=generator)
        way = min(max(0.0, 2 * number / batches - 0.5), 1.0)
        yield turned(x[chosen], torch.full((size,), 90 * way)), y[chosen]


def follow(model: nn.Module, batches: Iterable[Images], reminder: Reminder | None) -> nn.Module:
    """One step of Adam a batch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        if reminder is not None:
            loss = loss + reminder.penalty(model)  # [reminder]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if reminder is not None:
            reminder.observe(model, x, y, per_task=300)  # [reminder] after the step
    return model


@torch.no_grad()
def accuracy(model: nn.Module, images: Images) -> float:
    x, y = images
    return round((model(x).argmax(1) == y).float().mean().item(), 4)


def main() -> dict[str, float]:
    digits = data.load("embedded-mnist")
    upright = torch.tensor(digits.train_x)[:, None] / 255, torch.tensor(digits.train_y).long()
    old_test = torch.tensor(digits.test_x)[:, None] / 255, torch.tensor(digits.test_y).long()
    new_test = turned(old_test[0], torch.full((len(old_test[0]),), 90.0)), old_test[1]

    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))
    x, y = upright
    deployed = follow(network, ((x[batch], y[batch]) for batch in torch.randint(len(x), (500, 32))), None)
    reminder = Reminder()  # [reminder]
    without = follow(copy.deepcopy(deployed), stream(upright, 1000), None)
    with_reminder = follow(copy.deepcopy(deployed), stream(upright, 1000), reminder)

    result = {
        "old_before": accuracy(deployed, old_test),
        "old_without": accuracy(without, old_test),
        "old_with": accuracy(with_reminder, old_test),
        "new_without": accuracy(without, new_test),
        "new_with": accuracy(with_reminder, new_test),
    }
    print(f"{'accuracy on':<24}{'upright':>10}{'turned':>10}")
    print(f"{'before the stream':<24}{result['old_before']:>10.1%}{accuracy(deployed, new_test):>10.1%}")
    print(f"{'after it':<24}{result['old_without']:>10.1%}{result['new_without']:>10.1%}")
    print(f"{'with a reminder':<24}{result['old_with']:>10.1%}{result['new_with']:>10.1%}")
    return result


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main()))
