"""MNIST in five tasks of two digits, a head each."""

from functools import partial

from selfreminder.benchmarks import HEAD_PER_TASK_METHODS, Scale, SplitBenchmark
from selfreminder.benchmarks.stream import make_split_stream

_TwoDigits = partial(Scale, tasks=5, batch_size=64)  # a task has a fifth of the images

BENCHMARK = SplitBenchmark(
    model="mnist-mlp",
    methods=("sgd", "adam", *HEAD_PER_TASK_METHODS[1:]),
    scales={
        "demo": _TwoDigits(data="embedded-mnist", epochs=20, width=0.25, seeds=3, per_class=10),
        "small": _TwoDigits(data="mnist", images=10_000, epochs=20, width=0.25, seeds=3, per_class=50),
        "medium": _TwoDigits(data="mnist", epochs=4, width=1.0, seeds=3, per_class=50),
        "paper": _TwoDigits(data="mnist", epochs=20, width=1.0, seeds=5, per_class=50),
    },
)

make_stream = make_split_stream
