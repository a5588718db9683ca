"""MNIST turned by another angle in every task: tasks that are alike, the more so the nearer their angles.

The angles are even steps from 0 towards 180 degrees, in an order that the seed draws.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks import ONE_HEAD_DEMO, ONE_HEAD_METHODS, Benchmark, Scale
from selfreminder.benchmarks.stream import Parts, Stream, StreamSpec, Task

ANGLES = 20
"""there are, 9 degrees apart: the first ones drawn are the tasks"""

BENCHMARK = Benchmark(
    model="mnist-mlp",
    methods=ONE_HEAD_METHODS,
    scales={
        "demo": Scale(
            data="embedded-mnist", tasks=10, epochs=5, width=0.25, seeds=3, per_class=10, methods=ONE_HEAD_DEMO
        ),
        "small": Scale(data="mnist", images=10_000, tasks=10, epochs=5, width=0.25, seeds=3, per_class=50),
        "medium": Scale(data="mnist", tasks=20, epochs=2, width=1.0, seeds=3, per_class=50),
        "paper": Scale(data="mnist", tasks=20, epochs=20, width=1.0, seeds=5, per_class=50),
    },
)


def make_stream(spec: StreamSpec) -> Stream:
    """Make the stream of a spec: images turned, then made rows of pixels."""
    parts, classes = spec.load_parts()
    return rotate_images(parts, tasks=spec.tasks, seed=spec.seed, classes=classes)


def rotate_images(parts: Parts, *, tasks: int, seed: int, classes: int = 10) -> Stream:
    """Make a stream in which each task has all images (n, rows, columns), turned by one angle, as rows of pixels."""
    if tasks > ANGLES:
        raise SelfReminderError(f"{tasks} tasks were asked for, there are {ANGLES} angles")
    order = torch.randperm(ANGLES, generator=torch.Generator().manual_seed(seed_for(seed, "angles"))).tolist()

    def make(index: int) -> Task:
        degrees = order[index] * 180 / ANGLES
        return Task(index, f"{degrees:g} degrees", classes, parts, lambda x: turn(x, degrees).flatten(1))

    return Stream((classes,), make, length=tasks)


def turn(x: Tensor, degrees: float) -> Tensor:
    """Turn images (n, rows, columns) to the left about their middle; what comes from outside is 0.

    >>> turn(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 90).round().tolist()
    [[[2.0, 4.0], [1.0, 3.0]]]
    """
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    matrix = torch.tensor([[cos, -sin, 0.0], [sin, cos, 0.0]])
    grid = F.affine_grid(matrix[None], [1, 1, *x.shape[1:]], align_corners=False)
    # All images are turned alike: as channels of one image, they share the grid.
    return F.grid_sample(x[None], grid, align_corners=False)[0]
