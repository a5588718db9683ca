"""A reminder sets itself and tells the truth: witnesses, verdicts, tolerance, growth, many updates."""

import io
import json
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from selfreminder import data
from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks.stream import Stream, image_parts
from selfreminder.memory import Memory, open_memory, save_memory
from selfreminder.reminder.drop import Drop
from selfreminder.reminder.recall_report import Report, TaskReport
from selfreminder.reminder.remember import choose_witnesses
from selfreminder.reminder.reminder import Reminder
from selfreminder.reminder.tolerance import Tolerance


def network(classes: int = 10) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, classes))


def learn(model: nn.Module, x: Tensor, y: Tensor, reminder: Reminder | None = None, *, steps: int = 60) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for number in range(steps):
        rows = torch.arange(50 * number, 50 * number + 50) % len(x)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[rows]), y[rows])
        (loss if reminder is None else loss + reminder.penalty(model)).backward()
        optimizer.step()


@pytest.fixture(scope="module")
def trained(digits: Stream) -> nn.Sequential:
    model = network()
    learn(model, digits[0].train.x, digits[0].train.y)
    return model


def copy_of(model: nn.Sequential) -> nn.Sequential:
    other = network(model[-1].out_features)  # pyright: ignore[reportArgumentType]
    other.load_state_dict(model.state_dict())
    return other


