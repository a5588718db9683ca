"""The same tasks in each scenario: what is told, which classes count, and that methods learn there."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from selfreminder import data, methods
from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks import make_stream
from selfreminder.benchmarks.models import build_model
from selfreminder.benchmarks.scenario import arrange
from selfreminder.benchmarks.stream import Stream, StreamSpec, image_parts, split_classes
from selfreminder.experiment.catalogue import method_facts
from selfreminder.experiment.run import run
from selfreminder.experiment.spec import Experiment
from selfreminder.metrics import rho
from selfreminder.report.results import group_runs
from selfreminder.training import StoppedError

SPLIT = Experiment(
    benchmark="split-mnist",
    method="adam",
    data="embedded-mnist",
    images=600,
    tasks=5,
    epochs=2,
    width=0.05,
    lr=1e-3,
    per_class=5,
)
GROWING = [name for name in methods.names() if method_facts(name).heads != "per task"]


@pytest.fixture(scope="module")
def split() -> Stream:
    parts = image_parts(data.load("embedded-mnist"), seed=0, count=600).flatten()
    return split_classes(parts, tasks=5, seed=0, classes=10)


@pytest.mark.parametrize(
    ("scenario", "heads", "labels", "outputs"),
    [
        ("task", (2,) * 5, {0, 1}, None),
        ("domain", (2,), {0, 1}, None),
        ("class", (10,), {4, 5}, 6),
        ("stream", (10,), {4, 5}, None),
    ],
)
def test_what_is_told(
    split: Stream, scenario: str, heads: tuple[int, ...], labels: set[int], outputs: int | None
) -> None:
    arranged = arrange(split, scenario)
    third = arranged[2]
    assert arranged.heads == heads
    assert len(arranged) == 5
    assert third.head == (2 if scenario == "task" else None)
    assert set(third.train.y.tolist()) == set(third.test.y.tolist()) == labels
    assert third.outputs == third.without_training_data().outputs == outputs
    assert torch.equal(third.train.x, split[2].train.x)


def test_own_tensors_with_classes_that_come_are_as_those_of_a_benchmark(split: Stream) -> None:
    """Which classes come with a task is what fsr-refresh goes by, and how many there are is what a memory's size is."""
    tasks = list(arrange(split, "class"))
    own = Stream.of([((t.train.x, t.train.y), (t.test.x, t.test.y)) for t in tasks], scenario="class")
    facts = [(task.classes, task.outputs) for task in tasks]
    assert [(task.classes, task.outputs) for task in own] == facts == [(2, 2), (2, 4), (2, 6), (2, 8), (2, 10)]


def test_a_domain_has_the_same_classes(headed_digits: Stream) -> None:
    with pytest.raises(SelfReminderError, match="tasks of 10, 12 classes do not share one output"):
        arrange(headed_digits, "domain")
    with pytest.raises(SelfReminderError, match="did you mean 'class'"):
        arrange(headed_digits, "clas")


@pytest.mark.parametrize("name", GROWING)
def test_the_output_grows(name: str, tmp_path: Path) -> None:
    """No logit for a class to come: an untrained output is never predicted, nor chance measured by it."""
    found = run(replace(SPLIT, method=name, scenario="class", tasks=3, split_into=5, epochs=1), tmp_path)
    assert [round(task["chance"], 1) for task in found.tasks] == [0.5, 0.2, 0.2]
    assert found.tasks[0]["test"][0] > 0.4  # of two classes, not of ten


@pytest.mark.parametrize("name", GROWING)
def test_it_may_grow_from_one_class(name: str, split: Stream, tmp_path: Path) -> None:
    """The first task has one logit then, which is no regression's."""
    parts = [(split[0].train.take(split[0].train.y == k), split[0].test.take(split[0].test.y == k)) for k in (0, 1)]
    own = Stream.of([((train.x, train.y), (test.x, test.y)) for train, test in parts], scenario="class")
    one_class_each = replace(SPLIT, benchmark="own", data="given", method=name, scenario="class", tasks=2, images=None)
    found = run(replace(one_class_each, model="mlp:32x1", width=1.0), tmp_path, stream=own)
    assert found.tasks[0]["test"] == [1.0]


def test_a_prediction_chooses_among_the_classes_so_far(split: Stream) -> None:
    model = build_model("mnist-mlp", width=0.05, seed=0, heads=(10,))
    assert model(split[0].test.x).shape[1] == 10
    model.heads.outputs = 4
    assert model(split[0].test.x).shape[1] == 4


