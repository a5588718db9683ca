from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from selfreminder import SelfReminderError
from selfreminder._base import products
from selfreminder._base.products import PRODUCTS, by_onednn, onednn_products
from selfreminder.experiment.run import run
from tests.tiny import TINY

has_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


def _products() -> list[Tensor]:
    """Products of matrices of many layouts, and first and second derivatives through them."""
    generator = torch.Generator().manual_seed(0)
    a, b, c = (torch.randn(shape, generator=generator) for shape in ((7, 20), (20, 5), (7, 5)))
    found = [a @ b, a.t() @ c, c @ b.t(), a[:, ::2] @ b[::2], torch.addmm(c, a, b, beta=0.5), torch.addmm(b[0], a, b)]
    found += [a[:0] @ b, a[:, :0] @ b[:0], (a.double() @ b.double()).float(), torch.mm(a, b, out=torch.empty(7, 5))]
    layer = nn.Linear(20, 5)
    nn.init.constant_(layer.weight, 0.1)
    nn.init.constant_(layer.bias, 0.2)
    inputs = a.clone().requires_grad_()
    (first,) = torch.autograd.grad(layer(inputs).exp().sum(), inputs, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), inputs)
    each = torch.func.vmap(torch.func.grad(lambda x: layer(x).exp().sum()))(a)
    return [*found, first, second, each]


@has_onednn
def test_products_are_the_same_but_for_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _products()
    monkeypatch.setenv(PRODUCTS, "onednn")
    asked, can_multiply = list[bool](), products._can_multiply
    monkeypatch.setattr(products, "_can_multiply", lambda a, b: asked.append(can_multiply(a, b)) or asked[-1])
    with onednn_products():
        found = _products()
        assert sum(asked) > 10
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            _ = torch.ones(2, 3) @ torch.ones(2, 3)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other)
    # Afterwards they are torch's own again.
    assert all(torch.equal(one, other) for one, other in zip(_products(), expected, strict=True))


@has_onednn
def test_runs_say_so_and_are_the_same_to_the_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = run(TINY, tmp_path / "own")
    monkeypatch.setenv(PRODUCTS, "onednn")
    one, _ = (run(TINY, tmp_path / name) for name in ("one", "other"))
    assert one.versions["processor"] == f"{own.versions['processor']} oneDNN"
    first, second = ((tmp_path / name / "records.jsonl").read_bytes() for name in ("one", "other"))
    assert first == second
    assert torch.tensor(one.test[-1]).sub(torch.tensor(own.test[-1])).abs().max() < 0.1


def test_it_is_off_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PRODUCTS, raising=False)
    assert not by_onednn()
    monkeypatch.setenv(PRODUCTS, "mkl")
    with pytest.raises(SelfReminderError, match="SELFREMINDER_PRODUCTS=mkl: it is onednn, or is not set"):
        by_onednn()
