"""Which items of a memory stay within a number of bytes, and in which order they are given up."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from selfreminder._base.sizes import share_evenly


def rows_within(budget: int, before: Tensor, counts: Sequence[int]) -> list[tuple[int, int]]:
    """The first rows of each task, as start and end, that are even over tasks and have at most `budget` bytes.

    Args:
        before: (n + 1,) bytes of the items before each place.
        counts: items of each task.

    >>> rows_within(50, torch.arange(9) * 10, [6, 2])
    [(0, 3), (6, 8)]
    """
    starts = list(accumulate(counts, initial=0))

    def rows(items: int) -> list[tuple[int, int]]:
        return [(start, start + share) for start, share in zip(starts, share_evenly(items, counts))]

    def size(items: int) -> int:
        return sum(int(before[end] - before[start]) for start, end in rows(items))

    return rows(max(bisect_right(range(len(before)), budget, key=size) - 1, 0))


def interleaved(labels: Tensor, older: int) -> Tensor:
    """(n,) an order in which items from `older` on rank among those before them.

    The first of every class come first, older before newer, then the second of every class.

    >>> interleaved(torch.tensor([0, 0, 1, 0, 1]), older=3).tolist()
    [0, 2, 3, 4, 1]
    """
    turns, seen = [], Counter[tuple[bool, int]]()
    for place, label in enumerate(labels.tolist()):
        turns.append(seen[place >= older, label])
        seen[place >= older, label] += 1
    return torch.argsort(torch.tensor(turns), stable=True)
