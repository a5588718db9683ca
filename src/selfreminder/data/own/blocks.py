"""Tables that are read some rows after the other, as often as needed: they may be larger than memory."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from selfreminder._base.errors import DataError
from selfreminder.data.own.encoding import Columns
from selfreminder.data.own.own_data import Found, Progress, check_bad, find_label
from selfreminder.data.own.reading import Reading
from selfreminder.data.own.room import Room
from selfreminder.data.own.tables import (
    ROWS_AT_ONCE,
    check_header,
    find_delimiter,
    import_parquet,
    is_gap_text,
    is_number,
    long_values,
    parse_as,
    parse_values,
    read_batch,
)
from selfreminder.data.own.words import Cells, check_words, find_bad_rows

_ALL_GAPS = "-"
"""the kind of a column that has no value in some rows"""


class Blocks:
    """A table in blocks of rows. The kind of a column is that of all its blocks together.

    Args:
        path: of the file.
        skip_bad: leave out rows that are not whole.
        progress: told how many rows are read.
    """

    def __init__(self, path: Path, skip_bad: bool, progress: Progress | None) -> None:
        self.path, self.skip_bad, self.progress = path, skip_bad, progress
        self.kinds: dict[str, str] = {}
        self.rows, self.skipped = 0, ()
        self.bad_rows: dict[int, str] = {}

    def scan(self) -> None:
        """Find the kinds of all columns, as numpy's letters, and count the rows."""
        for block in self._raw():
            if not block:
                raise DataError(f"{self.path} has no column with one value an item: there are no labels")
            for name, values in block.items():
                found = self._find_kind(name, values)
                self.kinds[name] = _join_kinds(self.kinds[name], found) if name in self.kinds else found
            self.rows += len(next(iter(block.values())))
            self._tell("rows looked at", self.rows)
        self.kinds = {name: "O" if kind == _ALL_GAPS else kind for name, kind in self.kinds.items()}
        if not self.rows:
            raise DataError(f"{self.path} has no rows")

    def find_label(self, label: str | None) -> str | None:
        """Find the column of the labels; None if there is none."""
        return find_label(label, list(self.kinds))

    def check_words(self, names: Sequence[str], named: bool) -> None:
        """Take columns with a few words among their numbers for numbers, and note the rows with words, or raise."""

    def add_inputs(self, found: Found, label: str, how: Reading, room: Room) -> Found:
        """Add inputs that are no columns with one value an item, and names of classes, where the data has them."""
        return found

    def read(self, names: Sequence[str], what: str = "rows read") -> Iterator[tuple[int, int, Columns]]:
        """Give some columns block by block, each with its first row and the one after its last."""
        start = 0
        for block in self._raw():
            end = start + len(next(iter(block.values())))
            yield start, end, {name: self._cast(block[name], self.kinds[name]) for name in names}
            self._tell(what, end)
            start = end

    def read_whole(self, names: Sequence[str]) -> Columns:
        """Give some columns whole: as many as there is memory for."""
        blocks = [block for _, _, block in self.read(names)]
        return {name: np.concatenate([block[name] for block in blocks]) for name in names}

    def _tell(self, what: str, done: int) -> None:
        if self.progress:
            self.progress(what, done, self.rows or None)

    def _raw(self) -> Iterator[dict[str, Any]]:
        raise NotImplementedError

    def _find_kind(self, name: str, values: Any) -> str:
        raise NotImplementedError

    def _cast(self, values: Any, kind: str) -> np.ndarray:
        raise NotImplementedError


