"""A-GEM as the DER paper's code has it (aimagelab/mammoth, first commit): its memory grows when a task ends.

g ← g − min(0, g·r / r·r) r        g of CE(f(x), y), r of CE(f(x'), y') on a draw

An equal share of each task enters, 25 items of 500 with 20 tasks, so that the memory is full only after the last.
"""

from collections.abc import Sequence
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

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        model = super().prepare(model, stream)
        self.share = self.slots.size // len(stream)
        return model

    def after_step(self, model: nn.Module, batch: Batch, step: Step) -> None:
        pass

    def after_task(self, model: nn.Module, task: Task) -> None:
        generator = torch.Generator().manual_seed(seed_for(self.seed, "entering", task.index))
        rows = torch.randperm(len(task.train), generator=generator)[: self.share]
        self.slots.observe(task.train.x[rows], task.train.y[rows], None, task.head)
