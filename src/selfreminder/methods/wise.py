"""Weights between the old model's and the new one's: after each task, what it changed is taken back by a part.

θ_T = (1 − α) θ_{T−1} + α θ*_T,  θ*_T fine-tuned from θ_{T−1}

Heads, and outputs of a head that grows, that no old task has trained are the new model's alone. It keeps a whole model.
Wortsman et al., Robust fine-tuning of zero-shot models, 2022.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks.models import trained_rows
from selfreminder.benchmarks.stream import Task
from selfreminder.methods.base import Method


@dataclass(kw_only=True)
class Wise(Method):
    needs_boundaries = True

    alpha: float = 0.5
    """α, the new model's part"""

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise SelfReminderError(f"alpha is {self.alpha}: it must be from 0 to 1")
        self._old: dict[str, Tensor] = {}
        """what old tasks have trained, as they left it: of a head that grows, its first rows"""

    @torch.no_grad()
    def after_task(self, model: nn.Module, task: Task) -> None:
        now = model.state_dict()
        for name, old in self._old.items():
            new = now[name][: len(old)] if old.dim() else now[name]
            new.copy_(old.lerp(new, self.alpha))
        self._old |= {name: now[name][rows].clone() for name, rows in trained_rows(model, task).items()}

    def state_dict(self) -> dict[str, Tensor]:
        return self._old

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._old = state
