"""Networks by name: their shapes, their heads, their seeds, and what is said where they do not fit."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks import check_model_name
from selfreminder.benchmarks.networks import build_network, compute_features, count_units, freeze_body, wrap_model


class Small(nn.Module):
    """A user's own: its last layer is deep inside, and has a name of its own."""

    def __init__(self, outputs: int = 4) -> None:
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.last = nn.ModuleDict({"out": nn.Linear(5, outputs)})

    def forward(self, x: Tensor) -> Tensor:
        return self.last["out"](self.first(x).relu())


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shop_models.py").write_text(
        "from torch import nn\n"
        "def build(outputs): return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, outputs))\n"
        "def four(): return nn.Sequential(nn.Linear(6, 4))\n"
        "def odd(outputs): return nn.Sequential(nn.Linear(6, outputs), nn.Softmax(1))\n"
        "def none(outputs): return None\n"
        "def bad(outputs): raise ValueError('no such size')\n"
    )


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("mnist-mlp", (28, 28)),
        ("mlp:7x3", (3, 4)),
        ("mlp:7x0", (5,)),
        ("resnet18", (3, 32, 32)),
        ("resnet18", (28, 28)),
        ("resnet18", (1, 20, 24)),
        ("auto", (9,)),
        ("auto", (3, 16, 16)),
    ],
)
def test_heads_of_any_network(name: str, inputs: tuple[int, ...]) -> None:
    network = build_network(name, width=1 / 8 if "mlp:" not in name else 1, seed=0, heads=(2, 3), inputs=inputs).eval()
    x = torch.rand(4, *inputs)
    assert network(x, 0).shape == (4, 2)
    assert network(x, 1).shape == (4, 3)
    again = build_network(name, width=1 / 8 if "mlp:" not in name else 1, seed=0, heads=(2, 3), inputs=inputs)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters()))
    count = sum(parameter.numel() for parameter in network.parameters())
    assert count_units(name, width=1 / 8 if "mlp:" not in name else 1, heads=(2, 3), inputs=inputs) == count


@pytest.mark.usefixtures("shop")
def test_a_factory_gets_heads() -> None:
    whole = build_network("shop_models:build", width=1, seed=3, heads=(2, 3), inputs=(6,))
    x = torch.rand(4, 6)
    assert whole(x, 1).shape == (4, 3)
    one = build_network("shop_models:four", width=1, seed=3, heads=(4,), inputs=(6,))
    assert one(x).shape == (4, 4)
    assert count_units("shop_models:four", width=1, heads=(4,), inputs=(6,)) is None


def test_the_weights_of_the_last_layer_become_the_heads() -> None:
    model, x = Small(), torch.rand(3, 6)
    expected = model(x)
    network = wrap_model(lambda: model, (1, 3), (6,))
    torch.testing.assert_close(torch.cat([network(x, 0), network(x, 1)], 1), expected)


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("name", "heads", "message"),
    [
        ("shop_models:four", (3,), "gives outputs of the shape 2×4 for 2 items, it should give 2×3"),
        ("shop_models:odd", (3,), "does more after its last linear layer"),
        ("shop_models:none", (3,), "gives a NoneType: it should give a torch.nn.Module"),
        ("shop_models:bad", (3,), "raised ValueError: no such size"),
        ("shop_models:built", (3,), "did you mean 'build'"),
        ("cifar10-vgg", (3,), "cifar10-vgg takes 3×32×32 images, these inputs have the shape 6"),
        ("resnet18", (3,), "resnet18 takes images"),
        ("hf:nowhere", (3,), "hf:nowhere has no config.json"),
    ],
)
def test_what_does_not_fit_is_said(name: str, heads: tuple[int, ...], message: str) -> None:
    with pytest.raises(SelfReminderError, match=re.escape(message)):
        build_network(name, width=1, seed=0, heads=heads, inputs=(6,))


@pytest.mark.usefixtures("shop")
def test_a_model_takes_the_inputs_that_there_are() -> None:
    with pytest.raises(SelfReminderError, match="shop_models:build does not take inputs of the shape 7: mat1 and mat2"):
        build_network("shop_models:build", width=1, seed=0, heads=(3,), inputs=(7,))
    with pytest.raises(SelfReminderError, match=r"width is 0\.5: shop_models:build has a width of its own"):
        build_network("shop_models:build", width=0.5, seed=0, heads=(3,), inputs=(6,))


@pytest.mark.parametrize("name", ["resnet81", "mlp:0x2", "mlp:3", "my model", "mlp:3x2x1", ""])
def test_names(name: str) -> None:
    with pytest.raises(SelfReminderError, match="unknown model"):
        check_model_name(name)


def test_features_of_a_frozen_body() -> None:
    network = build_network("mlp:8x2", width=1, seed=0, heads=(3,), inputs=(6,)).eval()
    x = torch.rand(5, 6)
    expected = network(x)
    body = freeze_body(network)
    features = compute_features(body, x, "cpu")
    torch.testing.assert_close(network(features), expected)
    assert not features.requires_grad
    assert compute_features(body, x[:0], "cpu").shape == (0, 8)
    assert [name for name, _ in network.named_parameters()] == ["heads.layers.0.weight", "heads.layers.0.bias"]


def test_a_classifier_of_text_is_tried_with_tokens_that_it_knows(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    whole = build_network(f"hf:{tmp_path}", width=1, seed=0, heads=(3,), inputs=(7,))
    assert whole(torch.randint(1, 30, (2, 7))).shape == (2, 3)
    with pytest.raises(SelfReminderError, match=r"shape 2051: .*; it takes token numbers: give --tokenizer FOLDER$"):
        build_network(f"hf:{tmp_path}", width=1, seed=0, heads=(3,), inputs=(2051,))
