import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selfreminder import data
from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks.models import MODELS, build_model
from selfreminder.benchmarks.stream import Stream
from selfreminder.cli import main
from selfreminder.data import source
from selfreminder.data.readers import CIFAR_LABELS, generate_images
from selfreminder.experiment.catalogue import benchmark
from selfreminder.memory.memory import Memory, codec
from selfreminder.methods.ewc import Ewc
from selfreminder.paper import memory_arithmetic as memory_cost
from selfreminder.paper.memory_arithmetic import PAPERS, MemoryCost, images_at_hand
from selfreminder.paper.memory_arithmetic import memory_cost as cost_of

PAPER = {"mnist-mlp": (20, 500), "cifar10-vgg": (5, 3000), "cifar100-alexnet": (10, 400)}


def in_paper(model: str) -> MemoryCost:
    tasks, per_task = PAPER[model]
    return cost_of(model, tasks=tasks, per_task=per_task)


# The paper's numbers --------------------------------------------------------------------------------------


def test_mnist() -> None:
    cost = in_paper("mnist-mlp")
    weights, biases = cost.counts
    assert (weights.parameters, weights.ewc_numbers, weights.ewc_bytes) == (3_958_784, 7_917_568, 31_670_272)
    assert (cost.input_numbers, cost.logits, cost.item_numbers) == (784, 10, 794)
    assert weights.items_per_task == 7_917_568 / 794 / 20
    assert f"{weights.items_per_task:.1f}" == "498.6"
    assert biases.parameters == 3_958_784 + 4 * 1024 + 10
    assert cost.stated is None


def test_cifar10() -> None:
    cost = in_paper("cifar10-vgg")
    assert [count.what for count in cost.counts] == ["weights", "with biases", "with batch norm"]
    weights = cost.counts[0]
    assert (weights.parameters, weights.ewc_numbers) == (24_776_064, 49_552_128)
    assert cost.item_numbers == 3082
    assert f"{weights.items_per_task:.1f}" == "3215.6"


def test_cifar100_and_its_slip() -> None:
    cost = in_paper("cifar100-alexnet")
    assert cost.item_numbers == 3082
    assert cost.stated is not None
    counts = (*cost.counts, cost.stated)
    assert [count.parameters for count in counts] == [6_503_872, 6_708_772, 6_800_000]
    assert [round(count.items_per_task) for count in counts] == [422, 435, 441]
    assert cost_of("cifar100-alexnet", tasks=10, per_task=400, width=0.5).stated is None


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("width", [1 / 16, 0.25])
def test_counts_are_those_of_the_network_itself(model: str, width: float) -> None:
    before = torch.get_rng_state()
    cost = cost_of(model, tasks=3, per_task=1, width=width)
    assert torch.equal(torch.get_rng_state(), before)
    heads = (10,) * 3 if model == "cifar100-alexnet" else (10,)
    network = build_model(model, width=width, seed=0, heads=heads).eval()
    assert cost.counts[-1].parameters == sum(p.numel() for p in network.parameters())
    shape = (784,) if model == "mnist-mlp" else (3, 32, 32)
    assert cost.input_numbers == torch.Size(shape).numel()
    assert network(torch.zeros(1, *shape)).shape == (1, cost.logits)


def test_the_last_count_is_what_our_ewc_keeps(digits: Stream) -> None:
    ewc = Ewc()
    ewc.after_task(build_model("mnist-mlp", width=1 / 16, seed=0), digits[0])
    assert ewc.nbytes() == cost_of("mnist-mlp", tasks=3, per_task=1, width=1 / 16).counts[-1].ewc_bytes


def test_the_papers_setting_is_the_benchmarks() -> None:
    assert PAPERS.keys() == MODELS.keys() == PAPER.keys()
    for model, name in PAPERS.items():
        assert benchmark(name).model == model
        scale = benchmark(name).scales["paper"]
        assert (scale.tasks, scale.per_class * 10) == PAPER[model]


