"""Influence against retraining without a point, and against a dense solution; selection by it."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder import methods
from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks.models import build_model
from selfreminder.benchmarks.stream import Split, Stream, Task
from selfreminder.gradients.influence import estimate_influence
from selfreminder.gradients.per_sample import Inputs
from selfreminder.reminder.reminder import Reminder
from selfreminder.selection import find
from selfreminder.selection.base import Candidates
from selfreminder.training import Training, train

Data = tuple[Tensor, Tensor]


def call(model: nn.Module, x: Inputs) -> Tensor:
    return model(x)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's, of ranks."""
    ranks = torch.stack([a, b]).argsort(1).argsort(1).double()
    return float(torch.corrcoef(ranks)[0, 1])


def clouds(n: int, seed: int) -> Data:
    """Three classes that overlap, in five dimensions."""
    y = torch.arange(n) % 3
    x = 0.8 * torch.eye(3, 5, dtype=torch.float64)[y] + torch.randn(n, 5, generator=seeded(seed), dtype=torch.float64)
    return x, y


# A convex model, trained to the end ----------------------------------------------------------------------------

DECAY = 0.02


def fit(model: nn.Linear, x: Tensor, y: Tensor, weight: Tensor) -> None:
    """To the minimum of the weighted sum of losses and DECAY/2 ‖θ‖²."""
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=500, tolerance_grad=1e-10, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        decay = sum((p.square().sum() for p in model.parameters()), torch.zeros(()))
        loss = weight @ F.cross_entropy(model(x), y, reduction="none") + DECAY / 2 * decay
        loss.backward()
        return loss

    optimizer.step(closure)
    optimizer.zero_grad()


@pytest.fixture(scope="module")
def logistic() -> tuple[nn.Linear, Data, Data]:
    data, model = clouds(100, 0), nn.Linear(5, 3, dtype=torch.float64)
    nn.init.zeros_(model.weight), nn.init.zeros_(model.bias)
    fit(model, *data, torch.full((100,), 1 / 100, dtype=torch.float64))
    return model, data, clouds(200, 1)


@pytest.mark.parametrize("solver", ["cg", "lissa"])
def test_is_the_effect_of_leaving_a_point_out(solver: str, logistic: tuple[nn.Linear, Data, Data]) -> None:
    model, (x, y), validation = logistic
    got = estimate_influence(model, call, x, y, validation, damping=DECAY, solver=solver, tolerance=1e-6)
    loss = F.cross_entropy(model(validation[0]), validation[1]).item()
    changes = []
    for i in range(len(y)):
        other = nn.Linear(5, 3, dtype=torch.float64)
        other.load_state_dict(model.state_dict())
        fit(other, x, y, torch.full((100,), 1 / 100, dtype=torch.float64).index_fill(0, torch.tensor(i), 0))
        changes.append(F.cross_entropy(other(validation[0]), validation[1]).item() - loss)
    change = torch.tensor(changes, dtype=torch.float64)
    # To take a point away is to lower its weight by 1/n.
    assert correlation(-got / len(y), change) > 0.95
    slope = float((change @ -got / len(y)) / (got / len(y)).square().sum())
    assert 0.7 < slope < 1.4, slope


def test_solvers_agree(logistic: tuple[nn.Linear, Data, Data]) -> None:
    model, data, validation = logistic

    def by(**options) -> Tensor:
        return estimate_influence(model, call, *data, validation, damping=DECAY, tolerance=1e-9, **options)

    exact = by()
    torch.testing.assert_close(by(solver="lissa", iterations=1000), exact, rtol=1e-3, atol=1e-5)
    noisy = by(solver="lissa", iterations=1000, batch_size=20)
    assert correlation(noisy, exact) > 0.99
    assert not torch.equal(noisy, exact)


# A network, against all of its Hessian ---------------------------------------------------------------------------


def network() -> nn.Sequential:
    model, generator = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.BatchNorm1d(4), nn.Linear(4, 3)).double(), seeded(1)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return model


