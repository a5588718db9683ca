"""Learning without Forgetting: the previous model's predictions on the current data, held where they were.

min  mean L(f(x), y)  +  λ mean KL(softmax(f_{T−1}(x)/τ) ‖ softmax(f(x)/τ)),  τ = 2, x of the current task

With a head per task, the second term is summed over the heads of old tasks. It keeps a whole model. Where one output
grows, the previous model says nothing of the new classes; by `unseen_as_zero` its probability of them is 0, which holds
the new classes back beside the old ones.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder.benchmarks.models import Network, set_outputs
from selfreminder.benchmarks.stream import Split, Task
from selfreminder.methods.base import Batch, Method, Step
from selfreminder.reminder.losses import distill

_CHUNK = 1000
_NEVER = -1e9
"""the logit of what has no probability"""


@dataclass(kw_only=True)
class Lwf(Method):
    needs_boundaries = True
    holds_old_outputs = True

    strength: float = 1.0
    """λ"""
    temperature: float = 2.0
    """τ"""
    unseen_as_zero: bool = False
    """the previous model's probability of classes that it did not have is 0; by default they take no part"""

    def __post_init__(self) -> None:
        self.check_above_0("temperature")

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        assert isinstance(model, Network)
        self._previous = copy.deepcopy(model).requires_grad_(False)
        self._seen, self._outputs = 0, 0
        self._targets: dict[bool, list[Tensor]] = {}
        return model

    def training_set(self, task: Task) -> Split:
        # What the previous model says of the data is the same in every epoch, unless images change: computed once.
        self._live = task.augment is not None and self._seen > 0
        self._targets = {True: [] if self._live else self._said(task.train.x, task.head)}
        return task.train

    def validation_set(self, task: Task) -> Split:
        if False not in self._targets:
            self._targets[False] = self._said(task.validation.x, task.head)
        return task.validation

    @torch.no_grad()
    def _said(self, x: Tensor, head: Tensor | int | None) -> list[Tensor]:
        """The previous model's logits, at each old head."""
        if not self._seen:
            return []
        device = next(self._previous.parameters()).device
        set_outputs(self._previous, self._outputs or None)
        features = [self._previous.eval().body(x.to(device)) for x in x.split(_CHUNK)]
        heads = range(1 if head is None else self._seen)
        return [torch.cat([self._previous.heads(part, old) for part in features]) for old in heads]

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        assert isinstance(model, Network)
        features = model.body(batch.x)
        loss = F.cross_entropy(model.heads(features, batch.head), batch.y)
        live = self._live and model.training
        said = self._said(batch.x, batch.head) if live else self._targets[model.training]
        for head, targets in enumerate(said):
            then = targets if live else targets.index_select(0, batch.rows)
            now = model.heads(features, head)
            if self.unseen_as_zero:
                then = F.pad(then, (0, now.shape[1] - then.shape[1]), value=_NEVER)
            now = now[:, : then.shape[1]]  # classes that came since have no target
            loss = loss + self.strength * distill(now, then, temperature=self.temperature).mean()
        return loss

    def after_task(self, model: nn.Module, task: Task) -> None:
        self._previous.load_state_dict(model.state_dict())
        self._seen, self._outputs = task.index + 1, task.outputs or 0

    def state_dict(self) -> dict[str, Tensor]:
        kept = self._previous.state_dict() if self._seen else {}
        return {**kept, "seen.facts": torch.tensor([self._seen, self._outputs])}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        # Earlier states have the first number alone.
        self._seen, self._outputs = [*state["seen.facts"].flatten().tolist(), 0][:2]
        if self._seen:
            self._previous.load_state_dict({key: value for key, value in state.items() if key != "seen.facts"})
