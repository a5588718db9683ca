"""The items of a memory as rows, and those of them that meet conditions: "task=0,label!=3", ids, an age."""

import os
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor

from selfreminder import selection
from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder.memory.file import change_memory, hash_items, open_memory, save_memory
from selfreminder.memory.memory import Memory

COLUMNS = ("id", "task", "label", "witness", "source", "time", "selection", "hash")
_OPTIONAL = ("label", "source", "time")
_ALWAYS = {"id": "an id", "task": "a task", "witness": "a 0 or a 1 there"}
CONDITION = re.compile(r"\s*(\w+)\s*(==|!=|<=|>=|=|<|>)\s*(.*?)\s*")
"""a column, an operator and a value"""
_DAY = 86_400
_SECONDS = {"h": 3600, "d": _DAY, "w": 7 * _DAY}
_LATEST = 2**63 - 1


def describe_items(memory: Memory) -> list[dict[str, Any]]:
    """One row an item, in the memory's order, with `COLUMNS` as keys; None where nobody said."""
    numbers = [_numbers(memory, name).tolist() for name in ("id", "task", "label", "witness", "source", "time")]
    selections = [memory.selection_names[which] for which in memory.selections.tolist()]
    rows = []
    for *known, when, how, digest in zip(*numbers, selections, hash_items(memory)):
        numbers_or_none = [None if number < 0 else number for number in known]
        rows.append(dict(zip(COLUMNS, (*numbers_or_none, None if when < 0 else _in_words(when), how, digest))))
    return rows


def find_matching(
    memory: Memory,
    *,
    where: str | None = None,
    ids: str | None = None,
    older_than: str | None = None,
    now: float | None = None,
) -> Tensor:
    """(n,) bool: the items that meet all that is asked.

    Args:
        where: conditions on `COLUMNS` with commas between them: "task=0,label!=3", "source>=100",
            "selection=herding", "label=none", "witness=1", "time<2026-01-01" (UTC; a date is the whole day).
        ids: numbers and ranges: "3,5,10-20".
        older_than: an age: "90d", "12h", "6w".
        now: seconds since 1970, by default the clock's.

    >>> memory = Memory.of({"x": torch.rand(4, 2)}, torch.zeros(4, 3), task=0, labels=torch.tensor([0, 1, 2, -1]))
    >>> find_matching(memory, where="label<2").tolist(), find_matching(memory, ids="1,3-9").tolist()
    ([True, True, False, False], [False, True, False, True])
    """
    found = torch.ones_like(memory.ids, dtype=torch.bool)
    for condition in [] if where is None else where.split(","):
        found &= _meets(memory, condition)
    if ids is not None:
        numbers = _numbers(memory, "id")
        found &= torch.stack([(numbers >= low) & (numbers <= high) for low, high in parse_ranges(ids)]).any(0)
    if older_than is not None:
        times, before = _numbers(memory, "time"), (time.time() if now is None else now) - parse_age(older_than)
        if without := int((found & (times < 0)).sum()):
            raise SelfReminderError(
                f"{without} of {int(found.sum())} items have no time, so nobody knows how old they are: "
                "leave them out by the condition time!=none, or go by other columns"
            )
        found &= times < round(min(max(before, 0), 2**62))
    return found


def find_absent(memory: Memory, ids: str) -> list[int]:
    """Those of `ids` that no item has; of ranges nobody expects that each number is there."""
    there = set(memory.ids.tolist())
    return sorted({low for low, high in parse_ranges(ids) if low == high} - there)


@dataclass(frozen=True)
class Deletion:
    """What became of a memory file."""

    before: Memory
    deleted: Memory
    left: Memory


def delete_items(
    path: str | os.PathLike[str],
    *,
    where: str | None = None,
    ids: str | None = None,
    older_than: str | None = None,
    out: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
) -> Deletion:
    """Delete the items of a memory file that meet all that is asked, see `find_matching`.

    Several that delete from one file at once come one after the other, and so does who saves it meanwhile.

    Args:
        path: of the file, which is replaced in one step; where nothing matches, it stays as it is.
        out: a new file for what is left, instead.
        dry_run: write nothing.
    """
    if where is ids is older_than is None:
        raise SelfReminderError("which items? Say it by where, ids or older_than")

    def split(memory: Memory) -> Deletion:
        gone = find_matching(memory, where=where, ids=ids, older_than=older_than)
        return Deletion(memory, memory.take(gone), memory.take(~gone))

    if dry_run or out is not None:
        found = split(open_memory(path))
        if out is not None and not dry_run and len(found.deleted):
            save_memory(found.left, out)
        return found
    done: list[Deletion] = []

    def remove(memory: Memory) -> Memory | None:
        done.append(split(memory))
        return done[0].left if len(done[0].deleted) else None

    change_memory(path, remove)
    return done[0]


