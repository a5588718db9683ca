"""FSR whose old items learn of new classes: after each task, they get the new model's logits for those that came.

min  mean L(f(x), y)  +  λ Σ_{t<T} mean_j ‖z_j − z_j^(t)‖²        as fsr-logit, but
z_jk^(t) ← f(x_j)_k  at the end of task T, for the classes k that came with it; those of older classes stay

While a task is learned, its classes are held on old items where they were before; what it teaches about them is then
kept, instead of the guess of an output that had not been trained. Where all tasks have the same classes it is
fsr-logit.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from selfreminder.benchmarks.stream import Task
from selfreminder.memory.memory import MemoryBatch
from selfreminder.methods.base import MemoryMethod
from selfreminder.reminder.losses import logit_match


@dataclass(kw_only=True)
class FsrRefresh(MemoryMethod):
    def item_loss(self, logits: Tensor, kept: MemoryBatch) -> Tensor:
        return logit_match(logits, kept.logits, kept.mask)

    def after_task(self, model: nn.Module, task: Task) -> None:
        super().after_task(model, task)
        if task.outputs is None:
            return
        memory = self.reminder.memory
        now = self.reminder.call.compute_logits(model, memory.read().inputs, task.index)
        came = torch.arange(task.outputs, device=memory.device) >= task.outputs - task.classes
        self.reminder.memory = memory.with_logits(torch.where(came, now.to(memory.device), memory.logits))
