"""CIFAR10 in five tasks of two classes, a head each."""

from selfreminder.benchmarks import HatScale, SplitBenchmark
from selfreminder.benchmarks.stream import make_split_stream

BENCHMARK = SplitBenchmark(
    model="cifar100-alexnet",
    scales={
        "demo": HatScale(data="generated-10", tasks=5, epochs=2, width=1 / 16, seeds=1, per_class=5),
        "small": HatScale(
            data="cifar10", images=5_000, tasks=5, epochs=10, width=0.5, seeds=3, per_class=40, batch_size=16
        ),
        "medium": HatScale(data="cifar10", images=20_000, tasks=5, epochs=20, width=1.0, seeds=3, per_class=40),
        "paper": HatScale(data="cifar10", tasks=5, epochs=200, width=1.0, seeds=5, per_class=40),
    },
)

make_stream = make_split_stream
