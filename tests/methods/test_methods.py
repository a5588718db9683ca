"""What every method must do: found by their files, so that a new one is tested as soon as it is there."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder import data, methods
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import Size
from selfreminder.benchmarks.color_cifar10 import recolour_images
from selfreminder.benchmarks.mixture import mix_data_sets
from selfreminder.benchmarks.models import build_model, set_outputs
from selfreminder.benchmarks.scenario import arrange
from selfreminder.benchmarks.stream import Split, Stream, Task, image_parts
from selfreminder.experiment.catalogue import method_facts
from selfreminder.methods.base import Batch, MemoryMethod, Method, Step
from selfreminder.methods.generative_replay import GenerativeReplay
from selfreminder.testing import CHECKS
from selfreminder.training import Training, train

HOW = Training(epochs=2, batch_size=64, lr=1e-3, seed=5)
SETTINGS = {"strength": 0.5, "size": Size(per_class=3), "memory_batch": 64, "seed": 5}
every_method = pytest.mark.parametrize("name", methods.names())
acts_within_tasks = {name for name in methods.names() if methods.method_class(name).acts_within_tasks}
memory_methods = [name for name in methods.names() if issubclass(methods.method_class(name), MemoryMethod)]


@pytest.fixture(params=["one head", "a head per task"])
def stream(request: pytest.FixtureRequest, name: str) -> Stream:
    """The streams that a method applies to."""
    if request.param == "one head":
        if method_facts(name).heads == "per task":
            pytest.skip("the method must know the task")
        return request.getfixturevalue("digits")
    if method_facts(name).heads == "one":
        pytest.skip("the method cannot know the task")
    return request.getfixturevalue("headed_digits")


def start(name: str, stream: Stream, strength: float = 0.5, width: float = 1 / 16) -> tuple[nn.Module, Method]:
    method = methods.build(name, SETTINGS | {"strength": strength}, {})
    return method.prepare(build_model("mnist-mlp", width=width, seed=5, heads=stream.heads), stream), method


def how(method: Method) -> Training:
    return Training(**{**vars(HOW), "optimizer": method.optimizer, "lr": 0.2 if method.optimizer == "sgd" else 1e-3})


def learn(model: nn.Module, method: Method, stream: Stream, tasks: range) -> dict[str, Tensor]:
    for index in tasks:
        train(model, stream[index], method, how(method))
        method.after_task(model, stream[index])
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@every_method
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_contract(name: str, stream: Stream, check: Callable[[type[Method], Stream], None]) -> None:
    check(methods.method_class(name), stream)


def test_joint_counts_all_data(digits: Stream) -> None:
    """It reads the stream again: 784 bytes and a label for each of both tasks' images."""
    model, method = start("joint", digits)
    learn(model, method, digits, range(2))
    assert method.nbytes() == 2 * len(digits[0].train) * 785


@every_method
def test_it_says_what_it_is(name: str) -> None:
    assert method_facts(name).summary
    assert methods.method_class(name).__module__.endswith(name.replace("-", "_"))


@pytest.mark.parametrize("name", memory_methods)
def test_whose_logits_are_remembered(name: str, stream: Stream) -> None:
    """FSR's are their own task's, recorded once; iCaRL's are the previous model's, recorded again."""
    model, method = start(name, stream)
    assert isinstance(method, MemoryMethod)
    head = stream[0].head
    learn(model, method, stream, range(1))
    first = method.reminder.memory
    items = stream[0].train.x[first.sources]
    own = method.predict(model.eval(), items, head).detach()
    assert torch.equal(first.logits, own)
    learn(model, method, stream, range(1, 2))
    both = method.reminder.memory
    assert both.counts == {0: 30, 1: 30}
    now = method.predict(model.eval(), items, head).detach()
    assert not torch.equal(own, now)
    assert torch.equal(both.take(both.tasks == 0).logits[:, :10], now if name == "icarl" else own)


@every_method
def test_a_head_is_trained_by_its_own_task_alone(name: str, headed_digits: Stream) -> None:
    """While a task is learned, heads of tasks to come do not move; old heads move by their own penalty at most."""
    if method_facts(name).heads == "one":
        pytest.skip("the method cannot know the task")
    model, method = start(name, headed_digits)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    after = learn(model, method, headed_digits, range(2))
    layers = [{k for k in before if f"heads.layers.{head}." in k} for head in range(3)]
    assert all(layers)
    assert all(torch.equal(before[key], after[key]) for key in layers[2])
    assert not any(torch.equal(before[key], after[key]) for key in layers[1])
    if not method.holds_old_outputs:  # which old heads make
        first = learn(*start(name, headed_digits), headed_digits, range(1))
        assert all(torch.equal(first[key], after[key]) for key in layers[0])


