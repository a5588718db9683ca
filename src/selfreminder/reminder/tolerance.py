"""A tolerance for forgetting, `drop ≤ max_drop`: the new gives way before more of the old is lost.

A stronger penalty is no answer to a drop that nears what is tolerated: with a step size that suits the new, a λ far
beyond the automatic one shakes the old or diverges. So the loss of the new weighs less instead, w ≤ 1, as in an
interior-point method, and the ratio λ / w has no bound while no step is larger than it was:

    w = 1 − drop / tolerated,   and 0 beyond;

at the start of a task it is small, and at most doubles from one look to the next, because what unseen old data have
lost does not come back; where too much was lost, it comes back to half of what it was, and then slowly beyond. What
earlier tasks have used up is not there for later ones, but for a third. While hardly anything is lost, λ falls, so that
the old is held no stiffer than it must be.

Accuracy jumps by a twentieth on 20 witnesses. How far their margins fell (the logit of what is right above the next
best) says more, because any item might have fallen as far:

    drop = mean over witnesses j of F(margin_j then − margin_j now) − F(0),   F(m) the share of items with a margin < m.

It looks at witnesses in eval mode, as they would be deployed, once every few steps. Where there are none, items that
the penalty holds stand for them, which move less than others, and the new never weighs much.
"""

import math
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from selfreminder._base import distributed
from selfreminder._base.eval_mode import eval_mode
from selfreminder.memory.memory import Memory, MemoryBatch
from selfreminder.reminder.model_call import ModelCall

Drawn = tuple[Tensor, MemoryBatch]
DrawWitnesses = Callable[[int], MemoryBatch]
"""at most so many"""

EVERY = 10
"""steps between two looks at the witnesses"""
MOST = 64
"""witnesses that one look is at"""
_START, _FASTER = 0.1, 2.0
"""what the new weighs at first, and how many times as much it may weigh at the next look"""
_LEFT = 1 / 3
"""the share of what is tolerated that every task has at least, whatever was lost before"""
_SAFE, _BOLDER = 0.03, 1.1
"""what is safe at least, and how many times as much may be at the next look"""
_LEAST = 0.01
"""the new never weighs less: nothing stops for good"""
_ROOM = 2.0
"""times max_drop is where nothing is left for the new: margins of few items say more than what is lost in truth"""
_FALL, _RISE = 0.02, 0.2
"""by how much log λ falls from one look to the next while hardly anything is lost, and rises again"""
_UNUSED = 0.25
"""the share of what is tolerated that is hardly anything"""
_RANGE = 0.03, 1.0
"""λ stays between these times the automatic one"""
_STIFFEST = 2.5
"""the same where the new cannot be made to weigh less"""
_UNSEEN, _BLIND = 3.0, 0.25
"""without witnesses: times the margin that held items lost, for others; the most that the new weighs then"""


