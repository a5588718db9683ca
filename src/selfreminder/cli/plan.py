"""`--dry-run` of `compare`, `run`, `tune` and `reproduce`: which runs are left, and about what they take."""

import json as json_format
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from selfreminder._base.errors import DataError
from selfreminder.cli.grid_command import Running
from selfreminder.cli.terminal import print_table
from selfreminder.data import dataset, source
from selfreminder.experiment.pool.estimate import count_cores
from selfreminder.experiment.pool.grid import Grid, Job

if TYPE_CHECKING:
    from selfreminder.experiment.pool.cost import Cost


@dataclass(frozen=True)
class Plan:
    """The runs of a grid that are left, and what they will cost. Nothing is run, fetched or written."""

    grid: Grid
    running: Running
    part_of: Callable[[Job], str] = lambda job: job.experiment.method
    """names the row of a table that a run is in"""
    heading: str = "method"
    """of these names"""
    note: str | None = None
    """a line about the numbers"""

    @cached_property
    def parts(self) -> dict[str, list[Job]]:
        """The runs by row."""
        found: dict[str, list[Job]] = {}
        for job in self.grid.all:
            found.setdefault(self.part_of(job), []).append(job)
        return found

    @cached_property
    def costs(self) -> "dict[str, Cost]":
        """What is left of each row costs."""
        from selfreminder.experiment.pool.cost import RunCosts  # noqa: PLC0415 - torch, by which a step is timed

        seen = RunCosts(self.grid.folder, self.running.own_data)
        return {
            name: seen.estimate(job.experiment for job in jobs if job.answer is None)
            for name, jobs in self.parts.items()
        }

    @cached_property
    def whole(self) -> "Cost":
        """What all that is left costs."""
        from selfreminder.experiment.pool.cost import Cost  # noqa: PLC0415

        return Cost.join(self.costs.values())

    @cached_property
    def workers(self) -> int:
        """How many workers there are."""
        try:
            return self.grid.workers
        except DataError:  # their size, by which memory is estimated, is not known before they are here
            return self.running.jobs or count_cores()

    @cached_property
    def notes(self) -> list[str]:
        """Lines about the numbers: what was to be said, and data whose size is not known before it is here."""
        left = [job.experiment for job in self.grid.all if job.answer is None]
        described = [dataset(name) for name in dict.fromkeys(name for run in left for name in run.data_sets)]
        missing = [data.name for data in described if len(source.find(data, self.running.data_dir)) < len(data.files)]
        said = f"Memory is estimated without {', '.join(missing)}: not at hand."
        return [*([] if self.note is None else [self.note]), *([said] if missing else [])]

    def as_dict(self, results: Sequence[Mapping[str, Any]] | None = None) -> dict[str, Any]:
        """As JSON can say it; `results` takes the place of the rows."""
        rows = [
            {"what": name, "runs": len(self.parts[name]), **cost.as_dict(self.workers)}
            for name, cost in self.costs.items()
        ]
        return {
            "folder": str(self.grid.folder),
            "runs": len(self.grid.all),
            "workers": self.workers,
            **self.whole.as_dict(self.workers),
            "rests_on": self.whole.rests_on,
            "notes": self.notes,
            "results": rows if results is None else results,
        }

    def say(self) -> None:
        """Print what is left in all."""
        print(self.whole.describe(len(self.grid.all), self.workers))
        for note in self.notes:
            print(note)

    def present(self) -> int:
        """Print the plan, as --json says; gives the exit code."""
        if self.running.json:
            print(json_format.dumps(self.as_dict(), indent=1))
            return 0
        cells = [
            [name, f"{cost.runs} of {len(self.parts[name])}", f"{cost.seconds / 3600:,.2f}"]
            for name, cost in self.costs.items()
        ]
        print_table([self.heading, "runs left", "core-hours"], cells)
        self.say()
        return 0
