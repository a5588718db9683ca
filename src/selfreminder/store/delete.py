"""`delete`: a version whose memory and held-out slices lack some items, and which versions were trained with them."""

import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder.memory.query import CONDITION, parse_age, parse_moment, parse_ranges
from selfreminder.store.answers import Asking, measure
from selfreminder.store.contents import Contents
from selfreminder.store.heldout import HeldOut
from selfreminder.store.items import clock
from selfreminder.store.manifest import Manifest
from selfreminder.store.progress import Watch, ignore
from selfreminder.store.version import Version
from selfreminder.store.versions import Versions

_OWN = ("item", "label", "time", "version")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True)
class Kept:
    """An item that a version keeps, remembered or held out."""

    item: int
    label: str
    time: int
    version: int
    """that it came with"""
    held_out: bool
    columns: dict[str, str]


@dataclass(frozen=True)
class DeleteResult:
    """What was deleted, and who else knows of it. Print it."""

    version: Version | None
    """without the items; None in a trial, or if there are none of those"""
    remembered: tuple[int, ...]
    """numbers of items that were remembered"""
    held_out: tuple[int, ...]
    trained_with: tuple[int, ...]
    """versions whose weights were trained with some of them"""
    kept_in: tuple[int, ...]
    """versions whose files still have some of them"""
    not_kept: int = 0
    """items that were asked for by their numbers, and that the current version does not keep"""
    maybe_trained_with: tuple[int, ...] = ()
    """versions whose weights may have been trained with some of those"""
    dry_run: bool = False
    notes: tuple[str, ...] = ()
    """what somebody should know"""

    def __str__(self) -> str:
        verb = "would delete" if self.dry_run else "deleted"
        lines = [f"{verb} {len(self.remembered):,} remembered and {len(self.held_out):,} held-out items"]
        if not self.remembered and not self.held_out:
            lines = ["no item matches; nothing was written"]
        if self.version is not None:
            lines.append(f"version {self.version.number} lacks them, and is current; its weights are as they were")
        if self.trained_with:
            lines.append(f"trained with some of them: version {_join(self.trained_with)}")
        if self.kept_in:
            lines.append(
                f"still in the files of version {_join(self.kept_in)}: remove those folders when you will not go back"
            )
        if self.not_kept:
            lines.append(
                f"{self.not_kept:,} others of those numbers are not kept; some of them may have been trained on, by "
                f"version {_join(self.maybe_trained_with)}"
            )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """As JSON can say it."""
        found = asdict(replace(self, version=None))
        return found | {"version": None if self.version is None else self.version.number}


def delete(
    store: Versions,
    *,
    ids: str | None = None,
    where: str | None = None,
    older_than: str | None = None,
    dry_run: bool = False,
    watch: Watch = ignore,
    command: str | None = None,
) -> DeleteResult:
    """Make a version without some items; see `Store.delete`."""
    if ids is None and where is None and older_than is None:
        raise SelfReminderError(
            "which items? Say --id 3,5,10-20, --where site=B,label=cat, --older-than 90d or --keep-days 90"
        )
    with store.hold(command):
        current = store.current
        kept = list_items(store, current)
        choice = _Choice(kept, ids, where, older_than)
        chosen = [each for each in kept if choice.has(each)]
        gone = {each.item for each in chosen}
        version = None
        if gone and not dry_run:
            version = _find_done(store, current, gone) or _make_version(store, current, gone, watch, command)
            store.promote(version.number, "delete")
            store.clean()
        origins = _Origins(store)
        others = choice.list_numbers(origins) - {each.item for each in kept}
        remembered, held_out = (
            tuple(sorted({each.item for each in chosen if each.held_out is aside})) for aside in (False, True)
        )
        return DeleteResult(
            version,
            remembered,
            held_out,
            trained_with=_trained_with(store, origins.of(remembered)),
            kept_in=_find_holders(store, gone) if gone else (),
            not_kept=len(others),
            maybe_trained_with=_trained_with(store, origins.of(others)),
            dry_run=dry_run,
        )


def _find_done(store: Versions, current: Version, gone: set[int]) -> Version | None:
    """The version that the same command had made before it was killed, if it is whole."""
    for version in reversed(store.versions):
        facts = version.manifest
        same = (facts.kind, facts.parent, facts.deleted) == ("delete", current.number, tuple(sorted(gone)))
        if same and version.number not in store.promoted and not version.verify():
            return version
    return None


def _make_version(store: Versions, current: Version, gone: set[int], watch: Watch, command: str | None) -> Version:
    memory, heldout, numbers = current.read_memory(), current.read_heldout(), torch.tensor(sorted(gone))
    left = memory.take(~torch.isin(memory.sources.long(), numbers))
    slices = heldout.take(~torch.isin(heldout.items, numbers))
    contents = Contents(current.read_weights(), left, slices, current.read_items(), current.read_form())
    manifest = replace(
        current.manifest,
        version=store.next_number(),
        kind="delete",
        parent=current.number,
        next_item=max(each.manifest.next_item for each in store.versions),
        job=None,
        verdict=None,
        judgement={},
        data=None,
        training={},
        metrics=_measure(store, current, slices, watch),
        deleted=tuple(sorted(gone)),
        command=command,
        **_fresh(),
    )
    return contents.add_to(store, store.work_folder("delete"), manifest)


