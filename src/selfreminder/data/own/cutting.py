"""Data cut into tasks: the name of each item's, by a column, by time or by its place."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from selfreminder._base.errors import DataError, SelfReminderError, printable, unknown
from selfreminder.data.own.encoding import Columns
from selfreminder.data.own.tables import parse_as

UNITS = {"year": "Y", "quarter": None, "month": "M", "week": "W", "day": "D"}
"""pieces of time, by numpy's letters"""


def name_tasks(columns: Columns, count: int, by: str | None, source: str) -> np.ndarray:
    """Name each item's task."""
    dates = [name for name, column in columns.items() if column.dtype.kind == "M"]
    if by is None:
        hints = [f"--by {dates[0]}:month"] if dates else []
        hints += [f"--by {name}" for name in list(columns)[:3] if name not in (*dates, "path")]
        raise SelfReminderError(
            f"{source}: say how it is cut into tasks: {', '.join([*hints, '--by class', '--by parts:5'])}"
        )
    column, _, unit = by.rpartition(":")
    if column == "parts":
        parts = int(unit) if unit.isdigit() else 0
        if not 1 <= parts <= count:
            raise SelfReminderError(f"--by {by}: parts:5 makes five parts; {count} items make at most so many")
        return np.array([f"part {1 + index * parts // count}" for index in range(count)], object)
    if by in columns:
        return _values(by, columns[by])
    if unit in UNITS:
        if not column and len(dates) != 1:
            said = (
                "there is no column of dates" if not dates else f"write {dates[0]}:{unit}, or another column of dates"
            )
            raise SelfReminderError(f"--by {by}: {said}")
        name = column or dates[0]
        if name in dates:
            return _cut_time(name, columns[name], unit)
        if name in columns:
            raise SelfReminderError(f"--by {by}: column '{name}' holds no dates{_name_no_date(columns[name])}")
    raise unknown("column to cut by", column or by, [*columns, "class", "folder", "parts:5", *UNITS])


def find_times(columns: Columns, count: int, by: str | None) -> np.ndarray | None:
    """Give the time of each item, by the column of dates that the data is cut by or the only one there is.

    Of data that is cut in its order it is the place of each; of other data None.
    """
    dates = [name for name, column in columns.items() if column.dtype.kind == "M"]
    column = (by or "").partition(":")[0]
    if column in dates or len(dates) == 1:
        return columns[column if column in dates else dates[0]].astype(np.int64)
    return np.arange(count) if column == "parts" else None


def _values(name: str, column: np.ndarray) -> np.ndarray:
    gaps = np.isnat(column) if column.dtype.kind == "M" else column != column
    if column.dtype.kind == "O":
        gaps = np.array([value == "" for value in column])
    if gaps.any():
        raise DataError(f"column '{name}' has {_name_gaps(gaps)}: an item without it belongs to no task")
    if len(np.unique(column)) > 1000:
        raise DataError(f"column '{name}' has {len(np.unique(column))} values: a task for each would be too many")
    return column


def _name_gaps(gaps: np.ndarray) -> str:
    count = int(gaps.sum())
    return f"{count} gap{'s' if count > 1 else ''} (the first at item {1 + int(gaps.argmax())})"


def _name_no_date(column: np.ndarray) -> str:
    """Name the first value that is no date, of a column in which others are."""
    for row, value in enumerate(column.tolist()):
        try:
            parse_as("M", [str(value)])
        except (ValueError, OverflowError):
            return f": item {row + 1} has '{printable(str(value)[:40])}'" if row else ""
    return ""


def _cut_time(name: str, column: np.ndarray, unit: str) -> np.ndarray:
    gaps = np.isnat(column)
    if gaps.any():
        raise DataError(f"column '{name}' has {_name_gaps(gaps)}: an item without a date belongs to no task")
    if unit == "quarter":
        months = column.astype("datetime64[M]").astype(np.int64)
        return np.array([f"{1970 + m // 12}-Q{m % 12 // 3 + 1}" for m in months.tolist()], object)
    return column.astype(f"datetime64[{UNITS[unit]}]").astype(str).astype(object)


def order_tasks(names: np.ndarray) -> Iterable[Any]:
    """Tasks in their natural order: numbers and dates as such, other names as sorted, parts as numbered."""
    found = list(dict.fromkeys(names.tolist()))
    if all(isinstance(name, str) and name.startswith("part ") for name in found):
        return found
    return sorted(found)
