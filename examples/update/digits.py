"""A reader of digits whose scanner changes four times: `python examples/update/digits.py --folder F`.

The digits come with the package. The deployed network has seen 2,000 of them. Then they come in rotated, inverted,
noisy, and with their pixels in another order; each time the store is updated with 4,000 of those. Without the reminder
the gate refuses the first update.
"""

import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from story import arguments, tell
from torch import Tensor, nn

from selfreminder import data

ORDER = np.random.default_rng(0).permutation(784)
CHANGES = {
    "rotated": lambda x, _: np.rot90(x, axes=(1, 2)).copy(),
    "inverted": lambda x, _: 255 - x,
    "noisy": lambda x, chance: np.clip(x + 60 * chance.standard_normal(x.shape), 0, 255).astype(np.uint8),
    "permuted": lambda x, _: x.reshape(len(x), -1)[:, ORDER].reshape(x.shape),
}
CONFIG = """
[model]
factory = "digits:build"
weights = "deployed.safetensors"

[data]
preprocess = "digits:preprocess"

[memory]
budget = "1MB"

[train]
optimizer = "adamw"
lr = 1e-3
epochs = 3
batch_size = 32

[gate]
old_drop_max = 0.06
per_class_drop_max = 0.3
flips_max = 0.12
"""


def build() -> nn.Module:
    """The network, untrained."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10)
    )


def preprocess(images: Tensor) -> Tensor:
    """From pixels to what the network takes."""
    return images.float() / 255


def deploy(x: Tensor, y: Tensor) -> nn.Module:
    """A network that was trained before anybody thought of updates."""
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(10):
        for rows in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(preprocess(x[rows])), y[rows]).backward()
            optimizer.step()
    return model


def main() -> None:
    options = arguments(__doc__)
    torch.set_num_threads(1)
    folder = options.folder
    folder.mkdir(parents=True)
    for name in ("digits.py", "story.py"):
        shutil.copy(Path(__file__).with_name(name), folder)
    images = data.load("embedded-mnist")
    known, few = round(2000 * options.part), round(6000 * options.part)
    model = deploy(torch.tensor(images.train_x[:known]), torch.tensor(images.train_y[:known]).long())
    save_file(model.state_dict(), folder / "deployed.safetensors")
    np.savez(folder / "plain.npz", x=images.test_x, label=images.test_y)
    for name, change in CHANGES.items():
        x = change(images.train_x[known:few], np.random.default_rng(1))
        np.savez(folder / f"{name}.npz", x=x, label=images.train_y[known:few])
    tell(folder, CONFIG, "plain.npz", {name: f"{name}.npz" for name in CHANGES})


if __name__ == "__main__":
    main()
