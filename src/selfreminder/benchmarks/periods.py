"""Streams of tasks that are periods of time, one after the other: the drift in them is nobody's making."""

from collections.abc import Sequence

import torch
from torch import Tensor

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks.stream import Parts, Split, Stream, StreamSpec, Task, split_last, split_stratified

TEST_SHARE = 0.2
"""of a period's items"""


def split_periods(x: Tensor, y: Tensor, cuts: Sequence[int], names: Sequence[str], spec: StreamSpec) -> Stream:
    """Make a stream in which each task is a period: its items, of which the seed draws a test and a validation part.

    With `test_after` the last items are the test part instead, the same for every seed.

    The classes' shares stay as they are: that they change is a part of the drift.

    Args:
        x: inputs (n, …) in the order of their times.
        y: classes (n,).
        cuts: where each period begins, and where the last one ends.
        names: of the periods.
        spec: how many are learned, the seed, and how many `images` of all periods to train on.
    """
    if spec.tasks > len(names):
        raise SelfReminderError(f"{spec.tasks} tasks were asked for, there are {len(names)} periods")
    classes, most = int(y.max()) + 1, None if spec.images is None else spec.images // len(names)

    def make(index: int) -> Task:
        own = torch.arange(cuts[index], cuts[index + 1])
        generator = torch.Generator().manual_seed(seed_for(spec.seed, "period", index))
        cut = split_last(len(own), TEST_SHARE) if spec.test_after else split_stratified(y[own], TEST_SHARE, generator)
        rest, test = (own[rows] for rows in cut)
        if most is not None and most < len(rest):
            rest = rest[split_stratified(y[rest], most / len(rest), generator)[1]]
        train, validation = (rest[rows] for rows in split_stratified(y[rest], spec.validation, generator))
        for rows, part in ((train, "training"), (validation, "validation"), (test, "test")):
            # What comes last may be of one class: to meet nothing else for a while is a part of the drift.
            if len(y[rows].unique()) < classes and not (spec.test_after and part == "test"):
                raise SelfReminderError(f"the {part} part of {names[index]} lacks a class: take more items")
        return Task(
            index, names[index], classes, Parts(*(Split(x[rows], y[rows]) for rows in (train, validation, test)))
        )

    return Stream((classes,), make, length=spec.tasks)
