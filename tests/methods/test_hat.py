"""HAT: its equations, what it holds still, and the contract of all methods on tasks with a head each."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load, save
from torch import Tensor, nn

from selfreminder import methods
from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks.models import Heads, Network, build_model
from selfreminder.benchmarks.stream import Parts, Split, Stream, Task
from selfreminder.experiment.run import run
from selfreminder.methods.base import Batch, Method, Step
from selfreminder.methods.hat import Hat, MaskedNetwork
from selfreminder.training import StoppedError, Training, TrainState, Watcher, train
from tiny import TINY

HOW = Training(epochs=2, batch_size=64, optimizer="sgd", lr=0.2, weight_decay=0.1, seed=5)
TASKS = 3


@pytest.fixture(scope="module")
def headed(digits: Stream) -> list[Task]:
    return [replace(task, head=task.index) for task in digits]


def mlp() -> Network:
    return build_model("mnist-mlp", width=1 / 16, seed=5, heads=(10,) * TASKS)


def start(stream: list[Task], **options: float) -> tuple[MaskedNetwork, Hat]:
    method = Hat(seed=5, **options)
    model = method.prepare(mlp(), stream)
    assert isinstance(model, MaskedNetwork)
    return model, method


def learn(model: nn.Module, method: Method, stream: list[Task], tasks: range) -> dict[str, Tensor]:
    for index in tasks:
        train(model, stream[index], method, HOW)
        method.after_task(model, stream[index])
    return copied(model.state_dict())


def copied(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in state.items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def coloured(tasks: int) -> list[Task]:
    """Noise in the shape of CIFAR images, with labels."""
    generator = torch.Generator().manual_seed(0)
    split = Split(torch.rand(60, 3, 32, 32, generator=generator), torch.arange(60) % 10)
    parts = Parts(split, split, split)
    return [Task(i, "noise", 10, parts, lambda x, i=i: x.roll(i, -1), head=i) for i in range(tasks)]


def tiny() -> Network:
    """Two layers of two units, with two heads."""
    network = Network()
    network.body = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU())
    network.heads = Heads(2, (2, 2))
    with torch.no_grad():
        for number, parameter in enumerate(network.parameters()):
            parameter.copy_(torch.linspace(0.1, 0.9, parameter.numel()).view_as(parameter) + 0.01 * number)
    return network


def two_tasks() -> list[Task]:
    split = Split(torch.tensor([[1.0, 0.5], [0.2, 2.0]]), torch.tensor([0, 1]))
    return [Task(i, "tiny", 2, Parts(split, split, split), lambda x: x, head=i) for i in range(2)]


def first_of(task: Task, count: int) -> Batch:
    return Batch(task.train.x[:count], task.train.y[:count], task.head, torch.arange(count))


def accuracy(model: nn.Module, method: Method, task: Task) -> float:
    with torch.no_grad():
        return (method.predict(model.eval(), task.test.x, task.head).argmax(1) == task.test.y).float().mean().item()


def at(task: int, fraction: float) -> Step:
    return Step(task, 0, fraction, torch.Generator())


# What is held still


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("name", ["mnist-mlp", "cifar100-alexnet"])
def test_binary_masks_hold_the_first_task_bit_for_bit(name: str, optimizer: str, headed: list[Task]) -> None:
    stream = headed if name == "mnist-mlp" else coloured(TASKS)
    method = Hat(seed=5, strength=0.1)
    model = method.prepare(build_model(name, width=1 / 16, seed=5, heads=(10,) * TASKS), stream)
    assert isinstance(model, MaskedNetwork)
    how = Training(epochs=2, batch_size=20, optimizer=optimizer, lr=0.05, weight_decay=0.1, seed=5)
    train(model, stream[0], method, how)
    with torch.no_grad():
        for embedding in model.embeddings:
            embedding[0] = embedding[0].sign() * 6
    method.after_task(model, stream[0])
    x, before = stream[0].test.x[:50], copied(model.state_dict())
    first = model.eval()(x, 0).detach()
    assert first.std() > 0
    for index in (1, 2):
        train(model, stream[index], method, how)
        method.after_task(model, stream[index])
        assert torch.equal(model.eval()(x, 0), first)
    after = model.state_dict()
    for key in before:
        moved = not torch.equal(before[key], after[key])
        assert moved == (key not in ("network.heads.layers.0.weight", "network.heads.layers.0.bias")), key
    for number, embedding in enumerate(model.embeddings):
        assert torch.equal(embedding[0], before[f"embeddings.{number}"][0])


def test_embeddings_of_other_tasks_stay(headed: list[Task]) -> None:
    model, method = start(headed)
    before = copied(model.state_dict())
    learn(model, method, headed, range(1))
    for number, embedding in enumerate(model.embeddings):
        was = before[f"embeddings.{number}"]
        assert torch.equal(embedding[1:], was[1:]) and not torch.equal(embedding[0], was[0])


def test_gradients_are_scaled_by_what_both_ends_are_used() -> None:
    """Against the definition, weight by weight, on an AlexNet with its convolutions and flattened channels."""
    stream = coloured(2)
    method = Hat(seed=1)
    model = method.prepare(build_model("cifar100-alexnet", width=1 / 32, seed=1, heads=(10, 10)), stream)
    assert isinstance(model, MaskedNetwork)
    with torch.no_grad():
        for embedding in model.embeddings:  # masks in between 0 and 1
            embedding[0] /= 100
    method.after_task(model, stream[0])
    batch, step = first_of(stream[1], 60), at(1, 0.3)
    model.eval()
    method.loss(model, batch, step).backward()
    plain = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    method.after_backward(model, batch, step)
    used = [torch.sigmoid(400 * embedding[0]).tolist() for embedding in model.embeddings]
    layers = [name for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d) and "body" in name]
    now = dict(model.named_parameters())
    for number, layer in enumerate(layers):
        weight, bias = now[f"{layer}.weight"], now[f"{layer}.bias"]
        per_channel = 4 if number == 3 else 1
        factor = torch.ones(weight.shape[:2])
        for j in range(weight.shape[0]):
            for i in range(weight.shape[1]):
                from_unit = 1.0 if number == 0 else used[number - 1][i // per_channel]
                factor[j, i] = 1 - min(used[number][j], from_unit)
        assert bias.grad is not None and weight.grad is not None
        factor = factor.view(*factor.shape, *(1,) * (weight.dim() - 2))
        torch.testing.assert_close(weight.grad, plain[f"{layer}.weight"] * factor)
        torch.testing.assert_close(bias.grad, plain[f"{layer}.bias"] * (1 - torch.tensor(used[number])))
        assert plain[f"{layer}.weight"].any() and factor.min() < factor.max()
    head = now["network.heads.layers.1.weight"]
    assert head.grad is not None and torch.equal(head.grad, plain["network.heads.layers.1.weight"])
    assert now["network.heads.layers.0.weight"].grad is None


# The equations


def test_s_is_annealed_in_each_epoch() -> None:
    method = Hat(s_max=100.0)
    assert method.steepness(at(0, 0.0)) == 1 / 100
    assert method.steepness(at(3, 0.5)) == pytest.approx((100 + 1 / 100) / 2)
    assert method.steepness(at(0, 1.0)) == pytest.approx(100)


@pytest.mark.parametrize("fraction", [0.0, 0.05, 0.4])
def test_embedding_gradients_are_compensated(fraction: float) -> None:
    """∂/∂e becomes ∂/∂a · s_max σ'(e): the slope of the mask at s = 1, times s_max."""
    stream = two_tasks()
    method = Hat(s_max=20.0, seed=3)
    model = method.prepare(tiny(), stream).double()
    assert isinstance(model, MaskedNetwork)
    batch, step = first_of(stream[0], 2), at(0, fraction)
    batch = batch._replace(x=batch.x.double())  # float32 has no 1 − σ(17)
    loss = method.loss(model, batch, step)
    loss.backward()
    method.after_backward(model, batch, step)

    s = method.steepness(step)
    masks = [torch.sigmoid(s * embedding[0]).detach().requires_grad_() for embedding in model.embeddings]
    sparsity = torch.cat(masks).mean()
    again = F.cross_entropy(model(batch.x, 0, masks), batch.y) + 0.75 * sparsity
    torch.testing.assert_close(loss, again)
    for embedding, by_mask in zip(model.embeddings, torch.autograd.grad(again, masks)):
        e = embedding[0].detach().requires_grad_()
        (slope,) = torch.autograd.grad(torch.sigmoid(e).sum(), e)
        assert embedding.grad is not None
        torch.testing.assert_close(embedding.grad[0], by_mask * 20.0 * slope)
        assert not embedding.grad[1].any()


