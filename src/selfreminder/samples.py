"""What `Reminder.remember` may be given, as tensors by name.

Tensors stay as they are. A data set is read in one pass, on the CPU. Where the choice among its items is random, only
a reservoir is in memory at any time: each item draws a random key, and each class keeps its smallest keys. All of a
class's items then have the same chance, though nobody knows how many there are before the end.
"""

import heapq
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler, default_collate

from selfreminder.errors import SelfReminderError, unknown
from selfreminder.sizes import share_evenly

Labels = Tensor | np.ndarray | Sequence[int] | str
"""(n,) classes, or the name of the key or column that holds them"""

Predict = Callable[[dict[str, Tensor]], Tensor]
"""(n,) classes of a batch of inputs on the CPU"""

_BATCH = 256


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


@dataclass(frozen=True, eq=False, kw_only=True)
class Keep:
    """How many will be chosen at random, by exactly one of the two: more need not be in memory."""

    generator: torch.Generator
    """for the keys: one number an item"""
    per_class: int | None = None
    total: int | Callable[[dict[str, Tensor]], int] | None = None
    """of all classes, in even shares; or a function of the first batch of inputs, where an item's size decides"""


def read(
    data: Any, labels: Labels | None = None, *, keep: Keep | None = None, predict: Predict | None = None
) -> Samples:
    """Named tensors from whatever holds a task's data.

    Args:
        data: a tensor, a tuple or dict of tensors (or of numpy arrays), a torch Dataset, a DataLoader or a Hugging
            Face dataset. An item of a data set is an input, (input, …, label), or a dict.
        labels: (n,) classes in the order of the data, or the name of the key that holds them. Without it they are a
            dict's "labels" or "label", or the last element of a data set's tuples; with it, a tuple has only inputs.
        keep: hold no more of a data set than a random choice of so many needs; without it, all is read.
        predict: for `keep`, where there are no labels; without it, all items are of one class.

    >>> pairs = [(torch.rand(4), i % 2) for i in range(100)]
    >>> samples = read(pairs, keep=Keep(per_class=3, generator=torch.Generator().manual_seed(0)))
    >>> samples.inputs["x"].shape, samples.labels.bincount()
    (torch.Size([6, 4]), tensor([3, 3]))
    """
    beside = None if labels is None or isinstance(labels, str) else _classes(labels)
    places = _Places(labels if isinstance(labels, str) else None, beside is not None)
    whole = _whole(data)
    if whole is not None:
        inputs, inside = places.take_apart(whole)
        columns = {
            name: _stacked(name, value) if isinstance(value, list | tuple) else _column(name, value)
            for name, value in inputs.items()
        }
        samples = _samples(columns, inside if beside is None else beside, 0)
        _check_some(len(samples))
        return samples
    # A DataLoader draws from torch's own generator when it starts, and so may a data set: put it back.
    with torch.random.fork_rng(devices=[]):
        batches = _one_pass(_batches(data, places), beside)
        return _all(batches) if keep is None else _reservoir(batches, keep, predict)


# What is held ---------------------------------------------------------------------------------------------


def _all(batches: Iterable[Samples]) -> Samples:
    columns, labels, n = defaultdict[str, list[Tensor]](list), list[Tensor](), 0
    for batch in batches:
        for name, x in batch.inputs.items():
            columns[name].append(x)
        if batch.labels is not None:
            labels.append(batch.labels)
        n += len(batch)
    # Popped, so that one column at a time is there twice, not all.
    inputs = {name: torch.cat(columns.pop(name)) for name in list(columns)}
    return Samples(inputs, torch.cat(labels) if labels else None, torch.arange(n))


def _reservoir(batches: Iterable[Samples], keep: Keep, predict: Predict | None) -> Samples:
    """The items with the smallest keys of each class."""
    heaps = defaultdict[int, list[tuple[float, int, dict[str, Tensor]]]](list)
    counts, total, most, labelled = Counter[int](), keep.total, keep.per_class, False
    for batch in batches:
        if callable(total):
            total = max(1, total(batch.inputs))
        most = total if most is None else most
        assert most is not None, "Keep has neither per_class nor total"
        labelled = batch.labels is not None
        classes = _strata(batch, predict)
        keys = torch.rand(len(batch), dtype=torch.float64, generator=keep.generator).tolist()
        for i, (label, source, key) in enumerate(zip(classes, batch.sources.tolist(), keys)):
            heap = heaps[label]  # Python's heaps have the smallest first: the largest key is to be there
            if len(heap) < most or -key > heap[0][0]:
                heapq.heappush(heap, (-key, source, {name: x[i].clone() for name, x in batch.inputs.items()}))
                if len(heap) > most:
                    heapq.heappop(heap)
        counts.update(classes)
        if total is not None and counts.total() > total:
            # The largest share. It only falls while items come, so that what was left out is never missed.
            most = max(share_evenly(total, list(counts.values())))
            for heap in heaps.values():
                while len(heap) > most:
                    heapq.heappop(heap)
    kept = sorted((source, label, row) for label, heap in heaps.items() for _, source, row in heap)
    sources, labels, rows = zip(*kept)
    inputs = {name: torch.stack([row.pop(name) for row in rows]) for name in list(rows[0])}
    return Samples(inputs, torch.tensor(labels) if labelled else None, torch.tensor(sources))


