"""Networks of the layers for which gradients of single samples are exact, shared by the tests that go over samples."""

import copy
from itertools import pairwise

import torch
from hypothesis import strategies as st
from torch import nn

Network = tuple[nn.Module, tuple[int, ...], int]
"""a model, an input's shape, and how many classes there are"""

PAPERS = [
    ("mnist-mlp", 1 / 64, (784,)),
    ("cifar10-vgg", 1 / 64, (3, 32, 32)),
    ("cifar100-alexnet", 1 / 16, (3, 32, 32)),
]
"""name, width and an input's shape"""

SEVERAL_POSITIONS = [
    (nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)), (5,)),
    (nn.Sequential(nn.BatchNorm2d(2), nn.Conv2d(2, 1, 3, padding="same"), nn.Tanh(), nn.Flatten()), (2, 1, 3)),
    (nn.Sequential(nn.BatchNorm1d(2), nn.Linear(5, 3), nn.Tanh(), nn.Flatten(), nn.Linear(6, 3)), (2, 5)),
]
"""a network for 3 classes and an input's shape: batch norm, and layers used at several positions of a sample"""


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def initialised(model: nn.Module, seed: int = 0) -> nn.Module:
    """A copy with random weights and random running statistics, so that none is 0 or 1."""
    model, generator = copy.deepcopy(model), seeded(seed)
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(0.5 * torch.randn(tensor.shape, generator=generator))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and module.running_var is not None:
            module.running_var.abs_().add_(0.1)
    return model


@st.composite
def convolutions(draw: st.DrawFn) -> Network:
    layer = nn.Conv2d(
        4,
        6,
        kernel_size=draw(st.sampled_from([1, 2, 3, 4, 5, (2, 3)])),
        stride=draw(st.sampled_from([1, 2, (1, 3)])),
        padding=draw(st.integers(0, 2)),
        dilation=draw(st.integers(1, 2)),
        groups=draw(st.sampled_from([1, 1, 2])),
        bias=draw(st.booleans()),
        padding_mode=draw(st.sampled_from(["zeros", "zeros", "reflect", "circular"])),
    )
    model = nn.Sequential(layer, nn.Tanh(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 3))
    return initialised(model), (4, 10, 9), 3


@st.composite
def linear_layers(draw: st.DrawFn) -> Network:
    sizes = [*draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)), draw(st.integers(2, 6))]
    bias = draw(st.booleans())
    layers = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b, bias), nn.Tanh())]
    return initialised(nn.Sequential(*layers[:-1]), draw(st.integers(0, 99))), (sizes[0],), sizes[-1]
