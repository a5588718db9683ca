import copy
import itertools
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import Size
from selfreminder.benchmarks.stream import Stream
from selfreminder.reminder.reminder import Reminder
from selfreminder.samples import Samples, read_samples
from selfreminder.store.candidate import Candidate, choose_factor, train_candidate
from selfreminder.store.evidence import Answers, Interpolation, choose_interpolation, interpolate
from selfreminder.store.train_settings import TrainSettings
from selfreminder.training import StoppedError

SIZE = Size(per_class=10)


def to_float(x: Tensor) -> Tensor:
    return x.float() / 255


def shaken(x: Tensor) -> Tensor:
    return to_float(x) + 0.1 * torch.randn(x.shape)


def raw(x: Tensor, y: Tensor) -> Samples:
    return read_samples((x * 255).round().to(torch.uint8), y)


@pytest.fixture(scope="module")
def story(digits: Stream) -> tuple[nn.Module, Reminder, Samples, Samples]:
    """A network with batch norm and dropout that knows the first task, its memory, and the second task's data."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Linear(784, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10)
        model = nn.Sequential(*layers)
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(8):
            for x, y in zip(digits[0].train.x.split(60), digits[0].train.y.split(60)):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
    model.eval()
    reminder = Reminder(transform=to_float)
    old = raw(digits[0].train.x, digits[0].train.y)
    reminder.remember(model, old.inputs["x"], old.labels, per_class=10)
    new, validation = digits[1].train, digits[1].validation
    return model, reminder, raw(new.x, new.y), raw(validation.x, validation.y)


def train(story: tuple[nn.Module, Reminder, Samples, Samples], folder: Path, **given: object) -> Candidate:
    """A candidate from copies of model and reminder, so that each call starts from the same."""
    model, reminder, new, validation = story
    settings = given.pop("settings", TrainSettings(lr=3e-3, epochs=2, batch_size=60))
    model, reminder = copy.deepcopy(model), Reminder(reminder.memory, transform=to_float)
    return train_candidate(model, reminder, new, validation, settings=settings, size=SIZE, folder=folder, **given)  # pyright: ignore


def same(one: Candidate, other: Candidate) -> None:
    assert one.to_dict() == other.to_dict()
    for name, value in one.weights.items():
        assert torch.equal(other.weights[name], value), name
    for name, value in one.memory.columns.items():
        assert torch.equal(other.memory.columns[name], value), name


def test_it_learns_the_new_and_keeps_the_old(story, digits: Stream, tmp_path: Path) -> None:
    def right(weights: dict[str, Tensor], task: int) -> float:
        model = copy.deepcopy(story[0])
        model.load_state_dict(weights)
        test = digits[task].test
        return (model(to_float((test.x * 255).round())).argmax(1) == test.y).float().mean().item()

    reminded = train(story, tmp_path / "a", augment=shaken)
    plain = train(story, tmp_path / "b", settings=TrainSettings(lr=3e-3, epochs=2, batch_size=60, strength=0))
    before = right(story[0].state_dict(), 0)
    assert right(reminded.weights, 0) > before - 0.02
    assert right(plain.weights, 0) < before - 0.03
    assert right(reminded.weights, 1) > 0.65
    assert len(reminded.memory) == 200 and reminded.remembered.items == 100
    assert len(reminded.losses) == 2 and len(reminded.trials) == 3
    json.dumps(reminded.to_dict())


def test_resumes_to_the_bit(story, tmp_path: Path) -> None:
    """Stopped again and again after any number of steps, in trials and in training, it ends as if it never was."""
    whole = train(story, tmp_path / "whole", augment=shaken)
    chance, stops, steps = random.Random(0), 0, 0

    def counted(x: Tensor) -> Tensor:
        nonlocal steps
        steps += 1
        return shaken(x)

    while True:
        asked, until = itertools.count(1), chance.randrange(1, 12)
        try:
            found = train(
                story, tmp_path / "cut", augment=counted, stop=lambda asked=asked, until=until: next(asked) == until
            )
            break
        except StoppedError:
            stops += 1
    same(whole, found)
    assert stops >= 4
    assert steps == 18 + 10 + 10  # all, and the last ten with two strengths that were not chosen: nothing twice


def test_a_stop_between_training_and_the_end_loses_nothing(story, tmp_path: Path) -> None:
    """Without trials, too: training that is over is not taken for training that is under way."""
    settings = TrainSettings(lr=3e-3, epochs=1, batch_size=60, strength=0.3)
    whole = train(story, tmp_path / "whole", settings=settings)
    for last in (8, 9, 10):
        asked = itertools.count(1)
        with pytest.raises(StoppedError):
            train(story, tmp_path / str(last), settings=settings, stop=lambda a=asked, n=last: next(a) == n)
        same(whole, train(story, tmp_path / str(last), settings=settings))


def test_the_step_size_that_begins_best_goes_on(story, tmp_path: Path) -> None:
    settings = TrainSettings(epochs=4, batch_size=60)
    whole = train(story, tmp_path / "whole", settings=settings)
    given = train(story, tmp_path / "given", settings=replace(settings, lr=whole.lr))
    assert whole.lr == 1e-3 and whole.accuracy_before[0] < 0.3  # a network of two layers that has much to learn
    for name, value in whole.weights.items():
        assert torch.equal(given.weights[name], value), name  # what the race did is a part of the training
    cut, asked = tmp_path / "cut", itertools.count(1)
    for until in (3, 5, 25):
        with pytest.raises(StoppedError):
            train(story, cut, settings=settings, stop=lambda until=until: next(asked) % until == 0)
    same(whole, train(story, cut, settings=settings))


def test_a_step_size_that_diverges_does_not_go_on(story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = TrainSettings(optimizer="sgd", epochs=4, batch_size=60)
    monkeypatch.setattr(TrainSettings, "rates", (1e30, 1e-3))
    assert train(story, tmp_path / "one", settings=settings).lr == 1e-3
    monkeypatch.setattr(TrainSettings, "rates", (1e30, 1e20))
    with pytest.raises(SelfReminderError, match="lower the step size"):
        train(story, tmp_path / "all", settings=settings)


def test_few_data_are_seen_more_often() -> None:
    assert [TrainSettings().plan(items).epochs for items in (10, 1000, 3200, 100_000)] == [20, 16, 5, 2]
    assert TrainSettings(epochs=1).plan(10).epochs == 1


def test_state_of_other_data_is_dropped(story, tmp_path: Path) -> None:
    model, reminder, new, validation = story
    asked = itertools.count(1)
    with pytest.raises(StoppedError):
        train(story, tmp_path / "cut", stop=lambda: next(asked) == 5)
    assert new.labels is not None
    other = model, reminder, replace(new, labels=new.labels.flip(0)), validation
    same(train(other, tmp_path / "other"), train(other, tmp_path / "cut"))


def test_a_tolerance_goes_on_to_the_bit(story, tmp_path: Path) -> None:
    settings = TrainSettings(lr=3e-3, epochs=2, batch_size=60, max_drop=0.01)
    whole = train(story, tmp_path / "whole", settings=settings)
    asked = itertools.count(1)
    with pytest.raises(StoppedError):
        train(story, tmp_path / "cut", settings=settings, stop=lambda: next(asked) == 7)
    same(whole, train(story, tmp_path / "cut", settings=settings))
    assert whole.trials == ()


def test_more_classes(story, tmp_path: Path) -> None:
    """A wider model: old items are recorded for all classes before training, and again the same after a stop."""
    model, reminder, new, validation = story
    wide = copy.deepcopy(model)
    last = wide[-1]
    wide[-1] = nn.Linear(64, 12)
    with torch.no_grad():
        wide[-1].weight[:10], wide[-1].bias[:10] = last.weight, last.bias
        wide[-1].weight[10:], wide[-1].bias[10:] = 0.0, -3.0
    settings = TrainSettings(lr=3e-3, epochs=1, batch_size=60)

    def grow(folder: Path, stop=lambda: False) -> Candidate:
        ours = Reminder(reminder.memory, transform=to_float, grow=True)
        labels = new.labels.clone()
        labels[torch.arange(len(labels)) % 5 == 0] = 11
        changed = replace(new, labels=labels)
        return train_candidate(
            copy.deepcopy(wide),
            ours,
            changed,
            validation,
            settings=settings,
            size=Size(per_class=5),
            folder=folder,
            stop=stop,
        )

    whole = grow(tmp_path / "whole")
    asked = itertools.count(1)
    with pytest.raises(StoppedError):
        grow(tmp_path / "cut", lambda: next(asked) == 4)
    same(whole, grow(tmp_path / "cut"))
    assert whole.memory.logits.shape[1] == 12 and int(whole.memory.widths.min()) == 12


def test_frozen_batch_norm_stays_as_deployed(story, tmp_path: Path) -> None:
    model, reminder, new, validation = story
    frozen = copy.deepcopy(model)
    for layer in frozen[:2]:
        layer.requires_grad_(False)
    found = train((frozen, reminder, new, validation), tmp_path)
    for name in ("0.weight", "1.running_mean", "1.running_var", "1.num_batches_tracked"):
        assert torch.equal(found.weights[name], model.state_dict()[name])
    assert not torch.equal(found.weights["4.weight"], model.state_dict()["4.weight"])


def test_interpolation_has_batch_norms_statistics_too() -> None:
    old, new = nn.BatchNorm1d(2).state_dict(), nn.BatchNorm1d(2).state_dict()
    new["running_mean"], new["num_batches_tracked"] = torch.tensor([1.0, 2.0]), torch.tensor(7)
    between = interpolate(old, new, 0.25)
    assert between["running_mean"].tolist() == [0.25, 0.5] and int(between["num_batches_tracked"]) == 7
    assert interpolate(old, new, 1.0)["running_mean"].tolist() == [1.0, 2.0]


def test_an_interpolation_that_loses_of_the_new_is_not_chosen() -> None:
    trained = Interpolation(1.0, 0.80, 0.9, flips=0.10)
    assert choose_interpolation([Interpolation(0.5, 0.79, 1.0, flips=0.0), trained]) is trained
    equal = Interpolation(0.9, 0.80, 0.9, flips=0.10)
    assert choose_interpolation([equal, trained]) is equal  # nearer to the old


def test_the_automatic_strength_stays_unless_another_is_better_beyond_chance() -> None:
    def answers(new: int, old: int) -> Answers:
        return Answers(torch.arange(100) < new, torch.arange(100) < old)

    assert choose_factor({0.3: answers(81, 80), 1.0: answers(80, 80), 3.0: answers(70, 80)}) == 1.0
    assert choose_factor({0.3: answers(70, 70), 1.0: answers(80, 80), 3.0: answers(80, 95)}) == 3.0
    assert choose_factor({0.3: answers(50, 50)}) == 0.3  # the others diverged


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"strength": -1.0}, "strength is -1"),
        ({"max_drop": 2.0}, "max_drop is 2"),
        ({"strength": 0.1, "max_drop": 0.1}, "give one of them"),
        ({"trials": ()}, "at least one"),
        ({"interpolations": (1.5,)}, "between 0 and 1"),
        ({"memory_batch": 0}, "memory_batch is 0"),
        ({"optimizer": "adamv"}, "did you mean 'adam"),
        ({"device": "cuda:77"}, "torch finds no CUDA here"),
    ],
)
def test_bad_settings(given: dict, said: str) -> None:
    with pytest.raises(SelfReminderError, match=said):
        TrainSettings(**given)
