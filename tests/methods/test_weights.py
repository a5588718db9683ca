"""Methods that act on weights or on frozen features, each against its equation."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder import methods
from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks.models import Heads, Network, build_model, trained_rows
from selfreminder.benchmarks.stream import Stream
from selfreminder.experiment.run import run
from selfreminder.experiment.spec import Experiment
from selfreminder.gradients.fisher import diagonal_fisher, output_sensitivity
from selfreminder.methods.base import Batch, Method, Step
from selfreminder.methods.cab import _free_directions
from selfreminder.methods.den import Den, fit_sparse_head
from selfreminder.methods.shared.frozen import FrozenMethod
from selfreminder.methods.si import Si
from selfreminder.training import StoppedError, Training, train

Weights = dict[str, Tensor]


def small(stream: Stream) -> Network:
    return build_model("mnist-mlp", width=1 / 32, seed=5, heads=stream.heads)


def weights_of(model: nn.Module) -> Weights:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def learn(model: nn.Module, method: Method, stream: Stream, index: int, **how: Any) -> None:
    train(model, stream[index], method, Training(**{"epochs": 2, "batch_size": 60, "lr": 1e-3, **how}))
    method.after_task(model, stream[index])


class Watched(Si):
    """Writes down every step's gradient of the cross entropy alone, and the weights around it, in double precision."""

    def prepare(self, model: nn.Module, stream: Any) -> nn.Module:
        self.paths: list[Weights] = []
        return model

    def after_backward(self, model: nn.Module, batch: Batch, step: Step) -> None:
        loss = F.cross_entropy(self.predict(model, batch.x, batch.head), batch.y)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        self.now = {name: g.double() for (name, _), g in zip(model.named_parameters(), gradients)}
        self.before = {name: value.double() for name, value in weights_of(model).items()}
        super().after_backward(model, batch, step)

    def after_step(self, model: nn.Module, batch: Batch, step: Step) -> None:
        super().after_step(model, batch, step)
        moved = {name: value.double() - self.before[name] for name, value in weights_of(model).items()}
        self.paths.append({name: -self.now[name] * moved[name] for name in moved})


@pytest.mark.parametrize("how", [{"optimizer": "adam"}, {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9}])
def test_synaptic_intelligence_is_its_path_integral(how: dict[str, Any], digits: Stream) -> None:
    """By hand over two tasks, with a penalty that bites in the second."""
    model, method = small(digits), Watched(strength=3.0, xi=0.02)
    method.prepare(model, digits)
    importance = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in weights_of(model).items()}
    for index in range(2):
        start = weights_of(model)
        method.paths.clear()
        learn(model, method, digits, index, weight_decay=1e-3, **how)
        for name, end in weights_of(model).items():
            path = torch.stack([step[name] for step in method.paths]).sum(0)
            distance = (end.double() - start[name].double()).square()
            importance[name] = (importance[name] + path / (distance + 0.02)).clamp(min=0)
            kept = method.state_dict()[f"importance.{name}"].double()
            torch.testing.assert_close(kept, importance[name], rtol=1e-4, atol=1e-5 * importance[name].max().item())
            assert torch.equal(method.state_dict()[f"anchor.{name}"], end)
    assert not any(key.startswith("path.") for key in method.state_dict())


def test_the_path_integral_is_the_fall_of_the_loss(digits: Stream) -> None:
    """With the whole task in each of many small steps, Σ_i ω_i is what the loss fell by."""
    model, method, task = small(digits), Si(), digits[0]

    def loss() -> float:
        return F.cross_entropy(model(task.train.x), task.train.y).item()

    before, n = loss(), len(task.train)
    train(model, task, method, Training(epochs=250, batch_size=n, optimizer="sgd", lr=0.1, weight_decay=0.0))
    total = sum(value.sum().item() for key, value in method.state_dict().items() if key.startswith("path."))
    assert before - loss() > 0.1
    assert total == pytest.approx(before - loss(), rel=0.02)


@pytest.mark.parametrize(("name", "factor"), [("si", 1.0), ("mas", 1.0), ("ewc", 0.5)])
def test_a_penalty_is_its_formula(name: str, factor: float, digits: Stream) -> None:
    model, method = small(digits), methods.build(name, {"strength": 7.0}, {})
    learn(model, method, digits, 0)
    kept = method.state_dict()
    with torch.no_grad():
        for p in model.parameters():
            p *= 1.3
    rows = torch.arange(30)
    batch, step = (
        Batch(digits[1].train.x[rows], digits[1].train.y[rows], None, rows),
        Step(1, 0, 0.0, torch.Generator()),
    )
    entropy = F.cross_entropy(model(batch.x), batch.y)
    word = "fisher" if name == "ewc" else "importance"
    penalty = sum(
        (kept[f"{word}.{key}"] * (p - kept[f"anchor.{key}"]).square()).sum() for key, p in model.named_parameters()
    )
    wanted = entropy + 7.0 * factor * penalty
    loss = method.loss(model, batch, step)
    assert wanted - entropy > 1e-3
    torch.testing.assert_close(loss, wanted)
    by_hand = torch.autograd.grad(wanted, list(model.parameters()))
    model.zero_grad()
    loss.backward()
    method.after_backward(model, batch, step)
    for p, gradient in zip(model.parameters(), by_hand):
        torch.testing.assert_close(p.grad, gradient)


