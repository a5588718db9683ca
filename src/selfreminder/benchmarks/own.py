"""Your own data, cut into tasks by a column, by time, by class or by folder."""

import json

import torch
from torch import Tensor

from selfreminder._base.errors import DataError, SelfReminderError
from selfreminder.benchmarks import Benchmark, Scale
from selfreminder.benchmarks.stream import Parts, Split, Stream, StreamSpec, Task, split_last, split_stratified
from selfreminder.data.mapped import MappedRows, take_rows
from selfreminder.data.own.pieces import Pieces, read_pieces
from selfreminder.data.own.reading import Reading

BENCHMARK = Benchmark(
    model="auto",
    methods=("adam", "ewc", "fsr-logit"),
    scales={
        "demo": Scale(
            data="", tasks=1, epochs=10, width=1.0, seeds=3, per_class=10, batch_size=32, optimizer="adam", lr=1e-3
        )
    },
    own_data=True,
    parts_of_data=True,
    has_times=True,
)


def make_stream(spec: StreamSpec) -> Stream:
    """Make the stream of a spec: the first tasks of the data, in its scenario."""
    pieces = read_pieces(spec.data, spec.reading)
    if spec.tasks > len(pieces.rows):
        raise SelfReminderError(f"tasks is {spec.tasks}: {spec.data} has {len(pieces.rows)}")
    if spec.images is not None:
        raise SelfReminderError("images is for the built-in data: take fewer items of your own before they are given")
    reading = Reading.of(json.loads(spec.reading or "{}"))
    return arrange_pieces(
        pieces,
        spec.scenario or "domain",
        tasks=spec.tasks,
        test=reading.test,
        validation=spec.validation,
        seed=spec.seed,
        test_after=spec.test_after,
    )


def arrange_pieces(
    pieces: Pieces,
    scenario: str,
    *,
    tasks: int,
    test: float = 0.2,
    validation: float = 0.1,
    seed: int = 0,
    test_after: bool = False,
) -> Stream:
    """Make a stream of the first pieces. Test parts are the same for every seed, validation parts are not.

    A test part is drawn from its task; with `test_after` it is what came last.
    """
    if test_after and pieces.times is None:
        raise SelfReminderError("--test-after needs times: a column of dates, or --by parts:5 for data in order")
    chosen = list(pieces.rows.items())[:tasks]
    present = [pieces.y[rows].unique() for _, rows in chosen]
    everything = torch.cat(present).unique()
    for (name, _), classes in zip(chosen, present):
        if scenario == "domain" and len(classes) < len(everything):
            lacking = pieces.classes[int(everything[~torch.isin(everything, classes)][0])]
            raise DataError(
                f"task '{name}' has no '{lacking}': tasks of a domain have the same classes; choose --scenario class"
            )
        if scenario == "task" and len(classes) < 2:
            raise DataError(f"task '{name}' has one class: with a head of its own there is nothing to tell it from")
    seen: list[int] = []
    for classes in present:  # numbered as they come, so that those so far are the first
        seen += [label for label in classes.tolist() if label not in seen]
    number = torch.full((len(pieces.classes),), -1)
    number[torch.tensor(seen)] = torch.arange(len(seen))
    if scenario == "domain":
        number[everything] = torch.arange(len(everything))
    so_far = [int(number[torch.cat(present[: index + 1])].max()) + 1 for index in range(len(chosen))]

    # Of what is in a file, rows are made numbers when they are read: the task has nothing left to do.
    x = pieces.x.decoded(_to_float) if isinstance(pieces.x, MappedRows) else pieces.x

    def make(index: int) -> Task:
        name, rows = chosen[index]
        own = present[index]
        labels = torch.searchsorted(own, pieces.y[rows]) if scenario == "task" else number[pieces.y[rows]]
        if test_after and pieces.times is not None:
            in_time = pieces.times[rows].argsort(stable=True)
            rest, tested = (in_time[at] for at in split_last(len(rows), test))
        else:
            rest, tested = split_stratified(labels, test, torch.Generator().manual_seed(index))
        kept, held = split_stratified(labels[rest], validation, torch.Generator().manual_seed(seed * 10_007 + index))
        parts = [Split(take_rows(x, rows[at]), labels[at]) for at in (rest[kept], rest[held], tested)]
        for what, part in zip(("training", "validation", "test"), parts):
            lost = set(labels.tolist()) - set(part.y.tolist())
            if lost:
                label = own[min(lost)] if scenario == "task" else (number == min(lost)).nonzero()[0]
                which = pieces.classes[int(label)]
                if test_after and what == "test":
                    raise DataError(
                        f"what comes last in task '{name}', its test part, has no '{which}': cut into longer tasks, "
                        "or leave out --test-after"
                    )
                raise DataError(f"task '{name}' has too few of '{which}' for a {what} part: three are the least")
        count = len(own) if scenario == "task" else len(seen)
        if scenario == "class":
            count = so_far[index] - (so_far[index - 1] if index else 0)
        return Task(
            index,
            name,
            count,
            Parts(*parts),
            _to_float,
            head=index if scenario == "task" else None,
            outputs=so_far[index] if scenario == "class" else None,
        )

    heads = tuple(map(len, present)) if scenario == "task" else (len(seen),)
    return Stream(heads, make, length=len(chosen))


def _to_float(x: Tensor) -> Tensor:
    if x.dtype == torch.uint8:
        return x.float().div_(255)
    return x if x.dtype == torch.int64 else x.float()
