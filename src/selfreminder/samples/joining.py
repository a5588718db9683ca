"""Batches put together: all of them, or no more than a random choice of some needs.

Each item draws a random key, and each class keeps its smallest keys. All of a class's items then have the same chance,
though nobody knows how many there are before the end.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from selfreminder._base.sizes import share_evenly
from selfreminder.samples.columns import UNKNOWN, Samples

Predict = Callable[[dict[str, Tensor]], Tensor]
"""(n,) classes of a batch of inputs on the CPU"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Limit:
    """How many items will be chosen at random, by exactly one of the two: more need not be in memory."""

    generator: torch.Generator
    """for the keys: one number an item"""
    per_class: int | None = None
    total: int | Callable[[dict[str, Tensor]], int] | None = None
    """of all classes, in even shares; or a function of the first batch of inputs, where an item's size decides"""


def join_batches(batches: Iterable[Samples]) -> Samples:
    """Join all items."""
    columns, labels, strata, n = defaultdict[str, list[Tensor]](list), list[Tensor | None](), list[Tensor | None](), 0
    for batch in batches:
        for name, x in batch.inputs.items():
            columns[name].append(x)
        labels.append(batch.labels)
        strata.append(batch.strata)
        n += len(batch)
    # Popped, so that one column at a time is there twice, not all.
    inputs = {name: torch.cat(columns.pop(name)) for name in list(columns)}
    return Samples(inputs, join_columns(labels), torch.arange(n), join_columns(strata))


def fill_reservoir(batches: Iterable[Samples], limit: Limit, predict: Predict | None) -> Samples:
    """Join the items with the smallest keys of each class or stratum."""
    heaps = defaultdict[int, list[tuple[float, int, int, dict[str, Tensor]]]](list)
    counts, total, most = Counter[int](), limit.total, limit.per_class
    labelled = stratified = False
    for batch in batches:
        total = max(1, total(batch.inputs)) if callable(total) else total
        most = total if most is None else most
        assert most is not None, "Limit has neither per_class nor total"
        labelled, stratified = batch.labels is not None, batch.strata is not None
        labels = [UNKNOWN] * len(batch) if batch.labels is None else batch.labels.tolist()
        strata = labels if batch.strata is None else batch.strata.tolist()
        if not labelled and predict is not None:
            strata = predict(batch.inputs).tolist()
        keys = torch.rand(len(batch), dtype=torch.float64, generator=limit.generator).tolist()
        for i, (stratum, label, source, key) in enumerate(zip(strata, labels, batch.sources.tolist(), keys)):
            heap = heaps[stratum]  # Python's heaps have the smallest first: the largest key is to be there
            if len(heap) < most or -key > heap[0][0]:
                heapq.heappush(heap, (-key, source, label, {name: x[i].clone() for name, x in batch.inputs.items()}))
                if len(heap) > most:
                    heapq.heappop(heap)
        counts.update(strata)
        if total is not None and counts.total() > total:
            # The largest share. It only falls while items come, so that what was left out is never missed.
            most = max(share_evenly(total, list(counts.values())))
            for heap in heaps.values():
                while len(heap) > most:
                    heapq.heappop(heap)
    kept = sorted((source, label, stratum, row) for stratum, heap in heaps.items() for _, source, label, row in heap)
    sources, labels, strata, rows = zip(*kept)
    inputs = {name: torch.stack([row.pop(name) for row in rows]) for name in list(rows[0])}
    return Samples(
        inputs,
        torch.tensor(labels) if labelled else None,
        torch.tensor(sources),
        torch.tensor(strata) if stratified else None,
    )


def join_columns(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Join a column's parts; None where they are."""
    there = [part for part in parts if part is not None]
    return torch.cat(there) if there else None
