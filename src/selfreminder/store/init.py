"""`init`: version 1 of a store, from a model as it is deployed and whatever is left of its data."""

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from selfreminder._base.atomic import write_text
from selfreminder._base.errors import DataError, StoreError
from selfreminder.memory import Memory
from selfreminder.reminder.reminder import Reminder
from selfreminder.samples import restore_structure
from selfreminder.store.answers import Asking, check_columns, measure
from selfreminder.store.config import Config, write_config
from selfreminder.store.contents import Contents
from selfreminder.store.gate import Gate, provable_drop, provable_flips
from selfreminder.store.heldout import ACCURACY, AGREEMENT, HeldOut
from selfreminder.store.incoming import Incoming, choose_heldout, read_incoming
from selfreminder.store.items import clock, name_items
from selfreminder.store.manifest import DataFacts, Manifest
from selfreminder.store.model import copy_weights, read_hf_labels, read_weights
from selfreminder.store.progress import Progress, Watch, ignore
from selfreminder.store.version import Version
from selfreminder.store.versions import VERSIONS, WORK, Versions

_JUDGED = 0.5
"""the share of old data to judge by: nothing is trained on the rest, a few of it are remembered"""


@dataclass(frozen=True, eq=False)
class InitResult:
    """What `init` made, and what it can show. Print it."""

    version: Version
    config: Path
    heldout: int
    remembered: int
    right: float | None
    """the share of held-out items that the model has right; None without any"""
    measure: str
    """of `right`"""
    gate: Gate
    notes: tuple[str, ...]
    """what somebody should know"""

    def __str__(self) -> str:
        lines = [f"version 1: {self.remembered:,} items remembered, {self.heldout:,} held out"]
        if self.right is not None:
            against = "accuracy" if self.measure == ACCURACY else "agreement with its own answers today"
            lines.append(f"{against} on what is held out: {self.right:.3f}")
            lines.append(
                f"so many items can show a drop of {provable_drop(self.heldout):.1%}: "
                f"old_drop_max = {self.gate.old_drop_max} in {self.config}"
            )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """As JSON can say it."""
        names = ("heldout", "remembered", "right", "measure")
        return {name: getattr(self, name) for name in names} | {
            "version": self.version.number,
            "folder": str(self.version.folder),
            "config": str(self.config),
            "old_drop_max": self.gate.old_drop_max,
            "notes": list(self.notes),
        }


def init(
    store: Versions,
    config: Config,
    data: Any = None,
    *,
    skip_bad: bool = False,
    watch: Watch = ignore,
    command: str | None = None,
) -> InitResult:
    """Make version 1; see `Store.init`. Nothing is written before all is known to be good."""
    asking = Asking(config, watch)
    classes = config.model.labels
    if classes is None and config.model.hf is not None:
        classes = read_hf_labels(config.locate(config.model.hf))
    model = asking.build(_read_first_weights(config))
    incoming = None
    if data is not None:
        watch(Progress("reading the data", 0.0))
        incoming = read_incoming(data, config, classes=classes, skip_bad=skip_bad, watch=watch)
        if classes is None and incoming.own.classes is not None:
            raise DataError(
                f"{incoming.source} has names as labels ({', '.join(incoming.own.classes[:5])}, …): say which output "
                "each is by --labels, all names in the order of the model's outputs"
            )
        check_columns(incoming.own.columns, config.data.slices)
    now = clock()
    notes: list[str] = []
    memory, heldout, outputs, answers = _take_in(asking, model, incoming, classes, now, notes)
    gate = _choose_gate(config.gate, len(heldout))
    existing, wanted = Config.read(config.path) if config.path.exists() else None, replace(config, gate=gate)
    if existing is not None and existing not in (config, wanted):
        raise StoreError(
            f"{config.path} is there, and says something else: edit it and leave the options out, or remove it"
        )
    if existing == config != wanted:
        notes.append(
            f"the limits in [gate] of {config.path} are less than so few items can show: {_show_limits(gate)} would do"
        )
    config = existing or wanted
    with _creating(store), store.hold(command):
        shutil.rmtree(store.path / WORK, ignore_errors=True)
        for left in (store.path / VERSIONS).iterdir():  # of an init that was killed
            shutil.rmtree(left)
        named = {} if incoming is None else name_items(incoming.texts(), range(len(incoming)))
        contents = Contents(copy_weights(model), memory, heldout, named, None if incoming is None else incoming.form)
        manifest = Manifest(
            version=1,
            kind="init",
            parent=None,
            outputs=outputs,
            next_item=0 if incoming is None else len(incoming),
            classes=classes,
            data=None if incoming is None else _describe(incoming, memory, heldout),
            settings=config.recorded,
            metrics=measure(heldout, answers),
            command=command,
        )
        version = contents.add_to(store, store.work_folder("init"), manifest)
        if existing is None:
            write_text(config.path, write_config(config))
        store.promote(1, "init")
        store.clean()
    right = next(iter(manifest.metrics.values()))["right"] if len(heldout) else None
    kind = heldout.facts[0].measure if len(heldout) else ACCURACY
    return InitResult(version, config.path, len(heldout), len(memory), right, kind, config.gate, tuple(notes))