# Bytes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
def test_rows_are_what_a_memory_counts(model: str) -> None:
    tasks, per_task = 2, 3
    shape = (784,) if model == "mnist-mlp" else (3, 32, 32)
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (per_task, *shape), generator=generator).float().div(255)
    cost = cost_of(model, tasks=tasks, per_task=per_task, images={"these": x})
    logits = torch.randn(per_task, 10, generator=generator)
    assert not cost.unmeasured
    assert {way.inputs for way in cost.ways} >= {"float32", "uint8", "affine8", "compressed"}
    assert {way.logits for way in cost.ways} == set(codec.LOGIT_NAMES)
    for way in cost.ways:
        memory = Memory()
        for task in range(tasks):
            memory = memory + Memory.of({"x": x}, logits, task=task, codecs=way.inputs, logit_codec=way.logits)
        assert way.total_bytes == memory.nbytes
        assert way.share == memory.nbytes / cost.ewc_bytes
        assert way.item_bytes == memory.nbytes / (tasks * per_task)
        assert (way.images, way.sample) == (("these", per_task) if way.inputs == "compressed" else (None, None))
    assert cost.ways[0].item_bytes == 4 * cost.item_numbers + cost.provenance_bytes


@settings(max_examples=25)
@given(
    model=st.sampled_from(list(MODELS)),
    tasks=st.integers(1, 50),
    per_task=st.integers(1, 5000),
    width=st.sampled_from([0.125, 0.5, 1.0, 3.0]),
)
def test_as_many_items_as_fit_take_ewcs_bytes(model: str, tasks: int, per_task: int, width: float) -> None:
    cost = cost_of(model, tasks=tasks, per_task=per_task, width=width)
    for count in cost.counts:
        assert count.items_per_task * tasks * cost.item_numbers == pytest.approx(2 * count.parameters)
        assert count.ewc_bytes == 8 * count.parameters
    assert cost.unmeasured == (("compressed", "float16"),)
    for way in cost.ways:
        assert way.items_per_task * tasks * way.item_bytes == pytest.approx(cost.ewc_bytes)
        assert way.share == pytest.approx(per_task / way.items_per_task)
    for each in cost.per_class:
        assert each.items == 10 * each.per_class * tasks
        same = cost_of(model, tasks=tasks, per_task=10 * each.per_class, width=width)
        assert (each.total_bytes, each.share) == (same.ways[1].total_bytes, same.ways[1].share)
        assert each.paper_share == pytest.approx(10 * each.per_class / cost.counts[0].items_per_task)


def test_a_permutation_costs_compression() -> None:
    images = images_at_hand("mnist-mlp")
    digits, permuted = images["digits"], images["permuted digits"]
    assert not torch.equal(digits, permuted)
    assert torch.equal(digits.sort(1).values, permuted.sort(1).values)
    cost = cost_of("mnist-mlp", tasks=20, per_task=500, images=images)
    uint8 = next(way for way in cost.ways if (way.inputs, way.logits) == ("uint8", "float16"))
    plain, shuffled = (way for way in cost.ways if way.inputs == "compressed")
    assert (plain.images, shuffled.images) == ("digits", "permuted digits")
    assert 0 < plain.item_bytes < 0.8 * shuffled.item_bytes < shuffled.item_bytes < uint8.item_bytes


# Images at hand -------------------------------------------------------------------------------------------


