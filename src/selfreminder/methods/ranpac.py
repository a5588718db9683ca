"""Random projections of frozen features, and a ridge regression of the classes on them, in one pass.

z = Wᵀ φ(x),  W = (G + λ I)⁻¹ C,  φ = max(0, P h),  G = Σ φ φᵀ,  C = Σ φ yᵀ

h are the body's features, P a fixed random matrix, y the class as a one among zeros. Body and head learn the first
task with P between them, then the body is frozen. λ is a part of the mean of G's diagonal, so that it does not depend
on how many items there are. McDonnell et al., RanPAC: Random projections and pre-trained models for continual
learning, 2023.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks.models import Heads, Network
from selfreminder.benchmarks.stream import Task
from selfreminder.methods.shared.frozen import FrozenMethod

_MOST_FEATURES = 20_000
"""more have a matrix G of more than a gigabyte"""


class Projection(nn.Module):
    """A fixed random linear layer and a ReLU: drawn from its seed, and so no part of the state."""

    matrix: Tensor

    def __init__(self, inputs: int, outputs: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        matrix = torch.randn(outputs, inputs, generator=generator) / inputs**0.5
        self.register_buffer("matrix", matrix, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.matrix).relu()


@dataclass(kw_only=True)
class Ranpac(FrozenMethod):
    features: int = 2000
    """how many numbers φ has"""
    ridge: float = 1e-3
    """λ, as a part of the mean of G's diagonal"""
    seed: int = 0

    def __post_init__(self) -> None:
        self.check_above_0("features", "ridge")
        if self.features > _MOST_FEATURES:
            raise SelfReminderError(f"features is {self.features}: it must be at most {_MOST_FEATURES}")

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        if isinstance(model, Network):
            device, sizes = next(model.parameters()).device, model.heads.sizes
            seed = seed_for(self.seed, "projection")
            projection = Projection(model.heads.features, self.features, seed)
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed_for(self.seed, "projected heads"))
                model.heads = Heads(self.features, sizes)
            model.body.append(projection)
            model.to(device)
        return super().prepare(model, stream)

    def solve(self) -> tuple[Tensor, Tensor]:
        gram = self.second.double()
        gram.diagonal().add_(self.ridge * gram.diagonal().mean())
        return torch.linalg.solve(gram, self.first.double().T).T.float(), torch.zeros_like(self.counts)
