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


@dataclass(frozen=True, eq=False)
class Samples:
    """Items as tensors with one row an item."""

    inputs: dict[str, Tensor]
    """"x" for one tensor; "0", "1", … for several in order; or a dict's own names"""
    labels: Tensor | None
    """(n,) int64 on the CPU; None where the data has none"""
    sources: Tensor
    """(n,) each item's position in the data, ascending"""

    def __len__(self) -> int:
        return len(self.sources)


def as_samples(columns: dict[str, Tensor | None], labels: Any, start: int) -> Samples:
    """A batch without its text, its columns of one length."""
    n, classes = length_of(columns), None if labels is None else as_classes(labels)
    if classes is not None:
        check_counts(n, len(classes))
    inputs = {name: x for name, x in columns.items() if x is not None}
    return Samples(inputs, classes, torch.arange(start, start + n))


def length_of(columns: dict[str, Tensor | None]) -> int:
    """How many rows each of the columns has."""
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


def as_column(name: str, value: Any) -> Tensor | None:
    """A column of a batch, one row an item; None if it is text."""
    if _is_text(value):
        return None
    if isinstance(value, np.ndarray):
        return _from_numpy(name, value)
    if not isinstance(value, Tensor):
        raise _no_tensor(name, value)
    return value


def stacked(name: str, values: Sequence[Any]) -> Tensor | None:
    """A column from its items, one row an item; None if they are text."""
    if not values:
        return torch.zeros(0)
    if _is_text(values[0]):
        return None
    items = [_numbers(name, value) if isinstance(value, list | tuple) else value for value in values]
    check_shapes(name, [getattr(item, "shape", ()) for item in items])
    if isinstance(items[0], np.ndarray):
        return _from_numpy(name, np.stack(items))
    try:
        collated = default_collate(items)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _no_tensor(name, values[0]) from error
    return as_column(name, collated)


def _numbers(name: str, value: Sequence[Any]) -> Tensor:
    try:
        return torch.tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _no_tensor(name, value) from error


def _from_numpy(name: str, array: np.ndarray) -> Tensor:
    with warnings.catch_warnings():  # it may be read-only: nobody writes to it
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        try:
            return torch.from_numpy(array)
        except (TypeError, ValueError) as error:
            raise SelfReminderError(f"'{name}' is a numpy array that torch does not take: {error}") from error


def as_classes(labels: Any) -> Tensor:
    """Labels as (n,) int64 on the CPU."""
    if not isinstance(labels, Tensor | np.ndarray):
        try:
            labels = list(labels)
            if not _is_text(labels):
                labels = default_collate(labels) if labels else torch.zeros(0, dtype=torch.long)
        except (TypeError, ValueError, RuntimeError) as error:
            raise _several_labels(f"a {type(labels).__name__}") from error
    if _is_text(labels):
        raise SelfReminderError("the labels are text: number the classes (a Hugging Face dataset: class_encode_column)")
    if isinstance(labels, np.ndarray):
        labels = _from_numpy("labels", labels)
    if not isinstance(labels, Tensor):
        raise _several_labels("several an item")
    if labels.ndim != 1 or labels.is_floating_point() or labels.is_complex():
        raise _several_labels(f"{str(labels.dtype).removeprefix('torch.')} of shape {tuple(labels.shape)}")
    return labels.detach().to("cpu", torch.long)


def _is_text(value: Any) -> bool:
    first = innermost(value)
    return isinstance(first, str | bytes) or (isinstance(first, np.ndarray) and first.dtype.kind in "US")


def innermost(value: Any) -> Any:
    """The first element of lists in lists."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return value


# Errors ---------------------------------------------------------------------------------------------------


def check_some(items: int) -> None:
    """Raise if there are no items."""
    if not items:
        raise SelfReminderError("there is nothing to remember: the data is empty")


def check_counts(items: int, labels: int) -> None:
    """Raise if the labels are not as many as the items."""
    if items != labels:
        raise SelfReminderError(f"{items} inputs, but {labels} labels")


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


def _no_tensor(name: str, value: Any) -> SelfReminderError:
    what = type(value).__name__
    return SelfReminderError(
        f"'{name}' is a {what}, not a tensor: have the data give tensors (a Hugging Face dataset in a DataLoader: "
        "set_format('torch')), or leave it out"
    )


def _several_labels(what: str) -> SelfReminderError:
    return SelfReminderError(
        f"the labels are {what}: a reminder works for classifiers with one label an item, whole numbers of shape (n,)"
    )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
