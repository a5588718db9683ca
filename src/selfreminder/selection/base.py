"""What a selection is given, and how its answer becomes a choice.

A selection ranks candidates, best first. `choose` then takes them class by class in turn, so that any leading part
of what it returns is balanced within one item: a memory that must shrink keeps the front.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import share_evenly
from selfreminder.gradients.per_sample import Inputs, LogitFunction


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidates:
    """What a selection may look at: a task's items, and the model that has just learned them.

    All tensors of one row an item are in the same order; `labels` and what a selection returns are on the CPU. A
    selection of your own, `remember(select=…)`, gets one of these and ranks its items:

    >>> def darkest(candidates: Candidates) -> Tensor:
    ...     return candidates.inputs.flatten(1).sum(1).argsort()
    """

    inputs: Inputs
    """on any device"""
    labels: Tensor
    """(n,) classes; the model's predictions where the true ones are not known"""
    count: int
    """the most that will be kept of a class: later ranks do not matter, and may be left out"""
    generator: torch.Generator
    """for all random choice"""
    model: nn.Module
    logits_of: LogitFunction
    """logits (n, K) of a batch of inputs: knows transform, head and device"""
    validation: tuple[Inputs, Tensor] | None = None
    """inputs and labels that the model was not trained on"""
    gradients: Tensor | None = None
    """(n,) mean gradient norms early in training, if anybody took them"""

    def __len__(self) -> int:
        return len(self.labels)

    def classes(self) -> list[Tensor]:
        """The indices of each class's items."""
        return [(self.labels == label).nonzero().flatten() for label in torch.unique(self.labels)]


Selection = Callable[[Candidates], Tensor]
"""candidates -> their indices, best first: of each class at least `count`, or all"""


def count_per_class(labels: Tensor, *, per_class: int | None = None, total: int | None = None) -> dict[int, int]:
    """How many of each class to keep: `per_class`, or `total` shared evenly; a small class gives all it has.

    >>> count_per_class(torch.tensor([7, 7, 7, 7, 8, 8]), total=5)
    {7: 3, 8: 2}
    """
    classes, counts = torch.unique(labels, return_counts=True)
    sizes: list[int] = counts.tolist()
    if per_class is not None:
        if per_class > max(sizes, default=0):
            raise SelfReminderError(
                f"a memory of {per_class} per class is larger than the data: "
                f"the largest class has {max(sizes, default=0)} items; ask for at most as many per class"
            )
        of_class = [min(per_class, size) for size in sizes]
    else:
        assert total is not None
        if total > len(labels):
            raise SelfReminderError(f"a memory of {total} items is larger than the data: {len(labels)} items")
        of_class = share_evenly(total, sizes)
    return dict(zip(classes.tolist(), of_class))


def choose(ranked: Tensor, labels: Tensor, wanted: Mapping[int, int]) -> Tensor:
    """The best ranked of each class, as many as wanted, one class after the other in turn.

    >>> choose(torch.tensor([0, 1, 2, 3, 4, 5]), torch.tensor([7, 7, 7, 7, 8, 8]), {7: 2, 8: 2})
    tensor([0, 4, 1, 5])
    """
    if ranked.ndim != 1 or ranked.is_floating_point() or len(ranked.unique()) != len(ranked):
        raise SelfReminderError("a selection gives the indices of candidates, best first, none of them twice")
    if len(ranked) and not (ranked.min() >= 0 and ranked.max() < len(labels)):
        raise SelfReminderError(f"the selection gave an index that is none of the {len(labels)} candidates'")
    ranked_labels = labels[ranked]
    chosen, turns = [], []
    for label, share in wanted.items():
        best = ranked[ranked_labels == label][:share]
        if len(best) < share:
            raise SelfReminderError(f"the selection gave {len(best)} items of class {label}, {share} are to be kept")
        chosen.append(best)
        turns.append(torch.arange(share))
    # Stable: the first of every class, in the order of the classes, then the second of every class.
    return torch.cat(chosen)[torch.argsort(torch.cat(turns), stable=True)]