def test_compensation_stays_finite_and_embeddings_bounded(headed: list[Task]) -> None:
    """At the end of an epoch s·e can be 2400, whose cosh is not a number that float32 has."""
    model, method = start(headed)
    with torch.no_grad():
        for embedding in model.embeddings:
            embedding.copy_(embedding.sign() * 7)
    batch, step = first_of(headed[0], 20), at(0, 0.99)
    method.loss(model, batch, step).backward()
    method.after_backward(model, batch, step)
    method.after_step(model, batch, step)
    for embedding in model.embeddings:
        assert embedding.grad is not None and embedding.grad.isfinite().all()
        assert torch.equal(embedding, embedding.sign() * 6)


def test_sparsity_weighs_what_is_free(headed: list[Task]) -> None:
    model, method = start(headed)
    batch, step = first_of(headed[1], 20), at(1, 0.2)
    with torch.no_grad():
        for embedding in model.embeddings:
            embedding[0] /= 100
    method.after_task(model, headed[0])
    used = torch.cat([torch.sigmoid(400 * embedding[0]) for embedding in model.embeddings])
    masks = model.masks(1, method.steepness(step))
    entropy = F.cross_entropy(model(batch.x, 1, masks), batch.y)
    expected = entropy + 0.75 * (torch.cat(masks) * (1 - used)).sum() / (1 - used).sum()
    torch.testing.assert_close(method.loss(model, batch, step), expected)
    with torch.no_grad():
        for embedding in model.embeddings:
            embedding[0] = 6
    method.after_task(model, headed[0])
    assert method.capacity_used() == 1
    torch.testing.assert_close(method.loss(model, batch, step), entropy)  # nothing is free: no term, not 0/0


