"""FSR by logit matching: a few samples of each task, their logits held where they were.

min  mean L(f(x), y)  +  λ Σ_{t<T} mean_j ‖z_j − z_j^(t)‖²                (Eq. 1)
"""

from dataclasses import dataclass

from torch import Tensor

from selfreminder.memory.memory import MemoryBatch
from selfreminder.methods.base import MemoryMethod
from selfreminder.reminder.losses import logit_match


@dataclass(kw_only=True)
class FsrLogit(MemoryMethod):
    def item_loss(self, logits: Tensor, kept: MemoryBatch) -> Tensor:
        return logit_match(logits, kept.logits, kept.mask)
