"""The versions of a store as rows."""

from dataclasses import asdict, dataclass
from typing import Any

from selfreminder.store.versions import Versions


@dataclass(frozen=True)
class HistoryRow:
    """A version in the history."""

    version: int
    state: str
    """current, aside (the gate refused it, or it was never promoted), or nothing: it was current once"""
    kind: str
    parent: int | None
    created: str
    who: str
    verdict: str | None
    right: dict[str, float]
    """by slice, the share of items that it has right"""
    items: dict[str, int]
    """by slice"""
    data: str | None
    """what it was trained on"""

    def to_dict(self) -> dict[str, Any]:
        """As JSON can say it."""
        return asdict(self)


def list_history(store: Versions) -> list[HistoryRow]:
    """All versions, oldest first."""
    current, promoted = store.current.number, store.promoted
    rows = []
    for version in store.versions:
        manifest, number = version.manifest, version.number
        state = "current" if number == current else "" if number in promoted else "aside"
        rows.append(
            HistoryRow(
                number,
                state,
                manifest.kind,
                manifest.parent,
                manifest.created,
                manifest.who,
                manifest.verdict,
                {name: each["right"] for name, each in manifest.metrics.items()},
                {name: each["items"] for name, each in manifest.metrics.items()},
                None if manifest.data is None else manifest.data.source,
            )
        )
    return rows
