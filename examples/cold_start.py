"""An engineer inherits a deployed digit classifier and 300 images from its log, no labels, no training data.

The classifier knows the digits 0 to 7. Now a new scanner comes, which gives black digits on white, and its images,
which are labelled, have the digits 8 and 9 too. Grown by two outputs and fine-tuned on those alone, the network forgets
the old scanner's images. With the log in a reminder it learns the new ones as well, and still reads the old.

    python examples/cold_start.py
"""

import copy
import json

import torch
from torch import Tensor, nn

from selfreminder import Reminder, data

Images = tuple[Tensor, Tensor]
"""(n, 784) pixels from -1 to 1, and (n,) digits"""


class Classifier(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(784, 200), nn.ReLU()), nn.Linear(200, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))

    def grown(self, classes: int) -> "Classifier":
        """A copy with more outputs, the new ones behind the old."""
        wider = Classifier(classes)
        wider.body.load_state_dict(self.body.state_dict())
        with torch.no_grad():
            for ours, theirs in ((wider.head.weight, self.head.weight), (wider.head.bias, self.head.bias)):
                ours[: len(theirs)] = theirs
        return wider


def train(model: Classifier, images: Images, reminder: Reminder) -> Classifier:
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
def accuracy(model: Classifier, images: Images) -> float:
    """Among all outputs that the model has."""
    x, y = images
    return round((model(x).argmax(1) == y).float().mean().item(), 4)


def up_to(last: int, images: Images) -> Images:
    x, y = images
    return x[y <= last], y[y <= last]


def inverted(images: Images) -> Images:
    x, y = images
    return -x, y


def main() -> dict[str, float]:
    digits = data.load("embedded-mnist")
    train_set = torch.tensor(digits.train_x).flatten(1) / 127.5 - 1, torch.tensor(digits.train_y).long()
    test_set = torch.tensor(digits.test_x).flatten(1) / 127.5 - 1, torch.tensor(digits.test_y).long()
    old_test, new_test = up_to(7, test_set), inverted(test_set)

    # Long ago, somewhere else. What is left of it is the model.
    torch.manual_seed(0)
    deployed = train(Classifier(8), up_to(7, train_set), Reminder())

    # Now: a log of what came in last week, and new images with labels.
    log = up_to(7, train_set)[0][-300:]
    new = inverted(train_set)

    reminder = Reminder(grow=True)  # [reminder] classes will be added
    reminder.remember(deployed, log, per_task=300)  # [reminder] all of the log, with what the model says of it
    wider = deployed.grown(10)
    without = train(copy.deepcopy(wider), new, Reminder())
    with_reminder = train(copy.deepcopy(wider), new, reminder)

    result = {
        "old_before": accuracy(deployed, old_test),
        "old_without": accuracy(without, old_test),
        "old_with": accuracy(with_reminder, old_test),
        "new_without": accuracy(without, new_test),
        "new_with": accuracy(with_reminder, new_test),
    }
    print(f"{'accuracy on':<24}{'old 0-7':>10}{'new 0-9':>10}{'new 8, 9':>10}")
    two = new_test[0][new_test[1] > 7], new_test[1][new_test[1] > 7]
    for name, model in (
        ("before the update", deployed),
        ("updated", without),
        ("updated with a reminder", with_reminder),
    ):
        columns = (accuracy(model, images) for images in (old_test, new_test, two))
        print(f"{name:<24}" + "".join(f"{column:>10.1%}" for column in columns))
    print(f"\nWhat the reminder itself can say, without labels:\n{reminder.report(with_reminder, new)}\n")
    return result


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main()))
