"""What versions answer: their models are loaded, and asked about held-out items."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError, StoreError, unknown
from selfreminder._base.factories import call_factory, find_modules_in, load_factory
from selfreminder.memory.encoded import Kept
from selfreminder.reminder.model_call import ModelCall
from selfreminder.samples.columns import show_kind
from selfreminder.store.config import Config
from selfreminder.store.gate import Slice
from selfreminder.store.heldout import HeldOut
from selfreminder.store.model import build_model
from selfreminder.store.progress import Progress, Watch, ignore
from selfreminder.store.version import Version

_BATCH = 256
_TELL_EVERY = 0.2


@dataclass(frozen=True)
class Asking:
    """How models are asked: with the user's own preprocessing, on the device that the config names."""

    config: Config
    watch: Watch = ignore

    @property
    def transform(self) -> Callable[[Any], Any] | None:
        """From data as it comes in to what the model takes."""
        return self._load(self.config.data.preprocess)

    @property
    def augment(self) -> Callable[[Any], Any] | None:
        """The same while training, where the user has another."""
        return self._load(self.config.data.augment)

    def _load(self, name: str | None) -> Callable[[Any], Any] | None:
        if name is None:
            return None
        find_modules_in(self.config.folder)
        load_factory(name)
        return partial(call_factory, name)

    def load(self, version: Version) -> nn.Module:
        """The model of a version, in eval mode."""
        return self.build(version.read_weights(), version.manifest.outputs)

    def build(self, weights: Mapping[str, Tensor] | None, outputs: int | None = None) -> nn.Module:
        """The model that the config names, with these weights."""
        return build_model(self.config, weights, outputs=outputs).to(self.config.train.device)

    def compute_logits(self, model: nn.Module, inputs: Mapping[str, Tensor | Kept], doing: str) -> Tensor:
        """(n, K) on the CPU."""
        call, found, told = ModelCall(self.transform, batch_size=_BATCH), [], time.monotonic()
        n = len(next(iter(inputs.values())))
        for start in range(0, n, _BATCH):
            rows = torch.arange(start, min(start + _BATCH, n))
            batch = {name: x[rows] if isinstance(x, Tensor) else x.decode(rows) for name, x in inputs.items()}
            try:
                found.append(call.compute_logits(model, batch, 0).cpu())
            except SelfReminderError:
                raise
            except Exception as error:  # whatever the user's own model raises on data that it was not made for
                shapes = ", ".join(f"'{name}' {show_kind(x)}, {x.dtype}" for name, x in batch.items())
                raise StoreError(
                    f"the model does not take this data ({type(error).__name__}: {str(error)[:200]}); "
                    f"it is {shapes}: a function of yours (--preprocess package.module:function) can bring it into form"
                ) from error
            if time.monotonic() - told > _TELL_EVERY:
                told = time.monotonic()
                self.watch(Progress(doing, min(start + _BATCH, n) / n))
        return torch.cat(found)

    def predict(self, model: nn.Module, inputs: Mapping[str, Tensor | Kept], doing: str = "asking the model") -> Tensor:
        """(n,) the model's classes, on the CPU."""
        return self.compute_logits(model, inputs, doing).argmax(1)


def make_slices(
    heldout: HeldOut, before: Tensor, after: Tensor, *, new: str | None = None, columns: tuple[str, ...] = ()
) -> list[Slice]:
    """What the gate judges by: every slice with both models' answers; parts by the values of columns.

    Args:
        heldout: all slices.
        before: (n,) what the current version answers.
        after: (n,) what the candidate answers.
        new: the name of the slice that came with the candidate.
        columns: of metadata; each of their values is a part.
    """
    check_columns(heldout.columns, columns)
    found = []
    for place, facts in enumerate(heldout.facts):
        ours = heldout.slices == place
        rows = ours.nonzero().flatten()
        parts = {}
        for name in columns:
            values = [heldout.columns[name][row] for row in rows.tolist()]
            for value in sorted({each for each in values if each is not None}):
                parts[f"{name}={value}"] = torch.tensor([each == value for each in values])
        labels, ids = heldout.labels[rows], heldout.items[rows]
        found.append(Slice(facts.name, facts.name == new, labels, before[rows], after[rows], ids, parts))
    return found


def check_columns(known: Mapping[str, Any], wanted: tuple[str, ...]) -> None:
    """Refuse columns to judge by that the data has not."""
    for name in wanted:
        if name not in known:
            raise (
                unknown("column", name, known) if known else StoreError(f"slices by '{name}': the data has no columns")
            )


def measure(heldout: HeldOut, answers: Tensor) -> dict[str, Any]:
    """By slice: how many items, the share that is right, and what right means."""
    found = {}
    for place, facts in enumerate(heldout.facts):
        ours = heldout.slices == place
        right = (answers == heldout.labels)[ours].double().mean().item()
        found[facts.name] = {"items": int(ours.sum()), "right": right, "measure": facts.measure}
    return found
