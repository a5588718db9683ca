"""Learning without Forgetting: the previous model's predictions on the current data, held where they were.

min  mean L(f(x), y)  +  λ mean KL(softmax(f_{T−1}(x)/τ) ‖ softmax(f(x)/τ)),  τ = 2, x of the current task

With a head per task, the second term is summed over the heads of old tasks. It keeps a whole model.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder.benchmarks.models import Network
from selfreminder.benchmarks.stream import Split, Task
from selfreminder.methods.base import Batch, Method, Step
from selfreminder.reminder.losses import distill

_CHUNK = 1000


@dataclass(kw_only=True)
class Lwf(Method):
    strength: float = 1.0
    """λ"""
    temperature: float = 2.0
    """τ"""

    def __post_init__(self) -> None:
        self.check_above_0("temperature")

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        assert isinstance(model, Network)
        self._previous = copy.deepcopy(model).requires_grad_(False)
        self._seen = 0
        self._targets: dict[bool, list[Tensor]] = {}
        return model

    def training_set(self, task: Task) -> Split:
        # What the previous model says of the data is the same in every epoch: it is computed once.
        self._targets = {True: self._said(task.train, task.head)}
        return task.train

    def validation_set(self, task: Task) -> Split:
        if False not in self._targets:
            self._targets[False] = self._said(task.validation, task.head)
        return task.validation

    @torch.no_grad()
    def _said(self, split: Split, head: int | None) -> list[Tensor]:
        """The previous model's logits on a split, at each old head."""
        if not self._seen:
            return []
        device = next(self._previous.parameters()).device
        features = [self._previous.eval().body(x.to(device)) for x in split.x.split(_CHUNK)]
        heads = range(1 if head is None else self._seen)
        return [torch.cat([self._previous.heads(part, old) for part in features]) for old in heads]

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        assert isinstance(model, Network)
        features = model.body(batch.x)
        loss = F.cross_entropy(model.heads(features, batch.head), batch.y)
        for head, targets in enumerate(self._targets[model.training]):
            now = model.heads(features, head)
            then = targets.index_select(0, batch.rows)
            loss = loss + self.strength * distill(now, then, temperature=self.temperature).mean()
        return loss

    def after_task(self, model: nn.Module, task: Task) -> None:
        self._previous.load_state_dict(model.state_dict())
        self._seen = task.index + 1

    def state_dict(self) -> dict[str, Tensor]:
        kept = self._previous.state_dict() if self._seen else {}
        return {**kept, "seen.facts": torch.tensor(self._seen)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._seen = int(state["seen.facts"])
        if self._seen:
            self._previous.load_state_dict({key: value for key, value in state.items() if key != "seen.facts"})
