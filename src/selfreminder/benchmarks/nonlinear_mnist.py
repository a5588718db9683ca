"""MNIST through another random invertible network in every task: tasks that are less alike.

Each network has four layers of orthogonal weights without bias, each followed by a leaky ReLU of slope 0.2.
"""

from collections.abc import Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks import ONE_HEAD_DEMO, ONE_HEAD_METHODS, Benchmark, Scale
from selfreminder.benchmarks.stream import Parts, Stream, StreamSpec, Task

BENCHMARK = Benchmark(
    model="mnist-mlp",
    methods=ONE_HEAD_METHODS,
    scales={
        "demo": Scale(
            data="embedded-mnist", tasks=5, epochs=5, width=0.25, seeds=3, per_class=10, methods=ONE_HEAD_DEMO
        ),
        "small": Scale(data="mnist", images=10_000, tasks=6, epochs=20, width=0.25, seeds=3, per_class=50),
        "medium": Scale(data="mnist", tasks=10, epochs=4, width=1.0, seeds=3, per_class=50),
        "paper": Scale(data="mnist", tasks=10, epochs=60, width=1.0, seeds=5, per_class=50),
    },
)

LAYERS = 4
SLOPE = 0.2


def make_stream(spec: StreamSpec) -> Stream:
    """Make the stream of a spec: rows of pixels, distorted by another network in each task."""
    parts, classes = spec.load_parts()
    return distort_pixels(parts.flatten(), tasks=spec.tasks, seed=spec.seed, classes=classes)


def distort_pixels(parts: Parts, *, tasks: int, seed: int, classes: int = 10) -> Stream:
    """Make a stream in which each task sends all images through a random network, then scales them to [0, 1].

    One minimum and one maximum over the task's training images scale all of its images, so that the transform stays
    invertible; test images may leave [0, 1] a little.
    """
    scales: dict[int, tuple[Tensor, Tensor]] = {}
    """by task: its images go through the network once for that, however often the task is made"""

    def make(index: int) -> Task:
        @cache
        def weights() -> list[Tensor]:
            generator = torch.Generator().manual_seed(seed_for(seed, "transformer", index))
            return orthogonal_weights(parts.train.x.shape[1], layers=LAYERS, generator=generator)

        def transform(x: Tensor) -> Tensor:
            if index not in scales:
                scales[index] = apply_layers(parts.train.x, weights()).aminmax()
            low, high = scales[index]
            return (apply_layers(x, weights()) - low) / (high - low)

        return Task(index, f"network {index + 1}", classes, parts, transform)

    return Stream((classes,), make, length=tasks)


def orthogonal_weights(units: int, *, layers: int, generator: torch.Generator) -> list[Tensor]:
    """Draw orthogonal matrices (units, units), uniform by Haar's measure."""
    weights = []
    for _ in range(layers):
        q, r = torch.linalg.qr(torch.randn(units, units, generator=generator, dtype=torch.float64))
        weights.append((q * r.diagonal().sign()).float())
    return weights


def apply_layers(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Send x (n, units) through the layers of a network."""
    for weight in weights:
        x = F.leaky_relu(x @ weight.T, SLOPE)
    return x