def test_sensitivities_are_summed(digits: Stream) -> None:
    model, method = small(digits), methods.build("mas", {"strength": 0.0}, {})
    total: Weights = {}
    for index in range(2):
        learn(model, method, digits, index)
        new = output_sensitivity(model.eval(), digits[index].train.x)
        total = {name: total.get(name, 0) + value for name, value in new.items()}
    for name, value in total.items():
        torch.testing.assert_close(method.state_dict()[f"importance.{name}"], value)


@pytest.mark.parametrize("merge", ["mean", "mode"])
def test_moments_are_matched(merge: str, digits: Stream) -> None:
    model, method = small(digits), methods.build("imm", {"strength": 0.01, "seed": 1}, {"merge": merge})
    own: list[Weights] = []
    fishers: list[Weights] = []
    after_task = method.after_task

    def spy(model: nn.Module, task: Any) -> None:
        own.append(weights_of(model))
        after_task(model, task)
        theirs = method.state_dict()
        fishers.append({name: theirs[f"weight.{name}"].clone() for name in own[-1]})

    method.after_task = spy
    for index in range(3):
        learn(model, method, digits, index)
    assert not torch.equal(own[1]["heads.layers.0.bias"], own[2]["heads.layers.0.bias"])
    for name, value in weights_of(model).items():
        each = [fishers[0][name], fishers[1][name] - fishers[0][name], fishers[2][name] - fishers[1][name]]
        mean = sum(w * theta[name] for w, theta in zip(each, own)) / sum(each)
        if merge == "mean":
            assert all((w == 1).all() for w in each)
        torch.testing.assert_close(value, mean, rtol=1e-4, atol=1e-5)
    if merge == "mode":
        again = small(digits)
        again.load_state_dict(own[0])
        generator = torch.Generator().manual_seed(0)
        near = diagonal_fisher(again.eval(), digits[0].train.x, generator=generator)["heads.layers.0.bias"]
        torch.testing.assert_close(fishers[0]["heads.layers.0.bias"], near, rtol=0.3, atol=1e-3)  # by another draw


def test_moments_are_learned_on_from_the_last_task_s_own(digits: Stream) -> None:
    model, method = small(digits), methods.build("imm", {"strength": 0.01}, {})
    learn(model, method, digits, 0)
    train(model, digits[1], method, Training(epochs=1, batch_size=60, lr=1e-3))
    own = weights_of(model)
    method.after_task(model, digits[1])
    assert not torch.equal(own["body.1.weight"], weights_of(model)["body.1.weight"])
    method.start_task(model, digits[2])
    assert all(torch.equal(value, own[name]) for name, value in weights_of(model).items())


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_weights_between_old_and_new(alpha: float, digits: Stream) -> None:
    """Of an output that grows, rows of new classes are the new model's."""
    model, method = small(digits), methods.build("wise", {}, {"alpha": alpha})
    first, second = (replace(digits[index], outputs=outputs) for index, outputs in ((0, 4), (1, 6)))
    few = first.train.take(first.train.y < 4)
    first = replace(first, parts=replace(first.parts, train=few))
    train(model, first, method, Training(epochs=1, batch_size=60, lr=1e-3))
    method.after_task(model, first)
    old = weights_of(model)
    some = second.train.take(second.train.y < 6)
    train(model, replace(second, parts=replace(second.parts, train=some)), method, Training(epochs=1, batch_size=60))
    new = weights_of(model)
    method.after_task(model, second)
    for name, value in weights_of(model).items():
        between = (1 - alpha) * old[name] + alpha * new[name]
        if name.startswith("heads"):
            between = torch.cat([between[:4], new[name][4:]])
        torch.testing.assert_close(value, between)


def test_rows_that_a_task_trains(headed_digits: Stream) -> None:
    model = small(headed_digits)
    rows = trained_rows(model, headed_digits[1])
    assert {name for name in rows if "heads" in name} == {"heads.layers.1.weight", "heads.layers.1.bias"}
    assert trained_rows(model, replace(headed_digits[1], outputs=3))["heads.layers.1.bias"] == slice(3)


