"""All data of all tasks so far, from the initial weights again at every task: what the others are measured by.

min  mean over tasks 1…T of L(f(x), y)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from selfreminder.benchmarks.stream import Split, Task
from selfreminder.data.mapped import iterate_rows
from selfreminder.memory import codec
from selfreminder.methods.base import Method


@dataclass(kw_only=True)
class Joint(Method):
    is_reference = True
    needs_boundaries = True
    holds_old_outputs = True

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        self._stream, self._seen, self._kept = stream, 0, {}
        self._initial = {name: value.clone() for name, value in model.state_dict().items()}
        return model

    def start_task(self, model: nn.Module, task: Task) -> None:
        model.load_state_dict(self._initial)

    def training_set(self, task: Task) -> Split:
        self._learning, self._validation = task.index, None
        # The stream gives old tasks again: nothing has to be saved with the state.
        return _together([(old.train, old.head) for old in [*self._stream[: task.index], task]])

    def validation_set(self, task: Task) -> Split:
        if self._validation is None:
            self._validation = _together([(old.validation, old.head) for old in [*self._stream[: task.index], task]])
        return self._validation

    def predict(self, model: nn.Module, x: Tensor, head: Tensor | int | None) -> Tensor:
        if isinstance(head, Tensor):
            return model(x, head, range(self._learning + 1))
        return super().predict(model, x, head)

    def after_task(self, model: nn.Module, task: Task) -> None:
        self._seen = task.index + 1

    def nbytes(self) -> int:
        """Bytes of all training data so far, in the smallest form that loses nothing."""
        return sum(map(self._task_nbytes, range(self._seen)))

    def _task_nbytes(self, index: int) -> int:
        if index not in self._kept:
            split = self._stream[index].train
            self._kept[index] = sum(codec.encode("auto", x).nbytes for x in iterate_rows(split.x)) + len(split)
        return self._kept[index]

    def state_dict(self) -> dict[str, Tensor]:
        return {"seen": torch.tensor(self._seen)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._seen = int(state["seen"])

    @classmethod
    def work(cls, task: int) -> float:
        return task + 1.0


def _together(parts: list[tuple[Split, int | None]]) -> Split:
    heads = [torch.full((len(split),), head) for split, head in parts if head is not None]
    x, y = torch.cat([split.x for split, _ in parts]), torch.cat([split.y for split, _ in parts])
    return Split(x, y, torch.cat(heads) if heads else None)
