"""FSR by logit matching with the true labels of the remembered samples beside it.

min  mean L(f(x), y)  +  Σ_{t<T} mean_j ( λ ‖z_j − z_j^(t)‖² + w CE(z_j, y_j) ),  w = 1
"""

from dataclasses import dataclass

from torch import Tensor

from selfreminder.memory.memory import MemoryBatch
from selfreminder.methods.base import MemoryMethod
from selfreminder.reminder.losses import logit_and_label


@dataclass(kw_only=True)
class FsrLogitlab(MemoryMethod):
    label_weight: float = 1.0
    """w"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.reminder.strength = 1.0  # λ weighs the logits alone

    def item_loss(self, logits: Tensor, kept: MemoryBatch) -> Tensor:
        return logit_and_label(
            logits, kept.logits, kept.labels, kept.mask, logit_weight=self.strength, label_weight=self.label_weight
        )
