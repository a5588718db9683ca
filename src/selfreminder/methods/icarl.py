"""iCaRL's penalty: a few samples of each task, each class's probability held where the previous model had it.

min  mean L(f(x), y)  +  λ Σ_{t<T} mean_j Σ_k CE(σ(z_jk^(T−1)), σ(z_jk))

The targets are the previous model's: all are recorded again at every task's end. The sum over tasks is ours,
so that λ compares with the other methods'; `literal` takes the paper's mean instead.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from selfreminder.benchmarks.stream import Task
from selfreminder.memory.memory import MemoryBatch
from selfreminder.methods.base import MemoryMethod
from selfreminder.reminder.losses import binary_match


@dataclass(kw_only=True)
class Icarl(MemoryMethod):
    literal: bool = False
    """the mean over tasks instead of the sum"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.literal:
            self.reminder.over_tasks = "mean"

    def item_loss(self, logits: Tensor, kept: MemoryBatch) -> Tensor:
        return binary_match(logits, kept.logits, kept.mask)

    def after_task(self, model: nn.Module, task: Task) -> None:
        super().after_task(model, task)
        memory, parts = self.reminder.memory, []
        for old in memory.counts:
            items = memory.take(memory.tasks == old)
            logits = self.reminder.call.compute_logits(model, items.read().inputs, old)
            parts.append(nn.functional.pad(logits, (0, memory.logits.shape[1] - logits.shape[1])))
        self.reminder.memory = memory.with_logits(torch.cat(parts))
