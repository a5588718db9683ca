"""How old and new items go through a model while a reminder is at work, for as long as it trains one model."""

import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from selfreminder._base.eval_mode import eval_mode
from selfreminder.reminder.batch_norm import JointNorm, is_compiled, takes_part
from selfreminder.reminder.giving_way import GivingWay, Weigh
from selfreminder.reminder.joined_pass import Draw, JoinedPass


class Passes:
    """The hooks on a model: old items ride along, or have batch statistics of both; the new may weigh less.

    Each is kept with the model that it is of, which it does not keep alive; of another model, it is made anew.
    """

    def __init__(self, norm_state: Mapping[str, Tensor] | None = None) -> None:
        self._joined: tuple[weakref.ref[nn.Module], JoinedPass | None] | None = None
        self._norms: tuple[weakref.ref[nn.Module], JointNorm] | None = None
        self._way: tuple[weakref.ref[nn.Module], GivingWay] | None = None
        self._norm_state = norm_state or {}

    def join(self, model: nn.Module, draw: Draw) -> JoinedPass | None:
        """Let old items ride along in the model's own passes, from the next one on, where that can be."""
        if self._joined is not None and self._joined[0]() is model:
            return self._joined[1]
        if is_compiled(model):
            return None
        joined = None
        if any(map(takes_part, model.modules())) and JoinedPass.serves(model):
            joined, self._norms = JoinedPass(model, draw), None
        self._joined = weakref.ref(model), joined
        return joined

    def give_way(self, model: nn.Module, weigh: Weigh) -> GivingWay | None:
        """Let the new weigh less in the model's own passes, from the next one on, where that can be."""
        if self._way is None or self._way[0]() is not model:
            self._way = None if is_compiled(model) else (weakref.ref(model), GivingWay(model, weigh))
        return None if self._way is None else self._way[1]

    def stay(self) -> None:
        """Let the new weigh as they do by themselves."""
        self._way = None

    def unweighed(self) -> AbstractContextManager[None]:
        """For a pass whose gradient stays as it is."""
        return nullcontext() if self._way is None else self._way[1].old_pass()

    def old_pass(self, model: nn.Module, *, joint: bool) -> AbstractContextManager[None]:
        """The mode of a pass of old items by themselves: eval, but that batch norms may go by both."""
        if joint and torch.is_grad_enabled() and not is_compiled(model):
            if self._norms is None or self._norms[0]() is not model:
                self._norms, self._joined = (weakref.ref(model), JointNorm(model, self._norm_state)), None
                self._norm_state = {}
            if self._norms[1].is_training:
                return self._norms[1].old_pass(model)
        return eval_mode(model)

    def state_dict(self) -> dict[str, Any]:
        """What the hooks have seen, and which there are."""
        return {
            "norms": self._norm_state if self._norms is None else self._norms[1].state_dict(),
            "joined": self._joined is not None and self._joined[1] is not None,
            "gives_way": self._way is not None,
        }

    def go_on(self, state: Mapping[str, Any], model: nn.Module, draw: Draw, weigh: Weigh) -> None:
        """Have the hooks that a `state_dict` tells of, on a model."""
        if state.get("joined"):
            self.join(model, draw)
        elif self._norm_state:
            self._norms = weakref.ref(model), JointNorm(model, self._norm_state)
        if state.get("gives_way"):
            self.give_way(model, weigh)

    def __reduce__(self) -> tuple[type["Passes"], tuple[Any, ...]]:
        return Passes, (self.state_dict()["norms"],)  # no reference to the model
