"""Dark experience replay: the logits that items had when they were new are held, on a uniform sample of the stream.

min  CE(f(x), y)  +  α mean_j mean_k (z_jk − z'_jk)²        z' as recorded in the pass in which item j was new; α is λ

(Buzzega et al., Dark experience for general continual learning, 2020.) Unlike FSR's, its logits are recorded on the
way, not at a task's end.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder.methods.base import Batch, Step
from selfreminder.methods.replay import ReplayMethod, match_recorded


@dataclass(kw_only=True)
class Der(ReplayMethod):
    keeps_logits = True

    strength: float = 1.0
    """α"""

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        drawn = [self.draw(step)] if len(self.slots) else []
        new, *old = self.compute_logits(model, batch, *drawn)
        loss = F.cross_entropy(new, batch.y)
        return loss + self.strength * match_recorded(old[0], drawn[0]) if drawn else loss