@pytest.mark.parametrize("name", memory_methods)
def test_strength_0_is_fine_tuning_and_more_holds_better(name: str, digits: Stream) -> None:
    change = {}
    for strength in (0.0, 0.5):
        options = {"label_weight": 0.0} if name == "fsr-logitlab" else {}
        method = methods.build(name, SETTINGS | {"strength": strength}, options)
        assert isinstance(method, MemoryMethod)
        model = method.prepare(build_model("mnist-mlp", width=1 / 16, seed=5), digits)
        learn(model, method, digits, range(1))
        kept = method.reminder.memory.draw(30)
        weights = learn(model, method, digits, range(1, 2))
        unweighted = methods.build(name, SETTINGS | {"strength": 1.0}, options)
        assert isinstance(unweighted, MemoryMethod)
        least = unweighted.item_loss(kept.logits, kept)  # a cross-entropy is never 0
        change[strength] = (unweighted.item_loss(model.eval()(kept.inputs["x"]), kept) - least).mean().item()
        if strength == 0.0:
            plain = learn(*start("adam", digits), digits, range(2))
            for key in plain:  # one pass over more rows may round otherwise
                torch.testing.assert_close(weights[key], plain[key], rtol=1e-3, atol=1e-4)
    assert 0 < change[0.5] < 0.5 * change[0.0]


@pytest.mark.parametrize("name", memory_methods)
@pytest.mark.parametrize(
    ("size", "message"),
    [
        (Size(per_class=60), "60 per class is larger than the data"),
        (Size(per_task=541), "541 items is larger than the data: 540 items"),
        (Size(budget="2KB"), "holds 2 items of 839 bytes, fewer than one for each of the 3 tasks"),
    ],
)
def test_a_memory_that_cannot_be_is_refused_before_training(
    name: str, size: Size, message: str, digits: Stream
) -> None:
    method = methods.build(name, SETTINGS | {"size": size}, {})
    with pytest.raises(SelfReminderError, match=message):
        method.prepare(build_model("mnist-mlp", width=1 / 16, seed=5), digits)


def test_a_memory_must_fit_every_task() -> None:
    """A later one may have fewer items of a class, or larger items."""
    coloured = image_parts(data.load("generated-10"), seed=0)
    sets = [("many", coloured, 10), ("few", image_parts(data.load("generated-100"), seed=0), 100)]
    later = next(stream for seed in range(9) if (stream := mix_data_sets(sets, seed=seed))[1].name == "few")
    for stream, size, message in (
        (later, Size(per_class=20), "the largest class has 4 items"),
        (
            recolour_images(coloured),
            Size(budget="20KB"),
            "holds 1 items of 10500 bytes, fewer than one for each of the 5",
        ),
    ):
        model = build_model("cifar100-alexnet", width=1 / 32, seed=0, heads=stream.heads)
        with pytest.raises(SelfReminderError, match=message):
            methods.build("fsr-logit", {"size": size}, {}).prepare(model, stream)


def test_options() -> None:
    assert methods.build("fsr-distill", SETTINGS, {"temperature": 3.0}).temperature == 3.0
    with pytest.raises(SelfReminderError, match="did you mean 'temperature'"):
        methods.build("fsr-distill", SETTINGS, {"temprature": 3.0})
    in_train_mode = methods.build("fsr-logit", SETTINGS, {"mode": "train"})
    assert isinstance(in_train_mode, MemoryMethod) and in_train_mode.reminder.mode == "train"
    with pytest.raises(SelfReminderError, match="mode"):
        methods.build("fsr-logit", SETTINGS, {"mode": "tarin"})
    with pytest.raises(SelfReminderError, match="did you mean 'fsr-logit'"):
        methods.build("fsr-logits", SETTINGS, {})


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("fsr-distill", "temperature", 0),
        ("lwf", "temperature", -1.0),
        ("hat", "s_max", 0.0),
        ("generative-replay", "generator_lr", -1),
        ("generative-replay", "hidden", 0),
        ("generative-replay", "latent", -1),
    ],
)
def test_options_that_are_out_of_range_are_refused(name: str, option: str, value: object) -> None:
    with pytest.raises(SelfReminderError, match=f"{option} is {value}: it must be above 0"):
        methods.build(name, SETTINGS, {option: value})


