"""Tables: CSV and Parquet files and frames as columns of numbers, dates or text, and as inputs of a model."""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selfreminder._base.errors import DataError, MissingExtraError
from selfreminder.data.own.encoding import Columns, TableEncoding, number_columns
from selfreminder.data.own.own_data import Found, check_bad, check_names
from selfreminder.data.own.room import check_size

MakeEncoding = TableEncoding | Callable[[Mapping[str, np.ndarray]], TableEncoding]
"""an encoding, or a function that fits one to the columns, such as `TableEncoding.fit`"""

_GAPS = frozenset({"", "na", "n/a", "nan", "null", "none"})
"""what stands for no value among numbers and dates; in text, only nothing does"""
_WHOLE = re.compile(r"[+-]?\d+")
_ZEROS = re.compile(r"[+-]?0\d")
ROWS_AT_ONCE = 10_000
"""of a table that is read part by part"""
_COPIES = 10
"""bytes that a byte of a CSV file takes in memory while it is parsed, about"""
_LONGEST = 1 << 30
"""characters of a value"""


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of one length, and where in the file each row is."""

    columns: Columns
    places: Sequence[str]
    skipped: tuple[str, ...] = ()


def read_csv(path: Path, *, skip_bad: bool, limit: int = 1 << 40) -> Table:
    """Read a CSV file with a header: values apart by a comma, a semicolon, a tab or a bar, as the header has them.

    A column is whole numbers, numbers, dates (ISO 8601; UTC where they say no zone) or text. Whole numbers that begin
    with a zero, such as postcodes, are text.
    """
    check_size(str(path), _COPIES * path.stat().st_size, limit)
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(f"{path}, line {line}: this is not UTF-8: save the file as UTF-8") from None
    rows, lines, bad = [], [], []
    with long_values():
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=find_delimiter(text.split("\n", 1)[0]))
        try:
            header = [name.strip() for name in next(reader, [])]
            check_header(path, header)
            for row in reader:
                if len(row) == len(header):
                    rows.append(row)
                    lines.append(reader.line_num)
                elif row:
                    bad.append(f"line {reader.line_num} ({len(row)} values, the header has {len(header)})")
        except csv.Error as error:
            raise DataError(f"{path}, line {reader.line_num}: {error}") from None
    check_bad(bad, len(rows) + len(bad), f"rows of {path} are not whole", skip_bad)
    if not rows:
        raise DataError(f"{path} has no rows below its header")
    names = [name or "index" for name in header]  # pandas writes its index without a name
    columns = {name: parse_values(list(values)) for name, values in zip(names, zip(*rows))}
    return Table(columns, [f"line {line}" for line in lines], tuple(bad))


def find_delimiter(header: str) -> str:
    """Find what stands between values by the first line."""
    return max(",;\t|", key=header.count)


def check_header(path: Path, header: list[str]) -> None:
    """Raise unless the first line of a file names its columns."""
    if not any(header):
        raise DataError(f"{path} is empty: its first line names the columns")
    for place, name in enumerate(header):
        if name in header[:place]:
            raise DataError(f"{path} has two columns named '{name}': rename one")
    if "" in header[1:]:
        raise DataError(f"{path}: column {header.index('', 1) + 1} has no name in the first line")


@contextmanager
def long_values() -> Iterator[None]:
    """Let values of a CSV file be long."""
    before = csv.field_size_limit(_LONGEST)  # a letter is longer than the usual limit
    try:
        yield
    finally:
        csv.field_size_limit(before)


def parse_values(values: list[str]) -> np.ndarray:
    """The column that a list of texts means.

    >>> parse_values(["1", "2"]), parse_values(["1.5", ""])
    (array([1, 2]), array([1.5, nan]))
    >>> parse_values(["2024-02-28", "2024-02-29"]).dtype.kind, parse_values(["007", "12"]).tolist()
    ('M', ['007', '12'])
    """
    given = [value.strip() for value in values if not is_gap_text(value)]
    if given:
        if not any(map(_begins_with_zero, given)):
            whole = len(given) == len(values) and all(map(_WHOLE.fullmatch, given))
            if whole and max(map(len, given)) < 19:  # more digits are a name, and no number of ours holds them
                return parse_as("i", values)
            with suppress(ValueError, OverflowError):
                return parse_as("f", values)
        with suppress(ValueError, OverflowError):
            return parse_as("M", values)
    return parse_as("O", values)


def is_gap_text(value: str) -> bool:
    """Tell whether a text stands for no value, among numbers and dates."""
    return value.strip().lower() in _GAPS


def is_code(value: str) -> bool:
    """Tell whether a text of digits is the name of something, such as a postcode or a long id."""
    return _begins_with_zero(value) or (len(value) >= 19 and bool(_WHOLE.fullmatch(value)))


def is_number(value: str) -> bool:
    """Tell whether a text is a number."""
    try:
        _to_float(value)
    except ValueError:
        return False
    return True


def parse_as(kind: str, values: list[str]) -> np.ndarray:
    """The column of a kind, by numpy's letter, that a list of texts means."""
    if kind == "i":
        return np.array(list(map(int, values)), np.int64)
    if kind == "f":
        return np.array([np.nan if is_gap_text(value) else _to_float(value.strip()) for value in values], np.float64)
    if kind == "M":
        dates = [None if is_gap_text(value) else _to_utc(value.strip()) for value in values]
        return np.array(dates, "datetime64[us]")
    return np.array([value.strip() for value in values], object)


