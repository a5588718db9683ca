"""CIFAR100 in ten tasks of ten classes, a head each."""

from selfreminder.benchmarks import HatScale, SplitBenchmark
from selfreminder.benchmarks.stream import make_split_stream

BENCHMARK = SplitBenchmark(
    model="cifar100-alexnet",
    scales={
        "demo": HatScale(data="generated-100", tasks=10, epochs=2, width=1 / 16, seeds=1, per_class=2),
        # Batches of 64 are 35 steps an epoch, too few for HAT to learn a task.
        "small": HatScale(
            data="cifar100", images=25_000, tasks=10, epochs=10, width=0.5, seeds=3, per_class=40, batch_size=16
        ),
        "medium": HatScale(data="cifar100", tasks=10, epochs=20, width=1.0, seeds=3, per_class=40),
        "paper": HatScale(data="cifar100", tasks=10, epochs=200, width=1.0, seeds=5, per_class=40),
    },
)

make_stream = make_split_stream
