"""Read what `Reminder.remember` may be given, as tensors by name.

Tensors stay as they are. A data set is read in one pass, on the CPU. Where the choice among its items is random, only
a reservoir is in memory at any time: each item draws a random key, and each class keeps its smallest keys. All of a
class's items then have the same chance, though nobody knows how many there are before the end.
"""

import hashlib
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from selfreminder._base import distributed
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import share_evenly
from selfreminder.samples.columns import (
    UNKNOWN,
    LabelPlace,
    Samples,
    check_names,
    check_shapes,
    count_rows,
    make_samples,
    name_inputs,
    restore_structure,
    stack_items,
    to_classes,
    to_column,
)

__all__ = ["UNKNOWN", "Limit", "Samples", "knows_positions", "name_inputs", "read_samples", "restore_structure"]

Labels = Tensor | np.ndarray | Sequence[int] | str
"""(n,) classes, or the name of the key or column that holds them"""

Predict = Callable[[dict[str, Tensor]], Tensor]
"""(n,) classes of a batch of inputs on the CPU"""

_BATCH = 256


@dataclass(frozen=True, eq=False, kw_only=True)
class Limit:
    """How many items will be chosen at random, by exactly one of the two: more need not be in memory."""

    generator: torch.Generator
    """for the keys: one number an item"""
    per_class: int | None = None
    total: int | Callable[[dict[str, Tensor]], int] | None = None
    """of all classes, in even shares; or a function of the first batch of inputs, where an item's size decides"""


def read_samples(
    data: Any,
    labels: Labels | None = None,
    *,
    sources: Tensor | Sequence[int] | None = None,
    limit: Limit | None = None,
    predict: Predict | None = None,
    gather: bool = False,
) -> Samples:
    """Read named tensors from whatever holds a task's data.

    Args:
        data: a tensor, a tuple or dict of tensors (or of numpy arrays), a torch Dataset, a DataLoader or a Hugging
            Face dataset. An item of a data set is an input, (input, …, label), or a dict.
        labels: (n,) classes in the order of the data, or the name of the key that holds them. Without it they are a
            dict's "labels" or "label", or the last element of a data set's tuples; with it, a tuple has only inputs.
        sources: (n,) where each item came from, in the order of the data. Without it that is its position in the
            data, or unknown if a DataLoader changes the order.
        limit: hold no more of a data set than a random choice of so many needs; without it, all is read.
        predict: for `limit`, where there are no labels; without it, all items are of one class.
        gather: join the samples of all processes that train together; each gives its own part, or all the same.

    >>> pairs = [(torch.rand(4), i % 2) for i in range(100)]
    >>> samples = read_samples(pairs, limit=Limit(per_class=3, generator=torch.Generator().manual_seed(0)))
    >>> samples.inputs["x"].shape, samples.labels.bincount()
    (torch.Size([6, 4]), tensor([3, 3]))
    """
    beside = None if labels is None or isinstance(labels, str) else to_classes(labels)
    place = LabelPlace(labels if isinstance(labels, str) else None, beside is not None)
    samples = _read_tensors(data, place, beside)
    if samples is None:
        # A DataLoader draws from torch's own generator when it starts, and so may a data set: put it back.
        with torch.random.fork_rng(devices=[]):
            batches = _read_batches(data, place, beside)
            samples = _join_batches(batches) if limit is None else _fill_reservoir(batches, limit, predict)
    known = sources is None and knows_positions(data)
    if sources is not None:
        given = torch.as_tensor(sources).cpu()
        if len(samples) and len(given) <= int(samples.sources.max()):
            raise SelfReminderError(f"there are {len(given)} sources, fewer than samples")
        samples = replace(samples, sources=given[samples.sources])
    elif not known:
        samples = replace(samples, sources=torch.full_like(samples.sources, UNKNOWN))
    return _gather(samples, dealt=known) if gather else samples


def _gather(samples: Samples, *, dealt: bool) -> Samples:
    """Join the samples of all processes; the same ones everywhere are taken once.

    If they were `dealt` out, as a DistributedSampler does, a position in one part becomes one in the whole.
    """
    rank, world = distributed.get_ranks()
    if world == 1 or len(set(distributed.all_gather(_hash_inputs(samples)))) == 1:
        return samples
    if dealt:
        samples = replace(samples, sources=samples.sources * world + rank)
    parts = distributed.all_gather(samples)
    if any(part.inputs.keys() != samples.inputs.keys() for part in parts):
        raise SelfReminderError("the processes give inputs of different names")
    classes = [part.labels for part in parts if part.labels is not None]
    if len(classes) not in (0, len(parts)):
        raise SelfReminderError("some processes give labels, others do not")
    return Samples(
        inputs={name: torch.cat([part.inputs[name].cpu() for part in parts]) for name in samples.inputs},
        labels=torch.cat(classes) if classes else None,
        sources=torch.cat([part.sources for part in parts]),
    )


