"""What every benchmark must do: found by their files, so that a new one is tested as soon as it is there."""

import pytest
import torch

from selfreminder import benchmarks, data, methods
from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks import SCALES, load_benchmark
from selfreminder.benchmarks.networks import build_network
from selfreminder.benchmarks.stream import Stream, StreamSpec
from selfreminder.experiment.catalogue import method_facts

every_benchmark = pytest.mark.parametrize(
    "name", [name for name in benchmarks.names() if not load_benchmark(name).own_data]
)


def make(name: str, **changes: int) -> Stream:
    """The stream of the demo, of few images, made anew."""
    scale = load_benchmark(name).scales["demo"]
    made_up = any(data.dataset(each).generated for each in scale.data.split("+"))
    spec = StreamSpec(data=scale.data, tasks=scale.tasks, images=scale.images if made_up else 300)
    return benchmarks.make_stream.__wrapped__(name, StreamSpec(**vars(spec) | changes))


@every_benchmark
def test_it_says_what_it_is(name: str) -> None:
    facts = load_benchmark(name)
    assert facts.summary and not facts.summary.endswith(".")
    assert list(facts.scales) == list(SCALES)
    assert not facts.splits_classes or facts.parts_of_data
    for scale in facts.scales.values():
        for method in scale.methods or facts.methods:
            assert method in methods.names()
            assert method_facts(method).heads in ("any", "per task" if facts.head_per_task else "one")
        for each in scale.data.split("+"):
            assert each in data.DATASETS


@every_benchmark
def test_a_demo_needs_no_download(name: str) -> None:
    for each in load_benchmark(name).scales["demo"].data.split("+"):
        assert data.dataset(each).generated or data.dataset(each).embedded


@every_benchmark
def test_the_same_seed_gives_the_same_tasks(name: str) -> None:
    stream, again, other = make(name), make(name), make(name, seed=1)
    assert stream.heads == again.heads
    differs = False
    for task, same, of_other_seed in zip(stream[:3], again[:3], other[:3], strict=True):
        assert (task.index, task.name, task.classes, task.head) == (same.index, same.name, same.classes, same.head)
        for part in ("train", "validation", "test"):
            ours, theirs = getattr(task, part), getattr(same, part)
            assert torch.equal(ours.x, theirs.x)
            assert torch.equal(ours.y, theirs.y)
        differs |= not torch.equal(task.train.x, of_other_seed.train.x)
    assert differs


@every_benchmark
def test_heads_and_classes_match(name: str) -> None:
    """Each task has all of its classes, and a network whose head for it gives as many logits."""
    facts, stream = load_benchmark(name), make(name)
    inputs = stream[0].train.x.shape[1:]
    network = build_network(facts.model, width=1 / 16, seed=0, heads=stream.heads, inputs=inputs).eval()
    assert len(stream) == facts.scales["demo"].tasks
    assert len(stream.heads) == (len(stream) if facts.head_per_task else 1)
    for index, task in enumerate(stream):
        assert task.index == index
        assert task.head == (index if facts.head_per_task else None)
        assert task.train.x.dtype == torch.float32
        assert sorted(task.train.y.unique().tolist()) == list(range(task.classes))
        assert len(task.validation) and len(task.test)
        assert network(task.train.x[:2], task.head).shape == (2, task.classes)


@every_benchmark
def test_fewer_tasks_are_the_first_ones(name: str) -> None:
    if name == "mixture":
        pytest.skip("the seed draws the order of those data sets that take part")
    split_into = {"split_into": len(make(name))} if load_benchmark(name).splits_classes else {}
    for task, same in zip(make(name, tasks=2, **split_into), make(name)):
        assert task.name == same.name
        assert torch.equal(task.test.x, same.test.x)


def test_an_unknown_benchmark_is_named() -> None:
    with pytest.raises(SelfReminderError, match="did you mean 'split-mnist'"):
        load_benchmark("split-mnis")


def test_a_stream_is_made_once() -> None:
    spec = StreamSpec(data="generated-10", tasks=2)
    assert benchmarks.make_stream("color-cifar10", spec) is benchmarks.make_stream("color-cifar10", spec)
