"""Run the trials of all methods in a grid's workers until there are enough, and choose. Needs the extra `tune`.

Choices are made on validation data alone. The best is the candidate with the highest validation accuracy, averaged over
all tasks after the last one and over the seeds. Only the step size of fine-tuning, adam or sgd, where it is all that is
chosen, has a rule of its own: a baseline should learn each task, and not be rewarded for learning little. Adam's has
the highest validation accuracy on the newest task, averaged over tasks; sgd's is the smallest within 2 points of
adam's; if none is, the largest.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from selfreminder._base.errors import SelfReminderError
from selfreminder.experiment.pool.grid import Grid, Job
from selfreminder.experiment.pool.process import Done, Failed
from selfreminder.experiment.records import read_records
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.tuning.candidates import (
    Candidates,
    Settings,
    Tuning,
    format_value,
    is_numeric,
    with_settings,
)
from selfreminder.experiment.tuning.study import Study, Trial, TrialResult, open_journal, read_done
from selfreminder.experiment.tuning.tuned import find_tuned

_NEAR = 0.02
"""how much less than adam sgd may learn"""


@dataclass(frozen=True)
class Choice:
    """What was tried for one method, and what is chosen."""

    candidates: Candidates
    results: Sequence[TrialResult]
    study: str
    adams_newest: float | None = None
    """adam's validation accuracy on the newest task, where sgd's step size is chosen by that"""

    @cached_property
    def chosen(self) -> TrialResult | None:
        """None if no trial came to an end."""
        if self.candidates.reference is None:
            return max(self.done, key=lambda result: result.value or 0.0, default=None)
        by_size = sorted(self.done, key=lambda result: result.settings["lr"])
        if self.adams_newest is None or not by_size:
            return None
        enough = round(self.adams_newest - _NEAR, 4)
        return next((result for result in by_size if (result.value or 0.0) >= enough), by_size[-1])

    @property
    def done(self) -> list[TrialResult]:
        """The trials that came to an end."""
        return [result for result in self.results if result.value is not None]

    @property
    def at_edge(self) -> dict[str, str]:
        """Fields whose chosen value is the least or greatest candidate: a better one may lie beyond."""
        if self.chosen is None or self.candidates.reference is not None:
            return {}
        found = {}
        for name, values in self.candidates.values.items():
            if len(values) > 1 and is_numeric(values):
                ends = {min(values): "smallest", max(values): "largest"}
                if (value := self.chosen.settings[name]) in ends:
                    found[name] = ends[value]
        return found


class Search:
    """The trials of a tuning, in a folder that is claimed. Run its `grid`, and let it `take` what that yields."""

    def __init__(
        self,
        tuning: Tuning,
        folder: Path,
        jobs: int | None = None,
        data_dir: str | None = None,
        retry_failed: bool = False,
        about: Mapping[str, Any] | None = None,
        make_grid: Callable[..., Grid] = Grid,
    ) -> None:
        storage = open_journal(folder)
        self.studies = [Study(candidates, tuning, storage) for candidates in tuning.candidates]
        runs: list[Experiment] = []
        for study in self.studies:
            if not study.open:
                study.ask()  # one of each method, so that all are checked before any is trained
            runs += [*study.candidates.reference_runs, *study.runs]
        self.grid = make_grid(
            {run.key: run for run in runs}.values(),
            folder,
            jobs,
            data_dir,
            retry_failed=retry_failed,
            about={**(about or {}), "tuning": [study.name for study in self.studies]},
            more=self._ask_more,
            to_come=lambda: sum(study.to_come for study in self.studies),
        )
        for job in list(self.grid.all):  # what was done before
            self.take(job)

    def take(self, job: Job | None) -> list[tuple[Candidates, TrialResult]]:
        """Look at what a job's news mean for trials; returns those that have ended."""
        if job is None:
            return []
        if isinstance(job.answer, Failed) and job.answer.users_mistake:
            raise SelfReminderError(job.answer.reason)
        ended = []
        for study in self.studies:
            for trial in list(study.open.values()):
                if job.experiment in trial.runs and (result := self._settle(study, trial)):
                    ended.append((study.candidates, result))
        return ended

    @property
    def is_complete(self) -> bool:
        runs = [run for study in self.studies for run in study.candidates.reference_runs]
        return not any(study.open for study in self.studies) and all(
            (job := self._job(run)) and isinstance(job.answer, Done) for run in runs
        )

    def choose(self) -> list[Choice]:
        """Choose for each method among what was tried so far."""
        folder, choices = self.grid.folder, []
        for study in self.studies:
            references = read_done(study.candidates.reference_runs, folder)
            newest = study.candidates.score(references) if references else None
            choices.append(Choice(study.candidates, study.results(folder), study.name, newest))
        return choices

    def _ask_more(self) -> Iterable[Experiment]:
        """Ask for the runs of another trial, of the method with the fewest under way; none if there are enough."""
        for study in sorted(self.studies, key=lambda study: len(study.open)):
            while trial := study.ask():
                if not self._settle(study, trial):
                    jobs = [self._job(run) for run in trial.runs]
                    if new := [run for run, job in zip(trial.runs, jobs) if job is None or job.unwanted]:
                        return new
        return []

    def _settle(self, study: Study, trial: Trial) -> TrialResult | None:
        """End a trial if its runs have ended, or the first of them falls behind."""
        jobs = [self._job(run) for run in trial.runs]
        if (result := self._judge(study, trial, jobs)) is None:
            return None
        study.tell(trial, result)
        wanted = [run for study in self.studies for other in study.open.values() for run in other.runs]
        for job in jobs:
            if job and job.answer is None:
                job.unwanted = job.experiment not in wanted
        return result

    def _judge(self, study: Study, trial: Trial, jobs: Sequence[Job | None]) -> TrialResult | None:
        answers = [job and job.answer for job in jobs]
        if any(isinstance(answer, Failed) and answer.kind == "diverged" for answer in answers):
            return TrialResult(trial.settings, "diverged")
        if all(isinstance(answer, Done) for answer in answers):
            records = read_done(trial.runs, self.grid.folder)
            study.falls_behind(trial, study.candidates.curve(records[0]))  # for others to be compared with
            return TrialResult(trial.settings, "done", study.candidates.score(records))
        if study.prunes and (first := jobs[0]) and self._falls_behind(study, trial, first):
            return TrialResult(trial.settings, "pruned")
        return None

    def _falls_behind(self, study: Study, trial: Trial, job: Job) -> bool:
        """Tell whether a trial falls behind, if another task is complete since this was asked last."""
        tasks = job.progress.task - 1 if job.progress else 0
        if (job.experiment.tasks if isinstance(job.answer, Done) else tasks) <= study.count_noted(trial):
            return False
        records = read_records(job.folder)
        return records is not None and study.falls_behind(trial, study.candidates.curve(records))

    def _job(self, run: Experiment) -> Job | None:
        """Find the last job that was made for a run."""
        return next((job for job in reversed(self.grid.all) if job.experiment == run), None)


