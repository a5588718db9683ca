"""MNIST with its pixels in another fixed random order in every task."""

import torch

from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks import ONE_HEAD_DEMO, ONE_HEAD_METHODS, Benchmark, Scale
from selfreminder.benchmarks.stream import Parts, Stream, StreamSpec, Task

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
    """Make the stream of a spec: rows of pixels, permuted anew in each task."""
    parts, classes = spec.load_parts()
    return permute_pixels(parts.flatten(), tasks=spec.tasks, seed=spec.seed, classes=classes)


def permute_pixels(parts: Parts, *, tasks: int, seed: int, classes: int = 10) -> Stream:
    """Make a stream in which each task has all images (n, pixels), their pixels in one fixed random order."""

    def make(index: int) -> Task:
        order = permutation(parts.train.x.shape[1], seed=seed, index=index)
        return Task(index, f"permutation {index + 1}", classes, parts, lambda x: x.index_select(1, order))

    return Stream((classes,), make, length=tasks)


def permutation(pixels: int, *, seed: int, index: int) -> torch.Tensor:
    """Draw the order of a task's pixels."""
    generator = torch.Generator().manual_seed(seed_for(seed, "permutation", index))
    return torch.randperm(pixels, generator=generator)
