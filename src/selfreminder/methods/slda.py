"""Streaming linear discriminant analysis: class means and one covariance of frozen features, in one pass.

z_k = μ_kᵀ Λ h − ½ μ_kᵀ Λ μ_k,  Λ = ((1 − ε) Σ + ε I)⁻¹,  h the body's features

The body learns the first task and is frozen then. Σ is the covariance within classes of all items so far, exact (the
authors' running estimate of it forgets that means moved). Hayes and Kanan, Lifelong machine learning with deep
streaming linear discriminant analysis, 2020.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from selfreminder._base.errors import SelfReminderError
from selfreminder.methods.shared.frozen import FrozenMethod


@dataclass(kw_only=True)
class Slda(FrozenMethod):
    shrinkage: float = 1e-4
    """ε"""

    def __post_init__(self) -> None:
        if not 0 < self.shrinkage <= 1:
            raise SelfReminderError(f"shrinkage is {self.shrinkage}: it must be above 0, at most 1")

    def solve(self) -> tuple[Tensor, Tensor]:
        first, counts = self.first.double(), self.counts.double()
        means = first / counts.clamp(min=1)[:, None]
        covariance = (self.second.double() - first.T @ means) / counts.sum()
        shrunk = (1 - self.shrinkage) * covariance
        shrunk.diagonal().add_(self.shrinkage)
        weights = torch.linalg.solve(shrunk, means.T).T
        return weights.float(), (-0.5 * (weights * means).sum(1)).float()