def right(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return (model(x).argmax(1) == y).float().mean().item()


def test_a_loss_beyond_what_is_allowed_is_told_though_few_cannot_be_sure() -> None:
    row = Report((), 0.1, "sum", allowed=0.01)
    lost = TaskReport(0, 100, 20, 0.95, Drop.of(lost=1, won=0, n=20), 0.1, 0.1, 0.9, 0.95, 0.95, {})
    assert lost.in_words(0.01) == replace(row, tasks=(lost,)).verdict == "may forget"
    assert "0.01 is allowed" in replace(row, tasks=(lost,)).advice
    assert replace(row, tasks=(lost,), allowed=0.06).verdict == "too few to tell"


# Witnesses -------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 3), max_size=60), st.sampled_from([0.1, 0.2, 0.34, 0.5]))
def test_witnesses_are_a_share_of_each_class(labels: list[int], share: float) -> None:
    """None of a class with fewer than three, never all of one, and about the share of it."""
    found = choose_witnesses(torch.tensor(labels, dtype=torch.long), share)
    assert found is not None
    for label in set(labels):
        ours = found[torch.tensor(labels) == label]
        assert int(ours.sum()) <= len(ours) * share + 1
        assert int(ours.sum()) < len(ours)
        assert len(ours) > 2 or share == 0.5 or not ours.any()


@given(st.integers(0, 1000), st.integers(1, 40))
def test_witnesses_are_never_drawn(seed: int, n: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    memory = Memory()
    for task, size in enumerate((7, 3, 12)):
        witness = torch.rand(size, generator=generator) < 0.4
        witness[0] = False
        x = torch.full((size, 1), 100.0 * task) + torch.arange(size)[:, None]
        memory = memory + Memory.of({"x": x}, torch.zeros(size, 2), task=task, witness=witness)
    held = set(memory.read().inputs["x"][~memory.witnesses, 0].tolist())
    drawn = memory.draw(n, generator)
    assert set(drawn.inputs["x"][:, 0].tolist()) <= held
    assert drawn.weight.sum().item() == pytest.approx(3.0, rel=1e-5)  # one a task
    seen = memory.draw_witnesses(n, generator)
    assert set(seen.inputs["x"][:, 0].tolist()).isdisjoint(held)


def test_an_estimate_without_witnesses_is_unbiased() -> None:
    """The mean of many draws is the sum over tasks of means over the items that are held."""
    memory, wanted = Memory(), 0.0
    for task, size in enumerate((40, 9)):
        x = torch.arange(size, dtype=torch.float32)[:, None] + task
        witness = torch.arange(size) % 5 == 2
        memory = memory + Memory.of({"x": x}, torch.zeros(size, 2), task=task, witness=witness)
        wanted += x[~witness].mean().item()
    generator, total = torch.Generator().manual_seed(0), 0.0
    for _ in range(2000):
        drawn = memory.draw(6, generator)
        total += torch.dot(drawn.weight, drawn.inputs["x"][:, 0]).item()
    assert total / 2000 == pytest.approx(wanted, rel=0.01)


def test_witnesses_travel_and_are_counted(digits: Stream, trained: nn.Sequential, tmp_path: Path) -> None:
    reminder = Reminder()
    kept = reminder.remember(trained, digits[0].train.x, digits[0].train.y, per_class=10)
    assert (kept.items, kept.witnesses, kept.classes) == (100, 20, dict.fromkeys(range(10), 10))
    assert kept.nbytes == reminder.memory.nbytes
    reminder.save(tmp_path / "m")
    again = open_memory(tmp_path / "m")
    assert torch.equal(again.witnesses, reminder.memory.witnesses)
    assert Reminder(again.take(again.labels != 3)).report(trained).tasks[0].witnesses == 18  # deletion
    reminder.remember(trained, digits[1].train.x, digits[1].train.y, budget=60_000)
    assert reminder.memory.nbytes <= 60_000
    shares = [reminder.memory.witnesses[reminder.memory.tasks == task].float().mean().item() for task in (0, 1)]
    assert shares == pytest.approx([0.2, 0.2], abs=0.11)
    stream = Reminder()
    for start in range(0, 300, 50):
        stream.observe(trained, digits[0].train.x[start : start + 50], per_task=100)
    assert 5 <= int(stream.memory.witnesses.sum()) <= 40
    state = stream.state_dict()
    other = Reminder()
    other.load_state_dict(state)
    assert torch.equal(other.memory.witnesses, stream.memory.witnesses)


# The report ------------------------------------------------------------------------------------------------


class Parrot(nn.Module):
    """Says what it was told of the inputs that it knows, and the same of all others."""

    def __init__(self, known: Tensor, said: Tensor) -> None:
        super().__init__()
        self.known, self.said = known, said

    def forward(self, x: Tensor) -> Tensor:
        distance, nearest = torch.cdist(x, self.known, compute_mode="donot_use_mm_for_euclid_dist").min(1)
        return torch.where((distance < 1e-3)[:, None], self.said[nearest], torch.eye(10)[0])


def test_the_report_judges_by_witnesses(digits: Stream, trained: nn.Sequential) -> None:
    """A model that knows the held items by heart and nothing else is found out."""
    x, y = digits[0].train.x, digits[0].train.y
    reminder = Reminder(stale="warn")
    reminder.remember(trained, x, y, per_class=20)
    held = ~reminder.memory.witnesses
    parrot = Parrot(x[reminder.memory.sources.long()[held]], reminder.memory.logits[held])
    assert right(parrot, parrot.known, parrot.said.argmax(1)) == 1.0
    report = reminder.report(parrot)
    true = right(trained, digits[0].test.x, digits[0].test.y) - right(parrot, digits[0].test.x, digits[0].test.y)
    assert report.drop.low <= true <= report.drop.high
    assert report.verdict != "about right"
    blind = Reminder(reminder.memory.take(held), stale="warn")  # as a file without witnesses
    assert blind.report(parrot).is_optimistic
    assert "other old data will have lost more" in str(blind.report(parrot))
    given_old = blind.report(parrot, old=(digits[0].test.x, digits[0].test.y), old_accuracy=0.9)
    assert not given_old.is_optimistic and given_old.drop.items == len(digits[0].test.y)
    assert json.loads(json.dumps(report.to_dict()))["drop"]["items"] == 40


@given(st.integers(1, 200), st.data())
def test_an_interval_has_its_mean_and_narrows(n: int, drawn: st.DataObject) -> None:
    lost = drawn.draw(st.integers(0, n))
    won = drawn.draw(st.integers(0, n - lost))
    one, many = Drop.of(lost, won, n), Drop.of(4 * lost, 4 * won, 4 * n)
    assert -1 <= one.low <= one.high <= 1
    assert many.low <= one.mean <= many.high or n < 8
    assert many.high - many.low < one.high - one.low


def test_coverage_of_the_interval() -> None:
    """In 95 % of trials, or nearly, the true drop is inside: here with 20 items, and with 50."""
    generator = torch.Generator().manual_seed(0)
    for n, p, q in ((20, 0.05, 0.0), (20, 0.15, 0.02), (50, 0.1, 0.05), (50, 0.0, 0.0)):
        draws = torch.rand(2000, n, generator=generator)
        lost, won = (draws < p).sum(1).tolist(), ((draws >= p) & (draws < p + q)).sum(1).tolist()
        inside = [(drop := Drop.of(a, b, n)).low <= p - q <= drop.high for a, b in zip(lost, won)]
        assert sum(inside) / len(inside) >= 0.92


def test_what_was_recorded_wrong_is_said(digits: Stream, trained: nn.Sequential) -> None:
    """Labels in another order, or remembered after the new was learned."""
    x, y = digits[0].train.x, digits[0].train.y
    sure = copy_of(trained)
    learn(sure, x, y, steps=120)
    forgotten = copy_of(sure)
    learn(forgotten, x, (y + 3) % 10, steps=200)
    shuffled = y[torch.randperm(len(y), generator=torch.Generator().manual_seed(0))]
    for labels, model in ((shuffled, sure), ((y + 1) % 10, sure), (y, forgotten)):
        reminder = Reminder()
        with pytest.warns(UserWarning, match="remember before you train on the new"):
            reminder.remember(model, x, labels, per_class=10)
        report = reminder.report(model)
        assert report.verdict == "recorded wrong"
        assert "Remember before you train" in str(report)


def test_classes_that_could_not_be_filled_are_named(trained: nn.Sequential) -> None:
    x, y = torch.rand(20, 784), torch.tensor([0] * 15 + [1] * 5)
    with pytest.warns(UserWarning, match="fewer than 10 to keep: class 1 has 5"):
        kept = Reminder().remember(network(), x, y, per_class=10)
    assert kept.classes == {0: 10, 1: 5}


def test_both_lost_is_divergence(digits: Stream, trained: nn.Sequential) -> None:
    reminder = Reminder()
    reminder.remember(trained, digits[0].train.x, digits[0].train.y, per_class=20)
    lost = copy_of(trained)
    nn.init.zeros_(lost[-1].weight)  # pyright: ignore[reportArgumentType]
    report = reminder.report(lost, new=(digits[1].test.x, digits[1].test.y))
    assert report.verdict == "diverged"
    assert "lower the step size" in report.advice


# Strength --------------------------------------------------------------------------------------------------


def test_one_input_out_of_proportion_does_not_speak_for_all(digits: Stream, trained: nn.Sequential) -> None:
    x, y = digits[0].train.x[:500].clone(), digits[0].train.y[:500]
    usual = Reminder()
    usual.remember(trained, x, y, per_task=500)
    x[7] *= 1000
    odd = Reminder()
    odd.remember(trained, x, y, per_task=500)
    assert odd.current_strength == pytest.approx(usual.current_strength, rel=0.05)


def test_many_tasks_weigh_no_more_than_a_few(trained: nn.Sequential) -> None:
    reminder, strengths = Reminder(), []
    for seed in range(30):
        x = torch.rand(20, 784, generator=torch.Generator().manual_seed(seed))
        reminder.remember(trained, x, per_task=10)
        strengths.append(reminder.current_strength * len(reminder.memory.counts) * reminder.memory.spread)
    assert max(strengths) == pytest.approx(strengths[3], rel=1e-3)
    assert strengths[-1] == pytest.approx(strengths[3], rel=1e-3)


@pytest.mark.parametrize("tight", [True, False])
def test_with_a_tolerance_the_new_gives_way(digits: Stream, trained: nn.Sequential, tight: bool) -> None:
    """It weighs next to nothing where more would be lost than may be, all where there is room; λ stays in bounds."""
    x, y, reminder = digits[0].train.x, digits[0].train.y, Reminder(max_drop=0.0005 if tight else 0.5)
    model = copy_of(trained)
    reminder.remember(model, x, y, per_class=10)
    before = reminder.current_strength
    learn(model, digits[1].train.x, digits[1].train.y, reminder, steps=65)
    report = reminder.report(model)
    assert len(report.weights_of_new) == len(report.strengths) == 7
    assert report.weights_of_new[0] == pytest.approx(0.1)
    assert (min(report.weights_of_new) < 0.02) == tight and (report.weights_of_new[-1] > 0.9) != tight
    assert "moved between" in str(report) and "the new weighed between" in str(report)
    assert 0.03 * before <= reminder.current_strength <= before * (1 + 1e-6)
    assert tight or reminder.current_strength < before  # no stiffer than it must be


def test_a_tolerance_is_kept_to_where_the_default_is_not(digits: Stream, trained: nn.Sequential) -> None:
    """What is to be learned denies the old: every digit has another label."""
    old, test, lost = digits[0].train, digits[0].test, {}
    for name, reminder in (("default", Reminder()), ("tolerance", Reminder(max_drop=0.01))):
        model = copy_of(trained)
        reminder.remember(model, old.x, old.y, per_class=5)
        before = right(model, test.x, test.y)
        learn(model, old.x, (old.y + 1) % 10, reminder, steps=60)
        lost[name] = before - right(model, test.x, test.y)
    assert lost["tolerance"] <= 0.02 and lost["default"] > 0.05


def test_a_tolerance_is_resumed_to_the_bit(digits: Stream, trained: nn.Sequential) -> None:
    x, y, new = digits[0].train.x, digits[0].train.y, digits[1].train
    ends = []
    for cut in (None, 25):
        model, reminder = copy_of(trained), Reminder(max_drop=0.01, batch_size=32)
        reminder.remember(model, x, y, per_class=10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step in range(50):
            if step == cut:
                buffer = io.BytesIO()
                torch.save(reminder.state_dict(), buffer)
                buffer.seek(0)
                reminder = Reminder(max_drop=0.01, batch_size=32)
                reminder.load_state_dict(torch.load(buffer, weights_only=True), model)
            optimizer.zero_grad()
            (F.cross_entropy(model(new.x[:64]), new.y[:64]) + reminder.penalty(model)).backward()
            optimizer.step()
        report = reminder.report(model)
        ends.append((model[0].weight, (report.strengths, report.weights_of_new)))
    assert torch.equal(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]


def test_bad_tolerances() -> None:
    for bad in ({"max_drop": 0}, {"max_drop": 2}, {"max_drop": "1%"}, {"max_drop": 0.01, "strength": 1.0}):
        with pytest.raises(SelfReminderError, match="max_drop"):
            Reminder(**bad)
    with pytest.raises(SelfReminderError, match="share from 0 to"):
        Reminder(witnesses=3)
    assert Tolerance(0.01).history == []


def test_names_of_classes_serve_streams_and_reports(trained: nn.Sequential) -> None:
    names = [f"digit {number}" for number in range(10)]
    x, labels = torch.rand(30, 784), [names[number % 10] for number in range(30)]
    reminder = Reminder()
    reminder.observe(trained, x, labels, classes=names, per_task=20)
    assert reminder.memory.labels.tolist() == [int(source) % 10 for source in reminder.memory.sources]
    reminder.observe(trained, x, per_task=20)  # later batches may have none
    by_name, by_number = (reminder.report(trained, new=(x, y)) for y in (labels, torch.arange(30) % 10))
    assert by_name.new_accuracy == by_number.new_accuracy
    fresh = Reminder()
    fresh.remember(trained, x, per_task=20)
    assert fresh.report(trained, new=(x, labels), classes=names).new_accuracy == by_name.new_accuracy


# Refresh and growth ----------------------------------------------------------------------------------------


def test_refresh_records_what_another_model_says(digits: Stream, trained: nn.Sequential) -> None:
    reminder, other = Reminder(), network()
    reminder.remember(trained, digits[0].train.x, digits[0].train.y, per_class=5)
    average = AveragedModel(other)
    reminder.refresh(average)
    assert reminder.penalty(other).item() == pytest.approx(0.0, abs=1e-9)
    assert reminder.penalty(average).item() == pytest.approx(0.0, abs=1e-9)
    assert reminder.penalty(trained).item() > 0
    wider = Reminder(reminder.memory)
    wider.refresh(network(13))
    assert wider.memory.widths.tolist() == [13] * 50
    assert wider.penalty(network(13)).item() == pytest.approx(0.0, abs=1e-9)


def convolutions(classes: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, classes)),
    )


def learn_images(model: nn.Module, x: Tensor, y: Tensor, reminder: Reminder, *, epochs: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            (F.cross_entropy(model(x[rows]), y[rows]) + reminder.penalty(model)).backward()
            optimizer.step()


def load_images() -> list[tuple[Tensor, Tensor]]:
    parts = image_parts(data.load("embedded-mnist"), seed=0)
    return [(part.x.reshape(-1, 1, 28, 28), part.y) for part in (parts.train, parts.test)]


def test_classes_grow_from_a_file(tmp_path: Path) -> None:
    """Five classes are deployed; three more come alone, and the old ones are kept."""
    (x, y), (test_x, test_y) = load_images()
    deployed, first = convolutions(5), Reminder()
    learn_images(deployed, x[y < 5], y[y < 5], first, epochs=2)
    first.remember(deployed, x[y < 5], y[y < 5], per_class=20)
    first.save(tmp_path / "memory")
    wide, more = convolutions(8), (y >= 5) & (y < 8)
    weights = wide.state_dict()
    for name, known in deployed.state_dict().items():
        (weights[name][: len(known)] if known.ndim else weights[name]).copy_(known)
    reminder = Reminder.load(tmp_path / "memory", grow=True)
    learn_images(wide, x[more], y[more], reminder, epochs=3)
    wide.eval()
    old, new = test_y < 5, (test_y >= 5) & (test_y < 8)
    assert right(wide, test_x[old], test_y[old]) >= 0.90
    assert right(wide, test_x[new], test_y[new]) >= 0.87


def test_a_budget_for_more_tasks_than_items(digits: Stream, trained: nn.Sequential) -> None:
    """Two tasks become one where there is no room for an item of each; without that it is an error."""
    strict, merging = Reminder(), Reminder(tasks="merge")
    x, y = digits[0].train.x, digits[0].train.y
    with pytest.raises(SelfReminderError, match="raise the budget"):
        for _ in range(12):
            strict.remember(trained, x, y, budget=8 * 841)
    for _ in range(12):
        merging.remember(trained, x, y, budget=8 * 841)
        assert merging.memory.nbytes <= 8 * 841
    assert merging.penalty(trained).item() == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(SelfReminderError, match="each has a head"):
        Reminder(tasks="merge", head={0: 0})


@pytest.mark.slow
def test_thirty_nights() -> None:
    """SGD with momentum on a network with batch norm, remembered every night: the sum over tasks does not blow up."""
    (x, y), (test_x, test_y) = load_images()
    model = convolutions(10)

    def of_night(x: Tensor, night: int) -> Tensor:
        light = 0.6 + 0.4 * torch.rand((), generator=torch.Generator().manual_seed(night)).item()
        return x if night == 0 else x * light

    reminder = Reminder()
    for night in range(31):
        order = torch.randperm(len(x))[: len(x) if night == 0 else 1000]
        learn_images(model, of_night(x[order], night), y[order], reminder, epochs=3 if night == 0 else 1)
        reminder.remember(model, of_night(x[order], night), y[order], per_class=5)
    model.eval()
    with torch.no_grad():
        assert right(model, test_x, test_y) >= 0.93
        assert right(model, of_night(test_x, 30), test_y) >= 0.93


def test_settings_travel(digits: Stream, trained: nn.Sequential, tmp_path: Path) -> None:
    reminder = Reminder(max_drop=0.02, loss="distill", over_tasks="mean")
    names = [f"digit {label}" for label in range(10)]
    labels = [names[label] for label in digits[0].train.y.tolist()]
    reminder.remember(trained, digits[0].train.x, labels, classes=names, per_class=3)
    reminder.save(tmp_path / "m")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = Reminder.load(tmp_path / "m")
    assert loaded.tolerance is not None and loaded.tolerance.max_drop == 0.02
    assert (loaded.loss, loaded.over_tasks, loaded.classes) == (reminder.loss, "mean", names)
    with pytest.warns(UserWarning, match="loss is 'logit', the file has 'distill'"):
        Reminder.load(tmp_path / "m", loss="logit")
    assert Reminder.load(tmp_path / "m", strength=1.0).tolerance is None
    for odd in ({"loss": ["logit"]}, {"strength": {}}):
        save_memory(replace(reminder.memory, settings=odd), tmp_path / "odd")
        with pytest.raises(SelfReminderError, match="which no reminder writes"):
            Reminder.load(tmp_path / "odd")
    save_memory(replace(reminder.memory, settings={"of a later version": 1}), tmp_path / "later")
    assert Reminder.load(tmp_path / "later").strength == "auto"