def hessian(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Callable[[Tensor, Tensor], Tensor]]:
    """Of the mean loss in eval mode; and the function that gives the gradient."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}

    def loss(flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        parts = zip(trained.items(), flat.split([p.numel() for p in trained.values()]))
        values = {name: part.view_as(p) for (name, p), part in parts}
        return F.cross_entropy(torch.func.functional_call(model, values, (x,)), y)

    theta = torch.cat([p.detach().flatten() for p in trained.values()])
    model.eval()
    whole = torch.autograd.functional.hessian(lambda flat: loss(flat, x, y), theta)
    return whole, lambda x, y: torch.autograd.functional.jacobian(lambda flat: loss(flat, x, y), theta)


def dense(model: nn.Module, data: Data, validation: Data, damping: float, part: Data | None = None) -> Tensor:
    """The definition."""
    whole, gradient = hessian(model, *(part or data))
    each = torch.stack([gradient(x[None], y[None]) for x, y in zip(*data)])
    return -each @ torch.linalg.solve(whole + damping * torch.eye(len(whole)), gradient(*validation))


def least_eigenvalue(model: nn.Module, data: Data) -> float:
    return float(torch.linalg.eigvalsh(hessian(model, *data)[0])[0])


@pytest.mark.parametrize(
    ("solver", "iterations", "batch_size", "rtol"),
    [("cg", 100, 64, 1e-5), ("cg", 100, 7, 1e-5), ("lissa", 1000, 64, 1e-3)],
)
def test_is_the_dense_solution(solver: str, iterations: int, batch_size: int, rtol: float) -> None:
    model, data, validation = network(), clouds(40, 2), clouds(30, 3)
    assert least_eigenvalue(model, data) > -0.5
    got = estimate_influence(
        *(model, call, *data, validation),
        damping=0.5,
        solver=solver,
        iterations=iterations,
        tolerance=1e-9,
        batch_size=batch_size,
    )
    wanted = dense(model, data, validation, 0.5)
    torch.testing.assert_close(got, wanted, rtol=rtol, atol=rtol * wanted.abs().max().item())


@pytest.mark.parametrize("solver", ["cg", "lissa"])
def test_negative_curvature_raises_damping_tenfold(solver: str) -> None:
    model, data, validation = network(), clouds(40, 2), clouds(30, 3)
    least = least_eigenvalue(model, data)
    assert -0.5 < least < -0.05
    got = estimate_influence(
        model, call, *data, validation, damping=0.005, solver=solver, iterations=500, tolerance=1e-6, batch_size=64
    )
    wanted = dense(model, data, validation, 0.5)
    torch.testing.assert_close(got, wanted, rtol=1e-2, atol=1e-2 * wanted.abs().max().item())


def test_lissa_knows_negative_curvature_from_the_start() -> None:
    """Too few steps to run away, and the damping is raised all the same."""
    model, data, validation = network(), clouds(40, 2), clouds(30, 3)
    little, much = (
        estimate_influence(model, call, *data, validation, damping=damping, solver="lissa", iterations=2)
        for damping in (0.005, 0.5)
    )
    torch.testing.assert_close(little, much)


def test_frozen_parameters_are_left_out() -> None:
    model, data, validation = network(), clouds(40, 2), clouds(30, 3)
    model[0].requires_grad_(False)
    got = estimate_influence(model, call, *data, validation, damping=1.0, tolerance=1e-9)
    torch.testing.assert_close(got, dense(model, data, validation, 1.0))
    with pytest.raises(SelfReminderError, match="no parameter of the model requires a gradient"):
        estimate_influence(model.requires_grad_(False), call, *data, validation)


def test_the_hessian_of_some_samples() -> None:
    model, data, validation = network(), clouds(40, 2), clouds(30, 3)
    few = torch.randperm(40, generator=seeded(5))[:15]
    got = estimate_influence(
        model, call, *data, validation, damping=1.0, tolerance=1e-9, samples=15, generator=seeded(5)
    )
    part = data[0][few], data[1][few]
    torch.testing.assert_close(got, dense(model, data, validation, 1.0, part))
    assert not torch.allclose(got, estimate_influence(model, call, *data, validation, damping=1.0, tolerance=1e-9))


class Attentive(nn.Module):
    """Attention, and inputs by name; logits of a class that is absent are far below."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.unused, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return F.pad(self.last(self.attention(x).mean(1) * scale[:, None]), (0, 1), value=-1e9)