@pytest.fixture
def cache_cifar(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts made-up images into the cache as a CIFAR test file with a checksum of its own."""

    def put(name: str) -> None:
        _, _, x, y = generate_images(10)
        labels = [y[:, None]] * len(CIFAR_LABELS[name])
        rows = torch.cat([torch.from_numpy(part) for part in (*labels, x.reshape(len(x), -1))], 1)
        content = rows.numpy().tobytes()
        real = data.dataset(name)
        test = replace(real.files[-1], sha256=hashlib.sha256(content).hexdigest())
        monkeypatch.setitem(data.DATASETS, name, replace(real, files=(*real.files[:-1], test)))
        folder = source.cache_folder() / name
        folder.mkdir(parents=True)
        (folder / test.name).write_bytes(content)

    return put


@pytest.mark.parametrize("model", ["cifar10-vgg", "cifar100-alexnet"])
def test_cifar_is_measured_if_it_is_at_hand(
    model: str, cache_cifar: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "get", lambda *_: pytest.fail("fetched"))
    assert images_at_hand(model) == {}
    cache_cifar(in_paper(model).data)
    images = images_at_hand(model)
    _, _, x, _ = generate_images(10)
    assert torch.equal(images["RGB"], torch.from_numpy(x).float().div(255))
    assert all(image.shape == x.shape for image in images.values())
    compressed = [way for way in cost_of(model, tasks=5, per_task=9, images=images).ways if way.inputs == "compressed"]
    assert [way.images for way in compressed] == ["RGB", "YIQ, YUV, HSV, HED"][: 2 if model == "cifar10-vgg" else 1]
    assert all(way.item_bytes > 0 for way in compressed)


def test_an_archive_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cifar-100-binary.tar.gz").write_bytes(b"whatever")
    monkeypatch.setenv("SELFREMINDER_DATA", str(tmp_path))
    assert images_at_hand("cifar100-alexnet") == {}


# The command ----------------------------------------------------------------------------------------------


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["budget", *arguments]) == 0
    return re.sub(r"  +", " ", capsys.readouterr().out)


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    out = output(capsys, "mnist-mlp")
    assert "weights (as the paper computes) 3,958,784 7,917,568 31.7 MB 498.6" in out
    assert "784 numbers of input + 10 logits = 794, 3,176 bytes" in out
    uint8 = in_paper("mnist-mlp").ways[1]
    assert f"uint8 + float32 {uint8.item_bytes:.0f} {uint8.items_per_task:,.1f}" in out
    assert "500 × 20 items" in out
    assert re.search(r"compressed \+ float16: permuted digits \d+\.\d", out)
    assert "the mean of 500 images" in out
    assert re.search(r"1 per class 200 items 1\d\d kB = 0.5 % of EWC's bytes as the paper counts 635 kB = 2.0 %", out)
    assert "6.35 MB = 20.1 %" in out
    assert "slip" not in out


def test_command_says_the_slip(capsys: pytest.CaptureFixture[str]) -> None:
    out = output(capsys, "cifar100-alexnet")
    assert "13.6 M / 3082 / 10 ≈ 422 items. 6.8 M gives 441;\n422 follows from the trunk's 6,503,872." in out
    assert "compressed + float16 depends on the images" in out
    assert "selfreminder data get cifar100" in out
    # Of other tasks or widths the text says nothing.
    for other in (["--tasks", "5"], ["--width", "0.5"]):
        assert "slip" not in output(capsys, "cifar100-alexnet", *other)


def test_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["budget", "cifar10-vgg", "--tasks", "4", "--per-task", "30", "--width", "0.25", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    cost = cost_of("cifar10-vgg", tasks=4, per_task=30, width=0.25)
    assert (result["tasks"], result["per_task"], result["width"]) == (4, 30, 0.25)
    assert [count["parameters"] for count in result["counts"]] == [count.parameters for count in cost.counts]
    assert [way["total_bytes"] for way in result["ways"]] == [way.total_bytes for way in cost.ways]
    assert [each["share"] for each in result["per_class"]] == [each.share for each in cost.per_class]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mnist-mpl"], "unknown model 'mnist-mpl': did you mean 'mnist-mlp'?"),
        (["mnist-mlp", "--tasks", "0"], "tasks is 0: it must be at least 1"),
        (["mnist-mlp", "--tasks", "2.5"], "'2.5' is no whole number"),
        (["mnist-mlp", "--per-task", "-5"], "per_task is -5: a memory keeps at least one item"),
        (["mnist-mlp", "--per-task", "3000000000"], "a memory holds at most 2,147,483,647"),
        (["mnist-mlp", "--width", "-1"], "width is -1: it must be above 0"),
        (["mnist-mlp", "--width", "nan"], "width is nan: it must be above 0"),
        (["mnist-mlp", "--width", "1e9"], "at most 100"),
        (["mnist-mlp", "--width", "0.0001"], "leaves no unit"),
        (["mnist-mlp", "--taks", "3"], "Did you mean --tasks"),
    ],
)
def test_mistakes(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["budget", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("selfreminder: ")
    assert message in line


def test_an_unknown_model_in_the_library() -> None:
    with pytest.raises(SelfReminderError, match="did you mean 'cifar10-vgg'"):
        memory_cost.images_at_hand("cifar10-vg")
    with pytest.raises(SelfReminderError, match="did you mean 'cifar10-vgg'"):
        cost_of("cifar10-vg", tasks=1, per_task=1)
