"""Versions side by side: `check` holds any weights to the gate, `diff` says which answers changed."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from selfreminder._base.errors import StoreError
from selfreminder.store.answers import Asking, make_slices
from selfreminder.store.gate import Slice, judge
from selfreminder.store.heldout import HeldOut
from selfreminder.store.incoming import check_alike, check_labels, read_incoming
from selfreminder.store.items import clock
from selfreminder.store.judgement import Judgement
from selfreminder.store.model import read_weights
from selfreminder.store.progress import Watch, ignore
from selfreminder.store.versions import Versions


@dataclass(frozen=True, eq=False)
class CheckResult:
    """What the gate says of weights that are in no store. Print it."""

    judgement: Judgement
    against: int
    """the current version"""
    slices: list[Slice]

    def __str__(self) -> str:
        return f"{self.judgement}\nbeside version {self.against}; nothing was changed"

    def to_dict(self) -> dict[str, Any]:
        """As JSON can say it."""
        return {"against": self.against, "judgement": self.judgement.to_dict()}


@dataclass(frozen=True)
class Changed:
    """An input to which two versions give different answers."""

    item: int
    slice: str
    label: str
    before: str
    after: str
    change: str
    """better, worse, or other: wrong both times"""


@dataclass(frozen=True)
class DiffResult:
    """Where two versions differ."""

    before: int
    after: int
    items: int
    """that both were asked about"""
    changed: tuple[Changed, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many got better, worse, or are wrong in another way."""
        return {kind: sum(each.change == kind for each in self.changed) for kind in ("better", "worse", "other")}

    def to_dict(self) -> dict[str, Any]:
        """As JSON can say it."""
        about = {"before": self.before, "after": self.after, "items": self.items, **self.counts}
        return about | {"changed": [asdict(each) for each in self.changed]}


def check(
    store: Versions, weights: str | Path, data: Any = None, *, skip_bad: bool = False, watch: Watch = ignore
) -> CheckResult:
    """Hold weights to the gate, beside the current version; see `Store.check`."""
    config, current = store.config, store.current
    heldout, asking = current.read_heldout(), Asking(config, watch)
    model = asking.build(read_weights(Path(weights)), current.manifest.outputs)
    new = None
    if data is not None:
        incoming = read_incoming(
            data, config, classes=current.manifest.classes, form=current.read_form(), skip_bad=skip_bad
        )
        check_alike(incoming, heldout.inputs)
        check_labels(incoming, current.manifest.outputs, grow=False)
        own, new = incoming.own, "data"
        assert own.labels is not None
        heldout = heldout + HeldOut.of(
            own.inputs, own.labels, name=new, time=clock(), hashes=incoming.hashes, columns=incoming.texts()
        )
    if not len(heldout):
        raise StoreError(f"{store.path} has nothing held out to judge by: give data, by --data")
    before = asking.predict(asking.load(current), heldout.inputs, "asking the current version")
    after = asking.predict(model, heldout.inputs, "asking the model")
    slices = make_slices(heldout, before, after, new=new, columns=config.data.slices)
    return CheckResult(judge(slices, config.gate, current.manifest.classes or ()), current.number, slices)


def diff(store: Versions, before: int, after: int, *, watch: Watch = ignore) -> DiffResult:
    """Say which held-out inputs two versions answer differently; see `Store.diff`."""
    old, new, asking = store.version(before), store.version(after), Asking(store.config, watch)
    heldout = store.version(max(before, after)).read_heldout()
    if not len(heldout):
        raise StoreError(f"version {max(before, after)} has nothing held out to ask about")
    answers = [
        asking.predict(asking.load(each), heldout.inputs, f"asking version {each.number}") for each in (old, new)
    ]
    names = (new if after > before else old).manifest.classes
    changed = tuple(
        Changed(
            item=int(heldout.items[row]),
            slice=heldout.names[int(heldout.slices[row])],
            label=_name(heldout.labels[row], names),
            before=_name(answers[0][row], names),
            after=_name(answers[1][row], names),
            change=_judge(*(int(each[row]) for each in (*answers, heldout.labels))),
        )
        for row in (answers[0] != answers[1]).nonzero().flatten().tolist()
    )
    return DiffResult(before, after, len(heldout), changed)


def _judge(before: int, after: int, label: int) -> str:
    return "worse" if before == label else "better" if after == label else "other"


def _name(label: Tensor, names: tuple[str, ...] | None) -> str:
    place = int(label)
    return names[place] if names and place < len(names) else str(place)
