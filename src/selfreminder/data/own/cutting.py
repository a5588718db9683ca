"""Data cut into tasks: the name of each item's, by a column, by time or by its place."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from selfreminder._base.errors import DataError, SelfReminderError, printable, unknown
from selfreminder.data.own.encoding import Columns
from selfreminder.data.own.tables import parse_as

UNITS = {"year": "Y", "quarter": None, "month": "M", "week": "W", "day": "D"}
"""pieces of time, by numpy's letters"""
_FEW = 24
"""values of a column that is suggested"""


def name_tasks(columns: Columns, count: int, by: str | None, source: str) -> np.ndarray:
    """Name each item's task."""
    dates = [name for name, column in columns.items() if column.dtype.kind == "M"]
    if by is None:
        raise SelfReminderError(f"{source}: say how it is cut into tasks: {', '.join(_suggest(columns, dates))}")
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
    if column in dates:
        raise unknown("unit of time in --by", unit, UNITS)
    if column in columns:
        raise SelfReminderError(f"--by {by}: column '{column}' holds no dates{_name_no_date(columns[column])}")
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


def find_unordered(columns: Columns, by: str | None) -> str | None:
    """Name the only column of dates of data that is cut in its order, if that is another order."""
    dates = [name for name, column in columns.items() if column.dtype.kind == "M"]
    if len(dates) != 1 or not (by or "").startswith("parts:"):
        return None
    moments = columns[dates[0]]
    moments = moments[~np.isnat(moments)]
    return dates[0] if (moments[1:] < moments[:-1]).any() else None


def _suggest(columns: Columns, dates: list[str]) -> list[str]:
    """Suggest how to cut: by time, or by what has few values; images come class by class, and are not cut in order."""
    paths = columns.get("path", np.empty(0)).tolist()
    folders = ["folder"] if paths and all(str(path).count("/") > 1 for path in paths) else []
    few = [name for name, column in columns.items() if name not in (*dates, "path") and _has_few_values(column)]
    few.sort(key=lambda name: columns[name].dtype.kind != "O")
    found = [*folders, *(f"{name}:month" for name in dates[:1]), *few[:3], "class", *([] if paths else ["parts:5"])]
    return [f"--by {name}" for name in found]


def _has_few_values(column: np.ndarray) -> bool:
    return 1 < len(set(column.tolist())) <= _FEW


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
