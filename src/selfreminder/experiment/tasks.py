"""The tasks of an experiment: which stream a benchmark is, and of which data."""

import os
from collections.abc import Callable

from selfreminder import data
from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks import stream
from selfreminder.benchmarks.stream import Parts, Stream
from selfreminder.experiment.spec import Experiment

DataDir = str | os.PathLike[str] | None


_last: list[tuple[object, Stream]] = []
"""methods follow each other with the same seed, and so the same stream"""


def make_stream(experiment: Experiment, data_dir: DataDir = None) -> Stream:
    """The tasks of an experiment."""
    fields = ("benchmark", "data", "images", "tasks", "split_into", "seed", "validation")
    key = (data_dir, *(getattr(experiment, name) for name in fields))
    if not _last or _last[0][0] != key:
        _last[:] = [(key, _STREAMS[experiment.benchmark](experiment, data_dir))]
    return _last[0][1]


def _parts(
    experiment: Experiment, name: str, data_dir: DataDir, make: Callable[..., Parts] = stream.image_parts
) -> tuple[int, Parts]:
    images = data.load(name, data_dir)
    made = make(images, seed=experiment.seed, count=experiment.images, validation=experiment.validation)
    return images.classes, made


def _permuted(experiment: Experiment, data_dir: DataDir) -> Stream:
    classes, parts = _parts(experiment, experiment.data, data_dir, stream.flat_parts)
    return stream.permuted(parts, tasks=experiment.tasks, seed=experiment.seed, classes=classes)


def _nonlinear(experiment: Experiment, data_dir: DataDir) -> Stream:
    classes, parts = _parts(experiment, experiment.data, data_dir, stream.flat_parts)
    return stream.nonlinear(parts, tasks=experiment.tasks, seed=experiment.seed, classes=classes)


def _recoloured(experiment: Experiment, data_dir: DataDir) -> Stream:
    classes, parts = _parts(experiment, experiment.data, data_dir)
    return stream.recoloured(parts, tasks=experiment.tasks, classes=classes)


def _split(experiment: Experiment, data_dir: DataDir) -> Stream:
    classes, parts = _parts(experiment, experiment.data, data_dir)
    into = experiment.split_into or experiment.tasks
    return stream.split(parts, tasks=into, seed=experiment.seed, classes=classes, learned=experiment.tasks)


def _mixture(experiment: Experiment, data_dir: DataDir) -> Stream:
    names = experiment.data_sets
    if experiment.tasks > len(names):
        raise SelfReminderError(f"{experiment.tasks} tasks were asked for, there are {len(names)} data sets")
    sets = [(name, *_parts(experiment, name, data_dir)) for name in names[: experiment.tasks]]
    return stream.mixture(sets, seed=experiment.seed)


_STREAMS: dict[str, Callable[[Experiment, DataDir], Stream]] = {
    "permuted-mnist": _permuted,
    "nonlinear-mnist": _nonlinear,
    "color-cifar10": _recoloured,
    "split-cifar100": _split,
    "split-cifar10": _split,
    "split-mnist": _split,
    "mixture": _mixture,
}