def test_joint_starts_again_from_the_initial_weights_and_sees_all(digits: Stream) -> None:
    model, method = start("joint", digits)
    initial = {key: value.clone() for key, value in model.state_dict().items()}
    learn(model, method, digits, range(1))
    seen: list[int] = []
    loss: Callable = method.loss

    def spy(model: nn.Module, batch: Method, step: object) -> Tensor:
        if not seen:
            assert same(model.state_dict(), initial)
        seen.append(len(batch.x))
        return loss(model, batch, step)

    method.loss = spy
    train(model, digits[1], method, how(method))
    assert sum(seen) == 2 * 2 * len(digits[0].train)


# Equations, by hand ----------------------------------------------------------------------------------------------


def kl(now: Tensor, then: Tensor) -> Tensor:
    p, q = (then / 3).softmax(1), (now / 3).softmax(1)
    return (p * (p / q).log()).sum(1)


def binary(now: Tensor, then: Tensor) -> Tensor:
    p, q = then.sigmoid(), now.sigmoid()
    return -(p * q.log() + (1 - p) * (1 - q).log()).sum(1)


def square(now: Tensor, then: Tensor) -> Tensor:
    return (now - then).square().sum(1)


EQUATIONS: dict[str, tuple[dict[str, object], Callable[[Tensor, Tensor, Tensor], Tensor]]] = {
    "fsr-logit": ({}, lambda now, then, y: 0.7 * square(now, then)),
    "fsr-refresh": ({}, lambda now, then, y: 0.7 * square(now, then)),
    "fsr-distill": ({"temperature": 3.0}, lambda now, then, y: 0.7 * kl(now, then)),
    "fsr-logitlab": (
        {"label_weight": 0.2},
        lambda now, then, y: 0.7 * square(now, then) + 0.2 * F.cross_entropy(now, y, reduction="none"),
    ),
    "icarl": ({"literal": True}, lambda now, then, y: 0.7 / 2 * binary(now, then)),
    "lwf": ({"temperature": 3.0}, lambda now, then, y: 0.7 * kl(now, then)),
}


@pytest.mark.parametrize("part", ["training", "validation"])
@pytest.mark.parametrize("name", EQUATIONS)
def test_the_loss_is_the_equation_of_the_file(name: str, stream: Stream, part: str) -> None:
    """In the third task, by hand, at weights that have moved since the second: every term, option and head."""
    assert set(memory_methods) <= set(EQUATIONS)
    options, equation = EQUATIONS[name]
    method = methods.build(name, SETTINGS | {"strength": 0.7}, options)
    model = method.prepare(build_model("mnist-mlp", width=1 / 16, seed=5, heads=stream.heads), stream)
    ends = []
    for index in range(2):
        learn(model, method, stream, range(index, index + 1))
        ends.append(copy.deepcopy(model).eval())
    data, rows = method.training_set(stream[2]), torch.arange(40)
    if part == "validation":
        data = method.validation_set(stream[2])
    with torch.no_grad():
        for p in model.parameters():
            p *= 1.5
    batch = Batch(data.x[rows], data.y[rows], stream[2].head, rows)
    loss = method.loss(model.train(part == "training"), batch, Step(2, 0, 0.0, torch.Generator()))

    entropy = expected = F.cross_entropy(method.predict(model, batch.x, batch.head), batch.y)
    for task in stream[:2]:
        if name == "lwf":
            x, y = batch.x, batch.y
        else:
            assert isinstance(method, MemoryMethod)
            memory = method.reminder.memory
            kept = task.train.take(memory.sources[memory.tasks == task.index].long())
            x, y = kept.x, kept.y
        then = ends[task.index if "fsr" in name else -1]
        own = equation(method.predict(model, x, task.head), method.predict(then, x, task.head).detach(), y)
        expected = expected + own.mean() / (2 if name == "lwf" and task.head is None else 1)  # one head, one term
    assert expected - entropy > 0.01
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)


