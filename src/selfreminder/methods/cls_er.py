"""Complementary learning systems replay: two slow averages of the weights say what their model should hold on the old.

min  CE over new and drawn items  +  λ mean_j mean_k (z_jk − z*_jk)²        z*: of the plastic or the stable average,
                                                                           whichever is surer of the true class
θ_s ← a θ_s + (1 − a) θ  after a step, with the chance r_s;  a grows from 0 to its limit;  θ_p likewise, more often

The stable average predicts. (Arani et al., Learning fast, learning slow: a general continual learning method, 2022.)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.eval_mode import eval_mode
from selfreminder._base.seeds import seed_for, step_seed
from selfreminder.benchmarks.stream import Task
from selfreminder.memory.slots import Drawn
from selfreminder.methods.base import Batch, Step
from selfreminder.methods.replay import ReplayMethod


@dataclass(kw_only=True)
class ClsEr(ReplayMethod):
    strength: float = 1.0
    """λ"""
    stable_rate: float = 0.8
    """r_s, the chance that a step moves the stable average"""
    plastic_rate: float = 1.0
    """r_p, and the plastic one"""
    stable_average: float = 0.99
    """the limit of a_s"""
    plastic_average: float = 0.99
    """and of a_p"""

    def __post_init__(self) -> None:
        for option in ("stable_rate", "plastic_rate", "stable_average", "plastic_average"):
            if not 0 <= (value := getattr(self, option)) <= 1:
                raise SelfReminderError(f"{option} is {value}: it is a share from 0 to 1")

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        self._averages = {
            kind: {name: p.detach().clone() for name, p in model.named_parameters()} for kind in ("stable", "plastic")
        }
        self._steps, self._model = 0, super().prepare(model, stream)
        return self._model

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        if not len(self.slots):
            return F.cross_entropy(super().predict(model, batch.x, batch.head), batch.y)
        drawn = self.draw(step)
        new, old = self.compute_logits(model, batch, drawn)
        n, m = len(new), len(old)
        labelled = (n * F.cross_entropy(new, batch.y) + m * F.cross_entropy(old, drawn.y)) / (n + m)
        with torch.no_grad(), eval_mode(model):
            stable, plastic = (self._call(model, kind, drawn, batch.head) for kind in ("stable", "plastic"))
            surer = _sureness(stable, drawn.y) > _sureness(plastic, drawn.y)
            wanted = torch.where(surer, stable, plastic)
        return labelled + self.strength * F.mse_loss(old, wanted)

    def after_step(self, model: nn.Module, batch: Batch, step: Step) -> None:
        super().after_step(model, batch, step)
        for kind, rate, limit in (
            ("stable", self.stable_rate, self.stable_average),
            ("plastic", self.plastic_rate, self.plastic_average),
        ):
            # A chance that depends on the step's number alone, so that no device is waited for.
            if step_seed(seed_for(self.seed, kind), self._steps) < rate * 2**63:
                share = 1 - min(1 - 1 / (self._steps + 1), limit)
                for name, p in model.named_parameters():
                    self._averages[kind][name].lerp_(p.detach(), share)
        self._steps += 1

    def predict(self, model: nn.Module, x: Tensor, head: Tensor | int | None) -> Tensor:
        if model.training or model is not self._model:  # one that was not trained, to compare with
            return super().predict(model, x, head)
        return functional_call(model, self._averages["stable"], (x,) if head is None else (x, head))

    def _call(self, model: nn.Module, kind: str, drawn: Drawn, head: Tensor | int | None) -> Tensor:
        heads = () if head is None else (drawn.heads, range(int(head) + 1))
        return functional_call(model, self._averages[kind], (drawn.x, *heads))

    def state_dict(self) -> dict[str, Tensor]:
        averages = {f"{kind}.{name}": p for kind, each in self._averages.items() for name, p in each.items()}
        return {"steps.facts": torch.tensor(self._steps), **averages, **super().state_dict()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._steps = int(state["steps.facts"])
        kinds = ("stable", "plastic")
        for kind in kinds:
            for name, average in self._averages[kind].items():
                average.copy_(state[f"{kind}.{name}"])
        rest = {name: each for name, each in state.items() if name.partition(".")[0] not in (*kinds, "steps")}
        super().load_state_dict(rest)


def _sureness(logits: Tensor, y: Tensor) -> Tensor:
    """(n, 1) the probability of each item's true class."""
    return logits.softmax(1).gather(1, y[:, None])
