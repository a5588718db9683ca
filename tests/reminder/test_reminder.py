import copy
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks.models import build_model
from selfreminder.benchmarks.stream import Stream
from selfreminder.memory import encoded
from selfreminder.reminder.losses import logit_match
from selfreminder.reminder.reminder import Reminder


def digits_model(seed: int = 0) -> nn.Module:
    return build_model("mnist-mlp", width=1 / 16, seed=seed)


def noisy_model() -> nn.Module:
    torch.manual_seed(0)
    body = (nn.Linear(784, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5))
    return nn.Sequential(*body, nn.Linear(32, 10))


def trained(model: nn.Module, stream: Stream, task: int = 0, steps: int = 20) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = stream[task].train
    for step in range(steps):
        rows = slice(20 * step, 20 * step + 20)
        optimizer.zero_grad()
        F.cross_entropy(model(data.x[rows]), data.y[rows]).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("make", [digits_model, noisy_model])
@pytest.mark.parametrize("per_class", [1, 10, 30])
def test_right_after_remembering_nothing_has_changed(
    digits: Stream, make: Callable[[], nn.Module], per_class: int
) -> None:
    """The penalty is 0, whichever items are drawn: what is fed is what was recorded.

    But for rounding: that of a product may depend on how many rows it has.
    """
    model, reminder = trained(make(), digits), Reminder(batch_size=64)
    for task in range(3):
        reminder.remember(model, digits[task].train.x, digits[task].train.y, per_class=per_class)
        assert reminder.penalty(model).item() == pytest.approx(0.0, abs=1e-12)
    assert all(row.agreement == 1.0 and row.drift < 1e-6 for row in reminder.report(model).tasks)


def test_penalty_is_equation_1(digits: Stream) -> None:
    old, new = digits_model(0), digits_model(1)
    reminder = Reminder(strength=0.7, batch_size=1000, witnesses=0)
    expected = 0.0
    for task, count in ((0, 30), (1, 7)):
        x, y = digits[task].train.x, digits[task].train.y
        reminder.remember(old, x, y, per_task=count)
        kept = reminder.memory.take(reminder.memory.tasks == task)
        items = x[kept.sources]
        assert torch.equal(kept.labels.long(), y[kept.sources])
        expected += 0.7 * logit_match(new(items), old(items)).mean().item()
    assert reminder.penalty(new).item() == pytest.approx(expected, rel=1e-5)
    assert reminder.report(new).penalty == pytest.approx(expected, rel=1e-5)
    reminder.over_tasks = "mean"
    assert reminder.penalty(new).item() == pytest.approx(expected / 2, rel=1e-5)


