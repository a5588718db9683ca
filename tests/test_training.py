import copy
import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from selfreminder import methods
from selfreminder._base.errors import SelfReminderError, TrainingDivergedError
from selfreminder._base.sizes import Size
from selfreminder.benchmarks.models import build_model
from selfreminder.benchmarks.stream import Stream
from selfreminder.methods import OPTIMIZERS
from selfreminder.methods.base import Batch, Method, Step
from selfreminder.methods.ewc import Ewc
from selfreminder.methods.hat import Hat
from selfreminder.training import StoppedError, Training, TrainState, Watcher, predicted_right, train


def mlp() -> nn.Module:
    return build_model("mnist-mlp", width=1 / 16, seed=0)


def dropout_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(784, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 10))


def test_every_sample_once_an_epoch(digits: Stream) -> None:
    class Spy(Method):
        def loss(self, model: nn.Module, batch: Batch, step: Step) -> torch.Tensor:
            assert (step.epoch, step.fraction_of_epoch) == (len(seen) // 9, len(seen) % 9 / 9)
            seen.append(batch.x)
            return super().loss(model, batch, step)

    seen: list[torch.Tensor] = []
    train(mlp(), digits[0], Spy(), Training(epochs=2, batch_size=64))
    first, second = torch.cat(seen[:9]), torch.cat(seen[9:])
    plain = digits[0].train.x
    for epoch in (first, second):
        assert torch.equal(epoch.sort(0).values, plain.sort(0).values)
    assert not torch.equal(first, second)


def test_resume_with_dropout_and_batch_norm(digits: Stream) -> None:
    """Random numbers inside the network are part of the position too."""
    how, method = Training(epochs=2, batch_size=100, lr=1e-3), methods.build("adam", {}, {})
    whole = dropout_model()
    train(whole, digits[0], method, how)
    for stop_at in range(1, 12):
        model, count, saved = dropout_model(), iter(range(1, 100)), []

        def keep(state: TrainState, saved: list = saved) -> None:
            weights, optimizer = ({k: v.clone() for k, v in d.items()} for d in (state.model, state.optimizer))
            saved.append(TrainState(state.epoch, state.step, weights, optimizer, state.losses))

        watcher = Watcher(save=keep, stop=lambda count=count, at=stop_at: next(count) == at)
        with pytest.raises(StoppedError):
            train(model, digits[0], method, how, watcher=watcher)
        torch.rand(3)
        resumed = dropout_model()
        train(resumed, digits[0], method, how, saved[0])
        for key, value in whole.state_dict().items():
            assert torch.equal(resumed.state_dict()[key], value), (stop_at, key)


def test_epoch_losses_do_not_depend_on_a_stop(digits: Stream) -> None:
    how, method = Training(epochs=1, batch_size=100), methods.build("adam", {}, {})
    told: list[float] = []
    watcher = Watcher(epoch=lambda epoch, loss, seconds: told.append(loss))
    train(mlp(), digits[0], method, how, watcher=watcher)
    saved: list[TrainState] = []
    count = iter(range(1, 100))
    with pytest.raises(StoppedError):
        train(mlp(), digits[0], method, how, watcher=Watcher(save=saved.append, stop=lambda: next(count) == 3))
    train(mlp(), digits[0], method, how, saved[0], watcher)
    assert told[0] == told[1]


def test_it_saves_as_often_as_asked(digits: Stream) -> None:
    saved: list[tuple[int, int]] = []
    watcher = Watcher(save=lambda state: saved.append((state.epoch, state.step)), save_every=0.0)
    train(mlp(), digits[0], methods.build("adam", {}, {}), Training(epochs=2, batch_size=270), watcher=watcher)
    assert saved == [(0, 1), (0, 2), (1, 1), (1, 2)]


def test_epochs_shorter_than_the_time_between_saves_are_saved_too(
    digits: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that goes on by one at every look."""
    ticks = itertools.count()
    monkeypatch.setattr("selfreminder.training.time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    saved: list[int] = []
    watcher = Watcher(save=lambda state: saved.append(state.epoch), save_every=15.0)
    train(mlp(), digits[0], methods.build("adam", {}, {}), Training(epochs=20, batch_size=270), watcher=watcher)
    assert len(saved) == next(ticks) // 16  # an epoch is 4 looks long
    assert saved == sorted(set(saved))


def test_early_stopping_does_not_hide_that_training_diverged(digits: Stream) -> None:
    """Finite, and with good weights from before: hopeless all the same."""

    class Growing(Method):
        def loss(self, model: nn.Module, batch: Batch, step: Step) -> torch.Tensor:
            return super().loss(model, batch, step) * 10.0 ** (9 * step.epoch)

    how = Training(epochs=3, batch_size=64, optimizer="sgd", lr=1e-9, plateau=True)
    with pytest.raises(TrainingDivergedError, match=r"e\+\d+ at task 1, epoch 2, step 1"):
        train(mlp(), digits[0], Growing(), how)


def test_early_stopping_looks_at_many_remembered_items(digits: Stream) -> None:
    """All of a memory of 60, where a step has 2: whatever is drawn, the loss is the same."""
    method = methods.build("fsr-logit", {"memory_batch": 2, "size": Size(per_class=6)}, {})
    model = mlp()
    method.prepare(model, digits)
    method.after_task(model, digits[0])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    batch = Batch(digits[1].validation.x[:9], digits[1].validation.y[:9], None, torch.arange(9))

    def losses() -> set[float]:
        steps = (Step(1, 0, 1.0, torch.Generator().manual_seed(seed)) for seed in range(5))
        return {round(method.loss(model, batch, step).item(), 4) for step in steps}

    assert len(losses()) > 1
    model.eval()
    assert len(losses()) == 1


def test_a_loss_that_is_not_finite_is_named_and_nothing_bad_is_saved(digits: Stream) -> None:
    class Diverging(Method):
        steps = 0

        def loss(self, model: nn.Module, batch: Batch, step: Step) -> torch.Tensor:
            self.steps += 1
            loss = super().loss(model, batch, step)
            return loss * float("nan") if self.steps == 9 + 4 else loss

    saved: list[tuple[int, int]] = []
    watcher = Watcher(save=lambda state: saved.append((state.epoch, state.step)), save_every=0.0)
    with pytest.raises(TrainingDivergedError, match="nan at task 1, epoch 2, step 4: lower the step size"):
        train(mlp(), digits[0], Diverging(), Training(epochs=3, batch_size=64), watcher=watcher)
    assert saved[-1] == (1, 3)
    with pytest.raises(TrainingDivergedError, match="epoch 2, step 4"):
        train(mlp(), digits[0], Diverging(), Training(epochs=3, batch_size=64))


def test_weight_decay_is_coupled(digits: Stream) -> None:
    """SGD with decay follows the gradient of loss + decay/2 ‖θ‖²."""
    model, how = mlp(), Training(epochs=1, batch_size=540, optimizer="sgd", lr=0.1, weight_decay=0.5)
    before = [p.detach().clone() for p in model.parameters()]
    data = digits[0].train
    loss = nn.functional.cross_entropy(model(data.x), data.y)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    train(model, digits[0], methods.build("sgd", {}, {}), how)
    for p, old, gradient in zip(model.parameters(), before, gradients):
        torch.testing.assert_close(p.detach(), old - 0.1 * (gradient + 0.5 * old), rtol=1e-4, atol=1e-6)


def test_bad_input() -> None:
    with pytest.raises(SelfReminderError, match="did you mean 'adam'"):
        Training(optimizer="adamm")
    with pytest.raises(SelfReminderError, match="momentum is 1"):
        Training(optimizer="sgd", momentum=1.0)
    with pytest.raises(SelfReminderError, match="adamw has its own"):
        Training(optimizer="adamw", momentum=0.9)
    with pytest.raises(SelfReminderError, match="epochs is 0"):
        Training(epochs=0)
    with pytest.raises(SelfReminderError, match="lr is -1"):
        Training(lr=-1)


def plateau_run(stream: Stream, stop_at: int | None) -> tuple[dict[str, torch.Tensor], list[float]]:
    """HAT's protocol on few data, where it lowers the step size and stops early; in two parts if asked."""
    how = Training(epochs=40, batch_size=270, optimizer="sgd", lr=3.0, plateau=True)
    method, model, lrs = methods.build("sgd", {}, {}), dropout_model(), []
    state, count = None, iter(range(1, 1000))
    saved: list[TrainState] = []

    def keep(state: TrainState) -> None:
        copied = ({k: v.clone() for k, v in d.items()} for d in (state.model, state.optimizer, state.best))
        weights, optimizer, best = copied
        saved.append(replace(state, model=weights, optimizer=optimizer, best=best))

    if stop_at is not None:
        with pytest.raises(StoppedError):
            watcher = Watcher(save=keep, stop=lambda: next(count) == stop_at)
            train(model, stream[0], method, how, watcher=watcher)
        model, state = dropout_model(), saved[0]
    end = train(model, stream[0], method, how, state)
    lrs += [end.epoch, end.lowered, end.best_loss]
    return {k: v.clone() for k, v in model.state_dict().items()}, lrs


def test_hats_protocol_survives_a_resume(digits: Stream) -> None:
    """Early stopping, lowered step size and best weights: the same when cut in two anywhere."""
    weights, (epochs, lr, best) = plateau_run(digits, None)
    assert epochs > 6
    assert 0 < lr < 1.0
    for stop_at in (1, 5, 13, 14, 21, 29, 61):  # the last two with a lowered step size
        again, ends = plateau_run(digits, stop_at)
        assert ends == [epochs, lr, best]
        assert all(torch.equal(again[key], value) for key, value in weights.items())


def test_the_best_weights_are_restored(digits: Stream) -> None:
    how = Training(epochs=8, batch_size=270, optimizer="sgd", lr=3.0, plateau=True)
    model = dropout_model()
    state = train(model, digits[0], methods.build("sgd", {}, {}), how)
    validation = digits[0].validation
    loss = nn.functional.cross_entropy(model.eval()(validation.x), validation.y).item()
    assert loss == pytest.approx(state.best_loss, rel=1e-6)


def test_accuracy_is_of_eval_mode_and_leaves_no_trace(digits: Stream) -> None:
    """Batch norm by its running statistics, which stay, and no dropout."""
    model, test = dropout_model().train(), digits[0].test.take(torch.arange(300))
    before = copy.deepcopy(model)
    right = predicted_right(model, test, methods.build("adam", {}, {}), None, "cpu")
    assert torch.equal(right, before.eval()(test.x).argmax(1) == test.y)
    assert all(torch.equal(value, before.state_dict()[key]) for key, value in model.state_dict().items())


def test_hats_protocol_lowers_to_a_third_after_five_epochs_and_ends(
    digits: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By validation losses that are made up: better twice, then never again."""
    losses = iter([3.0, 2.0, *[2.0] * 100])
    monkeypatch.setattr("selfreminder.training._validation_loss", lambda *_: next(losses))
    made, make, sizes = [], Training.make_optimizer, []
    monkeypatch.setattr(Training, "make_optimizer", lambda how, groups: made.append(make(how, groups)) or made[-1])
    watcher = Watcher(epoch=lambda *_: sizes.append(made[0].param_groups[0]["lr"]))
    how = Training(epochs=99, batch_size=540, optimizer="sgd", lr=2e-3, plateau=True)
    end = train(mlp(), digits[0], Method(), how, watcher=watcher)
    assert sizes == pytest.approx([2e-3] * 7 + [2e-3 / 3] * 5 + [2e-3 / 9] * 5)  # the next would be below 1e-4
    assert end.best_loss == 2.0


def test_hats_protocol_chooses_by_the_methods_own_loss(digits: Stream) -> None:
    """With its penalty, in eval mode, at the end of HAT's annealing, and with the same draws at every epoch."""
    losses, seen = iter([3.0, 1.0, 2.0]), set()

    class Spy(Method):
        def loss(self, model: nn.Module, batch: Batch, step: Step) -> torch.Tensor:
            if model.training:
                return super().loss(model, batch, step)
            seen.add((len(batch.x), step.fraction_of_epoch, torch.rand((), generator=step.generator).item()))
            return torch.tensor(next(losses))

    end = train(mlp(), digits[0], Spy(), Training(epochs=3, batch_size=540, optimizer="sgd", plateau=True))
    assert end.best_loss == 1.0
    ((items, fraction, _),) = seen
    assert (items, fraction) == (len(digits[0].validation), 1.0)


@pytest.mark.parametrize("plateau", [False, True])
def test_hats_protocol_clips_at_the_methods_norm(digits: Stream, plateau: bool) -> None:
    class Clipped(Method):
        clip = 0.01

        def after_backward(self, model: nn.Module, batch: Batch, step: Step) -> None:
            # as EWC's pull and HAT's compensation
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad *= 10

    assert (Method.clip, Ewc.clip, Hat.clip) == (1e4, 100, 1e4)  # HAT's authors'
    model = mlp()
    before = nn.utils.parameters_to_vector(model.parameters()).detach()
    how = Training(epochs=1, batch_size=540, optimizer="sgd", lr=1.0, weight_decay=0.0, plateau=plateau)
    train(model, digits[0], Clipped(), how)
    moved = (nn.utils.parameters_to_vector(model.parameters()) - before).norm().item()
    assert moved == pytest.approx(0.01, rel=1e-3) if plateau else moved > 0.2


def test_the_step_sizes_are_the_papers_unless_others_are_named() -> None:
    assert OPTIMIZERS == {"adam": 1e-4, "adamw": 1e-4, "sgd": 1e-3}
    weight = torch.zeros(1, requires_grad=True)
    for name, usual in OPTIMIZERS.items():
        for lr in (None, 0.3):
            optimizer = Training(optimizer=name, lr=lr).make_optimizer([{"params": [weight]}])
            assert optimizer.param_groups[0]["lr"] == (lr or usual)
