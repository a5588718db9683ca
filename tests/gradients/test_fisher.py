"""The exact Fisher against a loop of autograd over samples, and EWC against its formula."""

from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from exact_layers import PAPERS, SEVERAL_POSITIONS, Network, convolutions, initialised, linear_layers, seeded
from selfreminder import methods
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks.models import build_model
from selfreminder.benchmarks.stream import Parts, Split, Stream, Task
from selfreminder.gradients import fisher, per_sample
from selfreminder.gradients.fisher import diagonal_fisher, output_sensitivity
from selfreminder.methods.base import Batch, Method, Step
from selfreminder.methods.ewc import Ewc
from selfreminder.training import Training, train

STEP = Step(1, 0, 0.0, torch.Generator())


def by_hand(model: nn.Module, x: Tensor, labels: Tensor, head: int | None = None) -> dict[str, Tensor]:
    """The definition, one sample after the other."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    total = {name: torch.zeros_like(p) for name, p in named.items()}
    for i in range(len(x)):
        logits = model(x[i : i + 1]) if head is None else model(x[i : i + 1], head)
        log_p = logits.log_softmax(1)[0, labels[i]]
        for name, g in zip(named, torch.autograd.grad(log_p, list(named.values()), allow_unused=True)):
            if g is not None:
                total[name] += g.square() / len(x)
    return total


def assert_close(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert list(got) == list(wanted)
    for name, value in wanted.items():
        assert not got[name].requires_grad
        torch.testing.assert_close(got[name], value, rtol=1e-5, atol=1e-5 * value.max().item(), msg=name)


def check(model: nn.Module, shape: Sequence[int], classes: int, n: int = 9, batch_size: int = 4) -> None:
    model.eval()
    x = torch.rand(n, *shape, generator=seeded(1))
    labels = torch.randint(0, classes, (n,), generator=seeded(2))
    assert_close(diagonal_fisher(model, x, labels, batch_size=batch_size), by_hand(model, x, labels))


# The Fisher ------------------------------------------------------------------------------------------------


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
        (nn.Sequential(nn.BatchNorm1d(5, affine=False), nn.Linear(5, 3)), (5,)),
        (nn.Linear(5, 3), (5,)),
    ],
)
def test_batch_norm_and_several_positions(model: nn.Module, shape: tuple[int, ...]) -> None:
    check(initialised(model), shape, 3)


def test_activations_in_place() -> None:
    check(initialised(nn.Sequential(nn.Linear(5, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))), (5,), 3)


def test_chunks_and_batches_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model("cifar10-vgg", width=1 / 64, seed=0).eval()
    x = torch.rand(10, 3, 32, 32, generator=seeded())
    whole = diagonal_fisher(model, x, generator=seeded(3))
    for chunk, batch_size in ((1, 10), (1 << 12, 10), (1 << 24, 1), (1 << 13, 3)):
        monkeypatch.setattr(per_sample, "_CHUNK", chunk)
        assert_close(diagonal_fisher(model, x, generator=seeded(3), batch_size=batch_size), whole)


def test_labels_are_drawn_from_the_prediction() -> None:
    """On many copies of one sample the Fisher comes near its expectation over the model's own labels."""
    model, n = initialised(nn.Linear(3, 4)).eval(), 40_000
    x = torch.rand(1, 3, generator=seeded())
    p = model(x).softmax(1)[0].detach()
    expected = sum(p[k] * (p - F.one_hot(torch.tensor(k), 4)).square() for k in range(4))
    got = diagonal_fisher(model, x.expand(n, 3), generator=seeded(1), batch_size=n)
    torch.testing.assert_close(got["bias"], expected, rtol=0.03, atol=0)
    torch.testing.assert_close(got["weight"], expected[:, None] * x.square(), rtol=0.03, atol=0)


def test_draws_of_certain_classes() -> None:
    logits = torch.tensor([[-200.0, 0.0, -200.0]]).expand(3, 3)
    assert fisher._draw(logits, torch.tensor([0.0, 0.5, 1.0])).tolist() == [1, 1, 2]


def test_nothing_else_changes() -> None:
    model = build_model("cifar10-vgg", width=1 / 64, seed=0).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(4)
    with torch.no_grad():
        diagonal_fisher(model, torch.zeros(2, 3, 32, 32))
    assert torch.rand(1).item() == torch.rand(1, generator=seeded(4)).item()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_heads_that_are_not_used_have_none() -> None:
    model = build_model("cifar100-alexnet", width=1 / 32, seed=0, heads=(3, 4)).eval()
    x, labels = torch.rand(5, 3, 32, 32, generator=seeded()), torch.arange(5) % 4
    got = diagonal_fisher(model, x, labels, head=1)
    assert_close(got, by_hand(model, x, labels, head=1))
    assert not got["heads.layers.0.weight"].any() and got["heads.layers.1.weight"].any()