def test_one_pass_gives_what_two_do(digits: Stream) -> None:
    model, x = digits_model(1), digits[1].train.x[:50]
    reminder = Reminder(batch_size=40)
    reminder.remember(digits_model(0), digits[0].train.x, digits[0].train.y, per_class=10)
    logits, penalty = reminder.forward(model, x, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(logits, model(x))
    torch.testing.assert_close(penalty, reminder.penalty(model, generator=torch.Generator().manual_seed(3)))


def test_old_items_leave_statistics_modes_and_random_numbers_alone(digits: Stream) -> None:
    model, x = nn.Sequential(noisy_model(), nn.BatchNorm1d(10)), digits[1].train.x[:8]
    reminder = Reminder(mode="eval")
    reminder.remember(model, digits[0].train.x, digits[0].train.y, per_class=3)
    model[1].eval()  # a frozen batch norm stays frozen
    before, modes = copy.deepcopy(model.state_dict()), [module.training for module in model.modules()]
    state = torch.get_rng_state()
    reminder.penalty(model)
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    plain = copy.deepcopy(model)
    with_reminder, _ = reminder.forward(model, x)
    assert [module.training for module in model.modules()] == modes
    torch.set_rng_state(state)
    assert torch.equal(with_reminder, plain(x))  # dropout drew the same for the new items
    for ours, theirs in zip(model.buffers(), plain.buffers()):
        assert torch.equal(ours, theirs)  # and the statistics are of the new items alone


class Recurrent(nn.Module):
    def __init__(self, kind: Callable[..., nn.RNNBase]) -> None:
        super().__init__()
        self.layer = kind(4, 8, num_layers=2, dropout=0.5, batch_first=True)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layer(x)[0][:, -1])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_stay_in_train_mode_without_dropout(kind: Callable[..., nn.RNNBase]) -> None:
    """cuDNN takes no gradients through them in eval mode."""
    model, x, reminder, modes = Recurrent(kind), torch.rand(30, 5, 4), Reminder(), []
    expected = copy.deepcopy(model).eval()(x)
    reminder.remember(model, x, per_task=10)
    torch.testing.assert_close(reminder.memory.logits, expected[reminder.memory.sources])
    model.layer.register_forward_hook(lambda layer, *_: modes.append((layer.training, layer.dropout)))
    penalty = reminder.penalty(model)
    penalty.backward()
    for found in (penalty, reminder.forward(model, x)[1]):
        assert found.item() == pytest.approx(0.0, abs=1e-12)  # without gradients another kernel computes an LSTM
    assert modes == [(True, 0.0), (True, 0.5), (True, 0.0)]
    assert (model.layer.training, model.layer.dropout, model.last.training) == (True, 0.5, True)
    modes.clear()
    reminder.penalty(model.eval())
    assert modes == [(False, 0.5)]  # as it was put


