"""The paper's networks. `width` is a factor of the paper's width."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from selfreminder.errors import SelfReminderError, unknown
from selfreminder.seeds import seed_for


class Mlp(nn.Module):
    """784-1024×4-10 with ReLU: the network of the MNIST experiments."""

    def __init__(self, width: float = 1.0, *, inputs: int = 784, classes: int = 10, layers: int = 4) -> None:
        super().__init__()
        hidden = _units(1024, width)
        sizes = [inputs] + [hidden] * layers
        self.body = nn.Sequential(*(part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())))
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


MODELS: dict[str, Callable[[float], nn.Module]] = {"mnist-mlp": Mlp}


def build_model(name: str, *, width: float, seed: int) -> nn.Module:
    """A model with the initial weights of a seed; the global random numbers stay as they are."""
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(seed, "initial weights"))
        return MODELS[name](width)


def _units(units: int, width: float) -> int:
    scaled = round(units * width)
    if scaled < 1:
        raise SelfReminderError(f"width {width:g} leaves no unit of {units}: it is a factor of the paper's width")
    return scaled
