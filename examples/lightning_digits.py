"""A digit classifier in Lightning learns a new scanner's images, with and without a reminder of the old scanner's.

The new scanner turns every image by 90 degrees. Fine-tuned on its images alone, the network forgets upright digits.
With 10 old images of each class in a reminder it learns the new ones nearly as well, and still reads most old ones.

    pip install '.[lightning]'
    python examples/lightning_digits.py
"""

import copy
import json
import logging
import warnings

import lightning as L
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from selfreminder import Reminder, data
from selfreminder.plugins.lightning import ReminderCallback  # [reminder]


class DigitClassifier(L.LightningModule):
    """Nothing here knows of reminders."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def fit(model: DigitClassifier, scans: TensorDataset, *callbacks: L.Callback) -> DigitClassifier:
    trainer = L.Trainer(
        max_epochs=5,
        callbacks=list(callbacks),
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(scans, batch_size=64, shuffle=True))
    return model


@torch.no_grad()
def accuracy(model: nn.Module, scans: TensorDataset) -> float:
    images, labels = scans.tensors
    return round((model.eval()(images).argmax(1) == labels).float().mean().item(), 4)


def scanned(images: Tensor, labels: Tensor, *, quarter_turns: int = 0) -> TensorDataset:
    return TensorDataset(images.rot90(quarter_turns, dims=(1, 2)).contiguous(), labels)


def main() -> dict[str, float]:
    digits = data.load("embedded-mnist")
    train = torch.tensor(digits.train_x) / 255, torch.tensor(digits.train_y).long()
    test = torch.tensor(digits.test_x) / 255, torch.tensor(digits.test_y).long()
    old, new = scanned(*train), scanned(*train, quarter_turns=1)
    old_test, new_test = scanned(*test), scanned(*test, quarter_turns=1)

    L.seed_everything(0, verbose=False)
    reminder = Reminder()  # [reminder]
    deployed = fit(DigitClassifier(), old, ReminderCallback(reminder, old, per_class=10))  # [reminder] keeps 100 images
    without = fit(copy.deepcopy(deployed), new)
    with_reminder = fit(copy.deepcopy(deployed), new, ReminderCallback(reminder))  # [reminder]

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
    return result


if __name__ == "__main__":
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")  # on workers, and its use of torch's pytree
    torch.set_num_threads(1)
    print(json.dumps(main()))
