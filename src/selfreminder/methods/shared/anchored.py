"""Methods that hold each weight where it was, the more so the more it mattered to the tasks so far."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from selfreminder.benchmarks.stream import Split, Task
from selfreminder.methods.base import Batch, Method, Step


@dataclass(kw_only=True)
class AnchoredMethod(Method):
    """min  mean L(f(x), y)  +  factor · λ Σ_i Ω_i (θ_i − θ_{T−1,i})², where Ω sums the tasks' `importance`."""

    needs_boundaries = True
    factor: ClassVar[float] = 1.0
    """what λ is multiplied by in the penalty"""
    kept_as: ClassVar[str] = "importance"
    """what Ω is called in the state"""

    strength: float = 1.0
    """λ"""

    def __post_init__(self) -> None:
        self._hold({}, {})

    def importance(self, model: nn.Module, task: Task, split: Split) -> dict[str, Tensor]:
        """Tell by name how much each weight matters to a task that has been learned."""
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        loss = super().loss(model, batch, step)
        return loss + self._penalty(model) if self._importance else loss

    @torch.no_grad()
    def _penalty(self, model: nn.Module) -> Tensor:
        """Its value, without a graph: `after_backward` adds its gradient, which is cheaper."""
        total = torch.zeros((), device=self._moved.device)
        for name, parameter in model.named_parameters():
            if name in self._importance:
                pull = self._pull[name]
                moved = self._moved[: parameter.numel()].view_as(parameter)
                torch.sub(parameter, self._anchor[name], out=moved)
                torch.mul(moved, self._importance[name], out=pull)
                total += torch.dot(moved.flatten(), pull.flatten())
        return total * (self.strength * self.factor)

    @torch.no_grad()
    def after_backward(self, model: nn.Module, batch: Batch, step: Step) -> None:
        for name, parameter in model.named_parameters():
            # A head that is not in use has no gradient. It has not moved either.
            if name in self._importance and parameter.grad is not None:
                parameter.grad.add_(self._pull[name], alpha=2 * self.strength * self.factor)

    def after_task(self, model: nn.Module, task: Task) -> None:
        new, old = self.importance(model, task, task.train), self._importance
        summed = {name: old[name] + value if name in old else value for name, value in new.items()}
        self._hold(summed, {name: p.detach().clone() for name, p in model.named_parameters() if name in summed})

    def _hold(self, importance: dict[str, Tensor], anchor: dict[str, Tensor]) -> None:
        self._importance, self._anchor = importance, anchor
        # Kept from step to step: to allocate them anew would cost more than the arithmetic.
        self._pull = {name: torch.empty_like(value) for name, value in importance.items()}
        self._moved = max(self._pull.values(), key=Tensor.numel, default=torch.empty(0)).flatten().clone()

    def state_dict(self) -> dict[str, Tensor]:
        return with_prefix({self.kept_as: self._importance, "anchor": self._anchor})

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        kept = by_prefix(state)
        self._hold(kept.get(self.kept_as, {}), kept.get("anchor", {}))


def with_prefix(parts: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
    """Join dictionaries, each name with that of its part before it.

    >>> with_prefix({"old": {"weight": torch.zeros(1)}})
    {'old.weight': tensor([0.])}
    """
    return {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}


def by_prefix(state: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Give the parts that `with_prefix` joined; those that were empty are left out."""
    parts: dict[str, dict[str, Tensor]] = {}
    for key, value in state.items():
        part, _, name = key.partition(".")
        parts.setdefault(part, {})[name] = value
    return parts
