"""ER with an asymmetric cross-entropy: new items compete among the classes of their batch, old ones among all.

min  CE(f(x) over the classes of the batch, y)  +  λ CE(f(x'), y')

So new classes do not push the logits of old ones down. (Caccia et al., New insights on reducing abrupt representation
change in online continual learning, 2022.)
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder.benchmarks.models import PADDING
from selfreminder.methods.base import Batch, Step
from selfreminder.methods.replay import ReplayMethod


@dataclass(kw_only=True)
class ErAce(ReplayMethod):
    strength: float = 1.0
    """λ"""

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        drawn = [self.draw(step)] if len(self.slots) else []
        new, *old = self.compute_logits(model, batch, *drawn)
        absent = torch.ones(new.shape[1], dtype=torch.bool, device=new.device).index_fill(0, batch.y, False)
        loss = F.cross_entropy(new.masked_fill(absent, PADDING), batch.y)
        return loss + self.strength * F.cross_entropy(old[0], drawn[0].y) if drawn else loss
