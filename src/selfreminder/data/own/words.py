"""Columns of numbers with a few words among them, in tables of texts: refused by the line, or left out by the row."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from selfreminder._base.errors import DataError, printable
from selfreminder.data.own.own_data import Found, check_bad
from selfreminder.data.own.tables import is_code, is_gap_text, is_number, parse_as

_FEW = 0.1
"""share of a column's cells: with more words than that it is text"""


@dataclass
class Cells:
    """What the cells of a column are that have a value, counted."""

    count: int = 0
    words: int = 0
    first: str = ""
    """the first word, and where it is"""
    are_codes: bool = False
    """some are as postcodes and long ids are: the column is text, whatever the others are"""

    def look_at(self, values: Iterable[str], place: Callable[[int], str]) -> None:
        """Count the cells of some rows; `place` says where a row is."""
        for row, value in enumerate(values):
            if is_gap_text(value):
                continue
            self.count += 1
            code = is_code(value.strip())
            if not code and is_number(value.strip()):
                continue
            self.are_codes |= code
            self.words += 1
            self.first = self.first or f"'{printable(value.strip()[:40])}' ({place(row)})"


def check_words(cells: Mapping[str, Cells], named: bool, skip_bad: bool) -> list[str]:
    """Name the columns of numbers whose rows with words are to be left out; raise for others with words in them.

    Args:
        cells: of the columns of text that may be inputs as numbers, by name.
        named: they were named as such; if not, a column with many words is text, and no mistake.
        skip_bad: leave out rows.
    """
    few = []
    for name, found in cells.items():
        if not found.words:
            continue
        if found.are_codes or found.words > _FEW * found.count:
            if named:
                raise DataError(
                    f"input column '{name}' holds text, not numbers: {found.first}: encode it (--categories {name}), "
                    "or leave it out"
                )
        elif skip_bad:
            few.append(name)
        else:
            more = f" and {found.words - 1:,} more" if found.words > 1 else ""
            raise DataError(
                f"column '{name}' holds numbers, but for {found.first}{more}: mend that, leave such rows out with "
                f"skip_bad (--skip-bad), or name the column in --categories or --text"
            )
    return few


def find_bad_rows(columns: Mapping[str, Sequence[str]], place: Callable[[int], str]) -> dict[int, str]:
    """Find the rows with words in columns of numbers, each with the reason, in their order."""
    bad: dict[int, str] = {}
    for name, values in columns.items():
        for row, value in enumerate(values):
            if not is_gap_text(value) and not is_number(value.strip()):
                bad.setdefault(row, f"{place(row)} ('{printable(value.strip()[:40])}' in {name})")
    return dict(sorted(bad.items()))


def leave_out(found: Found, bad: Mapping[int, str]) -> Found:
    """Leave out rows with words."""
    if not bad:
        return found
    rows = len(next(iter(found.columns.values())))
    check_bad(list(bad.values()), rows, "rows have words in columns of numbers", skip_bad=True)
    whole = np.full(rows, True)
    whole[list(bad)] = False
    return found.keep(whole, list(bad.values()))


def drop_words(found: Found, names: Sequence[str], named: bool, skip_bad: bool) -> Found:
    """Make the columns of these names that hold numbers, but for few words, numbers, or raise."""
    cells: dict[str, Cells] = {}
    for name in names:
        if name in found.columns and found.columns[name].dtype.kind == "O":
            cells[name] = Cells()
            cells[name].look_at(found.columns[name], found.place)
    few = check_words(cells, named, skip_bad)
    found = leave_out(found, find_bad_rows({name: found.columns[name].tolist() for name in few}, found.place))
    for name in few:
        found.columns[name] = parse_as("f", found.columns[name].tolist())
    return found
