"""A-GEM as Mammoth has it: the draw is from old tasks alone, of each of which a batch enters the sample at its end.

g ← g − min(0, g·r / r·r) r        g of CE(f(x), y), r of CE(f(x'), y') on a draw
"""

from dataclasses import dataclass

import torch
from torch import nn

from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks.stream import Task
from selfreminder.methods.agem import Agem
from selfreminder.methods.base import Batch, Step


@dataclass(kw_only=True)
class AgemTaskEnds(Agem):
    needs_boundaries = True
    acts_within_tasks = False

    def after_step(self, model: nn.Module, batch: Batch, step: Step) -> None:
        pass

    def after_task(self, model: nn.Module, task: Task) -> None:
        generator = torch.Generator().manual_seed(seed_for(self.seed, "entering", task.index))
        rows = torch.randperm(len(task.train), generator=generator)[: self.memory_batch]
        self.slots.observe(task.train.x[rows], task.train.y[rows], None, task.head)
