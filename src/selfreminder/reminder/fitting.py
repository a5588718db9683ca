"""Whether a model fits what is remembered: it is the one that gave the logits, or one that may stand for it."""

import warnings
import weakref
from collections.abc import Mapping
from typing import Literal

from torch import nn

from selfreminder._base.errors import SelfReminderError
from selfreminder.memory import Memory
from selfreminder.memory.fingerprint import find_staleness
from selfreminder.reminder.losses import ItemLoss, match_items_and_labels
from selfreminder.reminder.model_call import ModelCall
from selfreminder.reminder.remember import missing_logit, widen_logits


class FitCheck:
    """Refuses a model or a transform that did not give the logits: once for each model and memory."""

    def __init__(self) -> None:
        self._memory = Memory()
        self._model: weakref.ref[nn.Module] | None = None

    def forget(self) -> None:
        """Look again at the next model, also if it is the same."""
        self._memory, self._model = Memory(), None

    def __call__(
        self, memory: Memory, model: nn.Module, call: ModelCall, loss: ItemLoss, stale: Literal["error", "warn"]
    ) -> Memory:
        """The memory for this model: wider, where the model has more classes and may."""
        known = self._model is not None and self._model() is model
        if known and self._memory is memory:
            return memory
        if loss is match_items_and_labels and bool((beyond := memory.labels >= memory.widths).any()):
            columns = memory.labels, memory.tasks, memory.widths
            raise missing_logit(*(int(column[beyond][0]) for column in columns))
        if not known or self._memory.fingerprints != memory.fingerprints:
            _check_fingerprints(memory, model, call, stale)
            if call.grow and len(memory) and not isinstance(call.head, Mapping):
                memory = widen_logits(memory, call, model)
        self._memory, self._model = memory, weakref.ref(model)
        return memory

    def __reduce__(self) -> tuple[type["FitCheck"], tuple[()]]:
        return FitCheck, ()


def _check_fingerprints(memory: Memory, model: nn.Module, call: ModelCall, stale: Literal["error", "warn"]) -> None:
    if isinstance(call.head, Mapping) and (missing := memory.counts.keys() - call.head.keys()):
        raise SelfReminderError(f"head= names no head of task {min(missing)}, which the memory has")
    found = find_staleness(memory, model, call.transform, grown=call.grow)
    if found and stale == "error":
        raise SelfReminderError(
            f"{found}. If classes were added behind the old ones, pass grow=True; "
            'if it is meant otherwise, stale="warn"'
        )
    if found:
        warnings.warn(found, stacklevel=7)
