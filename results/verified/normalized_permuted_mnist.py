"""MNIST normalised by its mean and deviation before its pixels are permuted, as Avalanche's PermutedMNIST is."""

from selfreminder.benchmarks import Benchmark, Scale, Split, Stream, StreamSpec
from selfreminder.benchmarks.permuted_mnist import permute_pixels

BENCHMARK = Benchmark(
    model="mlp:256x2",
    methods=("sgd", "agem"),
    scales={"paper": Scale(data="mnist", tasks=17, epochs=1, width=1.0, seeds=3, per_class=25)},
)


def make_stream(spec: StreamSpec) -> Stream:
    parts, classes = spec.load_parts()
    normalized = parts.each(lambda part: Split((part.x - 0.1307) / 0.3081, part.y)).flatten()
    return permute_pixels(normalized, tasks=spec.tasks, seed=spec.seed, classes=classes)