@pytest.mark.parametrize("name", ["mnist-mlp", "cifar100-alexnet"])
def test_masks_multiply_the_units(name: str, headed: list[Task]) -> None:
    """Open masks change nothing; a closed unit is one whose outgoing weights are 0."""
    stream = headed if name == "mnist-mlp" else coloured(TASKS)
    network = build_model(name, width=1 / 16, seed=5, heads=(10,) * TASKS)
    model = Hat().prepare(network, stream).eval()
    assert isinstance(model, MaskedNetwork)
    x = stream[0].test.x[:10]
    masks = [torch.ones(embedding.shape[1]) for embedding in model.embeddings]
    torch.testing.assert_close(model(x, 1, masks), network.eval()(x, 1))
    for mask in masks:
        mask[2] = 0
    closed = model(x, 1, masks)
    with torch.no_grad():
        for layer in model.hidden:
            layer.weight[2] = 0
            assert layer.bias is not None
            layer.bias[2] = 0
    torch.testing.assert_close(closed, network(x, 1))
    torch.testing.assert_close(model(x, 1), model(x, 1, model.masks(1, 400.0)))


# The contract of all methods


def test_same_seed_same_weights(headed: list[Task]) -> None:
    runs = []
    for noise in (0, 1):
        torch.manual_seed(noise)
        runs.append(learn(*start(headed), headed, range(2)))
        assert torch.rand(1).item() == torch.rand(1, generator=torch.Generator().manual_seed(noise)).item()
    assert same(*runs)
    other = Hat(seed=6).prepare(mlp(), headed)
    assert not torch.equal(other.state_dict()["embeddings.0"], start(headed)[0].embeddings[0])


@pytest.mark.parametrize("steps", [1, 9, 10, 17])
def test_a_stopped_task_goes_on_bit_for_bit(steps: int, headed: list[Task]) -> None:
    """Stopped in the second task after so many steps (9 an epoch), saved, loaded into new objects, gone on."""
    whole_model, whole_method = start(headed)
    whole = learn(whole_model, whole_method, headed, range(2))
    model, method = start(headed)
    learn(model, method, headed, range(1))
    count, saved = iter(range(1, 100)), []

    def keep(state: TrainState) -> None:
        assert state.losses is not None
        at_stop = replace(state, model=copied(state.model), optimizer=copied(state.optimizer))
        saved.append((replace(at_stop, losses=state.losses.clone()), save(method.state_dict())))

    with pytest.raises(StoppedError):
        train(model, headed[1], method, HOW, watcher=Watcher(save=keep, stop=lambda: next(count) == steps))
    ((state, of_method),) = saved
    model, method = start(headed)
    method.load_state_dict(load(of_method))
    train(model, headed[1], method, HOW, state)
    method.after_task(model, headed[1])
    assert same(model.state_dict(), whole)
    assert same(method.state_dict(), whole_method.state_dict())


