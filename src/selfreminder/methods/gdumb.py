"""GDumb: a balanced sample of all classes so far is all that is kept, and all that a fresh model is trained on.

min  mean of CE(f(x'), y') over the memory, from the initial weights again at every task

(Prabhu et al., GDumb: a simple approach that questions our progress in continual learning, 2020.) Every class of every
task has as many items as any other; the new task's are chosen when it begins. An epoch repeats the memory until it has
about as many items as the task, so that all methods take as many steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks.stream import Split, Task
from selfreminder.memory.slots import Slots
from selfreminder.methods.base import Batch, Step
from selfreminder.methods.replay import ReplayMethod
from selfreminder.selection.base import choose, count_per_class


@dataclass(kw_only=True)
class Gdumb(ReplayMethod):
    needs_boundaries = True

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        self._initial = {name: value.clone() for name, value in model.state_dict().items()}
        self._classes = max(task.classes if task.outputs is None else task.outputs for task in stream)
        self._groups = torch.zeros(0, dtype=torch.int32)
        """(n,) of each item its class and task, as one number"""
        return super().prepare(model, stream)

    def start_task(self, model: nn.Module, task: Task) -> None:
        model.load_state_dict(self._initial)
        held, new, device = len(self._groups), task.train, next(model.parameters()).device
        groups = torch.cat([self._groups, (new.y + task.index * self._classes).to(torch.int32)])
        generator = torch.Generator().manual_seed(seed_for(self.seed, "gdumb", task.index))
        # Those held rank as they were chosen: of each class the first ones stay.
        ranked = torch.cat([torch.arange(held), held + torch.randperm(len(new), generator=generator)])
        chosen = choose(ranked, groups, count_per_class(groups, total=min(self.slots.size, len(groups))))
        old, own = chosen[chosen < held], chosen[chosen >= held]
        before, self.slots = self.slots, Slots(self.slots.size, seed=self.seed, codec=self.slots.codec)
        if len(old):
            kept = before.read(old.to(device))
            self.slots.observe(kept.x, kept.y, head=kept.heads)
        rows = own - held
        self.slots.observe(new.x[rows].to(device), new.y[rows].to(device), head=task.head)
        self._groups = groups[torch.cat([old, own])]

    def training_set(self, task: Task) -> Split:
        kept = self.slots.read()
        times = max(1, round(len(task.train) / len(self.slots)))
        rows = torch.arange(len(self.slots), device=kept.x.device).repeat(times)
        return Split(kept.x, kept.y, kept.heads).take(rows)

    def predict(self, model: nn.Module, x: Tensor, head: Tensor | int | None) -> Tensor:
        if isinstance(head, Tensor):
            return model(x, head, range(int(self._groups.max()) // self._classes + 1))
        return super().predict(model, x, head)

    def after_step(self, model: nn.Module, batch: Batch, step: Step) -> None:
        """What is kept was chosen before."""

    def state_dict(self) -> dict[str, Tensor]:
        return {"groups": self._groups, **super().state_dict()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._groups = state["groups"].cpu()
        super().load_state_dict({name: each for name, each in state.items() if name != "groups"})
