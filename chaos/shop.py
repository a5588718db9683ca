"""A small shop, for faults of the commands on a store: code that builds a model, its weights, data, and a store."""

from contextlib import chdir
from functools import cache
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from chaos.command import stop_clock
from selfreminder.store import Store

CODE = """from torch import nn

def build():
    return nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
"""
_TRAIN = {"lr": 0.01, "epochs": 6, "batch_size": 16, "trials": [1.0, 3.0], "interpolations": [0.5]}
_GATE = {"old_drop_max": 1.0, "flips_max": 1.0, "per_class_drop_max": 1.0, "new_gain_min": -1.0, "unsure": "pass"}


def make_data(path: Path, seed: int, shift: float) -> None:
    """Write items of three classes, apart by their means."""
    chance = np.random.default_rng(seed)
    y = np.arange(90) % 3
    x = (chance.normal(size=(90, 12)) + 2 * np.eye(3, 12)[y] + shift).astype(np.float32)
    np.savez(path, x=x, y=y, site=np.array(["A", "B", "C", "D"])[np.arange(90) % 4])


def open_shop(folder: Path) -> None:
    """Write code, weights, data, and a store with version 1."""
    (folder / "chaos_shop.py").write_text(CODE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
    save_file(model.state_dict(), folder / "weights.safetensors")
    make_data(folder / "old.npz", 0, 0.0)
    make_data(folder / "new.npz", 1, 1.0)
    stop_clock()
    with chdir(folder):  # no path of this very folder in what it leaves
        Store.init(
            "store",
            "old.npz",
            model="chaos_shop:build",
            weights="weights.safetensors",
            settings={"memory": {"budget": "20KB"}, "train": _TRAIN, "gate": _GATE},
            command="init",
        )


@cache
def _shop() -> TemporaryDirectory[str]:
    made = TemporaryDirectory(prefix="chaos-shop-")
    open_shop(Path(made.name))
    return made


def make_shop(folder: Path) -> Path:
    """Make a shop in a folder."""
    copytree(_shop().name, folder, dirs_exist_ok=True)
    return folder


def make_versions(folder: Path) -> None:
    """Make a shop whose store has a second version."""
    make_shop(folder)
    Store.open(folder / "store").update(folder / "new.npz", command="update")
