"""The trials of one method: asked and pruned by Optuna, and kept in its journal. Needs the extra `tune`."""

import json
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast
from warnings import catch_warnings, simplefilter

from selfreminder._base.errors import MissingExtraError, SelfReminderError
from selfreminder._base.seeds import seed_for
from selfreminder.experiment.folder import JOURNAL
from selfreminder.experiment.records import Records, read_records
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.tuning.candidates import Candidates, Settings, Tuning, is_numeric
from selfreminder.metrics import mean_and_stderr

try:
    import optuna
    import tomlkit  # noqa: F401  (the table is written last: who lacks it is told before anything is trained)
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import FrozenTrial, TrialState
except ImportError as error:
    missing = "tomlkit" if error.name == "tomlkit" else "Optuna"
    raise MissingExtraError(f"tuning needs {missing}: pip install 'selfreminder[tune]'") from None

_BEYOND = 3.0
"""how far tpe goes beyond the candidates, as a factor"""
_TO_COMPARE_WITH = 4
"""trials that must be complete before one is pruned"""


def open_journal(folder: Path) -> JournalStorage:
    """Open the journal of a folder that is claimed, whatever a kill or a power cut has left of its end."""
    path = folder / JOURNAL
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        if path.exists():
            _cut_incomplete_end(path)
        # The folder is locked as a whole, by a lock that goes with its process. Optuna's stay when a process is killed:
        # a lock inside this one has the two methods that it calls.
        within_process = cast("Any", threading.Lock())
        return JournalStorage(JournalFileBackend(str(path), within_process))
    except (ValueError, LookupError, TypeError, AssertionError) as error:
        raise SelfReminderError(f"{path} is damaged ({error}): remove it; runs that are done stay so") from None


def _cut_incomplete_end(path: Path) -> None:
    """Cut off what was being written in the end: Optuna would write on behind it."""
    lines = path.read_bytes().splitlines(keepends=True)
    while lines:
        with suppress(ValueError):
            if lines[-1].endswith(b"\n") and isinstance(json.loads(lines[-1]), dict):
                break
        lines.pop()
    os.truncate(path, sum(map(len, lines)))


@dataclass(frozen=True)
class Trial:
    """A trial that is under way."""

    number: int
    settings: Settings
    runs: list[Experiment]


@dataclass(frozen=True)
class TrialResult:
    """What became of a trial."""

    settings: Settings
    state: Literal["done", "pruned", "diverged", "unfinished"]
    value: float | None = None
    """validation accuracy, of a trial that is done"""
    by_seed: tuple[float, ...] = ()

    @property
    def stderr(self) -> float | None:
        """Of its value, over seeds; None with one."""
        return mean_and_stderr(self.by_seed)[1] if self.by_seed else None