def knows_positions(data: Any) -> bool:
    """Whether the place of an item in one pass says which item of the data it is, in each process's part of it."""
    if not isinstance(data, DataLoader) or _is_in_order(data):
        return True
    return isinstance(data.sampler, DistributedSampler) and not data.sampler.shuffle


def _is_in_order(loader: DataLoader[Any]) -> bool:
    if isinstance(loader.dataset, IterableDataset):
        return True
    sampler = loader.sampler if loader.batch_sampler is None else getattr(loader.batch_sampler, "sampler", None)
    return isinstance(sampler, SequentialSampler)


def _hash_inputs(samples: Samples) -> str:
    digest = hashlib.sha256()
    for name, x in samples.inputs.items():
        digest.update(f"{name} {tuple(x.shape)} {x.dtype}".encode())
        digest.update(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


# One pass over the data -----------------------------------------------------------------------------------


def _read_tensors(data: Any, place: LabelPlace, beside: Tensor | None) -> Samples | None:
    """Tensors that are there already, as they are; None if it is a data set."""
    if isinstance(data, list | tuple) and data and all(isinstance(x, Tensor | np.ndarray) for x in data):
        data = {str(i): x for i, x in enumerate(data)} if len(data) > 1 else data
    elif not isinstance(data, Tensor | np.ndarray | Mapping):
        return None
    inputs, inside = place.split(data)
    columns = {
        name: stack_items(name, value) if isinstance(value, list | tuple) else to_column(name, value)
        for name, value in inputs.items()
    }
    samples = make_samples(columns, inside if beside is None else beside, 0)
    _check_some(len(samples))
    return samples


def _read_batches(data: Any, place: LabelPlace, beside: Tensor | None) -> Iterator[Samples]:
    """A data set's batches on the CPU, with their labels and positions; all have the same names and shapes."""
    start, first = 0, None
    for columns, labels in _split_batches(data, place):
        if beside is not None:
            labels = beside[start : (end := start + count_rows(columns))]
            if len(beside) < end:
                raise SelfReminderError(f"more inputs than the {len(beside)} labels")
        on_cpu = {name: None if x is None else x.detach().cpu() for name, x in columns.items()}
        batch = make_samples(on_cpu, labels, start)
        start += len(batch)
        shapes = {name: x.shape[1:] for name, x in batch.inputs.items()}
        first = first or (shapes, batch.labels)
        check_names(first, (shapes, batch.labels))
        for name, shape in shapes.items():
            check_shapes(name, [first[0][name], shape])
        if len(batch):
            yield batch
    if beside is not None and start != len(beside):
        raise SelfReminderError(f"{start} inputs, but {len(beside)} labels")
    _check_some(start)


def _split_batches(data: Any, place: LabelPlace) -> Iterator[tuple[dict[str, Tensor | None], Any]]:
    """The inputs of each batch by name, None for text; and its labels, None if it has none."""
    if isinstance(data, DataLoader):
        if place.beside and not _is_in_order(data):
            raise SelfReminderError("the labels are beside a DataLoader that changes the order: give its dataset")
        for batch in data:
            inputs, labels = place.split(batch)
            yield {name: to_column(name, value) for name, value in inputs.items()}, labels
        return
    for items in DataLoader(_make_readable(data), _BATCH, collate_fn=list):
        parts = [place.split(item) for item in items]
        first, label = parts[0]
        for part in parts:
            check_names((first, label), part)
        columns = {name: stack_items(name, [inputs[name] for inputs, _ in parts]) for name in first}
        yield columns, None if label is None else [label for _, label in parts]


def _make_readable(data: Any) -> Any:
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


def _join_batches(batches: Iterable[Samples]) -> Samples:
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


def _fill_reservoir(batches: Iterable[Samples], limit: Limit, predict: Predict | None) -> Samples:
    """The items with the smallest keys of each class."""
    heaps = defaultdict[int, list[tuple[float, int, dict[str, Tensor]]]](list)
    counts, total, most, labelled = Counter[int](), limit.total, limit.per_class, False
    for batch in batches:
        total = max(1, total(batch.inputs)) if callable(total) else total
        most = total if most is None else most
        assert most is not None, "Limit has neither per_class nor total"
        if labelled := batch.labels is not None:
            classes = batch.labels.tolist()
        else:
            classes = [0] * len(batch) if predict is None else predict(batch.inputs).tolist()
        keys = torch.rand(len(batch), dtype=torch.float64, generator=limit.generator).tolist()
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


def _check_some(items: int) -> None:
    if not items:
        raise SelfReminderError("there is nothing to remember: the data is empty")
