"""What an update will do: its data, read, checked and split, and the key of its work."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from selfreminder._base.atomic import write_text
from selfreminder._base.checked import DAMAGE, fits, with_check, without_check
from selfreminder._base.errors import DataError, StoreError
from selfreminder._base.tensor_file import canonical_json
from selfreminder.memory import Memory
from selfreminder.store.answers import check_columns
from selfreminder.store.config import Config
from selfreminder.store.heldout import HeldOut
from selfreminder.store.incoming import (
    Incoming,
    check_alike,
    check_labels,
    choose_heldout,
    choose_validation,
    read_incoming,
)
from selfreminder.store.items import clock, find_recent
from selfreminder.store.progress import Progress, Watch
from selfreminder.store.version import Version
from selfreminder.store.versions import Versions

_JOB = "job.json"


@dataclass(frozen=True, eq=False)
class Plan:
    """All that an update will do, before it does it."""

    config: Config
    current: Version
    incoming: Incoming
    memory: Memory
    """of the current version, without what is too old"""
    heldout: HeldOut
    """the same"""
    train: Tensor
    validation: Tensor
    held: Tensor
    """rows of the incoming data"""
    outputs: int
    """that the model is to have"""
    first_item: int
    key: str
    now: int

    def start(self, store: Versions) -> Path:
        """The folder of its work, with the moment when it began and its numbers of items: they stay if it goes on."""
        folder = store.work_folder(self.key, self.current.number)
        if not (folder / _JOB).exists():
            write_facts(folder / _JOB, {"now": self.now, "first_item": self.first_item})
        return folder


def make_plan(
    store: Versions, config: Config, current: Version, data: Any, *, grow: bool, skip_bad: bool, watch: Watch
) -> Plan | str:
    """Read and check the data, and split it; in words, why there is nothing to do."""
    if data is None:
        if config.data.new is None:
            raise StoreError(f"which data? Name it by --data, or as new = … in [data] of {config.path}")
        # A function's name, or a path with its kind before it, is taken as it is.
        data = config.data.new if ":" in config.data.new else config.locate(config.data.new)
        if isinstance(data, Path) and data.is_dir() and not any(data.iterdir()):
            return f"{data} is empty"
    watch(Progress("reading the data", 0.0))
    incoming = read_incoming(
        data,
        config,
        classes=current.manifest.classes,
        grow=grow,
        form=current.read_form(),
        skip_bad=skip_bad,
        watch=watch,
    )
    for version in store.ancestors(current.number):
        known = version.manifest.data
        if known is not None and known.fingerprint == incoming.fingerprint:
            return f"{incoming.source} was learned already, by version {version.number}"
    heldout, memory = current.read_heldout(), current.read_memory()
    check_alike(incoming, heldout.inputs or memory.inputs)
    check_columns({**heldout.columns, **incoming.own.columns}, config.data.slices)
    outputs = check_labels(incoming, current.manifest.outputs, grow=grow)
    key = _make_key(config, current, incoming, outputs)
    twins = [version.manifest.data for version in store.versions if version.manifest.job == key]
    first = twins[-1].first_item if twins and twins[-1] else max(each.manifest.next_item for each in store.versions)
    now, first = _find_start(store.name_work(key, current.number), first)
    recent, recently = find_recent(memory, heldout, config.memory.max_age, now)
    memory, heldout = memory.take(recent), heldout.take(recently)
    aside = choose_heldout(incoming.hashes, config.data.holdout)
    judged = torch.isin(incoming.hashes, heldout.hashes)
    held = (aside & ~judged).nonzero().flatten()
    rest = ~aside & ~judged
    checking = choose_validation(incoming.hashes, config.data.validation)
    train, validation = (rest & ~checking).nonzero().flatten(), (rest & checking).nonzero().flatten()
    for rows, what in ((held, "to judge by"), (validation, "for validation"), (train, "to train on")):
        if not len(rows):
            raise DataError(
                f"{incoming.source}: of {len(incoming):,} items none is left {what} (holdout {config.data.holdout}, "
                f"validation {config.data.validation} of the rest; {int(judged.sum()):,} are in an earlier slice): "
                "wait for more data"
            )
    return Plan(config, current, incoming, memory, heldout, train, validation, held, outputs, first, key, now)


def _make_key(config: Config, current: Version, incoming: Incoming, outputs: int) -> str:
    """What the same command would do again, in one hash; the gate's limits are no part of it."""
    settings = {name: value for name, value in config.recorded.items() if name != "gate"}
    code = [asdict(config.model), config.data.preprocess, config.data.augment]
    facts = [current.number, current.manifest.created, incoming.fingerprint, outputs, settings, code]
    return hashlib.sha256(canonical_json(facts).encode()).hexdigest()[:16]


def _find_start(folder: Path, first_item: int) -> tuple[int, int]:
    """When an update began, and the number of its first item: as its folder says, or now and the one given."""
    path = folder / _JOB
    if not path.exists():
        return clock(), first_item
    facts = read_facts(path)
    if not fits(facts, dict[str, int]) or facts.keys() != {"now", "first_item"}:
        raise StoreError(f"{path} is damaged: remove {folder}, and the update begins again")
    return facts["now"], facts["first_item"]


def write_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Write what is known of an update on its way."""
    write_text(path, json.dumps(with_check(facts)) + "\n")


def read_facts(path: Path) -> dict[str, Any]:
    """What was written about an update on its way, and nothing else."""
    try:
        return without_check(json.loads(path.read_text(encoding="utf-8")))
    except DAMAGE as error:
        raise StoreError(f"{path} is damaged ({error}): remove {path.parent}, and the update begins again") from None
