"""Training on new data beside a reminder of the old, as a method of the one training loop."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks.stream import Parts, Split, Task
from selfreminder.methods.base import Batch, Method, Step
from selfreminder.reminder.model_call import find_device, match_dtype
from selfreminder.reminder.reminder import Reminder
from selfreminder.samples import Samples

_HOOKS = ("joined", "gives_way")
"""which a reminder had on the model"""


@dataclass(kw_only=True)
class Reminded(Method):
    """Cross entropy on samples as they come, raw, plus the penalty of a reminder that was loaded from a file."""

    reminder: Reminder
    samples: Samples
    augment: Callable[[Any], Any] | None = None
    """from raw samples to what the model takes, while training; None: as the reminder's transform does"""
    losses: list[float] = field(default_factory=list)
    """mean losses of the epochs that are done"""

    def __post_init__(self) -> None:
        call = self.reminder.call
        self._call = call if self.augment is None else replace(call, transform=self.augment)
        self._is_plain = call.is_plain and self.samples.inputs.keys() == {"x"}
        self._frozen: list[nn.Module] = []

    def task(self, number: int) -> Task:
        """The samples as a task of the training loop, which sees their places only."""
        labels = self.samples.labels
        assert labels is not None
        split = Split(torch.arange(len(labels)), labels)
        return Task(number, "new data", int(labels.max()) + 1, Parts(split, split, split))

    def parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not trained:
            raise SelfReminderError("no weight of the model wants a gradient: leave some requires_grad")
        return [{"params": trained}]

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        for norm in self._frozen:  # the loop puts all of a model into train mode
            norm.eval()
        device = find_device(model)
        rows = batch.rows.to(next(iter(self.samples.inputs.values())).device)
        inputs = {name: x.index_select(0, rows).to(device) for name, x in self.samples.inputs.items()}
        logits, penalty = self._logits_and_penalty(model, inputs, step)
        return F.cross_entropy(logits.float(), batch.y) + penalty

    def _logits_and_penalty(self, model: nn.Module, inputs: dict[str, Tensor], step: Step) -> tuple[Tensor, Tensor]:
        if self.reminder.strength == 0:
            return self._call(model, inputs, step.task), torch.zeros((), device=find_device(model))
        if self._is_plain:
            x = match_dtype(self._call.apply_transform(inputs), model)
            if isinstance(x, Tensor):
                output, penalty = self.reminder.forward(model, x)
                if isinstance(output, Tensor):
                    return output, penalty
                self._is_plain = False  # its logits are to be looked for, from the next step on
                return self._call.find_logits(output, step.task), penalty
        return self._call(model, inputs, step.task), self.reminder.penalty(model)

    def state_dict(self) -> dict[str, Tensor]:
        """What changes while training; the memory does not."""
        state = self.reminder.state_dict()
        tensors = {f"draws.{device}": value for device, value in state["draws"].items()}
        tensors |= {f"norms.{name}": value for name, value in state["norms"].items()}
        tensors |= {f"tolerance.{name}": torch.as_tensor(value) for name, value in state["tolerance"].items()}
        tensors |= {name: torch.tensor(state[name]) for name in _HOOKS}
        tensors["losses"] = torch.tensor(self.losses, dtype=torch.float64)
        return tensors

    def go_on(self, state: dict[str, Tensor], model: nn.Module) -> None:
        """Go on from a `state_dict`, or from the start if it is empty; batch norm's hooks need the model."""
        groups: dict[str, dict[str, Any]] = {"draws": {}, "norms": {}, "tolerance": {}}
        for key, value in state.items():
            group, _, name = key.partition(".")
            if group in groups:
                groups[group][name] = value
        memory = self.reminder.memory
        hooks = {name: bool(state[name]) for name in _HOOKS if name in state}
        self.reminder.load_state_dict({"columns": memory.columns, "facts": memory.facts, **hooks, **groups}, model)
        self.reminder.memory = memory  # the very one: what it has read of its items stays read
        self.losses = state["losses"].tolist() if state else []
        # A batch norm whose own weights are frozen belongs to a part that is not trained: it stays as it is.
        norms = (module for module in model.modules() if isinstance(module, _BatchNorm) and module.weight is not None)
        self._frozen = [norm for norm in norms if not norm.weight.requires_grad]
