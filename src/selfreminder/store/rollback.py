"""`rollback`: an earlier version is current again."""

from dataclasses import dataclass
from typing import Any

from selfreminder._base.errors import StoreError
from selfreminder.store.version import Version
from selfreminder.store.versions import Versions


@dataclass(frozen=True)
class RollbackResult:
    """Which version is current again. Print it."""

    version: Version
    was: int
    """the number of the version that was current"""
    deleted_items: int
    """items that its files have, and that were deleted in another version"""
    notes: tuple[str, ...] = ()
    """what somebody should know"""

    def __str__(self) -> str:
        lines = [f"version {self.version.number} is current again, it was {self.was}: {self.version.folder}"]
        if self.deleted_items:
            lines.append(
                f"note: its files still have {self.deleted_items:,} items that were deleted in another version: "
                "`selfreminder delete` them again"
            )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """As JSON can say it."""
        about = {"version": self.version.number, "was": self.was, "folder": str(self.version.folder)}
        return about | {"deleted_items": self.deleted_items, "notes": list(self.notes)}


def rollback(store: Versions, to: int | None = None) -> RollbackResult:
    """Move the pointer back; see `Store.rollback`."""
    with store.hold():
        current = store.current.number
        earlier = [move.to for move in store.moves if move.to < current and move.to in store.numbers]
        if to is None and not earlier:
            raise StoreError(f"version {current} has none before it to go back to")
        number = earlier[-1] if to is None else to
        version = store.version(number)
        if number == current:
            raise StoreError(f"version {number} is the current one already")
        if number not in store.promoted:
            raise StoreError(
                f"version {number} was kept aside, the gate has not passed it ({version.manifest.verdict}): "
                f"go back to one of {', '.join(map(str, sorted(store.promoted - {current})))}"
            )
        if problems := version.verify():
            raise StoreError(f"version {number} is not whole: {problems[0]}")
        store.promote(number, "rollback")
        return RollbackResult(version, current, len(find_resurrected(store, version)))


def find_resurrected(store: Versions, version: Version) -> set[int]:
    """Items that were once deleted, and that a version's files still have."""
    deleted = {item for each in store.versions for item in each.manifest.deleted}
    return deleted & {*version.read_memory().sources.tolist(), *version.read_heldout().items.tolist()}
