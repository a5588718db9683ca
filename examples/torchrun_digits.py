"""Two processes train one digit classifier by DistributedDataParallel on drifted images, with and without a reminder.

The new images are turned by 90 degrees. Each process has half of the images, old and new. `remember` gathers: then both
hold the same 100 images. `penalty` is called in each: of the images that are drawn for a step each process looks at its
share, and the mean over processes is what one process would have had.

    torchrun --nproc-per-node 2 examples/torchrun_digits.py
"""

import copy
import json
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from selfreminder import Reminder, data

Images = tuple[Tensor, Tensor]
"""(n, 784) pixels from 0 to 1, and (n,) digits"""


def train(model: nn.Module, images: Images, reminder: Reminder) -> nn.Module:
    """Four epochs of Adam over this process's images; the gradients are all processes' mean."""
    x, y = images
    network = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(4):
        for batch in torch.randperm(len(x)).split(32):
            loss = nn.functional.cross_entropy(network(x[batch]), y[batch])
            loss = loss + reminder.penalty(network)  # [reminder] 0 while nothing is remembered
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


@torch.no_grad()
def accuracy(model: nn.Module, images: Images) -> float:
    x, y = images
    return round((model(x).argmax(1) == y).float().mean().item(), 4)


def turned(images: Images) -> Images:
    """By 90 degrees."""
    x, y = images
    return x.view(-1, 28, 28).rot90(1, (1, 2)).flatten(1), y


def main() -> dict[str, float]:
    rank, world = dist.get_rank(), dist.get_world_size()
    digits = data.load("embedded-mnist")
    images = torch.tensor(digits.train_x).flatten(1) / 255, torch.tensor(digits.train_y).long()
    old = images[0][rank::world], images[1][rank::world]  # this process's part
    old_test = torch.tensor(digits.test_x).flatten(1) / 255, torch.tensor(digits.test_y).long()
    new, new_test = turned(old), turned(old_test)

    torch.manual_seed(rank)  # the order of images; DistributedDataParallel takes the first process's weights
    reminder = Reminder(batch_size=50)  # [reminder] in each process
    deployed = train(nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10)), old, reminder)
    reminder.remember(deployed, *old, per_class=10)  # [reminder] in every process
    without = train(copy.deepcopy(deployed), new, Reminder())
    with_reminder = train(copy.deepcopy(deployed), new, reminder)
    result = {
        "old_before": accuracy(deployed, old_test),
        "old_without": accuracy(without, old_test),
        "old_with": accuracy(with_reminder, old_test),
        "new_without": accuracy(without, new_test),
        "new_with": accuracy(with_reminder, new_test),
    }
    if rank == 0:
        print(f"{'accuracy on':<24}{'upright':>10}{'turned':>10}")
        print(f"{'before the update':<24}{result['old_before']:>10.1%}{accuracy(deployed, new_test):>10.1%}")
        print(f"{'updated':<24}{result['old_without']:>10.1%}{result['new_without']:>10.1%}")
        print(f"{'updated with a reminder':<24}{result['old_with']:>10.1%}{result['new_with']:>10.1%}")
        print(json.dumps(result))
    return result


if __name__ == "__main__":
    if not dist.is_torchelastic_launched():
        sys.exit("Start it by: torchrun --nproc-per-node 2 examples/torchrun_digits.py")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    main()
    dist.destroy_process_group()