def describe_choice(choice: Choice, tuning: Tuning) -> dict[str, Any]:
    """Compile the section of a table: what is chosen, what the method had already, and how it was chosen."""
    assert choice.chosen is not None
    candidates, at = choice.candidates, choice.candidates.comparison
    left = {_name_trial(result.settings): result.state for result in choice.results if result.value is None}
    if len(candidates.values) == 1:
        validation: Any = {_name_trial(result.settings): result.value for result in choice.done}
    else:
        validation = [result.settings | {"validation": result.value} for result in choice.done]
    where = at.extent
    return {
        **with_settings(
            find_tuned(at.benchmark, at.scale, candidates.method, at.size, at.tuned), choice.chosen.settings
        ),
        "fields": list(candidates.values),
        **({} if choice.adams_newest is None else {"adams_newest": choice.adams_newest}),
        "validation": validation,
        **({"unfinished": left} if left else {}),
        "seeds": list(candidates.seeds),
        "trials": len(choice.results),
        "sampler": tuning.sampler,
        "study": choice.study,
        **({"where": where} if where else {}),
        "command": _write_command(tuning, candidates.method),
    }


def _name_options(settings: Mapping[str, Any]) -> dict[str, object]:
    """Name the options that make settings, of your own data among them."""
    reading = settings.get("reading", {})
    said = {k: v for k, v in settings.items() if k != "reading"} | {k: v for k, v in reading.items() if k != "sha256"}
    listed = {name: ",".join(map(str, v)) if isinstance(v, list | tuple) else v for name, v in said.items()}
    return {f"--{name.replace('_', '-')}": value for name, value in listed.items()}


def _name_trial(settings: Settings) -> str:
    named = [f"{name} {format_value(value)}" for name, value in settings.items()]
    return " ".join(named) if len(named) > 1 else format_value(*settings.values())


def _write_command(tuning: Tuning, method: str) -> str:
    """Write the command that chooses the same again for one method."""
    at = tuning.comparison
    size = {} if at.size is None else vars(at.size)
    options: dict[str, object] = {
        "--scale": at.scale,
        "--methods": method,
        "--fields": ",".join(tuning.fields) or None,
        "--sampler": tuning.sampler if tuning.sampler != "grid" else None,
        "--trials": tuning.trials,
        "--seeds": tuning.seeds if tuning.seeds != 2 else None,
        **{f"--{name.replace('_', '-')}": value for name, value in size.items()},
        **{f"--{name}": getattr(at, name) for name in ("tasks", "epochs", "width", "tuned")},
        "--device": at.device if at.device != "cpu" else None,
        **_name_options(at.settings),
    }
    words = ["selfreminder", "tune", *([] if at.settings.get("reading") else [at.benchmark])]
    for option, value in options.items():
        words += [] if value is None else [option] if value is True else [option, str(value)]
    for name, values in tuning.values.items():
        words += ["--values", f"{name}={','.join(map(format_value, values))}"]
    words += [] if tuning.prune is None else ["--prune" if tuning.prune else "--no-prune"]
    return shlex.join(words)