@pytest.mark.parametrize(
    ("method", "scenario"),
    [
        ("fsr-logit", "class"),
        ("lwf", "class"),
        ("adam", "stream"),
        ("derpp", "class"),
        ("cls-er", "stream"),
        ("gdumb", "class"),
    ],
)
def test_stopped_and_gone_on(method: str, scenario: str, tmp_path: Path) -> None:
    experiment = replace(SPLIT, method=method, scenario=scenario, epochs=1, tasks=3, split_into=5)
    whole = run(experiment, tmp_path / "whole")
    for stop in (1, 3, 8, 12, 13):
        count = iter(range(10_000))
        with pytest.raises(StoppedError):
            run(experiment, tmp_path / str(stop), stop=lambda count=count, stop=stop: next(count) == stop)
        assert run(experiment, tmp_path / str(stop)) == whole


@pytest.mark.parametrize(("method", "scenario", "epochs"), [("er", "stream", 1), ("fsr-logit", "class", 2)])
def test_looks_on_the_way(method: str, scenario: str, epochs: int, tmp_path: Path) -> None:
    """They change nothing of what is learned, are the same after a stop, and lead to what a task ends with."""
    experiment = replace(SPLIT, method=method, scenario=scenario, epochs=epochs, tasks=3, split_into=5, batch_size=16)
    plain, looked = run(experiment, tmp_path / "plain"), replace(experiment, evaluate_every=2)
    whole = run(looked, tmp_path / "whole")
    assert (whole.epochs, whole.tasks) == (plain.epochs, plain.tasks)
    for task in whole.tasks:
        looks = [look for look in whole.looks if look["task"] == task["task"]]
        assert [look["steps"] for look in looks] == list(range(2, task["steps"] + 1, 2))
        assert {len(look["test"]) for look in looks} == {task["task"] + 1}
        if scenario == "stream" and looks[-1]["steps"] == task["steps"]:
            assert looks[-1]["test"] == task["test"]  # where nothing is done when a task ends
    for stop in (3, 9, 14):
        count = iter(range(10_000))
        with pytest.raises(StoppedError):
            run(looked, tmp_path / str(stop), stop=lambda count=count, stop=stop: next(count) == stop)
        assert run(looked, tmp_path / str(stop)) == whole
    (result,) = group_runs([whole])
    steps = [step for step, _ in result.step_curve]
    assert steps == sorted(set(steps)) and steps[-1] == sum(task["steps"] for task in whole.tasks)
    assert result.anytime and 0 < result.anytime.mean < 1
    assert group_runs([plain])[0].anytime is None


def test_a_stream_of_the_same_classes_keeps_them() -> None:
    spec = StreamSpec(data="embedded-mnist", tasks=2, scenario="stream")
    stream = make_stream("rotated-mnist", spec)
    assert stream.heads == (10,)
    assert set(stream[1].train.y.tolist()) == set(range(10))
    assert make_stream("rotated-mnist", replace(spec, scenario="class")).heads == (20,)


def test_a_stream_is_one_pass_with_one_optimizer(tmp_path: Path) -> None:
    """Adam's moments go on over the tasks: that is another run than with an optimizer for each."""
    stream = run(replace(SPLIT, scenario="stream", epochs=1), tmp_path / "stream")
    assert [len(task["test"]) for task in stream.tasks] == [1, 2, 3, 4, 5]
    with pytest.raises(SelfReminderError, match="epochs is 2: a stream passes once"):
        replace(SPLIT, scenario="stream")


def test_what_a_method_needs_is_asked_before_training() -> None:
    for method, scenario, message in (
        ("fsr-logit", "stream", "fsr-logit must know where a task ends"),
        ("hat", "class", "hat must know the task of what it predicts: choose the scenario task"),
        ("adam", "clas", "did you mean 'class'"),
    ):
        with pytest.raises(SelfReminderError, match=message):
            replace(SPLIT, method=method, scenario=scenario, epochs=1)


def test_its_own_scenario_is_none() -> None:
    assert replace(SPLIT, scenario="task") == SPLIT
    assert replace(SPLIT, scenario="class").key != SPLIT.key


def test_guessing_where_the_output_grows() -> None:
    assert rho([[0.5], [0.25, 0.25]], [[1.0], [1.0, 1.0]], [0.5, 0.25], growing=True) == [-1.0, -1.0]
