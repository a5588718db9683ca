"""The benchmarks and the scales at which they are run. Nothing here needs torch."""

from dataclasses import dataclass

from selfreminder._base.errors import unknown


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large a benchmark is run."""

    data: str
    """a data set, or several with + between them"""
    images: int | None
    """class-balanced training images, of each data set; None: all"""
    tasks: int
    epochs: int
    width: float
    seeds: int
    per_class: int
    methods: tuple[str, ...] = ()
    """compared unless others are named; none: the benchmark's"""
    batch_size: int = 128
    optimizer: str | None = None
    lr: float | None = None
    plateau: bool = False


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark at its scales, and the methods that are compared on it unless others are named."""

    summary: str
    model: str
    methods: tuple[str, ...]
    scales: dict[str, Scale]
    upper_bound: bool = False
    """run `joint` too, for ρ"""
    is_split: bool = False
    """tasks are classes of one data set: fewer tasks are the first ones, not other ones"""


SCALES = {
    "demo": "minutes, on data that comes with selfreminder",
    "small": "minutes a run, on real data",
    "medium": "a core-hour or so a run",
    "paper": "the paper's own, hours a run",
}

_FIGURE = ("sgd", "adam", "lwf", "ewc", "icarl", "fsr-distill", "fsr-logit")
_IN_DEMO = ("sgd", "adam", "ewc", "fsr-logit")
_GENERATED = "generated-10"


def _binary(**scale: object) -> Scale:
    """Five tasks of two classes, with few images each."""
    return Scale(tasks=5, batch_size=64, **scale)  # pyright: ignore[reportArgumentType]


def _hat(batch_size: int = 64, **scale: object) -> Scale:
    """A scale with HAT's protocol."""
    return Scale(batch_size=batch_size, optimizer="sgd", lr=0.05, plateau=True, **scale)  # pyright: ignore[reportArgumentType]