class CsvBlocks(Blocks):
    """A CSV file in blocks: columns are lists of texts until their kind is known."""

    def __init__(self, path: Path, skip_bad: bool, progress: Progress | None) -> None:
        super().__init__(path, skip_bad, progress)
        self.cells: dict[str, Cells] = {}
        self.lines: list[int] = []
        """of the rows of a block"""

    def _raw(self) -> Iterator[dict[str, Any]]:
        bad: list[str] = []
        whole = 0
        with self.path.open("rb") as file:
            delimiter = find_delimiter(file.readline().decode(errors="replace"))
        with self.path.open(encoding="utf-8-sig", newline="") as file, long_values():
            reader = csv.reader(file, delimiter=delimiter)
            try:
                header = [name.strip() for name in next(reader, [])]
                check_header(self.path, header)
                names = [name or "index" for name in header]
                while some := list(islice(_number_lines(reader), ROWS_AT_ONCE)):
                    rows = [row for _, row in some if len(row) == len(header)]
                    self.lines = [line for line, row in some if len(row) == len(header)]
                    bad += [
                        f"line {line} ({len(row)} values, the header has {len(header)})"
                        for line, row in some
                        if row and len(row) != len(header)
                    ]
                    whole += len(rows)
                    if rows:
                        yield {name: list(values) for name, values in zip(names, zip(*rows))}
            except csv.Error as error:
                raise DataError(f"{self.path}, line {reader.line_num}: {error}") from None
            except UnicodeDecodeError:
                raise DataError(
                    f"{self.path}, after line {reader.line_num}: this is not UTF-8: save the file as UTF-8"
                ) from None
        check_bad(bad, whole + len(bad), f"rows of {self.path} are not whole", self.skip_bad)
        self.skipped = tuple(bad)

    def check_words(self, names: Sequence[str], named: bool) -> None:
        texts = {name: self.cells[name] for name in names if self.kinds.get(name) == "O"}
        few = check_words(texts, named, self.skip_bad)
        start = 0
        for block in self._raw() if few else ():
            found = find_bad_rows({name: block[name] for name in few}, self._place)
            self.bad_rows |= {start + row: reason for row, reason in found.items()}
            start += len(self.lines)
        self.kinds |= dict.fromkeys(few, "f")

    def _place(self, row: int) -> str:
        return f"line {self.lines[row]}"

    def _find_kind(self, name: str, values: list[str]) -> str:
        cells = self.cells.setdefault(name, Cells())
        if all(map(is_gap_text, values)):
            return _ALL_GAPS
        column = parse_values(values)
        if column.dtype.kind in "if":
            cells.count += int(np.sum(column == column))
        else:
            cells.look_at(values, self._place)
        return column.dtype.kind

    def _cast(self, values: list[str], kind: str) -> np.ndarray:
        if kind == "f" and self.bad_rows:  # it may have words, in rows that are left out
            values = [value if is_number(value.strip()) else "" for value in values]
        return parse_as(kind, values)


class TypedBlocks(Blocks):
    """Data in blocks whose columns have types: but for gaps, which have none."""

    def _find_kind(self, name: str, values: np.ndarray) -> str:
        kind = values.dtype.kind
        return _ALL_GAPS if kind == "O" and np.all(values == "") else kind  # of numbers and dates the type is known

    def _cast(self, values: np.ndarray, kind: str) -> np.ndarray:
        if values.dtype.kind == kind:
            return values
        if kind in "fM" and values.dtype.kind == "O":  # it has gaps only
            return np.full(len(values), np.nan) if kind == "f" else np.full(len(values), "NaT", "datetime64[us]")
        return values.astype(np.float64) if kind == "f" else values.astype(str).astype(object)


class ParquetBlocks(TypedBlocks):
    """A Parquet file in blocks."""

    def _raw(self) -> Iterator[dict[str, Any]]:
        parquet = import_parquet()
        try:
            with parquet.ParquetFile(self.path) as file:
                for batch in file.iter_batches(ROWS_AT_ONCE):
                    if batch.num_rows:
                        yield read_batch(batch)
        except (DataError, GeneratorExit):
            raise
        except Exception as error:  # what is damaged can raise anything
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataError(f"{self.path} cannot be read as Parquet: {reason}") from None


def _number_lines(reader: Any) -> Iterable[tuple[int, list[str]]]:
    for row in reader:
        yield reader.line_num, row


def _join_kinds(one: str, other: str) -> str:
    """Give the kind that holds the values of two, and gaps where one has nothing else."""
    kinds = {one, other}
    if len(kinds) == 1:
        return one
    if _ALL_GAPS in kinds:
        (kind,) = kinds - {_ALL_GAPS}
        return "f" if kind in "biu" else kind
    return "f" if kinds <= set("biuf") else "O"
