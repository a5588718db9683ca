"""One pass over a task's data, whatever holds it: batches of named tensors with their labels and positions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder.samples.columns import (
    Samples,
    as_column,
    as_samples,
    check_counts,
    check_names,
    check_shapes,
    check_some,
    innermost,
    length_of,
    stacked,
)

_BATCH = 256

_Columns = tuple[dict[str, Tensor | None], Any]
"""a batch's inputs by name, None for text; and its labels, None if it has none"""


@dataclass(frozen=True)
class Places:
    """Where the labels are: under a key, beside the data, or where they are by custom."""

    key: str | None
    beside: bool

    def take_apart(self, given: Any) -> tuple[dict[str, Any], Any]:
        """The inputs of an item or of a batch by name, and its label or labels, or None."""
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
        if isinstance(given, tuple) or (isinstance(given, list) and not isinstance(innermost(given), int | float)):
            return {str(i): value for i, value in enumerate(given)}, label
        return {"x": given}, label


def at_once(data: Any, places: Places, beside: Tensor | None) -> Samples | None:
    """Tensors that are there already, as they are; None if it is a data set."""
    whole = _whole(data)
    if whole is None:
        return None
    inputs, inside = places.take_apart(whole)
    columns = {
        name: stacked(name, value) if isinstance(value, list | tuple) else as_column(name, value)
        for name, value in inputs.items()
    }
    samples = as_samples(columns, inside if beside is None else beside, 0)
    check_some(len(samples))
    return samples


def one_pass(data: Any, places: Places, beside: Tensor | None) -> Iterator[Samples]:
    """A data set's batches on the CPU, with their labels and positions; all have the same names and shapes."""
    start, first = 0, None
    for columns, labels in _batches(data, places):
        if beside is not None:
            labels = beside[start : start + length_of(columns)]
            if len(labels) < length_of(columns):
                raise SelfReminderError(f"more inputs than the {len(beside)} labels")
        on_cpu = {name: None if x is None else x.detach().cpu() for name, x in columns.items()}
        batch = as_samples(on_cpu, labels, start)
        start += len(batch)
        shapes = {name: x.shape[1:] for name, x in batch.inputs.items()}
        first = first or (shapes, batch.labels)
        check_names(first, (shapes, batch.labels))
        for name, shape in shapes.items():
            check_shapes(name, [first[0][name], shape])
        if len(batch):
            yield batch
    if beside is not None:
        check_counts(start, len(beside))
    check_some(start)


def _whole(data: Any) -> Any:
    """Tensors that are there already, in the form of one batch; None if it is a data set."""
    if isinstance(data, Tensor | np.ndarray | Mapping):
        return data
    if isinstance(data, list | tuple) and data and all(isinstance(x, Tensor | np.ndarray) for x in data):
        return {str(i): x for i, x in enumerate(data)} if len(data) > 1 else data
    return None


def _batches(data: Any, places: Places) -> Iterator[_Columns]:
    if isinstance(data, DataLoader):
        if places.beside and not _in_order(data):
            raise SelfReminderError("the labels are beside a DataLoader that changes the order: give its dataset")
        for batch in data:
            inputs, labels = places.take_apart(batch)
            yield {name: as_column(name, value) for name, value in inputs.items()}, labels
        return
    for items in DataLoader(_data_set(data), _BATCH, collate_fn=list):
        parts = [places.take_apart(item) for item in items]
        first, label = parts[0]
        for part in parts:
            check_names((first, label), part)
        columns = {name: stacked(name, [inputs[name] for inputs, _ in parts]) for name in first}
        yield columns, None if label is None else [label for _, label in parts]


def _data_set(data: Any) -> Any:
    """What a DataLoader can read; of Hugging Face, in a form that gives tensors."""
    if all(hasattr(data, name) for name in ("column_names", "features", "with_format")):
        if not hasattr(data, "format"):  # it is streamed
            return data.with_format("torch")
        return data if data.format["type"] else data.with_format("torch", columns=data.format["columns"])
    what, readable = type(data).__name__, isinstance(data, IterableDataset)
    if isinstance(data, list | tuple):
        readable = not data or isinstance(data[0], tuple | Mapping)
        what = what if readable else f"{what} of {type(data[0]).__name__}"
    elif not isinstance(data, str | bytes):
        readable = readable or (hasattr(data, "__getitem__") and hasattr(data, "__len__"))
    if readable:
        return data
    raise SelfReminderError(
        "the data is a tensor, a tuple or dict of tensors, a Dataset with a length, an IterableDataset, a DataLoader "
        f"or a Hugging Face dataset, not a {what}"
    )


def knows_positions(data: Any) -> bool:
    """Whether the place of an item in one pass says which item of the data it is, in each process's part of it."""
    if not isinstance(data, DataLoader):
        return True
    sampler = getattr(data, "sampler", None)
    return _in_order(data) or (isinstance(sampler, DistributedSampler) and not sampler.shuffle)


def _in_order(loader: DataLoader[Any]) -> bool:
    if isinstance(loader.dataset, IterableDataset):
        return True
    of_batches = loader.batch_sampler
    sampler = loader.sampler if of_batches is None else getattr(of_batches, "sampler", None)
    return isinstance(sampler, SequentialSampler)