def list_items(store: Versions, version: Version) -> list[Kept]:
    """All items that a version keeps, remembered or held out."""
    memory, heldout, known = version.read_memory(), version.read_heldout(), version.read_items()
    names, origins = version.manifest.classes, _Origins(store)
    times = torch.full((len(memory),), -1) if memory.times is None else memory.times
    found = [
        Kept(item, _name(label, names), when, max(origins.of([item]), default=0), False, known.get(item, {}))
        for item, label, when in zip(memory.sources.tolist(), memory.labels.tolist(), times.tolist())
    ]
    for row, (item, label, when) in enumerate(
        zip(heldout.items.tolist(), heldout.labels.tolist(), heldout.times.tolist())
    ):
        columns = {name: column[row] for name, column in heldout.columns.items()}
        texts = {name: value for name, value in columns.items() if value is not None}
        found.append(Kept(item, _name(label, names), when, max(origins.of([item]), default=0), True, texts))
    return found


class _Choice:
    """Which items are meant: those that meet all that is asked."""

    def __init__(self, kept: Sequence[Kept], ids: str | None, where: str | None, older_than: str | None) -> None:
        self.ranges = None if ids is None else parse_ranges(ids)
        self.before = None if older_than is None else clock() - parse_age(older_than)
        known = dict.fromkeys([*_OWN, *(name for each in kept for name in each.columns)])
        self.conditions = [_parse(text, known) for text in ([] if where is None else where.split(","))]

    def list_numbers(self, origins: "_Origins") -> set[int]:
        """All items that were asked for by their numbers alone, kept or not."""
        if self.ranges is None or self.before is not None or self.conditions:
            return set()
        return {
            item
            for first, end, _ in origins.ranges
            for low, high in self.ranges
            for item in range(max(first, low), min(end, high + 1))
        }

    def has(self, item: Kept) -> bool:
        if self.ranges is not None and not any(low <= item.item <= high for low, high in self.ranges):
            return False
        if self.before is not None and item.time >= self.before:
            return False
        return all(_meets(item, *condition) for condition in self.conditions)


def _parse(text: str, known: Sequence[str] | dict[str, None]) -> tuple[str, str, str]:
    if (parts := CONDITION.fullmatch(text)) is None or not parts[3]:
        raise SelfReminderError(
            f"'{text.strip()}' is no condition: write for example site=B, label!=cat or time<2026-01-01"
        )
    if parts[1] not in known:
        raise unknown("column", parts[1], known)
    return parts[1], parts[2], parts[3]


def _meets(item: Kept, column: str, sign: str, value: str) -> bool:
    if column == "time":
        start, end = parse_moment(value)
        inside = start <= item.time < end
        return {
            "=": inside, "==": inside, "!=": not inside, "<": item.time < start, "<=": item.time < end,
            ">": item.time >= end, ">=": item.time >= start,
        }[sign]  # fmt: skip
    own = getattr(item, column) if column in _OWN else item.columns.get(column)
    if own is None:
        return sign == "!="
    try:
        return _COMPARE[sign](float(own), float(value))
    except ValueError:
        return _COMPARE[sign](str(own), value)


class _Origins:
    """From an item's number to the versions that it came with."""

    def __init__(self, store: Versions) -> None:
        self.ranges = [
            (data.first_item, data.first_item + data.items, version.number)
            for version in store.versions
            if (data := version.manifest.data) is not None
        ]

    def of(self, items: Collection[int]) -> set[int]:
        # Several of one item, where the same update was judged again by another gate.
        return {number for first, end, number in self.ranges if any(first <= item < end for item in items)}


def _trained_with(store: Versions, brought: set[int]) -> tuple[int, ...]:
    """The versions whose weights were trained with what some versions brought: those, and their descendants."""
    return tuple(
        version.number
        for version in store.versions
        if brought & {each.number for each in store.ancestors(version.number)}
    )


def _find_holders(store: Versions, items: set[int]) -> tuple[int, ...]:
    numbers = torch.tensor(sorted(items))

    def has(version: Version) -> bool:
        kept = version.read_memory().sources.long(), version.read_heldout().items
        return any(bool(torch.isin(numbers, each).any()) for each in kept)

    return tuple(version.number for version in store.versions if has(version))


def _measure(store: Versions, version: Version, heldout: HeldOut, watch: Watch) -> dict[str, Any]:
    if not len(heldout):
        return {}
    asking = Asking(store.config, watch)
    answers: Tensor = asking.predict(asking.load(version), heldout.inputs)
    return measure(heldout, answers)


def _fresh() -> dict[str, Any]:
    """Of a manifest: who and when it is now."""
    now = Manifest(version=0, kind="delete", parent=None, outputs=0, next_item=0)
    return {"created": now.created, "who": now.who, "software": now.software}


def _name(label: int, names: tuple[str, ...] | None) -> str:
    return names[label] if names and 0 <= label < len(names) else "none" if label < 0 else str(label)


def _join(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