class Tolerance:
    """What the penalty and the loss of the new weigh, on the device of the logits that it has seen.

    >>> tolerance = Tolerance(max_drop=0.01)
    >>> tolerance.factor, round(tolerance.weight_of_new.item(), 3)
    (1.0, 0.1)
    """

    def __init__(self, max_drop: float) -> None:
        self.max_drop = max_drop
        self.begin_task()
        self._history: list[Tensor] = []
        self._margins: tuple[weakref.ref[Memory], Tensor] | None = None

    def begin_task(self) -> None:
        """Be careful again: other data are learned from now on."""
        self.steps = 0
        """since the task began"""
        self.weight_of_new, self._log_factor = torch.full((), _START), torch.zeros(())
        self._used_before = torch.zeros(())
        """of what is tolerated, by earlier tasks, beyond what they had"""
        self._safe = torch.ones(())
        """what the new may weigh: half of what it did when too much was lost, and a little more at every look"""

    @property
    def factor(self) -> float:
        """What the automatic strength is multiplied by now."""
        return self._log_factor.exp().item()

    @property
    def history(self) -> list[tuple[float, float]]:
        """What the automatic strength was multiplied by, and what the new weighed, at every look."""
        return [(log_factor.exp().item(), weight.item()) for log_factor, weight in self._history]

    @torch.no_grad()
    def follow(
        self, memory: Memory, call: ModelCall, model: nn.Module, drawn: Drawn, witnesses: DrawWitnesses, gives_way: bool
    ) -> Tensor:
        """The factor for the penalty of a step, after a look at witnesses where that is due.

        `drawn` are the logits now and the items of the step; without `gives_way` the new do not weigh less by
        themselves.
        """
        if self.steps % EVERY == 0 and memory.witness is None:
            self.look(memory, *drawn, held=True)
        elif self.steps % EVERY == 0:
            seen = witnesses(MOST)
            with eval_mode(model):
                now = call(model, seen.inputs, seen.tasks, memory.counts)
            self.look(memory, call.match_width(now, seen.logits.shape[1]).float(), seen, held=False)
        self.steps += 1
        factor = self._log_factor.exp()
        return factor if gives_way else (factor / self.weight_of_new).clamp(max=_STIFFEST)

    def look(self, memory: Memory, logits: Tensor, kept: MemoryBatch, *, held: bool) -> None:
        """Look at the logits that items have now: of witnesses, or of items that are held."""
        margins = self._sorted_margins(memory)
        right = _find_right(kept.logits, kept.labels, kept.mask)
        then, now = (measure_margins(each, right, kept.mask) for each in (kept.logits, logits))
        fell = then - now
        below = torch.searchsorted(margins, torch.stack([fell * (_UNSEEN if held else 1.0), torch.zeros_like(fell)]))
        drop = (below[0] - below[1]).float().mean() / len(margins)
        # What is not a number any more is all lost.
        (drop,) = distributed.average([torch.where(fell.isfinite().all(), drop, 1.0)])
        used = drop / (_ROOM * self.max_drop)
        if self.steps == 0:
            self._used_before = (used - (1 - _LEFT)).clamp(min=0)
        used = used - self._used_before.to(used.device)
        before, log_factor, safe = (
            value.to(drop.device) for value in (self.weight_of_new, self._log_factor, self._safe)
        )
        self._safe = torch.where(
            used > 1, torch.minimum(safe, (before / 2).clamp(min=_SAFE)), (safe * _BOLDER).clamp(max=1.0)
        )
        faster = before if self.steps == 0 else _FASTER * before
        most = torch.minimum(faster, torch.maximum(before, self._safe))
        self.weight_of_new = (1 - used).clamp(max=_BLIND if held else 1.0).minimum(most).clamp(min=_LEAST)
        moved = torch.where(used < _UNUSED, log_factor - _FALL, log_factor + _RISE)
        self._log_factor = moved.clamp(*map(math.log, _RANGE))
        self._history.append(torch.stack([self._log_factor, self.weight_of_new]))

    def _sorted_margins(self, memory: Memory) -> Tensor:
        """Of all items, as they were recorded."""
        if self._margins is None or self._margins[0]() is not memory:
            right = _find_right(memory.logits, memory.labels, memory.mask)
            self._margins = weakref.ref(memory), measure_margins(memory.logits, right, memory.mask).sort().values
        return self._margins[1]

    def state_dict(self) -> dict[str, Any]:
        """All that changes while training."""
        values = self._log_factor, self.weight_of_new, self._safe, self._used_before
        now = torch.stack([value.cpu() for value in values])
        history = torch.stack(self._history).cpu() if self._history else torch.zeros(0, 2)
        return {"steps": self.steps, "now": now, "history": history}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.steps = int(state["steps"])
        self._log_factor, self.weight_of_new, self._safe, self._used_before = state["now"].unbind()
        self._history = list(state["history"].unbind())

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_margins": None}


def measure_margins(logits: Tensor, right: Tensor, mask: Tensor | None = None) -> Tensor:
    """(n,) how far the logit of what is right is above the next best.

    >>> measure_margins(torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([1]))
    tensor([-2.])
    """
    floor = torch.finfo(logits.dtype).min / 8
    logits = logits if mask is None else logits.masked_fill(~mask, floor)
    of = right[:, None]
    return (logits.gather(1, of) - logits.scatter(1, of, floor).amax(1, keepdim=True))[:, 0]


def _find_right(logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
    """(n,) the label of an item; what was predicted where it has none."""
    known = (labels >= 0) & (labels < logits.shape[1])
    said = logits if mask is None else logits.masked_fill(~mask, float("-inf"))
    return torch.where(known, labels.long(), said.argmax(1))