def test_the_state_round_trips_and_is_what_nbytes_counts(headed: list[Task]) -> None:
    model, method = start(headed)
    for seen in range(TASKS):
        assert method.nbytes() == seen * 4 * 64 * 4  # float32, four layers of 64 units
        _, other = start(headed)
        other.load_state_dict(load(save(method.state_dict())))
        assert same(other.state_dict(), method.state_dict())
        assert (other.nbytes(), other.capacity_used()) == (method.nbytes(), method.capacity_used())
        learn(model, method, headed, range(seen, seen + 1))


def test_capacity_is_used_up(headed: list[Task]) -> None:
    model, method = start(headed)
    capacity = [[method.capacity_used(), *method.capacity_by_layer()]]
    assert capacity == [[0.0] * 5]
    for index in range(TASKS):
        learn(model, method, headed, range(index, index + 1))
        capacity.append([method.capacity_used(), *method.capacity_by_layer()])
        assert all(0 <= before <= now <= 1 for before, now in zip(*capacity[-2:]))
        assert method.capacity_used() == pytest.approx(sum(method.capacity_by_layer()) / 4)
    assert capacity[-1][0] > capacity[1][0] > 0


def test_it_learns_and_forgets_less_than_fine_tuning(headed: list[Task]) -> None:
    def accuracies(method: Method, how: Training) -> list[list[float]]:
        model = method.prepare(mlp(), headed)
        rows = []
        for index in range(2):
            train(model, headed[index], method, how)
            method.after_task(model, headed[index])
            rows.append([accuracy(model, method, task) for task in headed[: index + 1]])
        return rows

    hat = accuracies(Hat(strength=0.1), replace(HOW, epochs=30, batch_size=20))
    adam = methods.build("adam", {}, {})
    tuned = accuracies(adam, replace(HOW, epochs=10, batch_size=20, optimizer="adam", lr=1e-3, weight_decay=0.0))
    assert hat[0][0] > 0.5 and hat[1][1] > 0.5  # chance is .1
    forgotten = {name: rows[0][0] - rows[1][0] for name, rows in (("hat", hat), ("adam", tuned))}
    assert forgotten["hat"] < 0.02 < 0.15 < forgotten["adam"]


def test_capacity_is_recorded(tmp_path: Path) -> None:
    experiment = replace(TINY, benchmark="split-mnist", method="hat", images=400, width=1 / 16, lr=0.2)
    records = run(experiment, tmp_path)
    used = [task["measures"]["capacity used"] for task in records.tasks]
    assert 0 < used[0] <= used[1] <= 1
    assert "capacity of layer 4" in records.tasks[0]["measures"]


# What it refuses


def test_a_stream_that_does_not_tell_the_task_is_refused(digits: Stream) -> None:
    with pytest.raises(SelfReminderError, match="must be told the task"):
        Hat().prepare(mlp(), digits)
    shared = [replace(task, head=0) for task in digits[:2]]
    with pytest.raises(SelfReminderError, match="2 tasks have the heads \\[0, 0\\]"):
        Hat().prepare(mlp(), shared)


def test_networks_that_masks_do_not_cover_are_refused(headed: list[Task]) -> None:
    vgg = build_model("cifar10-vgg", width=1 / 32, seed=0, heads=(10,) * TASKS)
    with pytest.raises(SelfReminderError, match="not BatchNorm2d: its weights and running statistics"):
        Hat().prepare(vgg, headed)
    with pytest.raises(SelfReminderError, match="not those of a Linear"):
        Hat().prepare(nn.Linear(784, 10), headed)


@pytest.mark.parametrize("option", ["s_max", "clamp"])
def test_options_that_make_no_mask_are_refused(option: str) -> None:
    with pytest.raises(SelfReminderError, match=f"{option} is 0"):
        methods.build("hat", {}, {option: 0.0})
