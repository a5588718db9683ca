"""Elastic weight consolidation: weights that mattered to old tasks are held where they were.

min  mean L(f(x), y)  +  λ/2 Σ_i F_i (θ_i − θ_{T−1,i})²

F sums the tasks' diagonal Fisher informations, each taken at its task's end over all of the task's training items.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from selfreminder._base.errors import unknown
from selfreminder._base.eval_mode import eval_mode
from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks.stream import Split, Task
from selfreminder.gradients.fisher import diagonal_fisher
from selfreminder.methods.shared.anchored import AnchoredMethod


@dataclass(kw_only=True)
class Ewc(AnchoredMethod):
    clip = 100.0  # what HAT's authors use for EWC
    factor = 0.5
    kept_as = "fisher"

    fisher: Literal["true", "empirical"] = "true"
    """labels drawn from the model, or the data's"""
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fisher not in ("true", "empirical"):
            raise unknown("fisher", self.fisher, ("true", "empirical"))

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        # A model whose Fisher is not known should not come to light after hours.
        task = stream[0]
        self.importance(model, task, task.train.take(torch.arange(1)))
        return model

    def importance(self, model: nn.Module, task: Task, split: Split) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed_for(self.seed, "fisher", task.index))
        labels = split.y if self.fisher == "empirical" else None
        with eval_mode(model):
            return diagonal_fisher(model, split.x, labels, head=task.head, generator=generator)