def test_other_networks_and_inputs_by_name() -> None:
    """Each point's influence is the sum over parameters of its gradient times one solution, whatever the network."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Attentive().double()
    x = torch.randn(12, 3, 4, generator=seeded(), dtype=torch.float64)
    inputs = {"x": x, "scale": torch.linspace(0.5, 2, 12, dtype=torch.float64)}
    labels = torch.arange(12) % 3

    def logits_of(model: nn.Module, inputs: Inputs) -> Tensor:
        assert not isinstance(inputs, Tensor)
        return model(inputs["x"], inputs["scale"])

    # So much damping that the Hessian does not matter: the products of the gradients remain.
    damping = 1e7
    got = estimate_influence(model, logits_of, inputs, labels, (inputs, labels), damping=damping, batch_size=5)
    gradients = []
    for i in range(12):
        loss = F.cross_entropy(model.eval()(x[i : i + 1], inputs["scale"][i : i + 1]), labels[i : i + 1])
        parts = torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)
        gradients.append(torch.cat([g.flatten() for g in parts]))
    each = torch.stack(gradients)
    torch.testing.assert_close(got * damping, -each @ each.mean(0), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("solver", ["cg", "lissa"])
def test_the_model_is_left_as_it_was(solver: str) -> None:
    model, data, validation = network().train(), clouds(40, 2), clouds(30, 3)
    model[2].eval()
    modes = [module.training for module in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    own = torch.rand_like(model[0].weight)
    model[0].weight.grad = own
    torch.manual_seed(4)
    with torch.no_grad():
        first, again = (
            estimate_influence(model, call, *data, validation, solver=solver, iterations=5, samples=30, batch_size=10)
            for _ in range(2)
        )
    assert torch.equal(first, again) and not first.requires_grad
    assert torch.rand(1).item() == torch.rand(1, generator=seeded(4)).item()
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    others = [p for p in model.parameters() if p is not model[0].weight]
    assert model[0].weight.grad is own and all(p.grad is None and p.requires_grad for p in others)


def test_what_is_asked_for_wrongly_is_refused() -> None:
    model, data, validation = network(), clouds(10, 2), clouds(10, 3)
    wrong = {
        "did you mean 'lissa'": {"solver": "lisa"},
        "damping -1: it must be a number above 0": {"damping": -1},
        "damping 'much'": {"damping": "much"},
        "samples 0.5: it must be a whole number above 0": {"samples": 0.5},
        "iterations 0": {"iterations": 0},
        "tolerance nan": {"tolerance": float("nan")},
    }
    for message, options in wrong.items():
        with pytest.raises(SelfReminderError, match=message):
            estimate_influence(model, call, *data, validation, **options)
    with pytest.raises(SelfReminderError, match="no influence of 10 points on 0"):
        estimate_influence(model, call, *data, (data[0][:0], data[1][:0]))
    with pytest.raises(SelfReminderError, match="the logits carry no gradient"):
        estimate_influence(model, lambda model, x: model(x).detach(), *data, validation)


@pytest.mark.parametrize("solver", ["cg", "lissa"])
def test_what_is_not_finite_is_hopeless(solver: str) -> None:
    model, data, validation = network(), clouds(10, 2), clouds(10, 3)
    data[0][3] = torch.nan
    with pytest.raises(SelfReminderError, match="not finite, also with damping 1e"):
        estimate_influence(model, call, *data, validation, solver=solver)


# Selection -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mislabelled(digits: Stream) -> tuple[Candidates, Tensor]:
    """Digits of which every twentieth has a wrong label, and a model that has learned them for a while."""
    task = digits[0]
    y = task.train.y.clone()
    wrong = torch.arange(0, len(y), 20)
    y[wrong] = (y[wrong] + 1 + torch.randint(9, wrong.shape, generator=seeded())) % 10
    data = Split(task.train.x, y)
    parts = replace(task.parts, train=data)
    model = build_model("mnist-mlp", width=1 / 16, seed=0)
    learn = Task(0, "", 10, parts)
    train(model, learn, methods.build("adam", {}, {}), Training(epochs=4, batch_size=32, lr=1e-3))
    candidates = Candidates(
        inputs=data.x,
        labels=y,
        count=5,
        generator=seeded(),
        model=model,
        logits_of=call,
        validation=(task.test.x, task.test.y),
    )
    return candidates, wrong


def test_wrong_labels_are_harmful(mislabelled: tuple[Candidates, Tensor]) -> None:
    candidates, wrong = mislabelled
    ranked = find("influence")(candidates)
    assert ranked.sort().values.tolist() == list(range(len(candidates)))
    is_wrong = torch.zeros(len(candidates)).index_fill(0, wrong, 1)
    tenth = len(candidates) // 10
    # By chance it would be a tenth, and a half.
    assert is_wrong[ranked[-tenth:]].sum() > 0.5 * len(wrong)
    assert is_wrong[ranked[: 5 * tenth]].sum() < 0.3 * len(wrong)


def test_helpful_and_harmful_are_reversals(mislabelled: tuple[Candidates, Tensor]) -> None:
    candidates, _ = mislabelled
    helpful, harmful, alias = (
        find(name)(replace(candidates, generator=seeded(1)))
        for name in ("influence:samples=100", "influence:keep=harmful,samples=100", "influence+:samples=100")
    )
    assert torch.equal(helpful, harmful.flip(0)) and torch.equal(harmful, alias)


def test_selection_refuses(mislabelled: tuple[Candidates, Tensor]) -> None:
    candidates, _ = mislabelled
    with pytest.raises(SelfReminderError, match=r"pass validation=\(inputs, labels\)"):
        find("influence")(replace(candidates, validation=None))
    with pytest.raises(SelfReminderError, match="did you mean 'helpful'"):
        find("influence:keep=helpfull")(candidates)
    with pytest.raises(SelfReminderError, match="unknown solver 'gd'"):
        find("influence:solver=gd")(candidates)


def test_influence_is_on_the_validation_data_that_is_given() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y, v = torch.rand(30, 4, generator=generator), torch.arange(30) % 3, torch.rand(12, 4, generator=generator)
    torch.manual_seed(0)
    model, chosen = nn.Linear(4, 3), []
    for labels in (torch.arange(12) % 3, torch.zeros(12).long()):
        reminder = Reminder()
        reminder.remember(model, x, y, per_class=3, select="influence", validation=(v, labels))
        ranked = find("influence")(
            Candidates(
                inputs=x,
                labels=y,
                count=3,
                generator=torch.Generator(),
                model=model,
                logits_of=lambda model, x: model(x),
                validation=(v, labels),
            )
        )
        for label in range(3):
            best = ranked[y[ranked] == label][:3]
            assert reminder.memory.sources[reminder.memory.labels == label].tolist() == best.tolist()
        chosen.append(reminder.memory.sources.tolist())
    assert chosen[0] != chosen[1]
