"""A table's columns as tensors: fitted once, then the same for all later data of the model."""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selfreminder._base.errors import DataError, printable, unknown

Columns = dict[str, np.ndarray]
"""one value an item, by name: numbers, datetime64, or objects that are text"""

NEVER_INPUTS = frozenset({"id", "index"})
"""columns of numbers that say which item it is: never an input by themselves"""

_SCHEMA = 1
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class TableEncoding:
    """How the columns of a table become inputs.

    Numbers are standardised, and a gap is the mean. A category is a code: 0 for one that was not there when the
    encoding was fitted (or a gap), then 1, 2, … in the order of their names. Text is a hashed bag of words: a word is a
    place and a sign in one vector for all text columns, which has the length 1.

    >>> columns = {"age": np.array([20.0, 40.0]), "site": np.array(["A", "B"], object)}
    >>> encoding = TableEncoding.fit(columns, categories=["site"])
    >>> later = encoding.encode({"age": np.array([30.0, 50.0]), "site": np.array(["B", "C"], object)})
    >>> later["numbers"].tolist(), later["categories"].tolist()
    ([[0.0], [2.0]], [[2], [0]])
    """

    numbers: dict[str, tuple[float, float]] = field(default_factory=dict)
    """mean and standard deviation by column, in the order of the input's places"""
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """the known ones by column, in the order of the input's places; the first has code 1"""
    text: tuple[str, ...] = ()
    """columns whose words are counted"""
    width: int = 4096
    """places that words share"""

    @classmethod
    def fit(
        cls,
        columns: Mapping[str, np.ndarray],
        *,
        numbers: Sequence[str] | None = None,
        categories: Sequence[str] = (),
        text: Sequence[str] = (),
        width: int = 4096,
    ) -> "TableEncoding":
        """Fit an encoding to columns.

        Args:
            columns: of the table, without the label.
            numbers: names of columns, in order; without it, all that hold numbers and are nothing else here.
            categories: names of columns with few different values: text, numbers or dates.
            text: names of columns whose words count.
            width: how many places the words of text share.
        """
        if numbers is None:
            taken = {*categories, *text}
            numbers = [name for name in number_columns(columns) if name not in taken]
        if not (numbers or categories or text):
            raise DataError(
                f"the table has no column of numbers among {', '.join(columns) or 'none'}: say which columns are "
                "inputs, as numbers, categories or text"
            )
        if width < 1:
            raise DataError(f"width is {width}: text needs at least one place")
        moments = {}
        for name in numbers:
            values = _get_numbers(columns, name)
            values = values[~np.isnan(values)]
            if not len(values):
                raise DataError(f"column '{name}' has no numbers: leave it out")
            spread = float(values.std())
            moments[name] = float(values.mean()), spread if spread > 0 else 1.0
        known = {name: tuple(sorted(set(_as_text(_get(columns, name))) - {""})) for name in categories}
        for name in text:
            _get_text(columns, name)
        return cls(moments, known, tuple(text), width)

    @property
    def columns(self) -> tuple[str, ...]:
        """All that it reads."""
        return (*self.numbers, *self.categories, *self.text)

    def nbytes(self, rows: int) -> int:
        """What the inputs of so many rows take."""
        return rows * (4 * len(self.numbers) + 8 * len(self.categories) + (4 * self.width if self.text else 0))

    def encode(self, columns: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
        """Make inputs of a table's columns.

        Returns:
            "numbers" (n, k) float32, "categories" (n, k) int64 and "text" (n, width) float32, those that there are;
            "x" if there is only one.
        """
        parts = {}
        if self.numbers:
            standard = np.stack(
                [(_get_numbers(columns, name) - mean) / std for name, (mean, std) in self.numbers.items()], 1
            )
            parts["numbers"] = torch.from_numpy(np.nan_to_num(standard, copy=False, nan=0.0).astype(np.float32))
        if self.categories:
            codes = []
            for name, known in self.categories.items():
                code = {value: place for place, value in enumerate(known, 1)}
                codes.append([code.get(value, 0) for value in _as_text(_get(columns, name))])
            parts["categories"] = torch.tensor(codes, dtype=torch.int64).T.contiguous()
        if self.text:
            parts["text"] = hash_words({name: _get_text(columns, name) for name in self.text}, self.width)
        return {"x": parts.popitem()[1]} if len(parts) == 1 else parts

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {
            "schema": _SCHEMA,
            # Lists, because the order counts and JSON objects have none.
            "numbers": [[name, mean, std] for name, (mean, std) in self.numbers.items()],
            "categories": [[name, list(known)] for name, known in self.categories.items()],
            "text": list(self.text),
            "width": self.width,
        }

    @classmethod
    def from_json(cls, value: Any) -> "TableEncoding":
        """The inverse of `to_json`."""
        try:
            if value["schema"] != _SCHEMA:
                raise DataError(f"the table's encoding has schema {value['schema']}, this version reads {_SCHEMA}")
            numbers = {str(name): (float(mean), float(std)) for name, mean, std in value["numbers"]}
            if not all(math.isfinite(mean) and 0 < std < math.inf for mean, std in numbers.values()):
                raise ValueError("means and deviations are not finite")
            categories = {str(name): tuple(map(str, known)) for name, known in value["categories"]}
            width = int(value["width"])
            if width < 1:
                raise ValueError(f"width is {width}")
            return cls(numbers, categories, tuple(map(str, value["text"])), width)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"this is no encoding of a table ({type(error).__name__}: {error})") from None


