"""Gradient episodic memory: a step may not raise the loss on what is kept of any old task.

min ‖g̃ − g‖²  such that  g̃·g_t ≥ 0 for every old task t        g of CE(f(x), y), g_t of CE on the items of task t

Its dual has a multiplier for each task:  min_v ½ vᵀGGᵀv + gᵀGᵀv,  v ≥ γ,  g̃ = g + Gᵀv.  A margin γ above 0 favours the
old. (Lopez-Paz and Ranzato, Gradient episodic memory for continual learning, 2017.) Each task has an even part of the
memory, a uniform sample of its items.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.layout import lay_out_as
from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks.stream import Task
from selfreminder.memory.slots import Slots
from selfreminder.methods.base import Batch, Step
from selfreminder.methods.replay import ReplayMethod

_RIDGE = 1e-8
"""of the dual's diagonal, as a share of its mean: gradients of two tasks may be the same"""


def solve_dual(quadratic: np.ndarray, linear: np.ndarray) -> np.ndarray:
    """The u ≥ 0 that minimises ½ uᵀPu + qᵀu, by active sets (Lawson and Hanson): P is positive definite.

    >>> solve_dual(np.array([[2.0, 0.0], [0.0, 2.0]]), np.array([-4.0, 3.0])).tolist()
    [2.0, 0.0]
    """
    u, free = np.zeros(len(linear)), np.zeros(len(linear), dtype=bool)
    tolerance = 1e-10 * max(1.0, np.abs(linear).max())
    for _ in range(10 * len(linear) + 10):
        slope = quadratic @ u + linear
        wanted = np.flatnonzero(~free & (slope < -tolerance))
        if not len(wanted):
            break
        free[wanted[slope[wanted].argmin()]] = True
        while True:
            inner = np.zeros_like(u)
            inner[free] = np.linalg.solve(quadratic[np.ix_(free, free)], -linear[free])
            if (inner[free] > 0).all():
                u = inner
                break
            # Go towards it until a multiplier is 0, and leave that one there.
            falling = np.flatnonzero(free & (inner <= 0))
            ways = u[falling] / np.maximum(u[falling] - inner[falling], np.finfo(float).tiny)
            u = np.maximum(u + ways.min() * (inner - u), 0.0)
            free[falling[ways.argmin()]] = False
            u[~free] = 0.0
    return u


@dataclass(kw_only=True)
class Gem(ReplayMethod):
    needs_boundaries = True
    acts_within_tasks = False

    margin: float = 0.5
    """γ"""

    def __post_init__(self) -> None:
        if not self.margin >= 0:
            raise SelfReminderError(f"margin is {self.margin}: it must be 0 or above")

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        model = super().prepare(model, stream)
        self._of_task = self.slots.size // len(stream)
        if not self._of_task:
            raise SelfReminderError(f"{self.slots.size} items are fewer than one for each of the {len(stream)} tasks")
        self._tasks: dict[int, Slots] = {}
        return model

    def after_backward(self, model: nn.Module, batch: Batch, step: Step) -> None:
        old = [slots.read() for task, slots in sorted(self._tasks.items()) if task != step.task]
        if not old:
            return
        parameters = [p for p in model.parameters() if p.requires_grad]
        found = [
            torch.autograd.grad(F.cross_entropy(self.replay(model, batch, each), each.y), parameters, allow_unused=True)
            for each in old
        ]
        gradient = _flatten(parameters, [p.grad for p in parameters])
        of_tasks = torch.stack([_flatten(parameters, each) for each in found])
        # The dual is tiny, and solved on the CPU in double precision.
        products = (of_tasks @ torch.cat([of_tasks, gradient[None]]).T).double().cpu().numpy()
        square, linear = products[:, :-1], products[:, -1]
        if (linear >= 0).all():
            return
        ridge = np.eye(len(square)) * max(_RIDGE * square.trace() / len(square), np.finfo(float).tiny)
        least = np.full(len(square), self.margin)
        v = solve_dual(square + ridge, linear + (square + ridge) @ least) + least
        turned = gradient + torch.from_numpy(v).to(gradient) @ of_tasks
        for p, g, used in zip(parameters, turned.split([p.numel() for p in parameters]), zip(*found)):
            if p.grad is not None or any(each is not None for each in used):  # else it is the head of a task to come
                p.grad = lay_out_as(p, g.view_as(p))

    def after_step(self, model: nn.Module, batch: Batch, step: Step) -> None:
        assert not isinstance(batch.head, Tensor)
        if step.task not in self._tasks:
            self._tasks[step.task] = self._make_slots(step.task)
        self._tasks[step.task].observe(batch.x, batch.y, head=batch.head)

    def _make_slots(self, task: int) -> Slots:
        return Slots(self._of_task, seed=seed_for(self.seed, "task", task), codec=self.slots.codec)

    def state_dict(self) -> dict[str, Tensor]:
        return {f"{t}.{name}": each for t, slots in self._tasks.items() for name, each in slots.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._tasks = {task: self._make_slots(task) for task in sorted({int(name.split(".")[0]) for name in state})}
        for task, slots in self._tasks.items():
            own = f"{task}."
            slots.load_state_dict({k.removeprefix(own): each for k, each in state.items() if k.startswith(own)})

    @classmethod
    def work(cls, task: int) -> float:
        return 1.0 + task / 2


def _flatten(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Tensor:
    pairs = zip(parameters, gradients)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in pairs])
