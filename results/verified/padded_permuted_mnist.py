"""MNIST padded to 32 × 32 before its pixels are permuted, as in GMvandeVen/continual-learning.

Tasks share fewer pixels that are ever lit than without the padding: 240 of 1,024 are always 0, each time others.
"""

import torch.nn.functional as F

from selfreminder.benchmarks import Benchmark, Scale, Split, Stream, StreamSpec
from selfreminder.benchmarks.permuted_mnist import permute_pixels

BENCHMARK = Benchmark(
    model="mlp:1000x2",
    methods=("adam", "si", "ewc"),
    scales={"paper": Scale(data="mnist", tasks=10, epochs=11, width=1.0, seeds=3, per_class=1)},
)


def make_stream(spec: StreamSpec) -> Stream:
    parts, classes = spec.load_parts()
    padded = parts.each(lambda part: Split(F.pad(part.x, (2, 2, 2, 2)), part.y)).flatten()
    return permute_pixels(padded, tasks=spec.tasks, seed=spec.seed, classes=classes)
