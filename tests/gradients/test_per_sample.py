"""Norms of per-sample gradients against a loop of autograd over samples, and selection by them."""

import copy
from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from exact_layers import PAPERS, SEVERAL_POSITIONS, Network, convolutions, initialised, linear_layers, seeded
from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks.models import build_model
from selfreminder.benchmarks.stream import Stream
from selfreminder.gradients import per_sample
from selfreminder.gradients.per_sample import Inputs, LogitFunction, gradient_norms, take_rows
from selfreminder.selection import find
from selfreminder.selection.base import Candidates


def call(model: nn.Module, x: Inputs) -> Tensor:
    return model(x)


def by_hand(model: nn.Module, inputs: Inputs, labels: Tensor, logits_of: LogitFunction = call) -> Tensor:
    """The definition, one sample after the other."""
    model = copy.deepcopy(model).eval()
    trained = [p for p in model.parameters() if p.requires_grad]
    norms = []
    for i in range(len(labels)):
        loss = F.cross_entropy(logits_of(model, take_rows(inputs, slice(i, i + 1))), labels[i : i + 1])
        gradients = torch.autograd.grad(loss, trained, materialize_grads=True)
        norms.append(torch.cat([g.flatten() for g in gradients]).norm())
    return torch.stack(norms)


def check(model: nn.Module, shape: Sequence[int], classes: int, n: int = 9, batch_size: int = 4) -> None:
    x = torch.rand(n, *shape, generator=seeded(1))
    labels = torch.randint(0, classes, (n,), generator=seeded(2))
    got, wanted = gradient_norms(model, call, x, labels, batch_size=batch_size), by_hand(model, x, labels)
    assert not got.requires_grad and wanted.max() > 1e-3
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "width", "shape"), PAPERS)
def test_the_papers_networks(name: str, width: float, shape: tuple[int, ...]) -> None:
    check(build_model(name, width=width, seed=0), shape, 10)


@pytest.mark.parametrize("networks", [convolutions(), linear_layers()])
@settings(max_examples=30)
@given(data=st.data(), n=st.integers(1, 9), batch_size=st.integers(1, 10))
def test_layers_of_all_sizes(
    networks: st.SearchStrategy[Network], data: st.DataObject, n: int, batch_size: int
) -> None:
    check(*data.draw(networks), n, batch_size)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        *SEVERAL_POSITIONS,
        (nn.Sequential(nn.Linear(5, 8), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(8, 3)), (5,)),
    ],
)
def test_batch_norm_positions_dropout(model: nn.Module, shape: tuple[int, ...]) -> None:
    check(initialised(model), shape, 3)


def test_chunks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model("cifar10-vgg", width=1 / 64, seed=0)
    x, labels = torch.rand(10, 3, 32, 32, generator=seeded()), torch.arange(10)
    whole = gradient_norms(model, call, x, labels)
    for chunk in (1, 1 << 12, 1 << 24):
        monkeypatch.setattr(per_sample, "_CHUNK", chunk)
        torch.testing.assert_close(gradient_norms(model, call, x, labels), whole)


def test_frozen_parameters_are_left_out() -> None:
    model = initialised(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.LayerNorm(8), nn.Linear(8, 3)))
    model[2].requires_grad_(False)
    check(model, (1, 4, 4), 3)
    model[0].weight.requires_grad_(False)
    model[3].bias.requires_grad_(False)
    check(model, (1, 4, 4), 3)
    frozen = model.requires_grad_(False)
    assert gradient_norms(frozen, call, torch.rand(2, 1, 4, 4), torch.tensor([0, 1])).tolist() == [0, 0]


def test_heads_names_and_classes_that_are_absent() -> None:
    """Each item at its own head, logits padded to the widest; inputs by name."""
    model = build_model("mnist-mlp", width=1 / 64, seed=0, heads=(3, 4, 5))
    inputs = {"x": torch.rand(7, 784, generator=seeded()), "head": torch.arange(7) % 2}

    def logits_of(model: nn.Module, inputs: Inputs) -> Tensor:
        assert not isinstance(inputs, Tensor)
        return model(inputs["x"], inputs["head"], (0, 1))

    labels = torch.tensor([2, 3, 0, 0, 1, 1, 2])
    got = gradient_norms(model, logits_of, inputs, labels, batch_size=3)
    torch.testing.assert_close(got, by_hand(model, inputs, labels, logits_of), rtol=1e-4, atol=1e-6)
    only_other = copy.deepcopy(model).requires_grad_(False)
    only_other.heads.layers[2].requires_grad_(True)
    assert not gradient_norms(only_other, logits_of, inputs, labels).any()


