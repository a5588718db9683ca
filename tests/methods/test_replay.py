"""The replay methods' equations by hand, and what becomes of their memory."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from selfreminder import methods
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import Size
from selfreminder.benchmarks.models import build_model
from selfreminder.benchmarks.scenario import arrange
from selfreminder.benchmarks.stream import Stream
from selfreminder.methods.agem import Agem
from selfreminder.methods.base import Batch, Step
from selfreminder.methods.cls_er import ClsEr
from selfreminder.methods.der import Der
from selfreminder.methods.fsr_refresh import FsrRefresh
from selfreminder.methods.gdumb import Gdumb
from selfreminder.methods.gem import Gem, solve_dual
from selfreminder.methods.replay import ReplayMethod
from selfreminder.training import Training, train

SETTINGS = {"strength": 0.7, "size": Size(items=30), "memory_batch": 64, "seed": 5}
HOW = Training(epochs=1, batch_size=64, lr=1e-3, seed=5)


def begin(name: str, stream: Stream, options: dict[str, object] | None = None) -> tuple[nn.Module, ReplayMethod, Batch]:
    """A method that has learned a task, at weights that have moved since, and a batch of the next."""
    method = methods.build(name, SETTINGS, options or {})
    assert isinstance(method, ReplayMethod)
    model = method.prepare(build_model("mnist-mlp", width=1 / 16, seed=5, heads=stream.heads), stream)
    train(model, stream[0], method, HOW)
    method.after_task(model, stream[0])
    with torch.no_grad():
        for p in model.parameters():
            p *= 1.3
    rows = torch.arange(40)
    return model, method, Batch(stream[1].train.x[rows], stream[1].train.y[rows], stream[1].head, rows)


def compute_loss(model: nn.Module, method: ReplayMethod, batch: Batch) -> Tensor:
    return method.loss(model, batch, Step(1, 0, 0.0, torch.Generator().manual_seed(3)))


def test_er(digits: Stream) -> None:
    model, method, batch = begin("er", digits)
    old, new = method.slots.read(), model(batch.x)
    each = F.cross_entropy(torch.cat([new, model(old.x)]), torch.cat([batch.y, old.y]), reduction="none")
    weight = torch.cat([torch.ones(40), torch.full((30,), 0.7)])
    torch.testing.assert_close(compute_loss(model, method, batch), (weight * each).sum() / weight.sum())


def test_er_ace(digits: Stream) -> None:
    model, method, batch = begin("er-ace", digits)
    few = batch._replace(x=batch.x[:3], y=batch.y[:3])
    old, present = method.slots.read(), few.y.unique()
    among = model(few.x)[:, present]
    expected = F.cross_entropy(among, torch.searchsorted(present, few.y)) + 0.7 * F.cross_entropy(model(old.x), old.y)
    torch.testing.assert_close(compute_loss(model, method, few), expected)


@pytest.mark.parametrize(("name", "options"), [("der", {}), ("derpp", {"label_weight": 0.2})])
def test_der(name: str, options: dict[str, object], digits: Stream) -> None:
    model, method, batch = begin(name, digits, options)
    old = method.slots.read()
    assert old.logits is not None
    expected = F.cross_entropy(model(batch.x), batch.y) + 0.7 * F.mse_loss(model(old.x), old.logits)
    if name == "derpp":
        expected = expected + 0.2 * F.cross_entropy(model(old.x), old.y)
    torch.testing.assert_close(compute_loss(model, method, batch), expected)


def test_derpp_draws_twice(digits: Stream) -> None:
    model, method, batch = begin("derpp", digits)
    method.memory_batch = 5
    seen: list[Tensor] = []
    of_slots = method.slots.draw
    method.slots.draw = lambda n, generator: seen.append(of_slots(n, generator)) or seen[-1]
    compute_loss(model, method, batch)
    first, second = seen
    assert len(first.y) == 5 and not torch.equal(first.x, second.x)


def test_der_records_the_logits_of_the_pass_that_was_made(digits: Stream) -> None:
    method = methods.build("der", SETTINGS, {})
    assert isinstance(method, Der)
    model = method.prepare(build_model("mnist-mlp", width=1 / 16, seed=5), digits)
    x, y = digits[0].train.x[:20], digits[0].train.y[:20]
    before, batch = model(x).detach(), Batch(x, y, None, torch.arange(20))
    step = Step(0, 0, 0.0, torch.Generator())
    method.loss(model, batch, step)
    with torch.no_grad():
        for p in model.parameters():
            p *= 1.5  # the optimizer's step
    method.after_step(model, batch, step)
    assert torch.equal(method.slots.read().logits, before)


def test_agem_turns_a_step_that_would_harm(digits: Stream) -> None:
    model, method, batch = begin("agem", digits)
    assert isinstance(method, Agem)
    old, step = method.slots.read(), Step(1, 0, 0.0, torch.Generator())
    parameters = list(model.parameters())
    reference = flatten(torch.autograd.grad(F.cross_entropy(model(old.x), old.y), parameters))
    for sign in (1.0, -1.0):
        gradient = sign * reference + 0.1 * torch.randn(len(reference), generator=torch.Generator().manual_seed(0))
        for p, g in zip(parameters, gradient.split([p.numel() for p in parameters])):
            p.grad = g.view_as(p).clone()
        method.after_backward(model, batch, step)
        now = flatten([p.grad for p in parameters])
        if sign > 0:
            torch.testing.assert_close(now, gradient)
        else:
            expected = gradient - (gradient @ reference) / (reference @ reference) * reference
            torch.testing.assert_close(now, expected, atol=1e-5, rtol=1e-4)


def flatten(tensors: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    return torch.cat([each.flatten() for each in tensors])


@given(st.integers(1, 8), st.integers(0, 99))
def test_the_dual_is_solved(n: int, seed: int) -> None:
    """Karush, Kuhn and Tucker: u ≥ 0, its slope ≥ 0, and one of the two is 0 for every multiplier."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(n, n + 2))
    quadratic, linear = rows @ rows.T, random.normal(size=n)
    u = solve_dual(quadratic, linear)
    slope = quadratic @ u + linear
    assert (u >= 0).all() and (slope > -1e-8).all()
    assert np.abs(u * slope).max() < 1e-7


