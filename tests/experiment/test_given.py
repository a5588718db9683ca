"""Networks and tasks of the user's own: how they are named, how wide they are, and what is said of wrong ones."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks.stream import Stream
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.run import check, run
from selfreminder.experiment.spec import Experiment, parse_text, parse_value
from selfreminder.experiment.sweep import read_sweep

X, Y = torch.rand(40, 4), torch.arange(40) % 2
GIVEN = Experiment(benchmark="own", method="adam", data="given", tasks=1, epochs=1)


@pytest.mark.parametrize(
    ("model", "width"),
    [
        (None, 0.25),
        ("mnist-mlp", 0.25),
        ("resnet18", 0.25),
        ("mlp:8x1", 1.0),
        ("shop:build", 1.0),
        ("timm:resnet10t", 1.0),
        ("hf:bert", 1.0),
        ("efficientnet-lite0", 1.0),
    ],
)
def test_a_scale_has_no_width_for_a_network_that_has_its_own(model: str | None, width: float, tmp_path: Path) -> None:
    settings = {} if model is None else {"model": model}
    asked = Comparison(benchmark="permuted-mnist", methods=("adam",), seeds=1, tasks=2, settings=settings)
    assert asked.experiments[0].width == width
    spec = tmp_path / "spec.toml"
    said = 'benchmark = "permuted-mnist"\nscale = "demo"\nmethod = "adam"\ntasks = 2\nseeds = 1\n'
    spec.write_text(said + (f'model = "{model}"\n' if model else ""))
    assert [run.key for run in read_sweep(spec).experiments] == [asked.experiments[0].key]


def test_a_factory_on_a_benchmark_at_a_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.py").write_text("from torch import nn\ndef build(outputs): return nn.Linear(784, outputs)\n")
    monkeypatch.chdir(tmp_path)
    asked: dict[str, Any] = {
        "benchmark": "permuted-mnist",
        "methods": ("adam",),
        "settings": {"model": "shop.py:build"},
    }
    check(Comparison(**asked).experiments[0])
    with pytest.raises(SelfReminderError, match=r"width is 0\.25: shop\.py:build has a width of its own"):
        check(Comparison(**asked, width=0.25).experiments[0])


def test_a_file_has_one_name(tmp_path: Path) -> None:
    for field in ("model", "augment"):
        assert parse_value(field, "./lab/../shop.py:build") == parse_text(field, "shop.py:build") == "shop.py:build"
        assert parse_value(field, "shop.models:build") == "shop.models:build"
    assert parse_text("model", "hf:./bert/") == "hf:bert"
    assert parse_text("model", "none") is None
    spec = tmp_path / "spec.toml"
    spec.write_text('benchmark = "permuted-mnist"\nmethod = "adam"\n[grid]\nmodel = ["./a.py:b", "a.py:b"]\n')
    assert [run.model for run in read_sweep(spec).experiments] == ["a.py:b"]
    assert Experiment(benchmark="own", method="adam", data="x", model="./a.py:b").model == "./a.py:b"  # of records


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stream": [(X, Y)]}, "stream is a list: give a Stream, as Stream.of([(x, y), …]) makes"),
        ({"model": nn.Linear(4, 2)}, "model is a Linear: give a function that makes it, as lambda: model"),
        ({"model": "mlp:8x1"}, "model is a str: give a function that makes it"),
        ({"model": lambda: None}, "model gives a NoneType: it should give a torch.nn.Module"),
    ],
)
def test_what_is_given_is_of_the_right_kind(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SelfReminderError, match=re.escape(message)):
        run(GIVEN, tmp_path / "run", **{"stream": Stream.of([(X, Y)]), **given})
