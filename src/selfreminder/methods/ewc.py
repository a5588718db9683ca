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
from selfreminder.methods.base import Batch, Method, Step


@dataclass(kw_only=True)
class Ewc(Method):
    clip = 100.0  # what HAT's authors use for EWC

    strength: float = 1.0
    """λ"""
    fisher: Literal["true", "empirical"] = "true"
    """labels drawn from the model, or the data's"""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.fisher not in ("true", "empirical"):
            raise unknown("fisher", self.fisher, ("true", "empirical"))
        self._hold({}, {})

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        # A model whose Fisher is not known should not come to light after hours.
        task = stream[0]
        self._information(model, task, task.train.take(torch.arange(1)))
        return model

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        loss = super().loss(model, batch, step)
        return loss + self._penalty(model) if self._anchor else loss

    @torch.no_grad()
    def _penalty(self, model: nn.Module) -> Tensor:
        """Its value, without a graph: `after_backward` adds its gradient, which is cheaper."""
        twice = torch.zeros((), device=self._moved.device)
        for name, parameter in model.named_parameters():
            if name in self._anchor:
                pull = self._pull[name]
                moved = self._moved[: parameter.numel()].view_as(parameter)
                torch.sub(parameter, self._anchor[name], out=moved)
                torch.mul(moved, self._fisher[name], out=pull)
                twice += torch.dot(moved.flatten(), pull.flatten())
        return twice * (self.strength / 2)

    @torch.no_grad()
    def after_backward(self, model: nn.Module, step: Step) -> None:
        for name, parameter in model.named_parameters():
            # A head that is not in use has no gradient. It has not moved either.
            if name in self._anchor and parameter.grad is not None:
                parameter.grad.add_(self._pull[name], alpha=self.strength)

    def after_task(self, model: nn.Module, task: Task) -> None:
        new = self._information(model, task, task.train)
        summed = {name: self._fisher[name] + fisher if self._fisher else fisher for name, fisher in new.items()}
        self._hold(summed, {name: p.detach().clone() for name, p in model.named_parameters() if name in summed})

    def _information(self, model: nn.Module, task: Task, split: Split) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed_for(self.seed, "fisher", task.index))
        labels = split.y if self.fisher == "empirical" else None
        with eval_mode(model):
            return diagonal_fisher(model, split.x, labels, head=task.head, generator=generator)

    def _hold(self, fisher: dict[str, Tensor], anchor: dict[str, Tensor]) -> None:
        self._fisher, self._anchor = fisher, anchor
        # Kept from step to step: to allocate them anew would cost more than the arithmetic.
        self._pull = {name: torch.empty_like(value) for name, value in anchor.items()}
        self._moved = max(self._pull.values(), key=Tensor.numel, default=torch.empty(0)).flatten().clone()

    def state_dict(self) -> dict[str, Tensor]:
        kept = {"fisher": self._fisher, "anchor": self._anchor}
        return {f"{kind}.{name}": value for kind, values in kept.items() for name, value in values.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        kept: dict[str, dict[str, Tensor]] = {"fisher": {}, "anchor": {}}
        for key, value in state.items():
            kind, _, name = key.partition(".")
            kept[kind][name] = value
        self._hold(**kept)