def test_gem_raises_the_loss_of_no_task(digits: Stream) -> None:
    model, method, batch = begin("gem", digits, {"margin": 0.0})
    assert isinstance(method, Gem)
    train(model, digits[1], method, HOW)
    batch = Batch(digits[2].train.x[:40], digits[2].train.y[:40], None, torch.arange(40))
    parameters = list(model.parameters())
    old = [slots.read() for slots in method._tasks.values()]
    assert [len(each.y) for each in old] == [10, 10]
    of_tasks = [flatten(torch.autograd.grad(F.cross_entropy(model(o.x), o.y), parameters)) for o in old]
    for p, g in zip(parameters, (-of_tasks[0] - 0.5 * of_tasks[1]).split([p.numel() for p in parameters])):
        p.grad = g.view_as(p).clone()
    method.after_backward(model, batch, Step(2, 0, 0.0, torch.Generator()))
    turned = flatten([p.grad for p in parameters])
    for each in of_tasks:
        assert turned @ each > -1e-4 * each.norm() ** 2


def test_cls_er_predicts_by_its_stable_average(digits: Stream) -> None:
    model, method, batch = begin("cls-er", digits, {"stable_average": 0.5, "plastic_average": 0.0})
    assert isinstance(method, ClsEr)
    stable = copy.deepcopy(model)
    stable.load_state_dict(method._averages["stable"])
    x = batch.x
    torch.testing.assert_close(method.predict(model.eval(), x, None), stable.eval()(x))
    assert not torch.equal(model(x), stable(x))
    assert torch.equal(method.predict(copy.deepcopy(model), x, None), model(x))  # another model is itself
    old, plastic = method.slots.read(), copy.deepcopy(model)
    plastic.load_state_dict(method._averages["plastic"])
    a, b = stable(old.x), plastic.eval()(old.x)
    of_true = [z.softmax(1)[torch.arange(30), old.y] for z in (a, b)]
    wanted = torch.where((of_true[0] > of_true[1])[:, None], a, b)
    both = F.cross_entropy(model(torch.cat([x, old.x])), torch.cat([batch.y, old.y]))
    expected = both + 0.7 * F.mse_loss(model(old.x), wanted)
    torch.testing.assert_close(compute_loss(model.train(), method, batch), expected)


