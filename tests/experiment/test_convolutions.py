"""Networks with convolutions, whose weights lie in memory in another order than their shape says."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from selfreminder import methods
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import Size
from selfreminder.benchmarks.networks import wrap_model
from selfreminder.benchmarks.stream import Stream
from selfreminder.experiment.run import run
from selfreminder.experiment.spec import Experiment
from selfreminder.methods.base import Batch, Step
from selfreminder.training import StoppedError

OWN = Experiment(
    benchmark="own",
    method="adam",
    data="given",
    scenario="task",
    model=f"{__file__}:build",
    tasks=3,
    epochs=2,
    batch_size=16,
    lr=1e-2,
    per_class=5,
    seed=1,
)


def build(outputs: int) -> nn.Module:
    layers = (nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, outputs))
    return nn.Sequential(*layers)


@pytest.fixture(scope="module")
def tasks() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 2
    found = []
    for task in range(3):
        x = torch.rand(60, 3, 6, 6, generator=generator)
        x[:, task] *= 1 - 0.5 * labels[:, None, None]
        found.append((x, labels + 2 * task))
    return found


def learn(method: str, stream: Stream, scenario: str, folder: Path, stop_after: int | None = None) -> object:
    """Learn a stream, stopped again and again where that is said."""
    experiment = replace(OWN, method=method, scenario=scenario)
    while True:
        steps = itertools.count()
        stop = (lambda: False) if stop_after is None else partial(_is_past, steps, stop_after)
        try:
            done = run(experiment, folder, stream=stream, stop=stop)
            return done.tasks, done.epochs
        except StoppedError:
            continue


def _is_past(steps: Iterator[int], last: int) -> bool:
    return next(steps) >= last


@pytest.mark.parametrize("method", methods.names())
def test_stopped_runs_go_on_bit_for_bit(
    method: str, tasks: list[tuple[torch.Tensor, torch.Tensor]], tmp_path: Path
) -> None:
    scenario = "class" if methods.method_class(method).heads == "one" else "task"
    stream = Stream.of(tasks, scenario=scenario)
    try:
        whole = learn(method, stream, scenario, tmp_path / "whole")
    except SelfReminderError as error:
        pytest.skip(str(error))
    assert learn(method, stream, scenario, tmp_path / "stopped", 7) == whole


def test_gradients_that_are_turned_lie_as_their_weights_do() -> None:
    """A fused optimizer pairs weights and gradients by their places in memory."""
    model = wrap_model(lambda: build(2), (2,), (3, 6, 6)).to(memory_format=torch.channels_last)
    x, y = torch.rand(16, 3, 6, 6, generator=torch.Generator().manual_seed(0)), torch.arange(16) % 2
    stream = Stream.of([(torch.cat([x, x]), torch.cat([y, y])), (torch.cat([x, x]), torch.cat([1 - y, 1 - y]))])
    method = methods.build("gem", {"size": Size(items=20), "seed": 0}, {})
    method.prepare(model, stream)
    for task, labels in enumerate((y, 1 - y)):
        step = Step(task, 0, 0.0, torch.Generator().manual_seed(0))
        batch = Batch(x, labels, None, torch.arange(16))
        model.zero_grad()
        method.loss(model, batch, step).backward()
        before = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        method.after_backward(model, batch, step)
        method.after_step(model, batch, step)
    assert not all(torch.equal(p.grad, was) for p, was in zip(model.parameters(), before))
    assert all(p.grad.stride() == p.stride() for p in model.parameters())