def test_conceptors_of_old_tasks_are_joined() -> None:
    """(I + α²(R + S))⁻¹ is NOT (C OR B) by Jaeger's definitions of the two."""
    generator = torch.Generator().manual_seed(0)
    r, s = ((a := torch.randn(5, 9, generator=generator, dtype=torch.float64)) @ a.T / 9 for _ in range(2))
    one, aperture = torch.eye(5, dtype=torch.float64), 3.0

    def conceptor(correlation: Tensor) -> Tensor:
        return correlation @ torch.linalg.inv(correlation + one / aperture**2)

    def negate(c: Tensor) -> Tensor:
        return one - c

    def both(c: Tensor, b: Tensor) -> Tensor:
        return torch.linalg.inv(torch.linalg.inv(c) + torch.linalg.inv(b) - one)

    joined = negate(both(negate(conceptor(r)), negate(conceptor(s))))
    torch.testing.assert_close(_free_directions(r + s, aperture), negate(joined))


def test_a_conceptor_holds_outputs_on_old_inputs(digits: Stream) -> None:
    moved = {}
    for aperture in (1e-3, 100.0):
        model, method = small(digits), methods.build("cab", {}, {"aperture": aperture})
        learn(model, method, digits, 0, optimizer="sgd", lr=0.1, epochs=5)
        before = model(digits[0].train.x).detach()
        learn(model, method, digits, 1, optimizer="sgd", lr=0.1)
        moved[aperture] = (model(digits[0].train.x) - before).square().mean().item()
    assert moved[100.0] < 0.01 * moved[1e-3]


def test_what_a_conceptor_cannot_hold_is_refused(digits: Stream) -> None:
    with pytest.raises(SelfReminderError, match=r"not '0' \(LayerNorm\)"):
        methods.build("cab", {}, {}).prepare(nn.Sequential(nn.LayerNorm(784), nn.Linear(784, 10)), digits)


@pytest.mark.parametrize("name", ["slda", "ranpac"])
def test_a_closed_form_is_the_same_for_all_data_at_once(name: str, headed_digits: Stream, digits: Stream) -> None:
    """Task after task or all at once, in whichever batches."""
    for stream, sizes in ((digits, (10,)), (headed_digits, (10, 12, 10))):
        model, method = small(stream), methods.build(name, {}, {"adapt": False})
        assert isinstance(method, FrozenMethod)
        model = method.prepare(model, stream)
        for index in range(2):
            learn(model, method, stream, index, batch_size=37 + index)
        tasks = [stream[index] for index in range(2)]
        h = torch.cat([model.body(task.train.x) for task in tasks]).detach().double()
        before = [sum(sizes[: task.head or 0]) for task in tasks]
        y = torch.cat([task.train.y + start for task, start in zip(tasks, before)])
        seen = y.unique()
        if name == "slda":
            means = torch.stack([h[y == k].mean(0) for k in seen])
            scatter = sum((h[y == k] - m).T @ (h[y == k] - m) for k, m in zip(seen, means)) / len(y)
            precision = torch.linalg.inv((1 - 1e-4) * scatter + 1e-4 * torch.eye(len(scatter), dtype=h.dtype))
            weights = means @ precision
            logits = h @ weights.T - 0.5 * (weights * means).sum(1)
        else:
            gram = h.T @ h
            ridge = 1e-3 * gram.diagonal().mean() * torch.eye(len(gram), dtype=h.dtype)
            logits = h @ torch.linalg.solve(gram + ridge, h.T @ F.one_hot(y)[:, seen].double())
        heads = model.heads
        assert isinstance(heads, Heads)
        ours = torch.cat([heads(h.float(), head) for head in ((0,) if len(sizes) == 1 else (0, 1))], 1)[:, seen]
        scale = logits.abs().mean().item()
        torch.testing.assert_close(ours.double(), logits, rtol=0.02, atol=0.02 * scale)


def test_the_body_stays_after_the_first_task(digits: Stream) -> None:
    model, method = small(digits), methods.build("slda", {}, {})
    method.prepare(model, digits)
    given = weights_of(model)["body.1.weight"]
    learn(model, method, digits, 0)
    first = weights_of(model)["body.1.weight"]
    learn(model, method, digits, 1)
    assert not torch.equal(given, first)
    assert torch.equal(first, weights_of(model)["body.1.weight"])


def den(stream: Stream, **options: Any) -> tuple[Network, Den]:
    model, method = small(stream), methods.build("den", {}, options)
    assert isinstance(method, Den)
    method.prepare(model, stream)
    return model, method