def test_gdumb_is_balanced_and_starts_again(digits: Stream) -> None:
    method = methods.build("gdumb", SETTINGS | {"size": Size(items=40)}, {})
    assert isinstance(method, Gdumb)
    model = method.prepare(build_model("mnist-mlp", width=1 / 16, seed=5), digits)
    initial = copy.deepcopy(model.state_dict())
    train(model, digits[0], method, HOW)
    assert method._groups.bincount().tolist() == [4] * 10
    first = method.slots.read()
    method.start_task(model, digits[1])
    assert all(torch.equal(value, initial[name]) for name, value in model.state_dict().items())
    assert method._groups.bincount().tolist() == [2] * 20
    kept = method.slots.read()
    assert torch.equal(kept.x[:20], first.x[:20])  # of each class those that were chosen first
    assert len(method.training_set(digits[1])) == 14 * 40  # of 540


@pytest.mark.parametrize(
    ("size", "items"), [(Size(items=7), 7), (Size(per_class=3), 90), (Size(per_task=8), 24), (Size(budget=9000), 10)]
)
def test_how_many_items(size: Size, items: int, digits: Stream) -> None:
    """Pixels in bytes, a label, ten logits and their number: 828 bytes."""
    method = methods.build("der", SETTINGS | {"size": size}, {})
    assert isinstance(method, ReplayMethod)
    method.prepare(build_model("mnist-mlp", width=1 / 16, seed=5), digits)
    assert method.slots.size == items


def test_mistakes(digits: Stream) -> None:
    model = build_model("mnist-mlp", width=1 / 16, seed=5)
    for name, size, options, message in (
        ("er", Size(budget=9), {}, "a budget of 9 holds no item of 786 bytes"),
        ("gem", Size(items=2), {}, "2 items are fewer than one for each of the 3 tasks"),
        ("er", Size(items=9), {"codec": "compressed"}, "deflates items"),
        ("gem", Size(items=9), {"margin": -1.0}, "margin is -1.0"),
        ("cls-er", Size(items=9), {"stable_rate": 2.0}, "stable_rate is 2.0: it is a share"),
    ):
        settings = SETTINGS | {"size": size, "codec": options.pop("codec", "auto")}
        with pytest.raises(SelfReminderError, match=message):
            methods.build(name, settings, options).prepare(model, digits)


def grown(digits: Stream) -> Stream:
    return arrange(digits, "class")


def test_where_the_output_grows_old_items_get_the_wider_models_logits(digits: Stream) -> None:
    """DER holds them where they were before the task; fsr-refresh has those that its end gave."""
    stream = grown(digits)
    for name in ("der", "fsr-refresh"):
        method = methods.build(name, SETTINGS, {})
        model = method.prepare(build_model("mnist-mlp", width=1 / 16, seed=5, heads=stream.heads), stream)
        train(model, stream[0], method, HOW)
        method.after_task(model, stream[0])
        if isinstance(method, Der):
            before = method.slots.read()
            model.heads.outputs = 20
            method.start_task(model.train(), stream[1])
            after = method.slots.read()
            assert torch.equal(after.logits[:, :10], before.logits)
            assert torch.equal(after.logits[:, 10:], model(before.x)[:, 10:])
            continue
        assert isinstance(method, FsrRefresh)
        first = method.reminder.memory
        train(model, stream[1], method, HOW)
        method.after_task(model, stream[1])
        memory = method.reminder.memory
        old = memory.tasks == 0
        kept = first.logits[torch.isin(first.ids, memory.ids)]
        assert torch.equal(memory.logits[old][:, :10], kept)
        now = model.eval()(memory.read().inputs["x"])
        torch.testing.assert_close(memory.logits[:, 10:], now[:, 10:])