def _begins_with_zero(value: str) -> bool:
    return bool(_ZEROS.match(value) and _WHOLE.fullmatch(value))


def _to_float(value: str) -> float:
    if "_" in value or (len(value) >= 19 and _WHOLE.fullmatch(value)):
        raise ValueError(value)
    return float(value)


def _to_utc(value: str | datetime) -> datetime:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


def read_parquet(path: Path, *, limit: int) -> Table:
    """Read a Parquet file by pyarrow; columns of lists and structures are left out."""
    parquet = import_parquet()
    try:
        with parquet.ParquetFile(path) as file:
            table = _read_batches(path, file, limit)
        columns = read_batch(table)
    except DataError:
        raise
    except Exception as error:  # what is damaged can raise anything
        reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path} cannot be read as Parquet: {reason}") from None
    if not table.num_rows:
        raise DataError(f"{path} has no rows")
    return Table(columns, [f"row {row}" for row in range(1, table.num_rows + 1)])


def import_parquet() -> Any:
    """Import pyarrow's reader of Parquet."""
    try:
        from pyarrow import parquet  # noqa: PLC0415 - of the extra `tables`
    except ImportError:
        raise MissingExtraError("reading Parquet needs pyarrow: pip install 'selfreminder[tables]'") from None
    return parquet


def read_batch(table: Any) -> Columns:
    """Give the columns of a table of pyarrow, or of a part of one, but for lists and structures."""
    from pyarrow import types  # noqa: PLC0415 - of the extra `tables`

    columns = {}
    for name, column in zip(table.schema.names, table.columns):
        if types.is_dictionary(column.type) and not types.is_nested(column.type.value_type):
            columns[name] = to_column(name, _look_up(column))
        elif not types.is_nested(column.type):
            values = column.to_numpy() if hasattr(column, "chunks") else column.to_numpy(zero_copy_only=False)
            columns[name] = to_column(name, values)
    return columns


def _read_batches(path: Path, file: Any, limit: int) -> Any:
    """Read a Parquet file part by part, until it is more than the limit: what it says of its size may be less."""
    from pyarrow import Table as ArrowTable  # noqa: PLC0415 - of the extra `tables`

    groups = (file.metadata.row_group(i) for i in range(file.metadata.num_row_groups))
    check_size(str(path), sum(group.total_byte_size for group in groups), limit)
    batches, taken = [], 0
    for batch in file.iter_batches(ROWS_AT_ONCE):
        taken += batch.nbytes
        check_size(str(path), taken, limit)
        batches.append(batch)
    return ArrowTable.from_batches(batches, schema=file.schema_arrow)


def _look_up(column: Any) -> np.ndarray:
    """The values of a dictionary's codes: each is there once, however often it is meant."""
    found = []
    for chunk in getattr(column, "chunks", [column]):
        values = np.empty(len(chunk.dictionary) + 1, object)
        values[:-1] = chunk.dictionary.to_pylist()
        codes = chunk.indices.to_numpy(zero_copy_only=False)  # floats, if some are none
        found.append(values[np.nan_to_num(codes, nan=len(chunk.dictionary)).astype(np.int64)])
    return np.concatenate(found) if found else np.empty(0, object)


