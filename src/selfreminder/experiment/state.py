"""The state of a run that is not done: one safetensors file, written whole or not at all."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from selfreminder._base import tensor_file
from selfreminder._base.errors import SelfReminderError
from selfreminder.experiment.records import STATE
from selfreminder.training import TrainState

_KEY = "selfreminder-state"


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
        groups = {
            "model": self.train.model,
            "optimizer": self.train.optimizer,
            "best": self.train.best,
            "method": self.method,
            "right": {str(task): right for task, right in enumerate(self.right)},
        }
        tensors = {f"{group}/{name}": t for group, named in groups.items() for name, t in named.items()}
        if self.train.losses is not None:
            tensors["losses/"] = self.train.losses
        position = {
            "task": self.task,
            "epoch": self.train.epoch,
            "step": self.train.step,
            "lowered": self.train.lowered,
            "best_loss": self.train.best_loss,
            "since_best": self.train.since_best,
            "records_length": self.records_length,
        }
        tensor_file.write(folder / STATE, tensors, _KEY, position)

    @classmethod
    def load(cls, folder: Path) -> "RunState | None":
        """Read the state in a run's folder; None if there is none."""
        path = folder / STATE
        if not path.exists():
            return None
        names = ("model", "optimizer", "best", "method", "right", "losses")
        groups: dict[str, dict[str, Tensor]] = {name: {} for name in names}
        try:
            tensors, position = tensor_file.read(path, _KEY)
        except tensor_file.NotATensorFileError as error:
            raise SelfReminderError(f"{path} is damaged: {error}; remove it to start this run again") from None
        for key, tensor in tensors.items():
            group, _, name = key.partition("/")
            groups[group][name] = tensor.clone()
        train = TrainState(
            epoch=position["epoch"],
            step=position["step"],
            model=groups["model"],
            optimizer=groups["optimizer"],
            losses=groups["losses"].get(""),
            lowered=position["lowered"],
            best=groups["best"],
            best_loss=position["best_loss"],
            since_best=position["since_best"],
        )
        right = [groups["right"][str(task)] for task in range(len(groups["right"]))]
        return cls(position["task"], train, groups["method"], right, position["records_length"])
