"""MNIST, Fashion-MNIST, CIFAR10 and CIFAR100, one after the other, a head each: very unlike tasks."""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks import HEAD_PER_TASK_METHODS, Benchmark, HatScale
from selfreminder.benchmarks.stream import Parts, Stream, StreamSpec, Task

_DEMO = "embedded-mnist+generated-10+generated-100"
_FourSets = partial(HatScale, data="mnist+fashion-mnist+cifar10+cifar100", tasks=4)

BENCHMARK = Benchmark(
    model="cifar100-alexnet",
    methods=HEAD_PER_TASK_METHODS,
    head_per_task=True,
    parts_of_data=True,
    compares_with_reference=True,
    scales={
        "demo": HatScale(data=_DEMO, images=300, tasks=3, epochs=2, width=1 / 16, seeds=1, per_class=2),
        "small": _FourSets(images=5_000, epochs=10, width=0.5, seeds=3, per_class=20, batch_size=16),
        "medium": _FourSets(images=20_000, epochs=20, width=1.0, seeds=3, per_class=40),
        "paper": _FourSets(epochs=200, width=1.0, seeds=5, per_class=40),
    },
)


def make_stream(spec: StreamSpec) -> Stream:
    """Make the stream of a spec: one task of each of its first data sets."""
    names = spec.data.split("+")
    if spec.tasks > len(names):
        raise SelfReminderError(f"{spec.tasks} tasks were asked for, there are {len(names)} data sets")
    return mix_data_sets([(name, *spec.load_parts(name)) for name in names[: spec.tasks]], seed=spec.seed)


def mix_data_sets(sets: Sequence[tuple[str, Parts, int]], *, seed: int) -> Stream:
    """Make a stream in which each task is a data set, in an order that the seed draws, with a head of its own.

    All images become 32×32 RGB: grey ones are padded by two pixels and repeated in each colour.

    Args:
        sets: of each data set its name, its parts and its number of classes.
        seed: draws the order.
    """
    order = torch.randperm(len(sets), generator=torch.Generator().manual_seed(seed_for(seed, "order of sets")))
    ordered = [sets[i] for i in order.tolist()]

    def make(index: int) -> Task:
        name, parts, classes = ordered[index]
        return Task(index, name, classes, parts, _to_rgb, head=index)

    return Stream([classes for _, _, classes in ordered], make)


def _to_rgb(x: Tensor) -> Tensor:
    return x if x.ndim == 4 else F.pad(x, (2, 2, 2, 2))[:, None].expand(-1, 3, -1, -1).contiguous()