def _meets(memory: Memory, condition: str) -> Tensor:
    if (parts := CONDITION.fullmatch(condition)) is None:
        raise SelfReminderError(
            f"'{condition.strip()}' is no condition: write for example task=0, label!=3 or source>=100"
        )
    column, operator, value = parts.groups()
    if column not in COLUMNS:
        raise unknown("column", column, COLUMNS)
    if not value:
        raise SelfReminderError(f"'{condition.strip()}' lacks a value: write for example task=0")
    operator = "=" if operator == "==" else operator
    if operator not in ("=", "!=") and (column in ("selection", "hash") or value.lower() == "none"):
        raise SelfReminderError(f"'{condition.strip()}': nothing is less or more than {value}, use = or !=")
    if column in ("selection", "hash"):
        equal = _has_selection(memory, value) if column == "selection" else _has_hash(memory, value)
        return equal if operator == "=" else ~equal
    numbers = _numbers(memory, column)
    known = numbers >= 0
    if value.lower() == "none":
        if column not in _OPTIONAL:
            raise SelfReminderError(f"'{condition.strip()}': every item has {_ALWAYS[column]}")
        return ~known if operator == "=" else known
    # A value stands for all numbers from start up to end: a date for its seconds.
    start, end = parse_moment(value) if column == "time" else _number(column, value)
    inside = known & (numbers >= start) & (numbers < end)
    return {
        "=": inside,
        "!=": ~inside,
        "<": known & (numbers < start),
        "<=": known & (numbers < end),
        ">": known & (numbers >= end),
        ">=": known & (numbers >= start),
    }[operator]


def _numbers(memory: Memory, column: str) -> Tensor:
    """(n,) int64; below 0 where nobody said."""
    if column == "time":
        return torch.full_like(memory.ids, -1, dtype=torch.int64) if memory.times is None else memory.times
    columns = {"id": memory.ids, "task": memory.tasks, "label": memory.labels, "source": memory.sources}
    return (columns | {"witness": memory.witnesses})[column].long()


def _has_selection(memory: Memory, name: str) -> Tensor:
    """Chosen by this selection, whatever its options, or by exactly this one."""
    names = [{full, full.partition(":")[0]} for full in memory.selection_names]
    known = dict.fromkeys([*selection.names(), "given", *(each for both in names for each in sorted(both))])
    if name not in known:
        raise unknown("selection", name, known)
    chosen = torch.tensor([name in both for both in names], device=memory.device, dtype=torch.bool)
    return chosen[memory.selections.long()]


def _has_hash(memory: Memory, value: str) -> Tensor:
    if not re.fullmatch(r"[0-9a-fA-F]{12}", value):
        raise SelfReminderError(f"'{value}' is no hash of an item: it has 12 digits from 0 to f")
    return torch.tensor([each == value.lower() for each in hash_items(memory)], device=memory.device, dtype=torch.bool)


def _number(column: str, value: str) -> tuple[int, int]:
    if not re.fullmatch("[0-9]+", value):
        or_none = ", or none" if column in _OPTIONAL else ""
        raise SelfReminderError(f"{column} is a whole number from 0 on{or_none}, not '{value}'")
    number = min(int(value[:4000]), _LATEST - 1)  # Python reads no number of more digits
    return number, number + 1


def parse_moment(value: str) -> tuple[int, int]:
    """The seconds since 1970 that a date or a time stands for: from the first up to the second."""
    try:
        moment = datetime.fromisoformat(value)  # of a date, its first moment
    except ValueError:
        raise SelfReminderError(
            f"'{value}' is no time: write a date such as 2026-01-31, a time such as 2026-01-31T18:00 (UTC), or none"
        ) from None
    start = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    return start, start + (_DAY if re.fullmatch("[0-9W-]{7,10}", value) else 1)


def parse_ranges(ids: str) -> list[tuple[int, int]]:
    """Numbers and ranges, "3,5,10-20": the first and the last of each."""
    ranges = []
    for text in ids.split(","):
        parts = re.fullmatch(r"\s*([0-9]{1,18})\s*(?:-\s*([0-9]{1,18})\s*)?", text)
        if parts is None:
            raise SelfReminderError(f"'{text.strip()}' is no id: write for example 3,5,10-20")
        low, high = int(parts[1]), int(parts[2] or parts[1])
        if low > high:
            raise SelfReminderError(f"the ids {low}-{high} run backwards: write {high}-{low}")
        ranges.append((low, high))
    return ranges


def parse_age(text: str) -> float:
    """Seconds of an age: "90d", "12h", "6w"."""
    parts = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([hdw])\s*", text)
    if parts is None:
        raise SelfReminderError(f"'{text}' is no age: write for example 90d, 12h or 6w (days, hours, weeks)")
    return float(parts[1]) * _SECONDS[parts[2]]


def _in_words(when: int) -> str:
    try:
        return datetime.fromtimestamp(when, UTC).isoformat()
    except (ValueError, OverflowError, OSError):  # no calendar goes so far: somebody gave milliseconds
        return f"{when} s after 1970"
