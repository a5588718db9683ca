"""Scenarios: what a model is told of the task of an item, and which classes it chooses from.

A benchmark makes tasks in one of them; `arrange` makes the same tasks in another. See `SCENARIOS` for what they are.
"""

from dataclasses import replace
from itertools import accumulate

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder.benchmarks import SCENARIOS
from selfreminder.benchmarks.stream import Split, Stream, Task


def arrange(stream: Stream, scenario: str) -> Stream:
    """Give the tasks of a stream, each with its own classes from 0 on, in a scenario.

    >>> import torch
    >>> from selfreminder.benchmarks.stream import Parts
    >>> part = Split(torch.rand(4, 2), torch.tensor([0, 1, 0, 1]))
    >>> stream = Stream((2,), lambda index: Task(index, "", 2, Parts(part, part, part)), length=3)
    >>> second = arrange(stream, "class")[1]
    >>> second.train.y, second.outputs, arrange(stream, "task").heads
    (tensor([2, 3, 2, 3]), 4, (2, 2, 2))
    """
    if scenario not in SCENARIOS:
        raise unknown("scenario", scenario, SCENARIOS)
    classes = stream.heads if len(stream.heads) > 1 else stream.heads * len(stream)
    if scenario == "domain" and len(set(classes)) > 1:
        raise SelfReminderError(f"tasks of {_join(classes)} classes do not share one output: choose task or class")
    # What comes one after the other in a stream are new classes only where the benchmark's tasks have classes each.
    same = scenario == "domain" or (scenario == "stream" and len(stream.heads) == 1)
    before = [0, *accumulate(classes)]
    heads = classes if scenario == "task" else classes[:1] if same else (before[-1],)

    def make(index: int) -> Task:
        task = replace(stream[index], head=index if scenario == "task" else None, outputs=None)
        if scenario == "task" or same:
            return task
        parts = task.parts.each(lambda part: Split(part.x, part.y + before[index]))
        # Where nobody says that a task begins, nobody can say that classes are added.
        return replace(task, parts=parts, outputs=before[index + 1] if scenario == "class" else None)

    return Stream(heads, make, length=len(stream))


def _join(classes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sorted(set(classes))))
