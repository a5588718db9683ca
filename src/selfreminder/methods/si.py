"""Synaptic intelligence: weights by whose movement the loss fell are held where they were.

min  mean L(f(x), y)  +  c Σ_i Ω_i (θ_i − θ_{T−1,i})²,  c = λ
Ω_i ← max(0, Ω_i + ω_i / (Δ_i² + ξ)) at a task's end, where Δ_i is how far the weight moved in the task and
ω_i = − Σ over its steps of ∂L/∂θ_i · (θ_i after the step − θ_i before it)

The gradient is that of L alone, without the penalty, at the weights before the step; the step is what the optimizer
made of it, whichever it is. That Ω is never below 0 is the authors' code's, not their paper's.
Zenke, Poole and Ganguli, Continual learning through synaptic intelligence, 2017.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from selfreminder.benchmarks.stream import Task
from selfreminder.methods.base import Batch, Step
from selfreminder.methods.shared.anchored import AnchoredMethod, by_prefix, with_prefix


@dataclass(kw_only=True)
class Si(AnchoredMethod):
    strength: float = 0.1
    """c"""
    xi: float = 0.1
    """ξ: what keeps weights that hardly moved from mattering without end"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_above_0("xi")
        self._path: dict[str, Tensor] = {}
        """ω of the task that is being learned"""
        self._before: dict[str, Tensor] = {}
        self._gradient: dict[str, Tensor] = {}

    def start_task(self, model: nn.Module, task: Task) -> None:
        now = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
        self._hold(self._importance, now)
        self._path = {name: torch.zeros_like(value) for name, value in now.items()}

    @torch.no_grad()
    def after_backward(self, model: nn.Module, batch: Batch, step: Step) -> None:
        for name, parameter in model.named_parameters():
            if name in self._path and parameter.grad is not None:
                for kept, value in ((self._before, parameter), (self._gradient, parameter.grad)):
                    if name in kept:
                        kept[name].copy_(value)
                    else:
                        kept[name] = value.clone()
        super().after_backward(model, batch, step)

    @torch.no_grad()
    def after_step(self, model: nn.Module, batch: Batch, step: Step) -> None:
        for name, parameter in model.named_parameters():
            if name in self._path and parameter.grad is not None:
                moved = torch.sub(parameter, self._before[name], out=self._before[name])
                self._path[name].addcmul_(self._gradient[name], moved, value=-1)

    @torch.no_grad()
    def after_task(self, model: nn.Module, task: Task) -> None:
        now = {name: p.detach().clone() for name, p in model.named_parameters() if name in self._path}
        importance = {}
        for name, path in self._path.items():
            new = path / ((now[name] - self._anchor[name]).square() + self.xi)
            importance[name] = (new + self._importance[name] if name in self._importance else new).clamp_(min=0)
        self._hold(importance, now)
        self._path = {}

    def state_dict(self) -> dict[str, Tensor]:
        return super().state_dict() | with_prefix({"path": self._path})

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        super().load_state_dict(state)
        self._path = by_prefix(state).get("path", {})