def test_frozen_parameters_are_left_out() -> None:
    model = initialised(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.LayerNorm(8), nn.Linear(8, 3)))
    model[2].requires_grad_(False)
    model[0].weight.requires_grad_(False)
    check(model, (1, 4, 4), 3)
    assert diagonal_fisher(model.requires_grad_(False), torch.rand(2, 1, 4, 4)) == {}


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x))


class Functional(Twice):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.layer.weight)


class Folded(Twice):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.cat([x, x])).view(2, len(x), 4).sum(0)


def shared() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    return model


class Tied(nn.Module):
    """Words by their numbers, the same table in and out."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.positions = nn.Embedding(7, 4), nn.Parameter(torch.zeros(3, 4))
        self.attention = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.out = nn.Linear(4, 7)
        self.out.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.attention(self.table((7 * x).long()) + self.positions).mean(1))


class Chooses(nn.Module):
    """Takes another way by the value of a sample, which torch.func does not do for many at once."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([row * self.scale if row[0].item() > 0.5 else row - self.scale for row in x])


@pytest.mark.parametrize(
    ("model", "shape", "classes"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 3)), (4,), 3),
        (nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), (4,), 4),
        (nn.Sequential(nn.Conv1d(2, 3, 2), nn.ConvTranspose1d(3, 2, 2), nn.Flatten(), nn.Linear(10, 3)), (2, 5), 3),
        (
            nn.Sequential(nn.Conv2d(2, 4, 2), nn.GroupNorm(2, 4), nn.PReLU(), nn.Flatten(), nn.Linear(16, 3)),
            (2, 3, 3),
            3,
        ),
        (Tied(), (3,), 7),
        (Chooses(), (4,), 4),
        (Twice(), (4,), 4),
        (Functional(), (4,), 4),
        (Folded(), (4,), 4),
        (shared(), (4,), 4),
        (nn.Sequential(nn.Linear(4, 4), Twice(), nn.LayerNorm(4), shared()), (4,), 4),
    ],
)
@pytest.mark.parametrize("chunk", [1, 60, 1 << 20])
def test_any_layer(
    model: nn.Module, shape: tuple[int, ...], classes: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no closed form: each sample's own gradient, beside layers that have one."""
    monkeypatch.setattr(per_sample, "_CHUNK", chunk)
    check(initialised(model), shape, classes)


def test_only_what_has_no_closed_form_goes_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[str]] = []
    spied = fisher.gradients_of_each

    def spy(model: nn.Module, parameters: dict[str, Tensor], *rest: object) -> object:
        asked.append({*parameters})
        return spied(model, parameters, *rest)

    monkeypatch.setattr(fisher, "gradients_of_each", spy)
    check(initialised(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 3))), (4,), 3)
    assert asked == [{"1.weight", "1.bias"}] * 3
    asked.clear()
    check(initialised(nn.Linear(4, 3)), (4,), 3)
    assert not asked


@pytest.mark.parametrize(
    "model", [nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), nn.Sequential(nn.LayerNorm(4), Twice())]
)
def test_sensitivity_is_the_mean_over_samples(model: nn.Module) -> None:
    model, x = initialised(model).eval(), torch.rand(9, 4, generator=seeded(1))
    wanted = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for row in x:
        norm = model(row[None]).square().sum()
        for name, g in zip(wanted, torch.autograd.grad(norm, list(model.parameters()))):
            wanted[name] += g.abs() / len(x)
    assert_close(output_sensitivity(model, x, batch_size=4), wanted)
    with pytest.raises(SelfReminderError, match="of 0 samples"):
        output_sensitivity(model, x[:0])


def test_what_would_not_be_exact_is_refused() -> None:
    with pytest.raises(SelfReminderError, match=r"layer '0' .* mixes samples"):
        diagonal_fisher(nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False)).eval(), torch.rand(3, 4))


def test_what_is_asked_for_wrongly_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 3))
    with pytest.raises(SelfReminderError, match=r"train mode: call model.eval\(\)"):
        diagonal_fisher(model, torch.rand(2, 4))
    with pytest.raises(SelfReminderError, match="of 0 samples"):
        diagonal_fisher(model.eval(), torch.rand(0, 4))
    with pytest.raises(SelfReminderError, match="of 2 samples with 3 labels"):
        diagonal_fisher(model, torch.rand(2, 4), torch.zeros(3).long())


# EWC -------------------------------------------------------------------------------------------------------


def small() -> nn.Module:
    return build_model("mnist-mlp", width=1 / 16, seed=5)


def move(model: nn.Module, seed: int) -> None:
    generator = seeded(seed)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.05 * torch.randn(p.shape, generator=generator)


