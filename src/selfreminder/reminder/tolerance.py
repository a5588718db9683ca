"""A strength that sets itself while training: as weak as a tolerance for forgetting allows, and no weaker.

The paper's objective has a multiplier λ; a tolerance is a constraint, `drop ≤ max_drop`, and λ follows from it by dual
ascent: it rises while the old is lost faster than is tolerated, and falls while there is room. What is watched is how
much probability the model takes from what it said of an item,

    drop = mean_j max(0, p_j(c_j) − p_j^now(c_j)),   c_j what the model predicted when the item was recorded,

which changes smoothly where accuracy jumps. It comes from the items of the step itself, at no cost, times how much
more it is on witnesses, which no penalty holds: those are looked at once in a while.
"""

import math
from typing import Any

import torch
from torch import Tensor

from selfreminder._base import distributed
from selfreminder.memory.memory import MemoryBatch

EVERY = 20
"""steps between two looks at the witnesses"""
_RATE = 0.05
"""by how much log λ moves in a step, at most"""
_RANGE = 0.03, 2.5
"""λ stays between these times the automatic one: beyond, a step size that suits the new shakes the old"""
_FLOOR = 0.002
"""a drop too small to be told from none"""
_MEMORY = 0.8
"""how much of what was seen stays from one step to the next"""
_MORE = 1.0, 30.0
"""how much more witnesses may lose than items that are held"""


class Tolerance:
    """The multiplier of a tolerance, on the device of the logits that it has seen.

    >>> tolerance = Tolerance(max_drop=0.01)
    >>> tolerance.factor
    1.0
    """

    def __init__(self, max_drop: float) -> None:
        self.max_drop = max_drop
        self.steps = 0
        self._log_factor = torch.zeros(())
        self._drop = torch.zeros(())
        self._more = torch.full((), 3.0)
        self._history: list[Tensor] = []

    @property
    def factor(self) -> float:
        """What the automatic strength is multiplied by now."""
        return self._log_factor.exp().item()

    @property
    def history(self) -> list[float]:
        """The factor, once every `EVERY` steps."""
        return [value.exp().item() for value in self._history]

    @property
    def is_due(self) -> bool:
        """Whether witnesses are to be looked at in this step."""
        return self.steps % EVERY == EVERY - 1

    @torch.no_grad()
    def follow(self, logits: Tensor, kept: MemoryBatch) -> Tensor:
        """Look at the logits that items of a step have now, and give the factor for the step."""
        drop = torch.dot(kept.weight, measure_drop(logits, kept)) / kept.weight.sum()
        (drop,) = distributed.average([drop])
        for name in ("_log_factor", "_drop", "_more"):
            setattr(self, name, getattr(self, name).to(drop.device))
        self._drop = torch.where(drop.isfinite(), torch.lerp(drop, self._drop, _MEMORY), self._drop)
        lost = (self._drop * self._more + _FLOOR) / (self.max_drop + _FLOOR)
        low, high = (math.log(bound) for bound in _RANGE)
        self._log_factor = (self._log_factor + _RATE * lost.log().clamp(-1, 1)).clamp(low, high)
        if self.is_due:
            self._history.append(self._log_factor)
        self.steps += 1
        return self._log_factor.exp()

    @torch.no_grad()
    def witness(self, logits: Tensor, kept: MemoryBatch) -> None:
        """Look at the logits that witnesses have now: by how much more do they lose than items that are held?"""
        drop = measure_drop(logits, kept).mean()
        more = ((drop + _FLOOR) / (self._drop.to(drop.device) + _FLOOR)).clamp(*_MORE)
        (more,) = distributed.average([more])
        self._more = torch.where(more.isfinite(), torch.lerp(self._more.to(more.device), more, 0.5), self._more)

    def state_dict(self) -> dict[str, Any]:
        """All that changes while training."""
        state = torch.stack([self._log_factor, self._drop, self._more]).cpu()
        history = torch.stack(self._history).cpu() if self._history else torch.zeros(0)
        return {"steps": self.steps, "state": state, "history": history}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.steps = int(state["steps"])
        self._log_factor, self._drop, self._more = state["state"].unbind()
        self._history = list(state["history"].unbind())


def measure_drop(logits: Tensor, kept: MemoryBatch) -> Tensor:
    """(n,) the probability that each item's recorded prediction has lost.

    >>> one = {"inputs": {}, "mask": None, "labels": torch.zeros(1), "tasks": torch.zeros(1), "weight": torch.ones(1)}
    >>> measure_drop(torch.tensor([[0.0, 0.0]]), MemoryBatch(logits=torch.tensor([[50.0, 0.0]]), **one))
    tensor([0.5000])
    """
    then = kept.logits
    if kept.mask is not None:
        floor = torch.finfo(logits.dtype).min / 8
        logits, then = logits.masked_fill(~kept.mask, floor), then.masked_fill(~kept.mask, floor)
    said, of = then.softmax(1).max(1)
    return (said - logits.softmax(1).gather(1, of[:, None])[:, 0]).clamp(min=0)
