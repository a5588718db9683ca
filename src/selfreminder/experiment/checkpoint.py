"""The state of a run that is not done: one safetensors file, written whole or not at all."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from selfreminder._base import tensor_file
from selfreminder._base.checked import DAMAGE
from selfreminder._base.errors import SelfReminderError
from selfreminder.experiment.records import STATE
from selfreminder.training import TrainState

_KEY = "selfreminder-state"
_TENSORS = ("model", "optimizer", "best")
_NUMBERS = ("epoch", "step", "lowered", "best_loss", "since_best")
"""what is kept of a `TrainState`, beside its losses"""
_COUNTS = ("steps", "new_items", "passes")
"""the same, of which earlier versions kept nothing"""


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
        counts = torch.tensor([len(right) for right in self.right], dtype=torch.int64)
        # In one piece: a tensor for each of a thousand tasks would take longer to write than to train one.
        groups["right"] = {"counts": counts, "items": torch.cat([torch.zeros(0, dtype=torch.bool), *self.right])}
        tensors = {f"{group}/{name}": tensor for group, named in groups.items() for name, tensor in named.items()}
        numbers = {name: getattr(self.train, name) for name in (*_NUMBERS, *_COUNTS)}
        position = {"task": self.task, "records_length": self.records_length, **numbers}
        tensor_file.write(folder / STATE, tensors, _KEY, position)

    @classmethod
    def load(cls, folder: Path) -> "RunState | None":
        """Read the state in a run's folder; None if there is none."""
        path = folder / STATE
        if not path.exists():
            return None
        try:
            return cls._from_tensors(*tensor_file.read(path, _KEY))
        except DAMAGE as error:  # `NotATensorFileError` is a ValueError
            raise SelfReminderError(f"{path} is damaged: {error}; remove it to start this run again") from None

    @classmethod
    def _from_tensors(cls, tensors: dict[str, Tensor], position: dict[str, Any]) -> "RunState":
        groups: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for key, tensor in tensors.items():
            group, _, name = key.partition("/")
            groups[group][name] = tensor.clone()
        kept: dict[str, Any] = {name: position[name] for name in _NUMBERS} | {name: groups[name] for name in _TENSORS}
        kept |= {name: position.get(name, 0) for name in _COUNTS}
        train = TrainState(**kept, losses=groups["losses"].get(""))
        right = groups["right"]
        if "counts" in right:
            of_tasks = list(right["items"].split(right["counts"].tolist()))
        else:  # a tensor for each task, in states of earlier versions
            of_tasks = [right[str(task)] for task in range(len(right))]
        return cls(position["task"], train, groups["method"], of_tasks, position["records_length"])
