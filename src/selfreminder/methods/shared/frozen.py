"""Methods whose body learns the first task and then stays; what comes after is a sum over its features."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.eval_mode import eval_mode
from selfreminder.benchmarks.models import PADDING, Network
from selfreminder.benchmarks.stream import Task
from selfreminder.methods.base import Batch, Method, Step

_CHUNK = 500


@dataclass(kw_only=True)
class FrozenMethod(Method):
    """One pass over a task's data: Σ h hᵀ, and each class's Σ h and count, of features h. The head is computed."""

    needs_boundaries = True
    acts_within_tasks = True  # the first task's head is computed, too
    holds_old_outputs = True

    adapt: bool = True
    """the body learns the first task; else it stays as it is given"""

    @abstractmethod
    def solve(self) -> tuple[Tensor, Tensor]:
        """Compute weights (classes, features) and biases (classes,) from the sums."""

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        if not isinstance(model, Network):
            kind = type(model).__name__
            raise SelfReminderError(f"features are those of the body of a Network, which a {kind} does not have")
        self._sizes, features = model.heads.sizes, model.heads.features
        device = next(model.parameters()).device
        self.second = torch.zeros(features, features, device=device)
        """Σ h hᵀ"""
        self.first = torch.zeros(sum(self._sizes), features, device=device)
        """Σ h by class, those of all heads one after the other"""
        self.counts = torch.zeros(sum(self._sizes), device=device)
        return model

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        if self.adapt and step.task == 0:
            return super().loss(model, batch, step)
        return torch.zeros((), device=batch.x.device, requires_grad=True)  # no weight gets a gradient

    def after_step(self, model: nn.Module, batch: Batch, step: Step) -> None:
        if step.epoch == 0 and not (self.adapt and step.task == 0):
            assert not isinstance(batch.head, Tensor)
            self._add(model, batch.x, batch.y, batch.head)

    def after_task(self, model: nn.Module, task: Task) -> None:
        assert isinstance(model, Network)
        if self.adapt and task.index == 0:  # its features were not yet what they are now
            for x, y in zip(task.train.x.split(_CHUNK), task.train.y.split(_CHUNK)):
                self._add(model, x.to(self.counts.device), y.to(self.counts.device), task.head)
        weights, biases = self.solve()
        biases = torch.where(self.counts > 0, biases, PADDING)
        parts = (self.counts.split(self._sizes), weights.split(self._sizes), biases.split(self._sizes))
        for layer, counts, weight, bias in zip(model.heads.layers, *parts):
            if counts.any():
                layer.load_state_dict({"weight": weight, "bias": bias})

    @torch.no_grad()
    def _add(self, model: nn.Module, x: Tensor, y: Tensor, head: int | None) -> None:
        assert isinstance(model, Network)
        with eval_mode(model):
            h = model.body(x)
        classes = F.one_hot(y + sum(self._sizes[: head or 0]), len(self.counts)).to(h.dtype)
        self.second.addmm_(h.T, h)
        self.first.addmm_(classes.T, h)
        self.counts += classes.sum(0)

    def state_dict(self) -> dict[str, Tensor]:
        return {"second": self.second, "first": self.first, "counts": self.counts}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.second, self.first, self.counts = (state[name] for name in ("second", "first", "counts"))
