"""Columns of tensors with one row an item, from the batches and items that people have; text has none."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from selfreminder._base.errors import SelfReminderError, unknown

UNKNOWN = -1
"""the label, source or time of an item where nobody said"""


@dataclass(frozen=True, eq=False)
class Samples:
    """Items as tensors with one row an item."""

    inputs: dict[str, Tensor]
    """"x" for one tensor; "0", "1", … for several in order; or a dict's own names"""
    labels: Tensor | None
    """(n,) int64 on the CPU; None where the data has none"""
    sources: Tensor
    """(n,) where each item came from: its position in the data, or what the caller said, or `UNKNOWN`"""

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


@dataclass(frozen=True)
class LabelPlace:
    """Where the labels are: under a key, beside the data, or where they are by custom."""

    key: str | None
    beside: bool

    def split(self, given: Any) -> tuple[dict[str, Any], Any]:
        """Split an item or a batch into its inputs by name and its label or labels, None if it has none."""
        label = None
        if isinstance(given, tuple | list):
            if len(given) > 1 and not self.beside:
                *given, label = given
            given = given[0] if len(given) == 1 else tuple(given)
        if isinstance(given, Mapping):
            inputs = dict(given)
            if self.key is not None and self.key not in inputs:
                raise unknown("key of labels", self.key, map(str, inputs))
            for name in ("labels", "label") if self.key is None else (self.key,):
                inside = inputs.pop(name, None)
                label = inside if label is None else label
            return inputs, label
        if self.key is not None:
            raise SelfReminderError(f"labels='{self.key}' is the name of a key, but the data has no keys")
        if isinstance(given, tuple) or (isinstance(given, list) and not isinstance(_innermost(given), int | float)):
            return {str(i): value for i, value in enumerate(given)}, label
        return {"x": given}, label


def make_samples(columns: dict[str, Tensor | None], labels: Any, start: int) -> Samples:
    """Make samples of a batch without its text; all columns have one length, and positions count from `start`."""
    n, classes = count_rows(columns), None if labels is None else to_classes(labels)
    if classes is not None and len(classes) != n:
        raise SelfReminderError(f"{n} inputs, but {len(classes)} labels")
    inputs = {name: x for name, x in columns.items() if x is not None}
    return Samples(inputs, classes, torch.arange(start, start + n))


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
    if _is_text(value):
        return None
    if isinstance(value, np.ndarray):
        return _from_numpy(name, value)
    if not isinstance(value, Tensor):
        raise _no_tensor(name, value)
    return value


def stack_items(name: str, values: Sequence[Any]) -> Tensor | None:
    """Stack the items of a column, one row an item; None if they are text."""
    if not values:
        return torch.zeros(0)
    if _is_text(values[0]):
        return None
    try:
        items = [torch.tensor(value) if isinstance(value, list | tuple) else value for value in values]
        check_shapes(name, [getattr(item, "shape", ()) for item in items])
        return to_column(name, np.stack(items) if isinstance(items[0], np.ndarray) else default_collate(items))
    except SelfReminderError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        raise _no_tensor(name, values[0]) from error


def _from_numpy(name: str, array: np.ndarray) -> Tensor:
    with warnings.catch_warnings():  # it may be read-only: nobody writes to it
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        try:
            return torch.from_numpy(array)
        except (TypeError, ValueError) as error:
            raise SelfReminderError(f"'{name}' is a numpy array that torch does not take: {error}") from error


def to_classes(labels: Any) -> Tensor:
    """Convert labels to (n,) int64 on the CPU."""
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
    first = _innermost(value)
    return isinstance(first, str | bytes) or (isinstance(first, np.ndarray) and first.dtype.kind in "US")


def _innermost(value: Any) -> Any:
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


def _no_tensor(name: str, value: Any) -> SelfReminderError:
    return SelfReminderError(
        f"'{name}' is a {type(value).__name__}, not a tensor: have the data give tensors "
        "(a Hugging Face dataset in a DataLoader: set_format('torch')), or leave it out"
    )


def _several_labels(what: str) -> SelfReminderError:
    return SelfReminderError(
        f"the labels are {what}: a reminder works for classifiers with one label an item, whole numbers of shape (n,)"
    )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