BENCHMARKS = {
    "permuted-mnist": Benchmark(
        summary="MNIST with its pixels in another fixed random order in every task",
        model="mnist-mlp",
        methods=_FIGURE,
        scales={
            "demo": Scale(
                data="embedded-mnist",
                images=None,
                tasks=10,
                epochs=5,
                width=0.25,
                seeds=3,
                per_class=10,
                methods=_IN_DEMO,
            ),
            "small": Scale(data="mnist", images=10_000, tasks=10, epochs=5, width=0.25, seeds=3, per_class=50),
            "medium": Scale(data="mnist", images=None, tasks=20, epochs=2, width=1.0, seeds=3, per_class=50),
            "paper": Scale(data="mnist", images=None, tasks=20, epochs=20, width=1.0, seeds=5, per_class=50),
        },
    ),
    "nonlinear-mnist": Benchmark(
        summary="MNIST through another random invertible network in every task: tasks that are less alike",
        model="mnist-mlp",
        methods=_FIGURE,
        scales={
            "demo": Scale(
                data="embedded-mnist",
                images=None,
                tasks=5,
                epochs=5,
                width=0.25,
                seeds=3,
                per_class=10,
                methods=_IN_DEMO,
            ),
            "small": Scale(data="mnist", images=10_000, tasks=6, epochs=20, width=0.25, seeds=3, per_class=50),
            "medium": Scale(data="mnist", images=None, tasks=10, epochs=4, width=1.0, seeds=3, per_class=50),
            "paper": Scale(data="mnist", images=None, tasks=10, epochs=60, width=1.0, seeds=5, per_class=50),
        },
    ),
    "color-cifar10": Benchmark(
        summary="CIFAR10 in RGB, YIQ, YUV, HSV and HED",
        model="cifar10-vgg",
        methods=_FIGURE,
        scales={
            "demo": Scale(data=_GENERATED, images=None, tasks=5, epochs=2, width=1 / 16, seeds=1, per_class=5),
            # Batches of 128 are 180 steps a task, too few for plain SGD to learn it; four times as many cost the same.
            "small": Scale(
                data="cifar10", images=5_000, tasks=5, epochs=5, width=1 / 8, seeds=3, per_class=30, batch_size=32
            ),
            "medium": Scale(data="cifar10", images=20_000, tasks=5, epochs=10, width=1 / 4, seeds=3, per_class=120),
            "paper": Scale(data="cifar10", images=None, tasks=5, epochs=40, width=1.0, seeds=5, per_class=300),
        },
    ),
    "split-cifar100": Benchmark(
        summary="CIFAR100 in ten tasks of ten classes, a head each",
        model="cifar100-alexnet",
        methods=("sgd", "ewc", "hat", "fsr-logit", "fsr-logitlab"),
        upper_bound=True,
        is_split=True,
        scales={
            "demo": _hat(data="generated-100", images=None, tasks=10, epochs=2, width=1 / 16, seeds=1, per_class=2),
            # Batches of 64 are 35 steps an epoch, too few for HAT to learn a task.
            "small": _hat(
                batch_size=16, epochs=10, width=0.5, seeds=3, data="cifar100", images=25_000, tasks=10, per_class=40
            ),
            "medium": _hat(data="cifar100", images=None, tasks=10, epochs=20, width=1.0, seeds=3, per_class=40),
            "paper": _hat(data="cifar100", images=None, tasks=10, epochs=200, width=1.0, seeds=5, per_class=40),
        },
    ),
    "split-cifar10": Benchmark(
        summary="CIFAR10 in five tasks of two classes, a head each",
        model="cifar100-alexnet",
        methods=("sgd", "ewc", "hat", "fsr-logit", "fsr-logitlab"),
        upper_bound=True,
        is_split=True,
        scales={
            "demo": _hat(data=_GENERATED, images=None, tasks=5, epochs=2, width=1 / 16, seeds=1, per_class=5),
            "small": _hat(
                batch_size=16, epochs=10, width=0.5, seeds=3, data="cifar10", images=5_000, tasks=5, per_class=40
            ),
            "medium": _hat(data="cifar10", images=20_000, tasks=5, epochs=20, width=1.0, seeds=3, per_class=40),
            "paper": _hat(data="cifar10", images=None, tasks=5, epochs=200, width=1.0, seeds=5, per_class=40),
        },
    ),
    "split-mnist": Benchmark(
        summary="MNIST in five tasks of two digits, a head each",
        model="mnist-mlp",
        methods=("sgd", "adam", "ewc", "hat", "fsr-logit", "fsr-logitlab"),
        upper_bound=True,
        is_split=True,
        scales={
            "demo": _binary(data="embedded-mnist", images=None, epochs=20, width=0.25, seeds=3, per_class=10),
            "small": _binary(data="mnist", images=10_000, epochs=20, width=0.25, seeds=3, per_class=50),
            "medium": _binary(data="mnist", images=None, epochs=4, width=1.0, seeds=3, per_class=50),
            "paper": _binary(data="mnist", images=None, epochs=20, width=1.0, seeds=5, per_class=50),
        },
    ),
    "mixture": Benchmark(
        summary="MNIST, Fashion-MNIST, CIFAR10 and CIFAR100, one after the other, a head each: very unlike tasks",
        model="cifar100-alexnet",
        methods=("sgd", "ewc", "hat", "fsr-logit", "fsr-logitlab"),
        upper_bound=True,
        scales={
            "demo": _hat(
                data=f"embedded-mnist+{_GENERATED}+generated-100",
                images=300,
                tasks=3,
                epochs=2,
                width=1 / 16,
                seeds=1,
                per_class=2,
            ),
            "small": _hat(
                batch_size=16,
                epochs=10,
                width=0.5,
                seeds=3,
                data="mnist+fashion-mnist+cifar10+cifar100",
                images=5_000,
                tasks=4,
                per_class=20,
            ),
            "medium": _hat(
                data="mnist+fashion-mnist+cifar10+cifar100",
                images=20_000,
                tasks=4,
                epochs=20,
                width=1.0,
                seeds=3,
                per_class=40,
            ),
            "paper": _hat(
                data="mnist+fashion-mnist+cifar10+cifar100",
                images=None,
                tasks=4,
                epochs=200,
                width=1.0,
                seeds=5,
                per_class=40,
            ),
        },
    ),
}


def benchmark(name: str) -> Benchmark:
    """The benchmark of that name."""
    if name not in BENCHMARKS:
        raise unknown("benchmark", name, BENCHMARKS)
    return BENCHMARKS[name]