def test_of_well_known_samples() -> None:
    """Where a probability rounds to 1 the norms keep their precision, and their order."""
    model = initialised(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 4)))
    with torch.no_grad():
        model[2].bias.copy_(torch.tensor([25.0, 0.0, 1.0, 2.0]))
    x = torch.rand(20, 2, generator=seeded(3))
    wanted = by_hand(copy.deepcopy(model).double(), x.double(), torch.zeros(20).long())
    assert 0 < wanted.max() < 1e-8  # half of what float32 knows below 1 is more
    got = gradient_norms(model, call, x, torch.zeros(20).long())
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=0)


def test_the_model_is_left_as_it_was() -> None:
    model = build_model("cifar10-vgg", width=1 / 64, seed=0).train()
    model.body[1].eval()
    modes = [module.training for module in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    own = torch.rand_like(next(model.parameters()))
    next(model.parameters()).grad = own
    torch.manual_seed(4)
    with torch.no_grad():
        gradient_norms(model, call, torch.rand(2, 3, 32, 32, generator=seeded()), torch.tensor([0, 1]))
    assert torch.rand(1).item() == torch.rand(1, generator=seeded(4)).item()
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    first, *others = model.parameters()
    assert first.grad is own and all(p.grad is None for p in others)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_frozen_recurrent_layer() -> None:
    layer, last = nn.GRU(4, 5, num_layers=2, dropout=0.5).requires_grad_(False), nn.Linear(5, 3)
    model, x, y = nn.ModuleList([layer, last]), torch.rand(6, 4), torch.arange(6) % 3
    norms = gradient_norms(model, lambda model, x: last(layer(x[None])[0][0]), x, y)
    expected = gradient_norms(last, call, copy.deepcopy(layer).eval()(x[None])[0][0], y)
    torch.testing.assert_close(norms, expected)


def without_gradients(model: nn.Module, x: Inputs) -> Tensor:
    with torch.no_grad():
        return model(x)


@pytest.mark.parametrize(
    ("model", "logits_of", "message"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), call, r"no exact gradient norm for layer '1' \(LayerNorm\)"),
        (nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False)), call, "layer '0' .* mixes samples"),
        (nn.Sequential(nn.Linear(4, 4)), without_gradients, "layer '0' is run under torch.no_grad"),
        (nn.Sequential(nn.Linear(4, 4)), lambda model, x: model(x).detach(), "logits are detached"),
        (nn.Sequential(nn.Linear(4, 4)), lambda model, x: model(model(x)), "layer '0' is used twice"),
    ],
)
def test_what_would_not_be_exact_is_refused(model: nn.Module, logits_of: LogitFunction, message: str) -> None:
    with pytest.raises(SelfReminderError, match=message):
        gradient_norms(model, logits_of, torch.rand(3, 4), torch.zeros(3).long())
    assert model.training and not any(module._forward_hooks for module in model.modules())


# Selection -------------------------------------------------------------------------------------------------


def candidates(digits: Stream, gradients: Tensor | None) -> Candidates:
    data, model = digits[0].train, build_model("mnist-mlp", width=1 / 16, seed=0)
    return Candidates(
        inputs=data.x,
        labels=data.y,
        count=5,
        generator=seeded(),
        model=model,
        logits_of=call,
        gradients=gradients,
    )


def test_the_least_norms_come_first(digits: Stream) -> None:
    now = candidates(digits, None)
    norms = by_hand(now.model, now.inputs, now.labels)
    ranked = find("gradient")(now)
    assert ranked.sort().values.tolist() == list(range(len(now)))
    torch.testing.assert_close(norms[ranked], norms.sort().values, rtol=1e-4, atol=0)
    recorded = torch.rand(len(now), generator=seeded(1))
    assert torch.equal(find("gradient")(candidates(digits, recorded)), recorded.argsort())