class Study:
    """One method's trials. What is under way in the journal when it is opened is taken up again."""

    def __init__(self, candidates: Candidates, tuning: Tuning, storage: JournalStorage) -> None:
        self.candidates, self._storage, self._is_grid = candidates, storage, tuning.sampler == "grid"
        # So many trials count: of tpe, the journal may have more, by a command that asked for more.
        self._count = tuning.count or len(candidates.combine())
        self._distributions = {k: _distribute(v, self._is_grid) for k, v in candidates.values.items()}
        self.prunes = tuning.prunes and candidates.reference is None  # the rule for sgd does not take the best
        self._pruner = optuna.pruners.MedianPruner(_TO_COMPARE_WITH, n_warmup_steps=candidates.base.tasks // 3)
        self.name = f"{candidates.name}-{tuning.sampler}-{candidates.digest(tuning.sampler, self.prunes)}"
        self._study = optuna.create_study(
            storage=storage, study_name=self.name, direction="maximize", load_if_exists=True
        )
        self._check_trials()
        if self._is_grid:
            known = [self._settings(trial) for trial in self._trials]
            for settings in candidates.combine():
                if settings not in known:
                    trial = optuna.create_trial(
                        state=TrialState.RUNNING, params=settings, distributions=self._distributions
                    )
                    self._study.add_trial(trial)
        self.open: dict[int, Trial] = {}
        for trial in self._trials:
            if trial.state == TrialState.RUNNING and trial.params.keys() == candidates.values.keys():
                self._begin(trial)
            elif trial.state == TrialState.RUNNING:  # killed before it was all there
                self._study.tell(trial.number, state=TrialState.FAIL)

    def _check_trials(self) -> None:
        """Refuse trials that nobody can have asked for: Optuna's journal has no check of its own."""
        for trial in self._trials:
            whole = trial.params.keys() == self.candidates.values.keys()
            if whole and (not self._is_grid or self._settings(trial) in self.candidates.combine()):
                continue
            if trial.state != TrialState.RUNNING or whole:
                raise SelfReminderError(
                    f"{JOURNAL} is damaged (it has a trial of {trial.params}): remove it; runs that are done stay so"
                )

    @property
    def to_come(self) -> int:
        """Runs of trials that have not been asked yet."""
        return max(0, self._count - len(self._trials)) * len(self.candidates.seeds)

    @property
    def runs(self) -> list[Experiment]:
        """Of the trials that are done or under way."""
        done = [self.candidates.runs(self._settings(trial)) for trial in self._trials[: self._count] if _is_done(trial)]
        return [run for runs in (*done, *(trial.runs for trial in self.open.values())) for run in runs]

    def ask(self) -> Trial | None:
        """Begin a trial; None if there are as many as there should be."""
        count = len(self._trials)
        if count >= self._count:
            return None
        with catch_warnings():
            simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # constant_liar, in Optuna 4
            # A seed for each trial: what is asked after an interruption is what would have been asked without.
            self._study.sampler = optuna.samplers.TPESampler(
                seed=seed_for(0, "tpe", count) % 2**32,
                n_startup_trials=5 * len(self._distributions),
                constant_liar=True,
            )
        return self._begin(self._trial(self._study.ask(self._distributions).number))

    def falls_behind(self, trial: Trial, curve: list[float]) -> bool:
        """Note what a trial's first run is judged by after each task so far; tell whether others were better there."""
        noted = self._trial(trial.number)
        for task in range(len(noted.intermediate_values), len(curve)):
            self._storage.set_trial_intermediate_value(noted._trial_id, task, curve[task])
        if not self.prunes or not curve:
            return False
        # Optuna's pruner takes the best of a trial's values so far, but averages go down from task to task.
        noted.intermediate_values = {len(curve) - 1: curve[-1]}
        return self._pruner.prune(self._study, noted)

    def count_noted(self, trial: Trial) -> int:
        """Count the tasks of a trial's first run that are noted."""
        return len(self._study.get_trials(deepcopy=False)[trial.number].intermediate_values)

    def tell(self, trial: Trial, result: TrialResult) -> None:
        """Write into the journal how a trial has ended."""
        del self.open[trial.number]
        if result.state == "pruned":
            self._study.tell(trial.number, state=TrialState.PRUNED)
            return
        if result.state == "diverged":
            self._storage.set_trial_user_attr(self._trial(trial.number)._trial_id, "diverged", True)
        self._study.tell(trial.number, result.value or 0.0)  # what diverged is as bad as can be: its like is not asked

    def results(self, folder: Path) -> list[TrialResult]:
        """List what became of the trials, from the least settings to the greatest."""
        found = [self._result(trial, folder) for trial in self._trials[: self._count]]
        return sorted(found, key=lambda each: [self.candidates.position(name, each.settings) for name in each.settings])

    def _result(self, trial: FrozenTrial, folder: Path) -> TrialResult:
        settings = self._settings(trial)
        if _is_done(trial):
            done = read_done(self.candidates.runs(settings), folder)
            by_seed = tuple(self.candidates.curve(records)[-1] for records in done)
            # Records have checks, the journal has none: its number counts only where they are gone.
            return TrialResult(settings, "done", self.candidates.score(done) if done else trial.value, by_seed)
        if trial.state == TrialState.COMPLETE:
            return TrialResult(settings, "diverged")
        return TrialResult(settings, "pruned" if trial.state == TrialState.PRUNED else "unfinished")

    @property
    def _trials(self) -> list[FrozenTrial]:
        return [trial for trial in self._study.get_trials() if trial.state != TrialState.FAIL]

    def _trial(self, number: int) -> FrozenTrial:
        return self._study.get_trials()[number]

    def _settings(self, trial: FrozenTrial) -> Settings:
        values = {name: trial.params.get(name) for name in self.candidates.values}
        if self._is_grid:
            return values
        # Three digits are enough for anybody.
        return {name: float(f"{value:.3g}") if isinstance(value, float) else value for name, value in values.items()}

    def _begin(self, trial: FrozenTrial) -> Trial:
        settings = self._settings(trial)
        self.open[trial.number] = begun = Trial(trial.number, settings, self.candidates.runs(settings))
        return begun


def _is_done(trial: FrozenTrial) -> bool:
    return trial.state == TrialState.COMPLETE and not trial.user_attrs.get("diverged")


def _distribute(values: tuple[Any, ...], is_grid: bool) -> BaseDistribution:
    """Say where Optuna may look for a field's values."""
    if not is_numeric(values):
        return CategoricalDistribution(values)
    low, high = (min(values), max(values)) if is_grid else (min(values) / _BEYOND, max(values) * _BEYOND)
    log = not is_grid and low > 0
    if all(isinstance(value, int) for value in values):
        return IntDistribution(max(round(low), 1 if log else 0), round(high), log=log)
    return FloatDistribution(low, high, log=log)


def read_done(runs: list[Experiment], folder: Path) -> list[Records]:
    """Read the records of runs; none unless all are done."""
    found = [records for run in runs if (records := read_records(folder / run.key)) is not None and records.done]
    return found if len(found) == len(runs) else []
