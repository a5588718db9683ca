"""How a reminder feeds a model with what it keeps: from items to the logits that count, whatever the model is."""

import warnings
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.eval_mode import eval_mode
from selfreminder._base.seeds import seed_for
from selfreminder.memory.fingerprint import staleness
from selfreminder.memory.memory import Memory, MemoryBatch
from selfreminder.reminder import distributed
from selfreminder.reminder.model_call import Head, LogitsOf, as_given, check_logits, device_of, fitted, logits_at, named


def copied(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """A copy of inputs that belong to somebody: transform and model may work in place."""
    return {name: x.clone() for name, x in inputs.items()}


class Feeding:
    """What a `Reminder` is made of beside its penalty; its settings are described there."""

    memory: Memory
    batch_size: int
    transform: Callable[[Any], Any] | None
    head: Head | None
    logits_of: LogitsOf
    grow: bool
    stale: Literal["error", "warn"]
    seed: int

    def __init__(self) -> None:
        self._generators: dict[torch.device, torch.Generator] = {}
        self._draws: dict[str, Tensor] = {}  # states of generators that a checkpoint had and nobody has needed yet
        self._checked: tuple[Memory, weakref.ref[nn.Module] | None] = Memory(), None

    @torch.no_grad()
    def record(self, model: nn.Module, inputs: Any, task: int) -> Tensor:
        """The model's logits (n, K) on inputs as they are read back from a memory, in eval mode."""
        given, device, parts = named(inputs), device_of(model), []
        n = len(next(iter(given.values())))
        with eval_mode(model):
            for start in range(0, n, self.batch_size):
                part = {name: x[start : start + self.batch_size].to(device) for name, x in given.items()}
                logits = self._logits(model, copied(part), task)
                check_logits(logits)
                parts.append(logits.float())
        return torch.cat(parts)

    def state_dict(self) -> dict[str, Any]:
        """The memory and the state of the draws, for a checkpoint; `torch.load(weights_only=True)` reads it."""
        draws = {str(device): generator.get_state() for device, generator in self._generators.items()}
        return {"columns": self.memory.columns, "facts": self.memory.facts, "draws": {**self._draws, **draws}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        if missing := {"columns", "facts", "draws"} - state.keys():
            raise SelfReminderError(f"this is no state of a reminder: it lacks {', '.join(sorted(missing))}")
        self.memory = Memory.from_columns(state["columns"], state["facts"])
        self._generators, self._draws = {}, dict(state["draws"])

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_checked": (Memory(), None)}  # no reference to the model

    @torch.inference_mode(False)  # what is read once takes part in a backward pass later
    @torch.no_grad()
    def _draw(self, device: torch.device, generator: torch.Generator | None, items: int | None = None) -> MemoryBatch:
        if self.memory.device != device:
            self.memory = self.memory.to(device)
        generator = self._generator(device) if generator is None else generator
        kept = self.memory.draw(items or self.batch_size, generator, part=distributed.ranks())
        return replace(kept, inputs=copied(kept.inputs)) if len(kept) == len(self.memory) else kept

    def _generator(self, device: torch.device) -> torch.Generator:
        """Of the draws on a device: as a checkpoint left one of its kind, whatever its number, else a new one."""
        if device not in self._generators:
            generator = torch.Generator(device).manual_seed(seed_for(self.seed, "draws"))
            alike = [name for name in self._draws if torch.device(name).type == device.type]
            if alike:
                name = str(device) if str(device) in alike else alike[0]
                generator.set_state(self._draws.pop(name).cpu())
            self._generators[device] = generator
        return self._generators[device]

    def _logits(self, model: nn.Module, inputs: dict[str, Tensor], task: Tensor | int) -> Tensor:
        given = self._transformed(inputs)
        logits_of = self.logits_of
        if isinstance(self.head, Mapping) and isinstance(task, Tensor):
            # No other heads: a gradient of zeros would let an optimiser decay them.
            logits_of = partial(logits_at, {number: self.head[number] for number in self.memory.counts})
        return logits_of(model, fitted(given, model), task)

    def _transformed(self, inputs: dict[str, Tensor]) -> Any:
        given = as_given(inputs)
        return given if self.transform is None else self.transform(given)

    def _fit(self, logits: Tensor, width: int) -> Tensor:
        """Logits that are as many as the memory has."""
        if logits.shape[1] > width and (self.grow or isinstance(self.head, Mapping)):
            return logits[:, :width]
        if logits.shape[1] < width and isinstance(self.head, Mapping):  # the task with the widest is not here any more
            return nn.functional.pad(logits, (0, width - logits.shape[1]))
        if logits.shape[1] != width:
            raise SelfReminderError(
                f"the memory holds {width} logits an item, the model gives {logits.shape[1]}: use the model that the "
                "memory was made with, pass grow=True if classes were added behind those, or head=… or logits_of=… "
                "to choose the outputs that match"
            )
        return logits

    def _check_labels(self) -> None:
        """That each item has what the loss needs."""

    def _check(self, model: nn.Module) -> None:
        """That the model and the transform are those that recorded the logits: once for each model and memory."""
        memory, checked = self._checked
        known = checked is not None and checked() is model
        if known and memory is self.memory:
            return
        self._check_labels()
        if known and memory.fingerprints == self.memory.fingerprints:
            self._checked = self.memory, checked
            return
        if isinstance(self.head, Mapping) and (missing := self.memory.counts.keys() - self.head.keys()):
            raise SelfReminderError(f"head= names no head of task {min(missing)}, which the memory has")
        stale = staleness(self.memory.fingerprints, model, self.transform, grown=self.grow)
        if stale and self.stale == "error":
            raise SelfReminderError(
                f"{stale}. If classes were added behind the old ones, pass grow=True; "
                'if it is meant otherwise, stale="warn"'
            )
        if stale:
            warnings.warn(stale, stacklevel=5)
        self._checked = self.memory, weakref.ref(model)
