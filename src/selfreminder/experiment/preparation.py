"""What a run is made of, before its first step: its tasks, its network, its method, and how it is trained."""

import copy
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from selfreminder import methods
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import show_bytes
from selfreminder.benchmarks import make_stream
from selfreminder.benchmarks.augmentation import find_augmentation, try_augmentation
from selfreminder.benchmarks.models import Network
from selfreminder.benchmarks.networks import build_network, compute_features, count_units, freeze_body, wrap_model
from selfreminder.benchmarks.stream import Stream, StreamSpec, Task
from selfreminder.experiment.catalogue import benchmark
from selfreminder.experiment.costs import Passes
from selfreminder.experiment.pool.estimate import measure_free_memory
from selfreminder.experiment.spec import Experiment
from selfreminder.methods.base import Method
from selfreminder.training import Training

_COPIES = 15
"""of a network's parameters, as measured while a state is saved: they are there untrained, with gradients and the
optimizer's two beside them, and three of these several times"""
_MOST_MEMORY = 2**36
"""bytes, where the system does not say how many there are"""
_OF_METHOD = ("strength", "size", "select", "codec", "logit_codec", "over_tasks", "seed")
_OF_TRAINING = ("epochs", "batch_size", "lr", "weight_decay", "momentum", "schedule", "plateau", "seed", "precision")


@dataclass(frozen=True)
class Prepared:
    """All that a run needs. To make it raises what is wrong with an experiment: no method that applies, no room."""

    stream: Stream
    method: Method
    how: Training
    model: nn.Module
    untrained: nn.Module
    """the model as it was"""
    passes: Passes


def prepare(
    experiment: Experiment,
    data_dir: str | os.PathLike[str] | None = None,
    stream: Stream | None = None,
    model: Callable[[], nn.Module] | None = None,
    rank: int = 0,
) -> Prepared:
    """Make what a run needs; `stream` and `model` take the place of the experiment's own.

    Of several processes, `rank` is the number of this one.
    """
    settings = {name: getattr(experiment, name) for name in _OF_METHOD}
    settings["memory_batch"] = experiment.memory_batch or experiment.batch_size
    given = {name: value for name, value in settings.items() if value is not None}
    method = methods.build(experiment.method, given, experiment.options)
    how = Training(
        **{name: getattr(experiment, name) for name in _OF_TRAINING},
        optimizer=experiment.optimizer or method.optimizer,
        device=_choose_device(experiment, rank),
        boundaries=experiment.scenario != "stream",
    )
    stream = stream_of(experiment, data_dir) if stream is None else stream
    if len(stream) != experiment.tasks:
        raise SelfReminderError(f"tasks is {experiment.tasks}: the stream has {len(stream)}")
    network = _build(experiment, stream, model)
    if experiment.freeze:
        stream = stream.each(_give_features(freeze_body(network).to(how.device), how.device))
    if experiment.augment is not None:
        augment = find_augmentation(experiment.augment)
        try_augmentation(experiment.augment, augment, _first_inputs(stream, 2).to(how.device))
        stream = stream.each(lambda task: replace(task, augment=augment))
    passes = Passes(network)  # before the method may copy it
    prepared = method.prepare(network.to(how.device), stream)
    return Prepared(stream, method, how, prepared, copy.deepcopy(prepared), passes)


def stream_of(experiment: Experiment, data_dir: str | os.PathLike[str] | None = None) -> Stream:
    """Make the stream of tasks that an experiment learns."""
    spec = StreamSpec(
        data=experiment.data,
        tasks=experiment.tasks,
        seed=experiment.seed,
        images=experiment.images,
        reading=json.dumps(experiment.reading, sort_keys=True) if experiment.reading else "",
        split_into=experiment.split_into,
        validation=experiment.validation,
        scenario=experiment.scenario,
        hed=experiment.hed,
        test_after=experiment.test_after,
        data_dir=data_dir,
    )
    return make_stream(experiment.benchmark, spec)


def _choose_device(experiment: Experiment, rank: int) -> str:
    """Choose the device of one of several processes: each has a GPU of its own."""
    if experiment.processes == 1 or experiment.device != "cuda":
        return experiment.device
    if (there := torch.cuda.device_count()) < experiment.processes:
        raise SelfReminderError(f"processes is {experiment.processes}: there are {there} GPUs here, one for each")
    return f"cuda:{rank}"


def _build(experiment: Experiment, stream: Stream, make: Callable[[], nn.Module] | None) -> Network:
    inputs = _first_inputs(stream, 1).shape[1:]
    if make is not None:
        return wrap_model(make, stream.heads, inputs, seed=experiment.seed)
    name = experiment.model or benchmark(experiment.benchmark).model
    _check_fits(name, experiment.width, stream.heads, inputs)
    return build_network(name, width=experiment.width, seed=experiment.seed, heads=stream.heads, inputs=inputs)


def _first_inputs(stream: Stream, count: int) -> Tensor:
    task = stream[0]
    return task.transform(task.parts.train.x[:count])


def _check_fits(model: str, width: float, heads: Sequence[int], inputs: Sequence[int]) -> None:
    """Raise if a network would not fit into memory: to be given it takes seconds, and may take other processes down."""
    count = count_units(model, width=width, heads=heads, inputs=inputs)
    if count is None:
        return
    needed, free = _COPIES * 4 * count, measure_free_memory() or _MOST_MEMORY
    if needed > free:
        raise SelfReminderError(
            f"width is {width:g}: a network of {count:,} parameters takes about {show_bytes(needed)} to train, "
            f"{show_bytes(free)} of memory are free"
        )


def _give_features(body: nn.Module, device: str) -> Callable[[Task], Task]:
    """Make what gives the tasks of a stream with features of a frozen body instead of inputs."""

    def give(task: Task) -> Task:
        return replace(task, transform=lambda x: compute_features(body, task.transform(x), device))

    return give