def test_generative_replay_is_its_equation(digits: Stream) -> None:
    model, method = start("generative-replay", digits, strength=0.7)
    assert isinstance(method, GenerativeReplay)
    learn(model, method, digits, range(1))
    previous = copy.deepcopy(model).eval()
    method.start_task(model, digits[1])
    made, rows = digits[2].train.x[:40], torch.arange(40)
    method._old_autoencoder.generate = lambda n, generator: made[:n]
    with torch.no_grad():
        for p in model.parameters():
            p *= 1.1
    batch = Batch(digits[1].train.x[rows], digits[1].train.y[rows], None, rows)
    loss = method.loss(model, batch, Step(1, 0, 0.0, torch.Generator()))
    replayed = -(previous(made).softmax(1) * model(made).log_softmax(1)).sum(1).mean()
    expected = F.cross_entropy(model(batch.x), batch.y) / 2 + 0.7 / 2 * replayed
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=0)  # beside the generator's, which is large
    noise = torch.Generator()
    learned = sum(method._autoencoder.loss(x, noise).mean() / 2 for x in (batch.x, made))  # in the same proportion
    for by, learner in ((expected, model), (learned, method._autoencoder)):
        ours, wanted = (torch.autograd.grad(e, list(learner.parameters()), retain_graph=True) for e in (loss, by))
        for a, b in zip(ours, wanted):
            torch.testing.assert_close(a, b)


def test_joint_has_each_item_at_the_head_of_its_task(headed_digits: Stream) -> None:
    _, method = start("joint", headed_digits)
    for whole, parts in (
        (method.training_set(headed_digits[2]), [task.train for task in headed_digits]),
        (method.validation_set(headed_digits[2]), [task.validation for task in headed_digits]),
    ):
        assert whole.heads is not None
        assert whole.heads.tolist() == [head for head, part in enumerate(parts) for _ in range(len(part))]
        assert torch.equal(whole.x, torch.cat([part.x for part in parts]))
        assert torch.equal(whole.y, torch.cat([part.y for part in parts]))


def test_the_settings_of_a_memory_method_are_those_of_its_reminder() -> None:
    method = methods.build("fsr-logit", {"memory_batch": 9, "over_tasks": "mean", "codec": "float16", "seed": 4}, {})
    assert isinstance(method, MemoryMethod)
    made = method.reminder
    assert (made.batch_size, made.over_tasks, made.codec, made.seed) == (9, "mean", "float16", 4)


@every_method
def test_it_applies_to_the_heads_that_it_says(name: str, digits: Stream, headed_digits: Stream) -> None:
    for heads, stream in (("one", digits), ("per task", headed_digits)):
        if method_facts(name).heads in ("any", heads):
            start(name, stream)
        else:
            with pytest.raises(SelfReminderError, match=f"{name} does not apply here"):
                start(name, stream)


def test_there_is_one_reference_and_fine_tuning_is_named_by_its_optimizer() -> None:
    facts = {name: method_facts(name) for name in methods.names()}
    assert [name for name, of in facts.items() if of.is_reference] == ["joint"]
    assert {name: of.optimizer for name, of in facts.items() if of.is_fine_tuning} == {"adam": "adam", "sgd": "sgd"}


def test_classes_that_the_previous_model_did_not_have(digits: Stream) -> None:
    """LwF leaves them alone, or gives them a probability of 0, so that being sure of them costs."""
    parts = [Task(i, str(i), 2, digits[0].parts.each(lambda p, i=i: _two_classes(p, i)), head=i) for i in range(2)]
    stream = arrange(Stream((2, 2), parts.__getitem__), "class")
    losses = {}
    for zero in (False, True):
        method = methods.build("lwf", {"strength": 0.7}, {"unseen_as_zero": zero, "temperature": 3.0})
        model = method.prepare(build_model("mnist-mlp", width=1 / 16, seed=5, heads=stream.heads), stream)
        learn(model, method, stream, range(1))
        previous = copy.deepcopy(model).eval()
        set_outputs(model, stream[1].outputs)
        data, rows = method.training_set(stream[1]), torch.arange(30)
        batch = Batch(data.x[rows], data.y[rows], stream[1].head, rows)
        with torch.no_grad():
            for p in model.parameters():
                p *= 1.5
        losses[zero] = method.loss(model.train(), batch, Step(1, 0, 0.0, torch.Generator())).detach()
        now, then = model(batch.x), previous(batch.x)[:, :2].detach()
    p, entropy = (then / 3).softmax(1), F.cross_entropy(now, batch.y)
    among_all = (p * (p.log() - (now / 3).log_softmax(1)[:, :2])).sum(1).mean()
    torch.testing.assert_close(losses[False], entropy + 0.7 * kl(now[:, :2], then).mean(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(losses[True], entropy + 0.7 * among_all, rtol=1e-4, atol=1e-5)
    assert losses[True] > losses[False] + 0.01


def _two_classes(part: Split, index: int) -> Split:
    rows = (part.y // 2 == index).nonzero().flatten()
    return Split(part.x[rows], part.y[rows] - 2 * index)