def _strata(batch: Samples, predict: Predict | None) -> list[int]:
    if batch.labels is not None:
        return batch.labels.tolist()
    return [0] * len(batch) if predict is None else predict(batch.inputs).tolist()


# One pass -------------------------------------------------------------------------------------------------

_Columns = tuple[dict[str, Tensor | None], Any]
"""a batch's inputs by name, None for text; and its labels, None if it has none"""


@dataclass(frozen=True)
class _Places:
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
        if isinstance(given, tuple) or (isinstance(given, list) and not isinstance(_innermost(given), int | float)):
            return {str(i): value for i, value in enumerate(given)}, label
        return {"x": given}, label


def _whole(data: Any) -> Any:
    """Tensors that are there already, in the form of one batch; None if it is a data set."""
    if isinstance(data, Tensor | np.ndarray | Mapping):
        return data
    if isinstance(data, list | tuple) and data and all(isinstance(x, Tensor | np.ndarray) for x in data):
        return {str(i): x for i, x in enumerate(data)} if len(data) > 1 else data
    return None


def _batches(data: Any, places: _Places) -> Iterator[_Columns]:
    if isinstance(data, DataLoader):
        if places.beside and not _in_order(data):
            raise SelfReminderError("the labels are beside a DataLoader that changes the order: give its dataset")
        for batch in data:
            inputs, labels = places.take_apart(batch)
            yield {name: _column(name, value) for name, value in inputs.items()}, labels
        return
    for items in DataLoader(_data_set(data), _BATCH, collate_fn=list):
        parts = [places.take_apart(item) for item in items]
        first, label = parts[0]
        for part in parts:
            _check_names((first, label), part)
        columns = {name: _stacked(name, [inputs[name] for inputs, _ in parts]) for name in first}
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


def _in_order(loader: DataLoader[Any]) -> bool:
    if isinstance(loader.dataset, IterableDataset):
        return True
    of_batches = loader.batch_sampler
    sampler = loader.sampler if of_batches is None else getattr(of_batches, "sampler", None)
    return isinstance(sampler, SequentialSampler)


def _one_pass(batches: Iterable[_Columns], beside: Tensor | None) -> Iterator[Samples]:
    """The batches on the CPU, with their labels and positions; all have the same names and shapes."""
    start, first = 0, None
    for columns, labels in batches:
        if beside is not None:
            labels = beside[start : start + _length(columns)]
            if len(labels) < _length(columns):
                raise SelfReminderError(f"more inputs than the {len(beside)} labels")
        batch = _samples({name: None if x is None else x.detach().cpu() for name, x in columns.items()}, labels, start)
        start += len(batch)
        shapes = {name: x.shape[1:] for name, x in batch.inputs.items()}
        first = first or (shapes, batch.labels)
        _check_names(first, (shapes, batch.labels))
        for name, shape in shapes.items():
            _check_shapes(name, [first[0][name], shape])
        if len(batch):
            yield batch
    if beside is not None:
        _check_counts(start, len(beside))
    _check_some(start)


# Tensors --------------------------------------------------------------------------------------------------


def _samples(columns: dict[str, Tensor | None], labels: Any, start: int) -> Samples:
    """A batch without its text, its columns of one length."""
    n, classes = _length(columns), None if labels is None else _classes(labels)
    if classes is not None:
        _check_counts(n, len(classes))
    inputs = {name: x for name, x in columns.items() if x is not None}
    return Samples(inputs, classes, torch.arange(start, start + n))


def _length(columns: dict[str, Tensor | None]) -> int:
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


def _column(name: str, value: Any) -> Tensor | None:
    """A column of a batch, one row an item; None if it is text."""
    if _is_text(value):
        return None
    if isinstance(value, np.ndarray):
        return _from_numpy(name, value)
    if not isinstance(value, Tensor):
        raise _no_tensor(name, value)
    return value


def _stacked(name: str, values: Sequence[Any]) -> Tensor | None:
    """A column from its items, one row an item; None if they are text."""
    if not values:
        return torch.zeros(0)
    if _is_text(values[0]):
        return None
    items = [_numbers(name, value) if isinstance(value, list | tuple) else value for value in values]
    _check_shapes(name, [getattr(item, "shape", ()) for item in items])
    if isinstance(items[0], np.ndarray):
        return _from_numpy(name, np.stack(items))
    try:
        collated = default_collate(items)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _no_tensor(name, values[0]) from error
    return _column(name, collated)


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


def _classes(labels: Any) -> Tensor:
    """(n,) int64 on the CPU."""
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


def _check_some(items: int) -> None:
    if not items:
        raise SelfReminderError("there is nothing to remember: the data is empty")


def _check_counts(items: int, labels: int) -> None:
    if items != labels:
        raise SelfReminderError(f"{items} inputs, but {labels} labels")


def _check_names(first: tuple[Mapping[str, Any], Any], other: tuple[Mapping[str, Any], Any]) -> None:
    names, others = ([*inputs, *(["labels"] if labels is not None else [])] for inputs, labels in (first, other))
    if set(names) != set(others):
        raise SelfReminderError(
            f"all items must have the same parts: some have {_quoted(names)}, some {_quoted(others)}"
        )


def _check_shapes(name: str, shapes: Iterable[Sequence[int]]) -> None:
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
