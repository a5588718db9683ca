"""What `Reminder.remember` may be given, as tensors by name.

Tensors stay as they are. A data set is read in one pass, on the CPU. Where the choice among its items is random, only
a reservoir is in memory at any time: each item draws a random key, and each class keeps its smallest keys. All of a
class's items then have the same chance, though nobody knows how many there are before the end.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import share_evenly
from selfreminder.samples.batches import Places, at_once, one_pass
from selfreminder.samples.columns import Samples, as_classes

Labels = Tensor | np.ndarray | Sequence[int] | str
"""(n,) classes, or the name of the key or column that holds them"""

Predict = Callable[[dict[str, Tensor]], Tensor]
"""(n,) classes of a batch of inputs on the CPU"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Keep:
    """How many will be chosen at random, by exactly one of the two: more need not be in memory."""

    generator: torch.Generator
    """for the keys: one number an item"""
    per_class: int | None = None
    total: int | Callable[[dict[str, Tensor]], int] | None = None
    """of all classes, in even shares; or a function of the first batch of inputs, where an item's size decides"""


def given_sources(sources: Tensor | Sequence[int], positions: Tensor) -> Tensor:
    """(m,) the sources of the samples at these positions in the data."""
    found = torch.as_tensor(sources).cpu()
    if len(positions) and len(found) <= int(positions.max()):
        raise SelfReminderError(f"there are {len(found)} sources, fewer than samples")
    return found[positions]


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
    beside = None if labels is None or isinstance(labels, str) else as_classes(labels)
    places = Places(labels if isinstance(labels, str) else None, beside is not None)
    whole = at_once(data, places, beside)
    if whole is not None:
        return whole
    # A DataLoader draws from torch's own generator when it starts, and so may a data set: put it back.
    with torch.random.fork_rng(devices=[]):
        batches = one_pass(data, places, beside)
        return _all(batches) if keep is None else _reservoir(batches, keep, predict)


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