class FunctionalDropout(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(super().forward(input), 0.5, self.training)


def test_one_pass_does_not_put_old_items_through_dropout(digits: Stream) -> None:
    model, reminder = FunctionalDropout(784, 10), Reminder()
    reminder.remember(model, digits[0].train.x, digits[0].train.y, per_class=3)
    assert reminder.forward(model, digits[1].train.x[:8])[1].item() == 0.0


def test_a_transform_may_work_in_place() -> None:
    model, x = nn.Linear(4, 3), torch.randn(30, 4)
    given = x.clone()
    reminder = Reminder(transform=lambda x: x.sub_(1.0))
    reminder.remember(model, x, per_task=6)
    assert torch.equal(x, given)
    for _ in range(3):
        assert reminder.penalty(model).item() == 0.0


class Normalise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sub_(0.5).div_(0.25)


@pytest.mark.parametrize("batch_size", [4, 100])
@pytest.mark.parametrize("codec", ["raw", "uint8", "compressed"])
def test_a_model_may_work_in_place(codec: str, batch_size: int) -> None:
    model = nn.Sequential(Normalise(), nn.Linear(4, 3))
    x, y = torch.randint(0, 256, (30, 4)) / 255, torch.arange(30) % 3
    given = x.clone()
    reminder = Reminder(codec=codec, batch_size=batch_size)
    reminder.remember(model, x, per_task=6)  # predictions stratify
    reminder.remember(model, x, y, per_task=6, select="gradient")
    reminder.observe(model, x, y, per_task=6)
    reminder.report(model, new=(x, y))
    assert torch.equal(x, given)
    for _ in range(3):  # rounding: of three tasks, they are not the passes that recorded the logits
        assert reminder.penalty(model).item() == pytest.approx(0.0, abs=1e-12)
    assert all(row.drift == pytest.approx(0.0, abs=1e-6) for row in reminder.report(model).tasks)


def test_remembering_in_inference_mode(digits: Stream) -> None:
    model, reminder = digits_model(), Reminder()
    with torch.inference_mode():
        reminder.remember(model, digits[0].train.x + 0, digits[0].train.y, per_class=3)
    reminder.penalty(digits_model(1)).backward()


@pytest.mark.parametrize("batch_size", [12, 30])
@pytest.mark.parametrize(
    ("codec", "logit_codec"), [("raw", "float32"), ("uint8", "float16"), ("compressed", "int8"), ("affine8", "float32")]
)
def test_evaluation_in_inference_mode_comes_first(codec: str, logit_codec: str, batch_size: int) -> None:
    x, model, narrow = torch.randint(0, 256, (60, 4)) / 255, nn.Linear(4, 5), nn.Linear(4, 3)
    with torch.no_grad():
        model.weight[:3], model.bias[:3] = narrow.weight, narrow.bias
    reminder = Reminder(batch_size=batch_size, codec=codec, logit_codec=logit_codec, loss="logit+label", grow=True)
    for recorder in (narrow, model):
        reminder.remember(recorder, x, torch.arange(60) % 3, per_task=15)
    for evaluate in (reminder.penalty, reminder.report):
        reminder.memory = reminder.memory.take(torch.arange(30))  # nothing of it has been read yet
        with torch.inference_mode():
            evaluate(model)
        reminder.penalty(model).backward()


def test_layers_frozen_and_unfrozen_after_attaching(digits: Stream) -> None:
    old, model = digits_model(0), digits_model(1)
    reminder = Reminder()
    reminder.remember(old, digits[0].train.x, digits[0].train.y, per_class=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first, *_, last = model.parameters()
    first.requires_grad_(False)
    reminder.attach(model, optimizer)
    first.requires_grad_(True)
    last.requires_grad_(False)
    before = first.detach().clone(), last.detach().clone()
    optimizer.step()
    assert not torch.equal(first, before[0])
    assert torch.equal(last, before[1])


def test_outputs_that_grew() -> None:
    """Of a model that says something else of its old classes, too, nothing is taken for the new ones."""
    torch.manual_seed(0)
    narrow, wide, x = nn.Linear(4, 3), nn.Linear(4, 5), torch.randn(40, 4)
    reminder = Reminder(grow=True)
    reminder.remember(narrow, x, per_task=8)
    with pytest.warns(UserWarning, match="Meet the wider model before training it"):
        reminder.remember(wide, x, per_task=8)
    assert [row.drift == 0 for row in reminder.report(wide).tasks] == [False, True]
    assert reminder.penalty(wide).item() > 0


def test_no_forward_while_there_is_nothing_to_remember() -> None:
    class Untouchable(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            raise AssertionError

    model = Untouchable(2, 2)
    assert Reminder().penalty(model).item() == 0.0


def plain_loop(model: nn.Module, reminder: Reminder, stream: Stream) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = stream[1].train
    for step in range(6):
        rows = slice(32 * step, 32 * step + 32)
        optimizer.zero_grad()
        (F.cross_entropy(model(data.x[rows]), data.y[rows]) + reminder.penalty(model)).backward()
        optimizer.step()


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_attach_gives_the_weights_of_the_plain_loop(
    digits: Stream, fused: bool, scaled: bool, micro_batches: int
) -> None:
    model = trained(digits_model(), digits)
    attached, data = copy.deepcopy(model), digits[1].train
    reminders = [Reminder(strength=0.1, batch_size=50) for _ in range(2)]
    for reminder in reminders:
        reminder.remember(model, digits[0].train.x, digits[0].train.y, per_class=10)
    plain_loop(model, reminders[0], digits)

    optimizer = torch.optim.SGD(attached.parameters(), lr=0.05, fused=fused)
    scaler = torch.amp.GradScaler("cpu", enabled=scaled, init_scale=64.0)
    handle = reminders[1].attach(attached, optimizer)
    for step in range(6):
        optimizer.zero_grad()
        for part in torch.arange(32 * step, 32 * step + 32).chunk(micro_batches):
            loss = F.cross_entropy(attached(data.x[part]), data.y[part]) / micro_batches
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    for ours, theirs in zip(attached.parameters(), model.parameters()):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)  # the order of float32 sums differs

    handle.remove()
    frozen = copy.deepcopy(attached.state_dict())
    optimizer.zero_grad()
    optimizer.step()
    assert all(torch.equal(value, frozen[name]) for name, value in attached.state_dict().items())


def test_attach_refuses_a_closure(digits: Stream) -> None:
    model, reminder = digits_model(), Reminder()
    reminder.remember(model, digits[0].train.x, digits[0].train.y, per_class=1)
    optimizer = torch.optim.LBFGS(model.parameters())
    reminder.attach(model, optimizer)
    for call in (lambda: optimizer.step(lambda: 0.0), lambda: optimizer.step(closure=lambda: 0.0)):
        with pytest.raises(SelfReminderError, match="inside the closure"):
            call()


def test_it_remembers(digits: Stream) -> None:
    """What it is for: the old task survives a new one."""
    model = trained(digits_model(), digits, steps=27)
    forgetful, mindful = copy.deepcopy(model), copy.deepcopy(model)
    reminder = Reminder(strength=1.0)
    reminder.remember(model, digits[0].train.x, digits[0].train.y, per_class=10)
    optimizer = torch.optim.Adam(mindful.parameters(), lr=1e-3)
    reminder.attach(mindful, optimizer)
    data = digits[1].train
    for _ in range(3):
        trained(forgetful, digits, task=1, steps=27)
        for step in range(27):
            rows = slice(20 * step, 20 * step + 20)
            optimizer.zero_grad()
            F.cross_entropy(mindful(data.x[rows]), data.y[rows]).backward()
            optimizer.step()
    agreement = [reminder.report(m).tasks[0].agreement for m in (forgetful, mindful)]
    assert agreement[1] > 0.95 > agreement[0] + 0.3


def test_transform_is_applied_again(digits: Stream) -> None:
    """Raw bytes are kept, and the transform runs both when logits are recorded and when they are matched."""
    raw, labels = (digits[0].train.x * 255).round().to(torch.uint8), digits[0].train.y
    calls = []

    def transform(x: Tensor) -> Tensor:
        calls.append((x.dtype, len(x)))
        return (x.float() / 255 - 0.13) / 0.31

    model = digits_model()
    reminder = Reminder(transform=transform)
    reminder.remember(model, raw, labels, per_class=2)
    assert reminder.memory.inputs["x"].dtype == torch.uint8
    assert reminder.penalty(model).item() == 0.0
    assert {dtype for dtype, _ in calls} == {torch.uint8}
    assert [items for _, items in calls if items > 1] == [20, 20]  # of one item alone, it is digested


def test_lossy_codecs_record_what_is_read_back() -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(6, 3), torch.randn(30, 6)
    reminder = Reminder(codec="float16")
    reminder.remember(model, x, per_task=9)
    assert not torch.equal(reminder.memory.read().inputs["x"], x[reminder.memory.sources])
    assert reminder.penalty(model).item() == 0.0


def test_an_item_is_deflated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    deflated: list[int] = []
    deflate = encoded.deflate
    monkeypatch.setattr(encoded, "deflate", lambda values: (deflated.append(len(values)), deflate(values))[1])
    Reminder(codec="compressed").remember(nn.Linear(4, 3), torch.rand(30, 4), per_task=6)
    assert deflated == [6]


def test_several_inputs_by_name() -> None:
    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(50, 8), nn.Linear(8, 3)

        def forward(self, ids: Tensor, keep: Tensor) -> Tensor:
            return self.head((self.embed(ids) * keep[..., None]).mean(1))

    model, reminder = Text(), Reminder()
    inputs = {"ids": torch.randint(0, 50, (40, 7)), "keep": torch.ones(40, 7)}
    reminder.remember(model, inputs, torch.arange(40) % 3, per_class=4)
    assert reminder.memory.inputs["ids"].dtype == torch.int64
    assert reminder.penalty(model).item() == 0.0


def test_without_labels_predictions_stratify(digits: Stream) -> None:
    model, x = trained(digits_model(), digits), digits[0].train.x
    reminder = Reminder()
    reminder.remember(model, x, per_task=20)
    assert (reminder.memory.labels == -1).all()
    predicted = model(x).argmax(1)
    available, kept = torch.bincount(predicted), torch.bincount(predicted[reminder.memory.sources])
    assert kept.max() - kept[kept < available[: len(kept)]].min() <= 1
    assert reminder.report(model).tasks[0].accuracy is None


def test_budget_is_a_total(digits: Stream) -> None:
    model, reminder = digits_model(), Reminder()
    for task in range(3):
        reminder.remember(model, digits[task].train.x, digits[task].train.y, budget="100KB")
        assert 99_000 < reminder.memory.nbytes <= 100_000
    counts = list(reminder.memory.counts.values())
    assert max(counts) - min(counts) <= 1
    assert reminder.penalty(model).item() == pytest.approx(0.0, abs=1e-12)


def test_task_can_be_joined(digits: Stream) -> None:
    model, reminder = digits_model(), Reminder()
    x, y = digits[0].train.x, digits[0].train.y
    reminder.remember(model, x, y, per_class=2)
    reminder.remember(model, x, y, per_class=2)
    reminder.remember(model, x, y, per_class=2, task=0)
    assert reminder.memory.counts == {0: 40, 1: 20}


def test_items_that_join_a_task_have_their_share_of_a_budget(digits: Stream) -> None:
    model, reminder = digits_model(), Reminder(witnesses=0)
    for _ in range(2):
        reminder.remember(model, digits[0].train.x, digits[0].train.y, task=0, budget=30 * 839)
    assert len(reminder.memory) == 30
    assert (reminder.memory.ids >= 30).sum() == 10
    assert torch.bincount(reminder.memory.labels).tolist() == [3] * 10


def test_save_and_load(digits: Stream, tmp_path: Path) -> None:
    old, new = digits_model(0), digits_model(1)
    reminder = Reminder(strength=1.0)
    reminder.remember(old, digits[0].train.x, digits[0].train.y, per_class=5, time=12)
    reminder.save(tmp_path / "memory")
    with pytest.warns(UserWarning, match=r"other settings: strength is 2.0, the file has 1.0"):
        loaded = Reminder.load(tmp_path / "memory", strength=2.0)
    assert loaded.penalty(new).item() == 2 * reminder.penalty(new).item() > 0


def test_nothing_is_remembered_of_a_mistake(digits: Stream) -> None:
    model, x, y = digits_model(), digits[0].train.x, digits[0].train.y
    reminder = Reminder()
    with pytest.raises(SelfReminderError, match="exactly one of per_class"):
        reminder.remember(model, x, y)
    with pytest.raises(SelfReminderError, match="540 inputs, but 3 labels"):
        reminder.remember(model, x, y[:3], per_class=1)
    with pytest.raises(SelfReminderError, match="larger than the data"):
        reminder.remember(model, x, y, per_class=55)
    with pytest.raises(SelfReminderError, match="raise the budget"):
        reminder.remember(model, x, y, budget=100)
    assert len(reminder.memory) == 0


def test_bad_models(digits: Stream) -> None:
    model, x, y = digits_model(), digits[0].train.x, digits[0].train.y
    reminder = Reminder()
    reminder.remember(model, x, y, per_class=1)
    wide, lenient = nn.Linear(784, 20), Reminder(reminder.memory, stale="warn")
    for call in (reminder.penalty, lambda model: reminder.forward(model, x)):
        with pytest.raises(SelfReminderError, match="other layers"):
            call(wide)
    for call in (lenient.penalty, lambda model: lenient.forward(model, x)):
        with (
            warnings.catch_warnings(),
            pytest.raises(SelfReminderError, match="memory holds 10 logits an item, the model gives 20"),
        ):
            warnings.simplefilter("ignore")
            call(wide)
    with pytest.raises(SelfReminderError, match=r"the model gives a tensor of shape \(10, 1, 784\)"):
        Reminder(batch_size=64).remember(nn.Unflatten(1, (1, 784)), x, y, per_class=1, task=0)
    with pytest.raises(SelfReminderError, match="the model gives a tuple"):
        Reminder(reminder.memory, logits_of=lambda model, x, task: (model(x),)).penalty(model)


def test_bad_inputs_and_labels(digits: Stream) -> None:
    model, x, y = digits_model(), digits[0].train.x, digits[0].train.y
    reminder = Reminder()
    reminder.remember(model, x, y, per_class=1)
    for inputs, message in (([1.0], "the data is a tensor"), ({}, "0 inputs"), ({"a": x, "b": x[:3]}, "one length")):
        with pytest.raises(SelfReminderError, match=message):
            reminder.remember(model, inputs, y, per_class=1)
    with pytest.raises(SelfReminderError, match="labels are classes from 0 to"):
        reminder.remember(model, x, y + 2**40, per_class=1)
    with pytest.raises(SelfReminderError, match="task is -1"):
        reminder.remember(model, x, y, per_class=1, task=-1)
    with pytest.raises(SelfReminderError, match="not finite"):
        reminder.remember(model, x * float("nan"), y, per_class=1)


def test_bad_settings() -> None:
    with pytest.raises(SelfReminderError, match="did you mean 'distill'"):
        Reminder(loss="distil")
    for settings in ({"strength": float("nan")}, {"strength": -1}, {"batch_size": 0}, {"codec": "uint9"}):
        with pytest.raises(SelfReminderError, match=next(iter(settings))):
            Reminder(**settings)
    with pytest.raises(SelfReminderError, match=r"Reminder\.load"):
        Reminder("memory.safetensors")


def test_it_says_what_it_is(digits: Stream) -> None:
    reminder = Reminder()
    reminder.remember(digits_model(), digits[0].train.x, digits[0].train.y, per_class=1)
    assert repr(reminder) == "Reminder(Memory(10 items of 1 task, 8.39 kB), strength=auto)"


@pytest.mark.parametrize("loss", ["distill", "logit+label"])
def test_the_other_losses_by_name(digits: Stream, loss: str) -> None:
    old, new, x, y = digits_model(0), digits_model(1), digits[0].train.x, digits[0].train.y
    reminder = Reminder(strength=0.7, loss=loss)
    reminder.remember(old, x, y, per_task=20)
    rows = reminder.memory.sources.long()
    now, then = new(x[rows]), old(x[rows])
    p, q = (then / 2).softmax(1), (now / 2).softmax(1)
    each = {
        "distill": (p * (p / q).log()).sum(1),
        "logit+label": logit_match(now, then) + F.cross_entropy(now, y[rows], reduction="none"),
    }[loss]
    assert reminder.penalty(new).item() == pytest.approx(0.7 * each.mean().item(), rel=1e-4)
    assert reminder.report(new).tasks[0].penalty == pytest.approx(each.mean().item(), rel=1e-4)


@pytest.mark.filterwarnings("ignore:the model is sure")
def test_the_automatic_strength_is_that_of_its_page(digits: Stream) -> None:
    """docs/strength.md: min(4 / S, 1), and 3 for distillation."""
    torch.manual_seed(0)
    model, reminder = nn.Linear(784, 10), Reminder()
    with torch.no_grad():
        model.weight *= 30
    reminder.remember(model, digits[0].train.x, digits[0].train.y, per_class=5)
    z = model(digits[0].train.x[reminder.memory.sources.long()])[~reminder.memory.witnesses]
    spread = (z - z.mean(1, keepdim=True)).square().sum(1).median().item()
    assert 1 > reminder.current_strength == pytest.approx(4 / spread, rel=1e-4)
    assert Reminder(loss="distill").current_strength == 3.0


def test_in_train_mode_old_items_are_as_new_ones(digits: Stream) -> None:
    """Dropout, the batch's own statistics, and the running ones move, in two passes and in one."""
    model, x, reminder = noisy_model(), digits[1].train.x[:8], Reminder(strength=1.0, mode="train")
    reminder.remember(model, digits[0].train.x, digits[0].train.y, per_class=3)
    twin, kept = copy.deepcopy(model), reminder.memory.draw(30)

    def both(run: Callable[[], Tensor]) -> Tensor:
        torch.manual_seed(3)
        return run()

    expected = both(lambda: logit_match(twin(kept.inputs["x"]), kept.logits).mean())
    torch.testing.assert_close(both(lambda: reminder.penalty(model)), expected)
    together = both(lambda: twin(torch.cat([x, kept.inputs["x"]])))
    logits, penalty = both(lambda: reminder.forward(model, x))
    torch.testing.assert_close(logits, together[:8])
    torch.testing.assert_close(penalty, logit_match(together[8:], kept.logits).mean())
    for ours, theirs in zip(model.buffers(), twin.buffers()):
        torch.testing.assert_close(ours, theirs)


def test_one_pass_transforms_what_is_kept(digits: Stream) -> None:
    raw, labels = (digits[0].train.x * 255).round().to(torch.uint8), digits[0].train.y
    new, reminder = digits_model(1), Reminder(strength=1.0, transform=lambda x: (x.float() / 255 - 0.13) / 0.31)
    reminder.remember(digits_model(0), raw, labels, per_class=2)
    x = digits[1].train.x[:8]
    logits, penalty = reminder.forward(new, x)
    torch.testing.assert_close(logits, new(x))
    torch.testing.assert_close(penalty, reminder.penalty(new))


def test_seeds_have_choices_and_draws_of_their_own(digits: Stream) -> None:
    old, new, x, y = digits_model(0), digits_model(1), digits[0].train.x, digits[0].train.y
    found = []
    for seed in (0, 0, 1):
        reminder = Reminder(strength=1.0, batch_size=20, seed=seed)
        reminder.remember(old, x, y, per_class=5)
        same = Reminder(found[0][2], strength=1.0, batch_size=20, seed=seed) if found else reminder
        found.append((reminder.memory.sources.tolist(), same.penalty(new).item(), reminder.memory))
    assert found[0][:2] == found[1][:2]
    assert found[0][0] != found[2][0]
    assert found[0][1] != found[2][1]


def test_a_total_of_items_is_shared_evenly_by_the_tasks() -> None:
    model, reminder = nn.Linear(4, 3), Reminder()
    for task, counts in enumerate([{0: 10}, {0: 5, 1: 5}, {0: 4, 1: 3, 2: 3}]):
        reminder.remember(model, torch.rand(30, 4), torch.arange(30) % 3, items=10)
        assert reminder.memory.counts == counts
        newest = reminder.memory.labels[reminder.memory.tasks == task]
        assert newest.unique().tolist() == [0, 1, 2]
    with pytest.raises(SelfReminderError, match="a memory of 3 items has fewer than one for each of the 4 tasks"):
        reminder.remember(model, torch.rand(30, 4), torch.arange(30) % 3, items=3)
    few = Reminder()
    assert few.remember(model, torch.rand(4, 4), torch.arange(4) % 2, items=10).items == 4


def test_two_terms_are_weighed_apart() -> None:
    """λ ‖z − z_t‖² + w CE(z, y); without a weight of its own, λ weighs both."""
    torch.manual_seed(0)
    old, new, x, y = nn.Linear(4, 3), nn.Linear(4, 3), torch.rand(30, 4), torch.arange(30) % 3
    now, then = new(x), old(x)
    matched = (now - then).square().sum(1).mean()
    labelled = nn.functional.cross_entropy(now, y)
    for weight, expected in ((None, 2 * matched + 2 * labelled), (0.3, 2 * matched + 0.3 * labelled), (0, 2 * matched)):
        reminder = Reminder(strength=2.0, loss="logit+label", label_weight=weight, witnesses=0)
        reminder.remember(old, x, y, per_class=10)
        torch.testing.assert_close(reminder.penalty(new), expected)


def test_the_weight_of_labels_travels_with_the_file(tmp_path: Path) -> None:
    reminder = Reminder(strength=2.0, loss="logit+label", label_weight=0.3)
    model, x = nn.Linear(4, 3), torch.rand(30, 4)
    reminder.remember(model, x, torch.arange(30) % 3, per_class=5)
    reminder.save(tmp_path / "memory")
    assert Reminder.load(tmp_path / "memory").label_weight == 0.3


def test_separate_draws_are_unbiased_and_differ() -> None:
    """Of two draws the first has the logits' term, the second the labels'; a memory that fits is looked at whole."""
    torch.manual_seed(0)
    old, new, x, y = nn.Linear(4, 3), nn.Linear(4, 3), torch.rand(60, 4), torch.arange(60) % 3
    settings = {"strength": 2.0, "loss": "logit+label", "label_weight": 0.3, "witnesses": 0}
    whole = Reminder(**settings)
    whole.remember(old, x, y, per_class=20)
    drawn = Reminder(whole.memory, batch_size=8, draws="separate", **settings)
    kept = drawn._draw(torch.device("cpu"), None)
    assert len(kept) == 16 and kept.for_labels.tolist() == [False] * 8 + [True] * 8
    assert not torch.equal(kept.inputs["x"][:8], kept.inputs["x"][8:])
    with torch.no_grad():
        found = torch.stack([drawn.penalty(new) for _ in range(800)])
        expected = whole.penalty(new)
    assert found.std() > 0
    assert (found.mean() - expected).abs() < 5 * found.std() / 800**0.5
    together = Reminder(whole.memory, batch_size=60, draws="separate", **settings)
    torch.testing.assert_close(together.penalty(new), expected)


def test_separate_draws_ride_along(digits: Stream) -> None:
    """With batch norm, too, in one pass with the new."""
    model = nn.Sequential(nn.Linear(784, 16), nn.BatchNorm1d(16), nn.Linear(16, 10))
    reminder = Reminder(strength=0.1, loss="logit+label", label_weight=1.0, draws="separate", batch_size=8)
    x, y = digits[0].train.x, digits[0].train.y
    reminder.remember(model, x, y, per_class=5)
    for _ in range(2):
        _ = model(x[:20])
        penalty = reminder.penalty(model)
        assert penalty.item() > 0
        penalty.backward()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"label_weight": 0.5}, 'label_weight= is for a loss of two terms: pass loss="logit'),
        ({"draws": "separate"}, 'draws="separate" is for a loss of two terms'),
        ({"loss": "logit+label", "label_weight": -1}, "label_weight is -1: it is a number from 0 on"),
        ({"loss": "logit+label", "draws": "seperate"}, "did you mean 'separate'"),
    ],
)
def test_weights_and_draws_that_cannot_be(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SelfReminderError, match=re.escape(message)):
        Reminder(**settings)


def test_the_logits_of_ones_own_pass_are_recorded() -> None:
    """Whenever `observe` is called: those, and no further pass."""
    model, reminder, calls = nn.Linear(4, 3), Reminder(witnesses=0), []
    x, y = torch.rand(6, 4), torch.arange(6) % 3
    own = model(x)
    with torch.no_grad():
        model.weight += 1.0  # the step
    reminder.observe(model, x, y, per_task=4)  # makes the fingerprint
    model.register_forward_hook(lambda *_: calls.append(1))
    other = Reminder(witnesses=0)
    other.observe(model, x, y, per_task=4, logits=own)
    assert not calls
    assert torch.equal(other.memory.logits, own[other.memory.sources].detach())
    assert not torch.equal(reminder.memory.logits, other.memory.logits)
    with pytest.raises(SelfReminderError, match=r"logits have the shape \(2, 3\), there are 6 items"):
        other.observe(model, x, y, per_task=4, logits=own[:2])
