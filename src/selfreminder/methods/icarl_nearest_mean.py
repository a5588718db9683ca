"""iCaRL as it was published: binary losses on the task and what is kept, and the nearest mean of what is kept.

min  mean_x Σ_{k of the task} BCE(z_k, y = k)  +  λ mean_x Σ_{k of old tasks alone} BCE(z_k, σ(z_k^(T−1)))

x are the task's items and those that are kept, z^(T−1) the previous model's logits, λ = 1. The answer is the class of
which the mean of what is kept is nearest, features and means of length 1; the authors keep what herding selects.
Rebuffi et al., iCaRL: Incremental classifier and representation learning, 2017. icarl.py is its penalty alone.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.eval_mode import eval_mode
from selfreminder.benchmarks.models import PADDING, Network, set_outputs
from selfreminder.benchmarks.stream import Split, Task
from selfreminder.methods.base import Batch, KeepingMethod, Method, Step
from selfreminder.methods.shared.anchored import by_prefix, with_prefix

_CHUNK = 1000


@dataclass(kw_only=True)
class IcarlNearestMean(KeepingMethod):
    heads = "one"
    acts_within_tasks = True

    temperature: float = 1.0
    """what the previous model's logits are divided by"""

    def __post_init__(self) -> None:
        self.check_above_0("temperature")
        super().__post_init__()

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        if not isinstance(model, Network):
            kind = type(model).__name__
            raise SelfReminderError(f"features are those of the body of a Network, which a {kind} does not have")
        if stream[0].head is not None:
            raise SelfReminderError(
                "icarl-nearest-mean does not apply here: it compares all classes, and tasks have heads of their own"
            )
        super().prepare(model, stream)
        self._model = model
        self._previous = copy.deepcopy(model).requires_grad_(False)
        self._means = torch.zeros(0, model.heads.features, device=next(model.parameters()).device)
        """(classes, features): of what is kept of each class; none before the first task's end"""
        self._outputs = 0
        """that the previous model had"""
        return model

    def training_set(self, task: Task) -> Split:
        data, memory = task.train, self.reminder.memory
        if len(memory):
            kept = memory.read()
            data = Split(torch.cat([data.x, kept.inputs["x"].to(data.x)]), torch.cat([data.y, kept.labels.to(data.y)]))
        self._own = F.one_hot(task.train.y.unique(), task.outputs or task.classes).sum(0).bool()
        # What the previous model says is the same in every epoch, unless images change.
        self._said = None if task.augment else self._ask_previous(data.x)
        return data

    @torch.no_grad()
    def _ask_previous(self, x: Tensor) -> Tensor:
        """Compute what the previous model says of items, as probabilities (n, outputs that it had)."""
        device = self._means.device
        if not self._outputs:
            return torch.zeros(len(x), 0, device=device)
        set_outputs(self._previous, self._outputs)
        said = [self._previous.eval()(part.to(device)) for part in x.split(_CHUNK)]
        return torch.cat(said).div_(self.temperature).sigmoid_()

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        logits = model(batch.x)
        known = self._said if model.training else None
        said = self._ask_previous(batch.x) if known is None else known.index_select(0, batch.rows)
        own = self._own.to(logits.device)
        targets, weights = F.one_hot(batch.y, logits.shape[1]).to(logits), own.to(logits)
        old = said.shape[1]
        targets[:, :old] = torch.where(own[:old], targets[:, :old], said.to(logits))
        weights[:old] = torch.where(own[:old], 1.0, self.strength)
        return (F.binary_cross_entropy_with_logits(logits, targets, reduction="none") * weights).sum(1).mean()

    def after_task(self, model: nn.Module, task: Task) -> None:
        assert isinstance(model, Network)
        super().after_task(model, task)
        self._previous.load_state_dict(model.state_dict())
        self._outputs = task.outputs or task.classes
        kept = self.reminder.memory.read()
        features = torch.cat([self._compute_features(model, part) for part in kept.inputs["x"].split(_CHUNK)])
        classes = F.one_hot(kept.labels.to(features.device).long(), self._outputs).to(features)
        self._means = F.normalize(classes.T @ features)  # of none: 0

    @torch.no_grad()
    def _compute_features(self, model: nn.Module, x: Tensor) -> Tensor:
        assert isinstance(model, Network)
        with eval_mode(model):
            return F.normalize(model.body(x.to(self._means.device)))

    def predict(self, model: nn.Module, x: Tensor, head: Tensor | int | None) -> Tensor:
        if not len(self._means) or model is not self._model:  # one that was not trained has other features
            return super().predict(model, x, head)
        distances = -torch.cdist(self._compute_features(model, x), self._means).square()
        return distances.masked_fill(~self._means.any(1), PADDING)

    def state_dict(self) -> dict[str, Tensor]:
        previous = self._previous.state_dict() if self._outputs else {}
        parts = {"memory": super().state_dict(), "previous": previous}
        return {**with_prefix(parts), "means": self._means, "outputs.facts": torch.tensor([self._outputs])}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        parts = by_prefix(state)
        super().load_state_dict(parts["memory"])
        self._means, self._outputs = state["means"], int(state["outputs.facts"])
        if self._outputs:
            self._previous.load_state_dict(parts["previous"])

    def nbytes(self) -> int:
        return Method.nbytes(self)
