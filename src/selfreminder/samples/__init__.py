"""Read what `Reminder.remember` may be given, as tensors by name.

Tensors stay as they are. A data set is read in one pass, on the CPU. Where the choice among its items is random, only
a reservoir is in memory at any time.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from selfreminder._base import distributed
from selfreminder._base.errors import SelfReminderError
from selfreminder.samples.columns import (
    UNKNOWN,
    LabelColumn,
    Samples,
    check_names,
    check_no_frame,
    check_shapes,
    count_rows,
    make_samples,
    name_inputs,
    restore_structure,
    stack_items,
    to_column,
)
from selfreminder.samples.joining import Limit, Predict, fill_reservoir, join_batches, join_columns
from selfreminder.samples.labels import LabelPlace, LabelReader

__all__ = ["UNKNOWN", "Limit", "Samples", "knows_positions", "name_inputs", "read_samples", "restore_structure"]

Labels = Tensor | np.ndarray | Sequence[Any] | str
"""one an item, in a form that `LabelReader` knows; or the name of the key or column that holds them"""

_BATCH = 256


def read_samples(
    data: Any,
    labels: Labels | None = None,
    *,
    classes: Sequence[str] | None = None,
    sources: Tensor | Sequence[int] | None = None,
    limit: Limit | None = None,
    predict: Predict | None = None,
    gather: bool = False,
) -> Samples:
    """Read named tensors from whatever holds a task's data.

    Args:
        data: a tensor, a tuple or dict of tensors (or of numpy arrays), a torch Dataset, a DataLoader or a Hugging
            Face dataset. An item of a data set is an input, (input, …, label), or a dict.
        labels: one an item in the order of the data, or the name of the key that holds them. Without it they are a
            dict's "labels" or "label", or the last element of a data set's tuples; with it, a tuple has only inputs.
            See `LabelReader` for the forms that they may have.
        classes: the names of the classes in order, where labels are names.
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
    reader = LabelReader(classes)
    beside = None if labels is None or isinstance(labels, str) else reader.read(labels)
    place = LabelPlace(labels if isinstance(labels, str) else None, beside)
    samples = _read_tensors(data, place, reader)
    if samples is None:
        # A DataLoader draws from torch's own generator when it starts, and so may a data set: put it back.
        with torch.random.fork_rng(devices=[]):
            batches = _read_batches(data, place, reader)
            samples = join_batches(batches) if limit is None else fill_reservoir(batches, limit, predict)
    if classes is not None and samples.labels is None:
        raise SelfReminderError("classes=… names labels, but the data has none: pass labels=…")
    if not reader.are_classes:
        samples = replace(samples, labels=None)
    known = sources is None and knows_positions(data)
    if sources is not None:
        given = torch.as_tensor(sources).cpu()
        if len(samples) and len(given) <= int(samples.sources.max()):
            raise SelfReminderError(f"there are {len(given)} sources, fewer than samples")
        samples = replace(samples, sources=given[samples.sources])
    elif not known:
        samples = replace(samples, sources=torch.full_like(samples.sources, UNKNOWN))
    samples = _gather(samples, dealt=known) if gather else samples
    if samples.strata is None or samples.labels is not None:
        return replace(samples, strata=None)
    return replace(samples, strata=samples.strata.unique(return_inverse=True)[1])


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
    labels, strata = [part.labels for part in parts], [part.strata for part in parts]
    if any(part.labels is None and part.strata is not None for part in parts):  # no classes in one, none in all
        labels = [None] * len(parts)
    if any(len({part is None for part in each}) > 1 for each in (labels, strata)):
        raise SelfReminderError("some processes give labels, others do not, or of another form")
    return Samples(
        inputs={name: torch.cat([part.inputs[name].cpu() for part in parts]) for name in samples.inputs},
        labels=join_columns(labels),
        sources=torch.cat([part.sources for part in parts]),
        strata=join_columns(strata),
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


def _read_tensors(data: Any, place: LabelPlace, reader: LabelReader) -> Samples | None:
    """Tensors that are there already, as they are; None if it is a data set."""
    check_no_frame("the data", data)
    if isinstance(data, list | tuple) and data and all(isinstance(x, Tensor | np.ndarray) for x in data):
        _check_stacked(data, place.beside)
        data = {str(i): x for i, x in enumerate(data)} if len(data) > 1 else data
    elif not isinstance(data, Tensor | np.ndarray | Mapping):
        return None
    inputs, inside = place.split(data)
    columns = {
        name: stack_items(name, value) if isinstance(value, list | tuple) else to_column(name, value)
        for name, value in inputs.items()
    }
    samples = make_samples(columns, _read_labels(reader, inside) if place.beside is None else place.beside, 0)
    _check_some(len(samples))
    return samples


def _read_labels(reader: LabelReader, labels: Any) -> LabelColumn | None:
    return None if labels is None else reader.read(labels)


def _read_batches(data: Any, place: LabelPlace, reader: LabelReader) -> Iterator[Samples]:
    """A data set's batches on the CPU, with their labels and positions; all have the same names and shapes."""
    start, first, beside = 0, None, place.beside
    for columns, given in _split_batches(data, place):
        if beside is None:
            labels = _read_labels(reader, given)
        else:
            labels = beside.rows(start, end := start + count_rows(columns))
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
        if place.beside is not None and not _is_in_order(data):
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


def _check_stacked(data: Sequence[Any], beside: LabelColumn | None) -> None:
    """Refuse a list of items, which looks like one of inputs."""
    if isinstance(data, list) and beside is not None and len(beside) == len(data) != len(data[0]):
        raise SelfReminderError(
            f"the data is a list of {len(data)} tensors, taken for so many inputs of a model: of as many items "
            "make one tensor, torch.stack(items)"
        )


def _check_some(items: int) -> None:
    if not items:
        raise SelfReminderError("there is nothing to remember: the data is empty")