def held(method: Ewc, kind: str) -> dict[str, Tensor]:
    state = method.state_dict()
    return {name.removeprefix(kind + "."): value for name, value in state.items() if name.startswith(kind + ".")}


def gradients(method: Method, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    loss = method.loss(model, batch, STEP)
    loss.backward()
    method.after_backward(model, batch, STEP)
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_penalty_and_gradient_are_those_of_the_formula(digits: Stream) -> None:
    method, model = Ewc(strength=30.0), small()
    for index in range(2):
        method.after_task(model, digits[index])
        move(model, index)
    index = torch.arange(32)
    batch = Batch(digits[2].train.x[index], digits[2].train.y[index], None, index)
    importance, anchor = held(method, "fisher"), held(method, "anchor")
    loss, got = gradients(method, model, batch)
    penalty = sum((importance[k] * (p - anchor[k]).square()).sum() for k, p in model.named_parameters())
    wanted = F.cross_entropy(model(batch.x), batch.y) + 30.0 / 2 * penalty
    torch.testing.assert_close(loss, wanted.detach())
    assert 15.0 * penalty > 0.1
    model.zero_grad()
    wanted.backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(got[name], p.grad)


@pytest.mark.parametrize("kind", ["true", "empirical"])
def test_fishers_are_summed_and_the_anchor_moves(kind: str, digits: Stream) -> None:
    method, model = methods.build("ewc", {"seed": 3}, {"fisher": kind}), small()
    assert isinstance(method, Ewc)
    assert method.nbytes() == 0
    total: dict[str, Tensor] = {}
    for index in range(3):
        move(model, index)
        task = digits[index]
        method.after_task(model.train(), task)
        assert model.training
        labels = task.train.y if kind == "empirical" else None
        generator = seeded(seed_for(3, "fisher", index))
        new = diagonal_fisher(model.eval(), task.train.x, labels, generator=generator)
        total = {name: total.get(name, 0) + value for name, value in new.items()}
        assert_close(held(method, "fisher"), total)
        for name, p in model.named_parameters():
            assert torch.equal(held(method, "anchor")[name], p)
        assert method.nbytes() == 2 * 4 * sum(p.numel() for p in model.parameters())


def two_heads() -> list[Task]:
    images = Split(torch.rand(20, 3, 32, 32, generator=seeded()), torch.arange(20) % 3)
    return [Task(i, "", 3, Parts(images, images, images), lambda x: x, head=i) for i in range(2)]


def test_heads_of_other_tasks_stay() -> None:
    tasks, model = two_heads(), build_model("cifar100-alexnet", width=1 / 32, seed=0, heads=(3, 3))
    method = Ewc(strength=5.0)
    method.prepare(model, tasks)
    method.after_task(model, tasks[0])
    old = [p.detach().clone() for p in model.get_submodule("heads.layers.0").parameters()]
    train(model, tasks[1], method, Training(epochs=2, batch_size=10, lr=1e-2))
    assert all(map(torch.equal, old, model.get_submodule("heads.layers.0").parameters()))
    method.after_task(model, tasks[1])
    assert all(held(method, "fisher")[f"heads.layers.{i}.weight"].any() for i in range(2))


def test_important_weights_are_held(digits: Stream) -> None:
    """Much strength keeps the first task where fine-tuning loses it."""
    kept, moved = {}, {}
    for name in ("adam", "ewc"):
        model, method = small(), methods.build(name, {"strength": 1e4}, {})
        train(model, digits[0], method, Training(epochs=20, batch_size=32, lr=1e-3))
        before = {k: p.detach().clone() for k, p in model.named_parameters()}
        method.after_task(model, digits[0])
        train(model, digits[1], method, Training(epochs=10, batch_size=32, lr=1e-3))
        kept[name] = (model.eval()(digits[0].test.x).argmax(1) == digits[0].test.y).float().mean().item()
        if isinstance(method, Ewc):
            importance = held(method, "fisher")
            moved_by = [(importance[k], (p - before[k]).abs().detach()) for k, p in model.named_parameters()]
            f, d = (torch.cat([t.flatten() for t in column]) for column in zip(*moved_by))
            order = f.argsort()
            moved = {"least": d[order[: len(d) // 10]].mean(), "most": d[order[-len(d) // 10 :]].mean()}
    assert kept["ewc"] > kept["adam"] + 0.05, kept
    assert moved["most"] < 0.2 * moved["least"], moved


def test_it_refuses_before_training(digits: Stream) -> None:
    with pytest.raises(SelfReminderError, match="did you mean 'empirical'"):
        methods.build("ewc", {}, {"fisher": "empiric"})
    with pytest.raises(SelfReminderError, match="mixes samples"):
        Ewc().prepare(nn.Sequential(nn.BatchNorm1d(784, track_running_stats=False), nn.Linear(784, 10)), digits)