def _take_in(
    asking: Asking,
    model: nn.Module,
    incoming: Incoming | None,
    classes: tuple[str, ...] | None,
    now: int,
    notes: list[str],
) -> tuple[Memory, HeldOut, int, Tensor]:
    """The memory, the first slice, how many outputs the model has, and what it answers to the slice."""
    if incoming is None or not len(incoming):
        notes.append(
            "without old data nothing is remembered, and nothing shows what an update loses: give what is left of it"
        )
        outputs = len(classes) if classes else _guess_outputs(model)
        return Memory(), HeldOut(), outputs, torch.zeros(0, dtype=torch.int64)
    logits = asking.compute_logits(model, incoming.own.inputs, "asking the model")
    outputs, answers = logits.shape[1], logits.argmax(1)
    if classes is not None and len(classes) != outputs:
        raise StoreError(f"the model has {outputs} outputs, labels names {len(classes)}: one name an output, in order")
    labels = incoming.own.labels
    if labels is not None and int(labels.max()) >= outputs:
        raise DataError(
            f"{incoming.source}: label {int(labels.max())} has no output, the model has {outputs}: mend the labels, or "
            "leave out what the model does not know; `update --grow` learns new classes later"
        )
    kind = ACCURACY if labels is not None else AGREEMENT
    if labels is None:
        notes.append("the data has no labels: later versions are judged by how often they agree with this one")
    aside = choose_heldout(incoming.hashes, _JUDGED)
    held, rest = aside.nonzero().flatten(), (~aside).nonzero().flatten()
    ours = incoming.take(held)
    heldout = HeldOut()
    if len(held):
        heldout = HeldOut.of(
            ours.own.inputs,
            answers[held] if ours.own.labels is None else ours.own.labels,
            name="v1",
            items=held,
            time=now,
            hashes=ours.hashes,
            columns=ours.texts(),
            measure=kind,
        )
    memory = _remember(asking, model, incoming, rest, now, notes) if len(rest) else Memory()
    absent = outputs - len(answers.unique()) if labels is None else outputs - len(labels.unique())
    if absent:
        notes.append(f"{absent} of {outputs} classes have no item in the data: nothing shows what they lose")
    if provable_drop(max(len(heldout), 1)) > Gate().old_drop_max:
        notes.append(
            f"{len(heldout):,} held-out items are few: smaller drops than {provable_drop(max(len(heldout), 1)):.1%} "
            "cannot be told from chance; more old data would do it"
        )
    return memory, heldout, outputs, answers[held]


def _remember(asking: Asking, model: nn.Module, incoming: Incoming, rows: Tensor, now: int, notes: list[str]) -> Memory:
    config = asking.config
    asking.watch(Progress("remembering", 0.0))
    samples = incoming.samples(0, rows)
    reminder = Reminder(codec="compressed", transform=asking.transform, tasks="merge", seed=config.train.seed)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        reminder.remember(
            model,
            restore_structure(samples.inputs),
            samples.labels,
            sources=samples.sources,
            time=now,
            **config.memory.size,
        )
    notes += [str(each.message) for each in said]
    return reminder.memory


def _choose_gate(gate: Gate, items: int) -> Gate:
    """Limits that so many items can show."""
    if not items:
        return gate
    drop, flips = max(gate.old_drop_max, provable_drop(items)), max(gate.flips_max, provable_flips(items))
    return replace(gate, old_drop_max=min(drop, 1.0), flips_max=min(flips, 1.0))


def _show_limits(gate: Gate) -> str:
    return f"old_drop_max = {gate.old_drop_max}, flips_max = {gate.flips_max}"


def _read_first_weights(config: Config) -> dict[str, Tensor] | None:
    if config.model.weights is not None:
        return read_weights(config.locate(config.model.weights))
    if config.model.hf is not None:
        return read_weights(config.locate(config.model.hf))
    raise StoreError("which weights? Say --weights FILE: safetensors, or a .pt with the state dict")


def _guess_outputs(model: nn.Module) -> int:
    """How many outputs a model has that nobody can ask: those of its last linear layer."""
    found = [layer.out_features for layer in model.modules() if isinstance(layer, nn.Linear)]
    if not found:
        raise StoreError("without old data nobody knows how many outputs the model has: name them by --labels")
    return found[-1]


def _describe(incoming: Incoming, memory: Memory, heldout: HeldOut) -> DataFacts:
    return DataFacts(
        source=incoming.source,
        fingerprint=incoming.fingerprint,
        items=len(incoming),
        first_item=0,
        trained=len(incoming) - len(heldout),
        heldout=len(heldout),
        labelled=incoming.own.labels is not None,
        columns=tuple(incoming.own.columns),
    )


@contextmanager
def _creating(store: Versions) -> Iterator[None]:
    """Make the folder of a store; where that comes to nothing because of the disk, it is gone again."""
    was_there = store.path.exists()
    (store.path / VERSIONS).mkdir(parents=True, exist_ok=True)
    try:
        yield
    except OSError:
        if not was_there:
            shutil.rmtree(store.path, ignore_errors=True)
        raise