def number_columns(columns: Mapping[str, np.ndarray]) -> list[str]:
    """The columns that can be inputs as they are, in the order of the table."""
    return [name for name, column in columns.items() if column.dtype.kind in "biuf" and name not in NEVER_INPUTS]


def hash_words(texts: Mapping[str, Sequence[str]], width: int) -> Tensor:
    """Hashed bags of words: log(1 + count) with a sign, each row of length 1.

    Args:
        texts: one an item, by column; the same word is another one in another column.
        width: places that the words share.

    Returns: (n, width) float32; zeros for an item without words.
    """
    n = len(next(iter(texts.values())))
    bags = np.zeros((n, width), np.float32)
    for name, column in texts.items():
        known: dict[str, tuple[int, int]] = {}
        for row, text in enumerate(column):
            counts: dict[str, int] = {}
            for word in _WORD.findall(text.lower()):
                counts[word] = counts.get(word, 0) + 1
            for word, count in counts.items():
                if (at := known.get(word)) is None:
                    digest = hashlib.blake2b(f"{name}\0{word}".encode(errors="replace"), digest_size=8).digest()
                    number = int.from_bytes(digest, "little")
                    at = known[word] = (number >> 1) % width, 1 - 2 * (number & 1)
                bags[row, at[0]] += at[1] * math.log1p(count)
    lengths = np.sqrt(np.einsum("ij,ij->i", bags, bags))[:, None]
    return torch.from_numpy(np.divide(bags, lengths, out=bags, where=lengths > 0))


def _get(columns: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in columns:
        raise DataError(str(unknown("column", name, columns)))
    return columns[name]


def _get_numbers(columns: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    column = _get(columns, name)
    if column.dtype.kind in "Mm":
        raise DataError(f"column '{name}' holds dates, not numbers")
    if column.dtype.kind not in "biuf":
        example = next((str(value) for value in column if value != "" and not _is_number(value)), "")
        shown = f" such as '{printable(example[:40])}'" if example else ""
        raise DataError(f"column '{name}' is to be numbers, but holds text{shown}")
    values = column.astype(np.float64)
    if np.isinf(values).any():
        raise DataError(
            f"column '{name}' holds an infinite number, in row {int(np.isinf(values).argmax())} of the data"
        )
    return values


def _get_text(columns: Mapping[str, np.ndarray], name: str) -> list[str]:
    return _as_text(_get(columns, name))


def _as_text(column: np.ndarray) -> list[str]:
    """Values as text, "" for a gap; a whole number is the same with a point and without."""
    if column.dtype.kind == "f":
        return ["" if math.isnan(v) else str(int(v)) if v.is_integer() else repr(v) for v in column.tolist()]
    if column.dtype.kind == "M":
        return ["" if np.isnat(value) else str(value) for value in column]
    return [str(value) for value in column.tolist()]


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
