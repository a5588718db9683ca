"""The state of a run that is not done: one safetensors file, written whole or not at all."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from selfreminder._base import tensor_file
from selfreminder._base.errors import SelfReminderError
from selfreminder.experiment.records import STATE
from selfreminder.training import TrainState

_KEY = "selfreminder-state"
_TENSORS = ("model", "optimizer", "best")
_NUMBERS = ("epoch", "step", "lowered", "best_loss", "since_best")
"""what is kept of a `TrainState`, beside its losses"""


@dataclass(frozen=True)
class RunState:
    """The task that a run is in, how far training is, what is carried along, and how long the records were."""

    task: int
    train: TrainState
    method: dict[str, Tensor]
    right: list[Tensor]
    """per finished task, which test items were right when it had just been learned"""
    records_length: int

    def save(self, folder: Path) -> None:
        """Write the state into a run's folder."""
        groups = {name: getattr(self.train, name) for name in _TENSORS}
        groups["losses"] = {} if self.train.losses is None else {"": self.train.losses}
        groups["method"] = self.method
        groups["right"] = {str(task): right for task, right in enumerate(self.right)}
        tensors = {f"{group}/{name}": tensor for group, named in groups.items() for name, tensor in named.items()}
        numbers = {name: getattr(self.train, name) for name in _NUMBERS}
        position = {"task": self.task, "records_length": self.records_length, **numbers}
        tensor_file.write(folder / STATE, tensors, _KEY, position)

    @classmethod
    def load(cls, folder: Path) -> "RunState | None":
        """Read the state in a run's folder; None if there is none."""
        path = folder / STATE
        if not path.exists():
            return None
        try:
            tensors, position = tensor_file.read(path, _KEY)
        except tensor_file.NotATensorFileError as error:
            raise SelfReminderError(f"{path} is damaged: {error}; remove it to start this run again") from None
        groups: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for key, tensor in tensors.items():
            group, _, name = key.partition("/")
            groups[group][name] = tensor.clone()
        kept: dict[str, Any] = {name: position[name] for name in _NUMBERS} | {name: groups[name] for name in _TENSORS}
        train = TrainState(**kept, losses=groups["losses"].get(""))
        right = [groups["right"][str(task)] for task in range(len(groups["right"]))]
        return cls(position["task"], train, groups["method"], right, position["records_length"])