def test_what_is_split_leaves_all_tasks_as_they_are(headed_digits: Stream) -> None:
    """With every unit that moved in two, old tasks predict as they did, and the new one as it learned to."""
    model, method = den(headed_digits, drift=1e-9, grow=3)
    seen: list[tuple[Tensor, int, Tensor]] = []
    for index in range(3):
        task = headed_digits[index]
        train(model, task, method, Training(epochs=2, batch_size=60, lr=1e-2))
        learned = method.predict(model, task.test.x, task.head)
        method.after_task(model, task)
        torch.testing.assert_close(method.predict(model, task.test.x, task.head), learned)
        for x, head, logits in seen:
            torch.testing.assert_close(method.predict(model, x, head), logits)
        seen.append((task.test.x, index, learned.detach()))
    units = method.measures()
    assert all(count > 32 + 2 * 3 for count in units.values()), units  # more than the expansion's


def test_a_network_grows_only_where_it_must(headed_digits: Stream) -> None:
    for options, grown in (({"enough": 100.0, "drift": 100.0}, 32), ({"grow": 5, "drift": 100.0}, 37)):
        model, method = den(headed_digits, **options)
        for index in range(2):
            learn(model, method, headed_digits, index)
        assert set(method.measures().values()) == {float(grown)}
        assert [len(p) for name, p in model.body.named_parameters() if "bias" in name] == [grown] * 4


def test_units_that_are_not_selected_stay(headed_digits: Stream) -> None:
    model, method = den(headed_digits, enough=100.0, drift=100.0, sparsity=0.3, threshold=0.9)
    learn(model, method, headed_digits, 0)
    before = weights_of(model)
    train(model, headed_digits[1], method, Training(epochs=1, batch_size=60, lr=1e-2))
    moved = (weights_of(model)["body.1.bias"] != before["body.1.bias"]).cpu()
    selected = method.state_dict()["selected.0"]
    assert 0 < selected.sum() < 32, selected
    assert not (moved & ~selected).any() and (moved & selected).any()


def test_a_sparse_head_is_the_minimum() -> None:
    """Its gradient is the penalty where a weight is not 0, and smaller where it is."""
    generator = torch.Generator().manual_seed(0)
    h, y = torch.randn(60, 5, generator=generator).relu(), torch.arange(60) % 3
    h[:, 0] += 2.0 * (y == 1)
    weight, bias, loss = fit_sparse_head(h, y, 3, 0.3)
    gradient = ((h @ weight.T + bias).softmax(1) - F.one_hot(y, 3)).T @ h / 60
    none = (1 / 3 - F.one_hot(y, 3)).T @ (h - h.mean(0)) / 60
    assert loss == pytest.approx(F.cross_entropy(h @ weight.T + bias, y).item(), rel=1e-4)
    penalty = 0.3 * none.abs().max().item()
    assert (weight != 0).any() and (weight == 0).any()
    assert gradient[weight != 0].abs().sub(penalty).abs().max() < 1e-3
    assert gradient.abs().max() < penalty + 1e-3


@pytest.mark.parametrize("stop", [11, 19, 27])
def test_a_network_that_grew_goes_on(stop: int, tmp_path: Path) -> None:
    experiment = Experiment(
        benchmark="split-mnist",
        method="den",
        data="embedded-mnist",
        images=600,
        tasks=3,
        split_into=5,
        epochs=2,
        width=0.03,
        lr=1e-2,
        batch_size=16,
        options={"drift": 0.01, "enough": 1e-3, "grow": 2},
    )
    whole = run(experiment, tmp_path / "whole")
    count = iter(range(10_000))
    with pytest.raises(StoppedError):
        run(experiment, tmp_path / "cut", stop=lambda: next(count) == stop)
    assert run(experiment, tmp_path / "cut") == whole
    assert whole.tasks[2]["measures"]["units of layer 1"] > whole.tasks[1]["measures"]["units of layer 1"] > 31


@pytest.mark.parametrize(
    ("name", "option", "value", "message"),
    [
        ("si", "xi", 0.0, "xi is 0.0: it must be above 0"),
        ("cab", "aperture", -1.0, "aperture is -1.0: it must be above 0"),
        ("wise", "alpha", 1.5, "alpha is 1.5: it must be from 0 to 1"),
        ("slda", "shrinkage", 0.0, "shrinkage is 0.0: it must be above 0, at most 1"),
        ("ranpac", "features", 30_000, "features is 30000: it must be at most 20000"),
        ("ranpac", "ridge", 0.0, "ridge is 0.0: it must be above 0"),
        ("imm", "merge", "median", "unknown merge 'median'"),
        ("den", "grow", 0, "grow is 0: it must be above 0"),
        ("den", "grow", 20_000, "grow is 20000: it must be at most 10000"),
    ],
)
def test_options_out_of_range(name: str, option: str, value: object, message: str) -> None:
    with pytest.raises(SelfReminderError, match=message):
        methods.build(name, {}, {option: value})
