"""How much to keep: per class, per task, in items over all, or in bytes over all."""

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass

from selfreminder._base.errors import SelfReminderError

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_bytes(text: str | int) -> int:
    """A number of bytes from text.

    >>> parse_bytes("250KB"), parse_bytes("2 MiB"), parse_bytes(64)
    (250000, 2097152, 64)
    """
    text = str(as_index("bytes", text)) if isinstance(text, int) else text
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([KMG]?i?B)?\s*", str(text), re.IGNORECASE)
    if match is None:
        raise SelfReminderError(f"'{text}' is no number of bytes: write for example 64000, 250KB or 2MiB")
    count = float(match[1]) * _UNITS[(match[2] or "B").upper()]
    if count >= 2**63:
        raise SelfReminderError(f"'{text[:20]}…' is more bytes than there are: write for example 2MiB")
    return int(count)


def show_bytes(count: float) -> str:
    """A number of bytes for people.

    >>> show_bytes(64), show_bytes(847000), show_bytes(31670272)
    ('64 B', '847 kB', '31.7 MB')
    """
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 999.5 or unit == "GB":
            return f"{count:.3g} {unit}"
    raise AssertionError


@dataclass(frozen=True)
class Size:
    """How much a memory keeps: exactly one of the four is set.

    >>> print(Size(per_class=10), Size(budget="2MB").budget_bytes, sep=", ")
    10 per class, 2000000
    """

    per_class: int | None = None
    """items of each class of each task"""
    per_task: int | None = None
    """items of each task, spread evenly over its classes"""
    budget: str | int | None = None
    """bytes in all ("2MB"): a new task shrinks the others evenly"""
    items: int | None = None
    """items in all: a new task shrinks the others evenly"""

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        if len(given) != 1:
            raise SelfReminderError(
                f"say how much to keep by exactly one of per_class, per_task, items and budget, not {len(given)}: "
                "say, per_class=10"
            )
        (name, value), *_ = given.items()
        number = parse_bytes(value) if name == "budget" else as_index(name, value)
        if number < 1:
            raise SelfReminderError(f"{name} is {value}: a memory keeps at least one item")
        if name != "budget":
            object.__setattr__(self, name, number)

    @property
    def budget_bytes(self) -> int | None:
        return None if self.budget is None else parse_bytes(self.budget)

    def __str__(self) -> str:
        if self.budget is not None:
            return f"{self.budget} in all"
        if self.items is not None:
            return f"{self.items} items in all"
        return f"{self.per_class} per class" if self.per_class is not None else f"{self.per_task} per task"


def as_index(name: str, value: object) -> int:
    """A whole number of whatever library."""
    try:
        number = operator.index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        raise SelfReminderError(f"{name} is {value!r}: it is a whole number") from None
    if abs(number) >= 2**63:
        raise SelfReminderError(f"{name} is a number of {number.bit_length()} bits: that is too large")
    return number


def share_evenly(total: int, capacities: Sequence[int]) -> list[int]:
    """Share `total` so that no two differ by more than one, except where a capacity is used up.

    >>> share_evenly(10, [2, 9, 9])
    [2, 4, 4]
    >>> share_evenly(5, [9, 9, 9])
    [2, 2, 1]
    """
    shares = [0] * len(capacities)
    total = min(total, sum(capacities))
    while total:
        open_places = [i for i, capacity in enumerate(capacities) if shares[i] < capacity]
        step = min(max(total // len(open_places), 1), min(capacities[i] - shares[i] for i in open_places))
        for i in open_places:
            step_here = min(step, total)
            shares[i] += step_here
            total -= step_here
    return shares
