"""Incremental moment matching: the average of all tasks' weights, plain (mean) or by Fisher information (mode).

θ*_T = argmin  mean L(f(x), y)  +  λ ‖θ − θ*_{T−1}‖²,  from θ*_{T−1} on (weight transfer and L2 transfer)
θ = Σ_t θ*_t / T  (mean),   θ_i = Σ_t F_{t,i} θ*_{t,i} / Σ_t F_{t,i}  (mode)

It predicts with θ and learns on from θ*, of which it keeps the last. Only tasks that trained a weight count for it.
Lee et al., Overcoming catastrophic forgetting by incremental moment matching, 2017.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from selfreminder._base.errors import unknown
from selfreminder._base.eval_mode import eval_mode
from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks.models import trained_rows
from selfreminder.benchmarks.stream import Task
from selfreminder.gradients.fisher import diagonal_fisher
from selfreminder.methods.base import Batch, Method, Step
from selfreminder.methods.shared.anchored import by_prefix, with_prefix

_LEAST = 1e-8
"""added to a Fisher information: where no task has any, the mode is the mean"""


@dataclass(kw_only=True)
class Imm(Method):
    needs_boundaries = True

    strength: float = 1e-4
    """λ, of the L2 transfer"""
    merge: Literal["mean", "mode"] = "mean"
    """how weights are averaged"""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.merge not in ("mean", "mode"):
            raise unknown("merge", self.merge, ("mean", "mode"))
        self._sum: dict[str, Tensor] = {}
        self._weight: dict[str, Tensor] = {}
        """what the tasks' weights are multiplied by, and its sum"""
        self._last: dict[str, Tensor] = {}
        """θ*_{T−1}"""

    def start_task(self, model: nn.Module, task: Task) -> None:
        if self._last:
            model.load_state_dict(self._last, strict=False)

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        loss = super().loss(model, batch, step)
        with torch.no_grad():  # its gradient is added after the other's
            moved = [(p - self._last[name]).square().sum() for name, p in self._held(model)]
        return loss + self.strength * torch.stack(moved).sum() if moved else loss

    @torch.no_grad()
    def after_backward(self, model: nn.Module, batch: Batch, step: Step) -> None:
        for name, p in self._held(model):
            if p.grad is not None:
                p.grad.add_(p - self._last[name], alpha=2 * self.strength)

    def _held(self, model: nn.Module) -> list[tuple[str, nn.Parameter]]:
        return [(name, p) for name, p in model.named_parameters() if name in self._last]

    @torch.no_grad()
    def after_task(self, model: nn.Module, task: Task) -> None:
        now, fisher = model.state_dict(), self._fisher(model, task)
        for name, rows in trained_rows(model, task).items():
            weight = torch.zeros_like(now[name])
            weight[rows] = fisher[name][rows] + _LEAST if name in fisher else 1.0
            for kept, new in ((self._sum, weight * now[name]), (self._weight, weight)):
                kept[name] = kept[name] + new if name in kept else new
            self._last[name] = now[name].clone()
        for name, weight in self._weight.items():
            now[name].copy_(torch.where(weight > 0, self._sum[name] / weight, now[name]))

    def _fisher(self, model: nn.Module, task: Task) -> dict[str, Tensor]:
        if self.merge == "mean":
            return {}
        generator = torch.Generator().manual_seed(seed_for(self.seed, "fisher", task.index))
        with eval_mode(model):
            return diagonal_fisher(model, task.train.x, head=task.head, generator=generator)

    def state_dict(self) -> dict[str, Tensor]:
        return with_prefix({"sum": self._sum, "weight": self._weight, "last": self._last})

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        kept = by_prefix(state)
        self._sum, self._weight, self._last = (kept.get(part, {}) for part in ("sum", "weight", "last"))
