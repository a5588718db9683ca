"""Augmentation changes images as it says, by the generator alone, and training with it goes on bit for bit."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks.augmentation import crop, find_augmentation, flip
from selfreminder.experiment.run import check, run
from selfreminder.experiment.spec import Experiment
from selfreminder.training import StoppedError, scale_step

SPLIT = Experiment(
    benchmark="split-mnist",
    method="lwf",
    data="embedded-mnist",
    images=300,
    tasks=2,
    split_into=5,
    epochs=2,
    width=0.05,
    lr=1e-3,
    batch_size=32,
    augment="crop-flip",
    schedule="warmup-cosine",
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(40, 9, 8), (40, 3, 9, 8)])
def test_images_are_mirrored_or_shifted(shape: tuple[int, ...]) -> None:
    x = torch.rand(shape) + 1
    turned = flip(x, seeded())
    same = (turned == x).flatten(1).all(1)
    assert 5 < same.sum() < 35
    assert torch.equal(turned[~same], x.flip(-1)[~same])
    shifted = crop(x, seeded())
    assert shifted.shape == x.shape
    for before, after in zip(x, shifted):
        inside = after[after > 0]
        assert torch.isin(inside, before).all()  # nothing new but zeros
        assert len(inside) >= before.numel() * (7 / 8 * 8 / 9) - 1
    assert torch.equal(crop(x, seeded(1)), crop(x, seeded(1)))
    assert not torch.equal(crop(x, seeded(1)), crop(x, seeded(2)))


def test_rows_are_no_images() -> None:
    with pytest.raises(SelfReminderError, match="augmentation is for images"):
        find_augmentation("crop-flip")(torch.rand(3, 5), seeded())
    with pytest.raises(SelfReminderError, match="did you mean 'flip'"):
        replace(SPLIT, augment="flop")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("one", "raised TypeError: one() takes 1 positional argument but 2 were given; it takes (x, generator)"),
        ("smaller", "makes (2, 28, 28) in torch.float32 into (2, 28, 27) in torch.float32: it takes"),
        ("double", "into (2, 28, 28) in torch.float64: it takes"),
        ("nothing", "gives a NoneType: it takes (x, generator), and gives x in the same shape and type"),
        ("flip", "augmentation is for images"),
    ],
)
def test_an_augmentation_is_tried_before_training(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "changes.py").write_text(
        "def one(x): return x\n"
        "def smaller(x, generator): return x[..., :-1]\n"
        "def double(x, generator): return x.double()\n"
        "def nothing(x, generator): x.zero_()\n"
    )
    monkeypatch.chdir(tmp_path)
    augment = name if name == "flip" else f"changes.py:{name}"
    benchmark = replace(SPLIT, benchmark="permuted-mnist", split_into=None) if name == "flip" else SPLIT
    with pytest.raises(SelfReminderError, match=re.escape(message)):
        check(replace(benchmark, augment=augment))


def test_goes_on_bit_for_bit(tmp_path: Path) -> None:
    whole = run(SPLIT, tmp_path / "whole")
    assert run(replace(SPLIT, augment=None), tmp_path / "plain").epochs != whole.epochs
    for stop in (2, 6, 11):
        count = iter(range(1000))
        with pytest.raises(StoppedError):
            run(SPLIT, tmp_path / str(stop), stop=lambda count=count, stop=stop: next(count) == stop)
        assert run(SPLIT, tmp_path / str(stop)) == whole


@pytest.mark.parametrize("name", ["constant", "cosine", "warmup-cosine", "linear"])
def test_schedules(name: str) -> None:
    factors = [scale_step(name, done / 100) for done in range(101)]
    assert all(0 <= factor <= 1 for factor in factors)
    assert max(factors) == 1
    assert factors[-1] == (1 if name == "constant" else 0)
