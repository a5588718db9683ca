"""A candidate: the current model, trained on new data with a reminder of the old.

    candidate = train_candidate(model, reminder, new, validation, settings=…, size=…, folder=…)

1. **The step size**, where none is given: the first twentieth of the steps is done with each of two. The one goes on
   with which the loss on validation data, of the new and of the old, is lower.
2. **Training** with the strength λ that suits the memory, or the one given.
3. **λ**, where none is given: the last twentieth of the steps is done with each of a few around the automatic one. This
   stays, unless another has a better mean of accuracy on the new and on the old by more than a standard error. (Trials
   in the first tenth were tried, and chose too weak ones: forgetting comes later than learning.)
4. **Interpolations** of the weights between the current and the trained ones: the one with the fewest negative flips
   that loses nothing of the new (WiSE-FT, arXiv:2109.01903; BCWI, arXiv:2301.10546).
5. **Memory**. A few of the new samples are remembered with the logits of the weights that were chosen.

All is judged by validation data, never by what a gate looks at later. State is in the folder: the same call goes on
after a kill, to the bit.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from selfreminder._base.errors import TrainingDivergedError
from selfreminder._base.sizes import Size
from selfreminder.experiment.checkpoint import RunState
from selfreminder.memory import Memory
from selfreminder.reminder.remember import Remembered
from selfreminder.reminder.reminder import Reminder
from selfreminder.reminder.tolerance import Tolerance
from selfreminder.samples import Samples, restore_structure
from selfreminder.store.evidence import Answers, Evidence, Interpolation, choose_interpolation, interpolate
from selfreminder.store.progress import Watch, ignore
from selfreminder.store.reminded import Reminded
from selfreminder.store.stretches import Stretches, digest_call, keep_own_state
from selfreminder.store.train_settings import TrainSettings

_TRIED = 0.05
"""the share of all steps that are done with each of several strengths, the last ones, or step sizes, the first ones"""
_LEAST = 10
"""the fewest of such steps: fewer tell nothing"""
_TRUNK = "trunk"


@dataclass(frozen=True)
class Trial:
    """A strength that was tried, and what validation data says at the end of training."""

    strength: float
    accuracy_new: float | None
    """None if it diverged"""
    accuracy_old: float | None


@dataclass(frozen=True, eq=False)
class Candidate:
    """What came of training; `to_dict` is all but the tensors."""

    weights: dict[str, Tensor]
    """the state dict of the chosen interpolation"""
    trained: dict[str, Tensor]
    """the state dict at the end of training, before interpolation"""
    memory: Memory
    """all that was remembered, and a few of the new samples"""
    remembered: Remembered
    strength: float
    """λ; with a tolerance, as it was in the end"""
    lr: float
    """the step size"""
    trials: tuple[Trial, ...]
    """none where the strength was given"""
    losses: tuple[float, ...]
    """mean training loss of every epoch, penalty and all"""
    share: float
    """of the trained weights in those chosen"""
    interpolations: tuple[Interpolation, ...]
    """that were tried, the trained weights last"""
    accuracy_before: tuple[float, float | None]
    """of the current model on validation data: of the new, and of the old where there is something to judge by"""

    def to_dict(self) -> dict[str, Any]:
        """All but the tensors, as JSON can say it."""
        classes = {str(label): count for label, count in self.remembered.classes.items()}
        return {
            "strength": self.strength,
            "lr": self.lr,
            "share": self.share,
            "losses": list(self.losses),
            "accuracy_before": list(self.accuracy_before),
            "trials": [asdict(each) for each in self.trials],
            "interpolations": [asdict(each) for each in self.interpolations],
            "remembered": {**asdict(self.remembered), "classes": classes},
        }


def train_candidate(
    model: nn.Module,
    reminder: Reminder,
    new: Samples,
    validation: Samples,
    *,
    settings: TrainSettings,
    size: Size,
    folder: Path,
    augment: Callable[[Any], Any] | None = None,
    select: str = "random",
    now: float | None = None,
    watch: Watch = ignore,
    stop: Callable[[], bool] = lambda: False,
    save_every: float = 30.0,
) -> Candidate:
    """Train the current model on new samples with a reminder of the old, or go on with it.

    Args:
        model: with the current weights, as wide as it is to be; it ends with those of the candidate.
        reminder: with the memory of the current version, and the transform from raw samples to what the model takes;
            for a model with more classes than it had, `grow=True`. It ends with the candidate's memory.
        new: raw samples with labels, to train on.
        validation: raw samples with labels, of the same kind as the new, that are not trained on.
        settings: the table `[train]`.
        size: how much is remembered.
        folder: for the state, made if there is none; that of another call in it is dropped.
        augment: from raw samples to what the model takes, while training; its random numbers are torch's own, which
            are seeded at every step. None: the reminder's transform.
        select: how the samples to be remembered are chosen.
        now: when, in seconds since 1970, for the memory.
        watch: is told the progress.
        stop: is asked after every step; when it says so, the state is saved and `training.StoppedError` raised.
        save_every: seconds of training between two saves.
    """
    making = _Making(model, reminder, new, validation, settings, Path(folder), augment)
    making.stretches.watch, making.stretches.stop, making.stretches.save_every = watch, stop, save_every
    return making.make(size, select, now)


class _Making:
    """The making of a candidate while it lasts."""

    def __init__(
        self,
        model: nn.Module,
        reminder: Reminder,
        new: Samples,
        validation: Samples,
        settings: TrainSettings,
        folder: Path,
        augment: Callable[[Any], Any] | None,
    ) -> None:
        self.model, self.reminder, self.new, self.settings = model.to(settings.device), reminder, new, settings
        self.current = {name: value.clone() for name, value in model.state_dict().items()}
        keep_own_state(folder, digest_call(settings, self.current, reminder.memory.columns, new, validation))
        self.number = max(reminder.memory.counts, default=-1) + 1
        how = settings.plan(len(new))
        self.evidence = Evidence(reminder, validation, self.number, how.epochs * len(new))
        self.before = self.evidence.ask(model)
        self.kept_batch, reminder.batch_size = (
            reminder.batch_size,
            settings.memory_batch or -(-settings.batch_size // 2),
        )
        reminder.strength = "auto" if settings.strength is None else settings.strength
        reminder.tolerance = None if settings.max_drop is None else Tolerance(settings.max_drop)
        if len(reminder.memory):
            with torch.no_grad():
                reminder.penalty(model)  # a memory that does not fit says so, and a wider model is met, before training
        self.stretches = Stretches(
            model=model,
            method=Reminded(reminder=reminder, samples=new, augment=augment),
            current=self.current,
            evidence=self.evidence,
            how=how,
            number=self.number,
            folder=folder,
        )
        total = self.stretches.total
        tried = min(max(round(_TRIED * total), _LEAST), total)
        given = settings.strength is not None or settings.max_drop is not None
        self.factors = settings.trials if not given and len(reminder.memory) else (1.0,)
        self.trial_steps = tried if len(self.factors) > 1 else 0
        self.rates = settings.rates if tried + self.trial_steps < total else settings.rates[:1]
        self.rate_steps = tried if len(self.rates) > 1 else 0
        extra = self.trial_steps * (len(self.factors) - 1) + self.rate_steps * (len(self.rates) - 1)
        self.stretches.whole = total + extra

    def make(self, size: Size, select: str, now: float | None) -> Candidate:
        said, base = self.reminder.strength, self.reminder.current_strength
        if len(self.factors) == 1:
            base *= self.factors[0]
        rate, after = self._race(base)
        self.stretches.how = replace(self.stretches.how, lr=rate)
        state = self.stretches.train(_TRUNK, self.stretches.total - self.trial_steps, base, after)
        trials, strength = (), self.reminder.current_strength
        if self.trial_steps:
            trials, strength, state = self._try(base)
        trained = {key: value.clone() for key, value in self.model.state_dict().items()}
        tried = self._interpolate(trained, Answers(*state.right))
        share = choose_interpolation(tried).share
        self.model.load_state_dict(interpolate(self.current, trained, share))
        self.stretches.tell("memory")
        self.reminder.strength, self.reminder.batch_size = said, self.kept_batch
        remembered = self.reminder.remember(
            self.model,
            restore_structure(self.new.inputs),
            self.new.labels,
            task=self.number,
            select=select,
            sources=self.new.sources,
            time=now,
            **vars(size),
        )
        return Candidate(
            weights={key: value.clone() for key, value in self.model.state_dict().items()},
            trained=trained,
            memory=self.reminder.memory,
            remembered=remembered,
            strength=strength,
            lr=rate,
            trials=trials,
            losses=tuple(self.stretches.method.losses),
            share=share,
            interpolations=tried,
            accuracy_before=self.before.accuracy,
        )

    def _race(self, strength: float) -> tuple[float, str | None]:
        """Begin with each step size: the one with the lowest loss on validation data, and the stretch to go on from."""
        if not self.rate_steps:
            return self.rates[0], None
        losses: dict[float, float] = {}
        error = None
        for place, rate in enumerate(self.rates):
            self.stretches.how = replace(self.stretches.how, lr=rate)
            doing = f"step size {place + 1} of {len(self.rates)}"
            try:
                self.stretches.train(f"rate-{rate:g}", self.rate_steps, strength, doing=doing)
                losses[rate] = self.evidence.measure_loss(self.model)
            except TrainingDivergedError as diverged:
                error = diverged
        if error is not None and not losses:
            raise error
        best = min(losses, key=lambda rate: losses[rate])
        return best, f"rate-{best:g}"

    def _try(self, base: float) -> tuple[tuple[Trial, ...], float, RunState]:
        """Finish training with each strength, and put the weights of the best into the model; gives its strength."""
        answers: dict[float, Answers] = {}
        trials, error = [], None
        for number, factor in enumerate(self.factors):
            doing = f"strength {number + 1} of {len(self.factors)}"
            try:
                state = self._finish(base, factor, doing)
                answers[factor] = Answers(*state.right)
                trials.append(Trial(base * factor, *answers[factor].accuracy))
            except TrainingDivergedError as diverged:
                error = diverged
                trials.append(Trial(base * factor, None, None))
        if error is not None and not answers:
            raise error
        chosen = choose_factor(answers)
        return tuple(trials), base * chosen, self._finish(base, chosen)

    def _finish(self, base: float, factor: float, doing: str = "") -> RunState:
        return self.stretches.train(f"times-{factor:g}", self.stretches.total, base * factor, _TRUNK, doing)

    def _interpolate(self, trained: dict[str, Tensor], answers: Answers) -> tuple[Interpolation, ...]:
        """Look at weights between the current and the trained ones, whose answers are known and are the last."""
        found: dict[float, Answers] = {}
        for share in sorted(self.settings.interpolations):
            self.stretches.stop_if_asked()
            self.stretches.tell("interpolation")
            self.model.load_state_dict(interpolate(self.current, trained, share))
            found[share] = self.evidence.ask(self.model)
        return tuple(
            Interpolation(share, each.accuracy[0], each.accuracy[1], each.flips_since(self.before))
            for share, each in (found | {1.0: answers}).items()
        )


def choose_factor(answers: Mapping[float, Answers]) -> float:
    """1, unless others beat it by more than chance would: then the best of those.

    >>> half, all_ = torch.tensor([True, False] * 50), torch.ones(100, dtype=torch.bool)
    >>> choose_factor({1.0: Answers(half, half), 3.0: Answers(half, ~half), 9.0: Answers(all_, half)})
    9.0
    """
    usual = answers.get(1.0)
    better = [factor for factor, found in answers.items() if usual is None or found.beats(usual)]
    return max(better, key=lambda factor: answers[factor].score, default=1.0)
