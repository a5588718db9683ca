"""Run trials in a grid's workers until there are enough of them. Needs the extra `tune`."""

from collections.abc import Iterable
from pathlib import Path

from selfreminder._base.errors import SelfReminderError
from selfreminder.experiment.pool.grid import Grid, Job
from selfreminder.experiment.pool.progress import Done, Failed
from selfreminder.experiment.records import read_records
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.tuning.candidates import Tuning
from selfreminder.experiment.tuning.choice import Choice, Outcome, Tried
from selfreminder.experiment.tuning.study import Study, Trial, open_journal


class Search:
    """The trials of a tuning, in a folder that is claimed. Run its `grid`, and let it `take` what that yields."""

    def __init__(
        self,
        tuning: Tuning,
        folder: Path,
        jobs: int | None = None,
        data_dir: str | None = None,
        retry_failed: bool = False,
    ) -> None:
        storage = open_journal(folder)
        self.studies = [Study(choice, tuning, storage) for choice in tuning.choices]
        runs: list[Experiment] = []
        for study in self.studies:
            if not study.open:
                study.ask()  # one of each method, so that all are checked before any is trained
            runs += [*study.choice.reference_runs, *study.runs]
        self.grid = Grid(
            {run.key: run for run in runs}.values(),
            folder,
            jobs,
            data_dir,
            retry_failed=retry_failed,
            about={"tuning": [study.name for study in self.studies]},
            more=self._more,
            to_come=lambda: sum(study.to_come for study in self.studies),
        )
        for job in list(self.grid.all):  # what was done before
            self.take(job)

    def take(self, job: Job | None) -> list[tuple[Choice, Tried]]:
        """Look at what a job's news mean for trials; gives those that have ended."""
        if job is None:
            return []
        if isinstance(job.answer, Failed) and job.answer.users_mistake:
            raise SelfReminderError(job.answer.reason)
        ended = []
        for study in self.studies:
            for trial in list(study.open.values()):
                if job.experiment in trial.runs and (tried := self._settle(study, trial)):
                    ended.append((study.choice, tried))
        return ended

    @property
    def is_complete(self) -> bool:
        runs = [run for study in self.studies for run in study.choice.reference_runs]
        return not any(study.open for study in self.studies) and all(
            (job := self._job(run)) and isinstance(job.answer, Done) for run in runs
        )

    def outcomes(self) -> list[Outcome]:
        return [study.outcome(self.grid.folder) for study in self.studies]

    def _more(self) -> Iterable[Experiment]:
        """The next trial's runs, of the method that has the fewest trials under way; none if there are enough."""
        while True:
            asked = ((study, study.ask()) for study in sorted(self.studies, key=lambda study: len(study.open)))
            study, trial = next(((study, trial) for study, trial in asked if trial), (None, None))
            if study is None or trial is None:
                return []
            if not self._settle(study, trial):
                jobs = [self._job(run) for run in trial.runs]
                new = [run for run, job in zip(trial.runs, jobs) if job is None or job.unwanted]
                if new:
                    return new

    def _settle(self, study: Study, trial: Trial) -> Tried | None:
        """End a trial if its runs have ended, or the first of them falls behind."""
        jobs = [self._job(run) for run in trial.runs]
        answers = [job and job.answer for job in jobs]
        first = jobs[0]
        if any(isinstance(answer, Failed) and answer.kind == "diverged" for answer in answers):
            study.diverge(trial)
            tried = Tried(trial.settings, "diverged")
        elif all(isinstance(answer, Done) for answer in answers):
            records = [found for job in jobs if job and (found := read_records(job.folder))]
            study.falls_behind(trial, study.choice.curve(records[0]))  # for others to be compared with
            value = study.choice.value(records)
            study.complete(trial, value)
            tried = Tried(trial.settings, "done", value)
        elif first and study.prunes and self._falls_behind(study, trial, first):
            study.prune(trial)
            tried = Tried(trial.settings, "pruned")
        else:
            return None
        wanted = [run for study in self.studies for other in study.open.values() for run in other.runs]
        for job in jobs:
            if job and job.answer is None:
                job.unwanted = job.experiment not in wanted
        return tried

    def _falls_behind(self, study: Study, trial: Trial, job: Job) -> bool:
        """Whether it does, if another task is complete since this was asked last."""
        tasks = job.progress.task - 1 if job.progress else 0
        if (job.experiment.tasks if isinstance(job.answer, Done) else tasks) <= study.noted(trial):
            return False
        records = read_records(job.folder)
        return records is not None and study.falls_behind(trial, study.choice.curve(records))

    def _job(self, run: Experiment) -> Job | None:
        """The last one that was made for a run."""
        return next((job for job in reversed(self.grid.all) if job.experiment == run), None)
