"""FSR by distillation: a few samples of each task, their softened probabilities held where they were.

min  mean L(f(x), y)  +  λ Σ_{t<T} mean_j KL(softmax(z_j^(t)/τ) ‖ softmax(z_j/τ)),  τ = 2
"""

from dataclasses import dataclass

from torch import Tensor

from selfreminder.memory.memory import MemoryBatch
from selfreminder.methods.base import MemoryMethod
from selfreminder.reminder.losses import distill


@dataclass(kw_only=True)
class FsrDistill(MemoryMethod):
    temperature: float = 2.0
    """τ"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_above_0("temperature")

    def item_loss(self, logits: Tensor, kept: MemoryBatch) -> Tensor:
        return distill(logits, kept.logits, kept.mask, temperature=self.temperature)
