"""A small shop: a factory, weights, old and new digits, and a store of them."""

import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from selfreminder import Store, data

CODE = """
import torch
from torch import nn

def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))

def build_badly():
    raise OSError("no licence")

def prepare(x):
    return x.float() / 255
"""
TRAIN = {"lr": 0.002, "epochs": 10, "trials": [1.0], "interpolations": []}
GATE = {"old_drop_max": 0.2, "flips_max": 0.3, "per_class_drop_max": 1.0}


def make_shop(folder: Path) -> Path:
    """Write code, weights and data; the module's name is the folder's own, so that no test sees another's."""
    name = module_of(folder)
    (folder / f"{name}.py").write_text(CODE)
    digits = data.load("embedded-mnist")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    x, y = torch.from_numpy(digits.train_x[:2000].copy()).float() / 255, torch.from_numpy(digits.train_y[:2000].copy())
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(4):
        for rows in torch.arange(2000).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows].long()).backward()
            optimizer.step()
    save_file(model.state_dict(), folder / "weights.safetensors")
    np.savez(folder / "old.npz", x=digits.test_x[:1000], y=digits.test_y[:1000])
    inverted = 255 - digits.train_x[2000:2600]
    np.savez(folder / "new.npz", x=inverted, y=digits.train_y[2000:2600])
    np.savez(folder / "newer.npz", x=np.rot90(digits.train_x[2600:3200], axes=(1, 2)), y=digits.train_y[2600:3200])
    return folder


def module_of(folder: Path) -> str:
    return "shop_" + "".join(c if c.isalnum() else "_" for c in str(folder))[-60:]


def make_store(folder: Path, **settings: dict[str, object]) -> Store:
    """A store with version 1 in a shop."""
    name = module_of(folder)
    sys.modules.pop(name, None)
    told = {"data": {"preprocess": f"{name}:prepare"}, "memory": {"budget": "100KB"}, "train": TRAIN, "gate": GATE}
    Store.init(
        folder / "store",
        folder / "old.npz",
        model=f"{name}:build",
        weights=folder / "weights.safetensors",
        settings=told | settings,
    )
    return Store.open(folder / "store")
