"""Which examples to keep. All selections are stratified by class.

A selection ranks the candidates, best first. `choose` then takes them class by class in turn, so that any
leading part of what it returns is balanced within one item: a memory that must shrink keeps the front.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from selfreminder.errors import SelfReminderError, unknown
from selfreminder.sizes import share_evenly

Ranking = Callable[[Tensor, torch.Generator], Tensor]
"""(labels, generator) -> all indices, best first"""


def random(labels: Tensor, generator: torch.Generator) -> Tensor:
    """A class-stratified random choice: simple, and hard to beat."""
    return torch.randperm(len(labels), generator=generator)


SELECTIONS: dict[str, Ranking] = {"random": random}


def ranking(name: str) -> Ranking:
    """The selection of that name."""
    if name not in SELECTIONS:
        raise unknown("selection", name, SELECTIONS)
    return SELECTIONS[name]


def choose(ranked: Tensor, labels: Tensor, *, per_class: int | None = None, total: int | None = None) -> Tensor:
    """The first `per_class` of each class, or `total` shared evenly over classes, one class after the other.

    A class with fewer items gives all it has.

    >>> choose(torch.tensor([0, 1, 2, 3, 4, 5]), torch.tensor([7, 7, 7, 7, 8, 8]), total=4)
    tensor([0, 4, 1, 5])
    """
    ranked_labels = labels[ranked]
    classes, counts = torch.unique(labels, return_counts=True)
    sizes: list[int] = counts.tolist()
    if per_class is not None:
        if per_class > max(sizes, default=0):
            raise SelfReminderError(
                f"a memory of {per_class} per class is larger than the data: "
                f"the largest class has {max(sizes, default=0)} items"
            )
        shares = [min(per_class, size) for size in sizes]
    else:
        assert total is not None
        if total > len(labels):
            raise SelfReminderError(f"a memory of {total} items is larger than the data: {len(labels)} items")
        shares = share_evenly(total, sizes)
    chosen, turns = [], []
    for label, share in zip(classes, shares):
        chosen.append(ranked[ranked_labels == label][:share])
        turns.append(torch.arange(share))
    # Stable: the first of every class, in the order of the classes, then the second of every class.
    return torch.cat(chosen)[torch.argsort(torch.cat(turns), stable=True)]