def to_column(name: str, values: np.ndarray) -> np.ndarray:
    """A column of any library as whole numbers, numbers, truth values, datetime64[us] or text, with its gaps."""
    values = np.asarray(values)
    if values.ndim != 1:
        raise DataError(f"column '{name}' has the shape {values.shape}, not one value an item")
    kind = values.dtype.kind
    if kind == "M":
        return values.astype("datetime64[us]")
    if kind in "iu":
        return values.astype(np.float64 if values.dtype == np.uint64 and (values > 2**63 - 1).any() else np.int64)
    if kind == "f":
        return values.astype(np.float64)
    if kind == "b":
        return values
    if kind == "S":
        return np.array([value.decode("utf-8", "replace") for value in values.tolist()], object)
    items = values.tolist()
    present = [item for item in items if not _is_gap(item)]
    if all(isinstance(item, bool | np.bool_) for item in present) and len(present) == len(items):
        return np.array(items, bool)
    if present and all(isinstance(item, int | float | Decimal | np.number) for item in present):
        if len(present) == len(items) and all(isinstance(item, int | np.integer) for item in items):
            return np.array(items, np.int64)
        return np.array([np.nan if _is_gap(item) else float(item) for item in items], np.float64)
    if present and all(isinstance(item, datetime) for item in present):
        return np.array([None if _is_gap(item) else _to_utc(item) for item in items], "datetime64[us]")
    if present and all(isinstance(item, date | np.datetime64) for item in present):
        return np.array([None if _is_gap(item) else item for item in items], "datetime64[us]")
    texts = ["" if _is_gap(item) else item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)
             for item in items]  # fmt: skip
    return np.array(texts, object)


def _is_gap(item: Any) -> bool:
    return item is None or item != item or type(item).__name__ in ("NAType", "NaTType")


def make_inputs(
    found: Found, names: Sequence[str] | None, encoding: MakeEncoding | None, *, limit: int, skip_bad: bool
) -> tuple[Found, dict[str, Tensor], tuple[str, ...], TableEncoding | None]:
    """Make a model's inputs of a table's columns.

    Args:
        found: a table.
        names: columns that become `x`, in this order; without it, all numbers in the order of the table.
        encoding: how they become inputs instead.
        limit: bytes that they may take.
        skip_bad: leave out rows with gaps, unless an encoding fills them.

    Returns: the rows that are left, their inputs, the columns of `x`, and the encoding.
    """
    columns, rows = found.columns, len(next(iter(found.columns.values())))
    if encoding is not None:
        if names is not None:
            raise DataError("inputs=… and encoding=… both say which columns are inputs: give one of them")
        encoding = encoding if isinstance(encoding, TableEncoding) else encoding(columns)
        check_size("the encoded table", encoding.nbytes(rows), limit)
        return found, encoding.encode(columns), (), encoding
    if names is None:
        names = number_columns(columns)
        if not names:
            raise DataError(
                f"the table has no column of numbers among {', '.join(columns)}: encode its categories and text"
            )
    check_names("input column", names, list(columns))
    for name in names:
        if columns[name].dtype.kind not in "biuf":
            what = "dates" if columns[name].dtype.kind == "M" else "text"
            raise DataError(f"input column '{name}' holds {what}, not numbers: encode it, or leave it out")
    check_size("the table", 8 * rows * len(names), limit)
    x = np.stack([columns[name].astype(np.float64) for name in names], 1)
    whole = np.asarray(np.isfinite(x).all(axis=1))
    if not whole.all():
        bad = [
            f"{found.place(row)} ({', '.join(np.array(names)[~np.isfinite(x[row])])})" for row in np.flatnonzero(~whole)
        ]
        check_bad(bad, rows, "rows have gaps or infinite numbers (an encoding takes gaps)", skip_bad)
        found, x = found.keep(whole, bad), x[whole]
    return found, {"x": torch.from_numpy(x.astype(np.float32))}, tuple(names), None
