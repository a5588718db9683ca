"""DER++: dark experience replay, and the labels of a second draw beside it.

min  CE(f(x), y)  +  α mean_j mean_k (z_jk − z'_jk)²  +  β CE(f(x''), y'')        two draws from one sample; α is λ

(Buzzega et al., Dark experience for general continual learning, 2020.)
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder.methods.base import Batch, Step
from selfreminder.methods.replay import ReplayMethod, match_recorded


@dataclass(kw_only=True)
class Derpp(ReplayMethod):
    keeps_logits = True

    strength: float = 1.0
    """α"""
    label_weight: float = 1.0
    """β"""

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        drawn = [self.draw(step), self.draw(step)] if len(self.slots) else []
        new, *old = self.compute_logits(model, batch, *drawn)
        loss = F.cross_entropy(new, batch.y)
        if not drawn:
            return loss
        labelled = F.cross_entropy(old[1], drawn[1].y)
        return loss + self.strength * match_recorded(old[0], drawn[0]) + self.label_weight * labelled
