"""Columns of tensors with one row an item, from the batches and items that people have; text has none."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from selfreminder._base.errors import SelfReminderError

UNKNOWN = -1
"""the label, source or time of an item where nobody said"""


@dataclass(frozen=True, eq=False)
class LabelColumn:
    """One label an item, on the CPU."""

    classes: Tensor
    """(n,) int64; `UNKNOWN` where a label is no class"""
    strata: Tensor | None = None
    """(n,) int64: equal for items that are alike, where labels may be no classes"""

    def __len__(self) -> int:
        return len(self.classes)

    def rows(self, start: int, end: int) -> "LabelColumn":
        """Some of the items."""
        return LabelColumn(self.classes[start:end], None if self.strata is None else self.strata[start:end])


@dataclass(frozen=True, eq=False)
class Samples:
    """Items as tensors with one row an item."""

    inputs: dict[str, Tensor]
    """"x" for one tensor; "0", "1", … for several in order; or a dict's own names"""
    labels: Tensor | None
    """(n,) classes, int64 on the CPU; None where the data has none"""
    sources: Tensor
    """(n,) where each item came from: its position in the data, or what the caller said, or `UNKNOWN`"""
    strata: Tensor | None = None
    """(n,) int64 on the CPU, equal for items that are alike: of labels that are no classes, which are not kept"""

    def __len__(self) -> int:
        return len(self.sources)


def name_inputs(inputs: Any) -> dict[str, Tensor]:
    """Name a model's inputs as a memory does: "x" for a tensor, "0", "1", … for a tuple, a dict by its own names.

    >>> list(name_inputs(torch.rand(3, 4))), list(name_inputs((torch.rand(3, 4), torch.rand(3))))
    (['x'], ['0', '1'])
    """
    named: Any = {"x": inputs} if isinstance(inputs, Tensor) else inputs
    if isinstance(inputs, tuple | list):
        named = {str(place): x for place, x in enumerate(inputs)}
    if not isinstance(named, Mapping) or not named or not all(isinstance(x, Tensor) for x in named.values()):
        raise SelfReminderError(f"inputs are a tensor, a tuple of tensors or tensors by name, not {show_kind(inputs)}")
    if len({len(x) if x.ndim else None for x in named.values()}) > 1:
        raise SelfReminderError("the inputs are not of one length")
    return dict(named)


def restore_structure(inputs: dict[str, Tensor]) -> Any:
    """Give named inputs back as they were: the inverse of `name_inputs`."""
    if inputs.keys() == {"x"}:
        return inputs["x"]
    places = [str(place) for place in range(len(inputs))]
    return tuple(inputs[place] for place in places) if inputs.keys() == set(places) else inputs


def show_kind(value: object) -> str:
    """What a value is, for a message."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} of {', '.join(map(str, value)) or 'nothing'}"
    return f"a {type(value).__name__}"


def make_samples(columns: dict[str, Tensor | None], labels: LabelColumn | None, start: int) -> Samples:
    """Make samples of a batch without its text; all columns have one length, and positions count from `start`."""
    n = count_rows(columns)
    if labels is not None and len(labels) != n:
        raise SelfReminderError(f"{n} inputs, but {len(labels)} labels")
    inputs = {name: x for name, x in columns.items() if x is not None}
    classes, strata = (None, None) if labels is None else (labels.classes, labels.strata)
    return Samples(inputs, classes, torch.arange(start, start + n), strata)


def count_rows(columns: dict[str, Tensor | None]) -> int:
    """Count the rows that each of the columns has."""
    lengths = {name: len(x) if x.ndim else None for name, x in columns.items() if x is not None}
    if columns and not lengths:
        raise SelfReminderError(f"the data is only text, in {_quoted(columns)}: tokenise it, and pad to one length")
    if None in lengths.values():
        single = _quoted(name for name, length in lengths.items() if length is None)
        raise SelfReminderError(f"{single}: a single number, where one row an item is expected")
    if len(set(lengths.values())) > 1:
        each = ", ".join(f"'{name}' {length}" for name, length in lengths.items())
        raise SelfReminderError(f"the inputs are not of one length: {each}; a list of items is to be stacked first")
    return next(iter(lengths.values()), None) or 0


def to_column(name: str, value: Any) -> Tensor | None:
    """Convert a column of a batch to a tensor, one row an item; None if it is text."""
    if is_text(value):
        return None
    if isinstance(value, np.ndarray):
        return from_numpy(name, value)
    check_no_frame(f"'{name}'", value)
    if not isinstance(value, Tensor):
        raise _no_tensor(name, value)
    return value


def stack_items(name: str, values: Sequence[Any]) -> Tensor | None:
    """Stack the items of a column, one row an item; None if they are text."""
    if not values:
        return torch.zeros(0)
    if is_text(values[0]):
        return None
    try:
        items = [torch.tensor(value) if isinstance(value, list | tuple) else value for value in values]
        check_shapes(name, [getattr(item, "shape", ()) for item in items])
        return to_column(name, np.stack(items) if isinstance(items[0], np.ndarray) else default_collate(items))
    except SelfReminderError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        raise _no_tensor(name, values[0]) from error


def from_numpy(name: str, array: np.ndarray) -> Tensor:
    """The same numbers as a tensor, not copied."""
    with warnings.catch_warnings():  # it may be read-only: nobody writes to it
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        try:
            return torch.from_numpy(array)
        except (TypeError, ValueError) as error:
            raise SelfReminderError(f"'{name}' is a numpy array that torch does not take: {error}") from error


def is_text(value: Any) -> bool:
    """Whether a value, or the first of those in it, is text."""
    first = innermost(value)
    return isinstance(first, str | bytes) or (isinstance(first, np.ndarray) and first.dtype.kind in "US")


def innermost(value: Any) -> Any:
    """The first element of lists in lists."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return value


# Errors ---------------------------------------------------------------------------------------------------


def check_names(first: tuple[Mapping[str, Any], Any], other: tuple[Mapping[str, Any], Any]) -> None:
    """Raise if the inputs and labels of two items or batches differ by their names."""
    names, others = ([*inputs, *(["labels"] if labels is not None else [])] for inputs, labels in (first, other))
    if set(names) != set(others):
        raise SelfReminderError(
            f"all items must have the same parts: some have {_quoted(names)}, some {_quoted(others)}"
        )


def check_shapes(name: str, shapes: Iterable[Sequence[int]]) -> None:
    """Raise if the items of a column differ by their shapes."""
    found = list(dict.fromkeys(map(tuple, shapes)))
    if len(found) > 1:
        raise SelfReminderError(
            f"the items of '{name}' have different shapes, such as {found[0]} and {found[1]}: pad text to one length "
            "(a tokenizer's padding='max_length'), resize or crop images to one size"
        )


def check_no_frame(what: str, value: Any) -> None:
    """Refuse a table of pandas or polars, which has no one tensor by itself."""
    if hasattr(value, "to_numpy"):
        raise SelfReminderError(
            f"{what} is a {type(value).__name__}: pass the numbers that the model takes, torch.tensor(frame.to_numpy())"
        )


def _no_tensor(name: str, value: Any) -> SelfReminderError:
    return SelfReminderError(
        f"'{name}' is a {type(value).__name__}, not a tensor: have the data give tensors "
        "(a Hugging Face dataset in a DataLoader: set_format('torch')), or leave it out"
    )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
