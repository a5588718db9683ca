"""Experience replay: every step trains on the new and on a draw from a uniform sample of the old, alike.

min  ( n CE(f(x), y)  +  λ m CE(f(x'), y') ) / (n + λ m)        for n new items and m drawn ones

With λ = 1 it is the mean over both. (Chaudhry et al., On tiny episodic memories in continual learning, 2019.)
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder.methods.base import Batch, Step
from selfreminder.methods.replay import ReplayMethod


@dataclass(kw_only=True)
class Er(ReplayMethod):
    strength: float = 1.0
    """λ"""

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        if not len(self.slots):
            return super().loss(model, batch, step)
        drawn = self.draw(step)
        new, old = self.compute_logits(model, batch, drawn)
        n, m = len(new), self.strength * len(old)
        return (n * F.cross_entropy(new, batch.y) + m * F.cross_entropy(old, drawn.y)) / (n + m)
