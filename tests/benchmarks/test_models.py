import pytest
import torch
from torch import nn

from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks.models import PADDING, AlexNet, Dropout, Heads, Mlp, Vgg, build_model


def count(module: nn.Module, *, biases: bool) -> int:
    norms = {p for m in module.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d) for p in m.parameters()}
    return sum(p.numel() for p in module.parameters() if (biases or p.ndim > 1) and p not in norms)


def test_the_papers_parameter_counts() -> None:
    assert count(Mlp(), biases=False) == 3_958_784
    assert count(Vgg(), biases=False) == 24_776_064
    alexnet = AlexNet()
    assert count(alexnet.body, biases=True) == 6_503_872
    assert count(alexnet, biases=True) == 6_708_772


def test_alexnet_is_hats() -> None:
    """What its parameter count does not say: dropout, and inputs by CIFAR's mean and deviation."""
    normalise, *rest = AlexNet(1 / 16).body
    assert [layer.p for layer in rest if isinstance(layer, Dropout)] == [0.2, 0.2, 0.5, 0.5, 0.5]
    pixel = torch.tensor([[125.3, 123.0, 113.9], [125.3 + 63.0, 123.0 + 62.1, 113.9 + 66.7]]) / 255
    normal = normalise(pixel.reshape(2, 3, 1, 1)).flatten(1)
    torch.testing.assert_close(normal, torch.tensor([[0.0] * 3, [1.0] * 3]))


@pytest.mark.parametrize("name", ["cifar10-vgg", "cifar100-alexnet"])
def test_width_and_shapes(name: str) -> None:
    model = build_model(name, width=1 / 16, seed=0, heads=(10, 7))
    x = torch.rand(4, 3, 32, 32)
    assert model(x).shape == model(x, 0).shape == (4, 10)
    assert model(x, 1).shape == (4, 7)
    with pytest.raises(SelfReminderError, match="leaves no unit"):
        build_model(name, width=1e-4, seed=0)


def test_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(0)
    a, b, c = (build_model("mnist-mlp", width=0.1, seed=seed) for seed in (0, 0, 1))
    assert torch.rand(1).item() == torch.rand(1, generator=torch.Generator().manual_seed(0)).item()
    for x, y, z in zip(a.parameters(), b.parameters(), c.parameters()):
        assert torch.equal(x, y)
        assert not torch.equal(x, z)


def test_each_item_at_its_own_head() -> None:
    heads = Heads(5, (3, 2, 4))
    features, of_item = torch.randn(6, 5), torch.tensor([0, 1, 1, 0, 0, 1])
    logits = heads(features, of_item, among=(0, 1))
    for row, head in enumerate(of_item.tolist()):
        width = heads.sizes[head]
        torch.testing.assert_close(logits[row, :width], heads(features[row : row + 1], head)[0])
        assert (logits[row, width:] == PADDING).all()
    logits[:, :2].sum().backward()
    assert heads.layers[2].weight.grad is None
    expected = features[of_item == 0].sum(0)
    torch.testing.assert_close(heads.layers[0].weight.grad[0], expected)


@pytest.mark.parametrize("p", [0.2, 0.5])
@pytest.mark.parametrize("layout", ["contiguous", "channels last", "strided", "odd"])
def test_dropout_is_pytorchs(p: float, layout: str) -> None:
    torch.manual_seed(3)
    x = {
        "contiguous": torch.ones(64, 5, 7, 9),
        "channels last": torch.ones(64, 5, 7, 9).to(memory_format=torch.channels_last),
        "strided": torch.ones(64, 10, 7, 9)[:, ::2],
        "odd": torch.ones(20_161),
    }[layout].requires_grad_()
    dropout = Dropout(p)
    out = dropout(x)
    assert out.shape == x.shape
    values, counts = out.unique(return_counts=True)
    assert values.tolist() == pytest.approx([0, 1 / (1 - p)])
    deviation = (p * (1 - p) / x.numel()) ** 0.5
    assert abs(counts[0].item() / x.numel() - p) < 4 * deviation
    # Neighbours come from one random word and must not know of each other.
    dropped = out.detach().flatten().eq(0).double()
    for distance in (1, 2, 3, 4):
        together = (dropped[:-distance] * dropped[distance:]).mean().item()
        assert abs(together - p**2) < 5 * deviation
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, out)
    assert not torch.equal(dropout(x), out)
    assert torch.equal(dropout.eval()(x), x)


def test_dropout_of_all_and_of_none() -> None:
    x = torch.rand(3, 5)
    assert torch.equal(Dropout(1.0)(x), torch.zeros(3, 5))
    assert torch.equal(Dropout(0.0)(x), x)
