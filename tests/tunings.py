"""Shared by tests about tuning: what is asked for, and records of runs that nobody made."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.records import RECORDS
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.tuning.candidates import Tuning


def tuning(*names: str, at: dict[str, Any] | None = None, **settings: Any) -> Tuning:
    return Tuning(comparison=Comparison(benchmark="permuted-mnist", methods=names, **(at or {})), **settings)


def make_records(
    folder: Path, run: Experiment, validation: Sequence[Sequence[float]], test: float = 0.5, *, done: bool = True
) -> None:
    """Write a run with these accuracies on validation data, and one on all of the test data."""
    events: list[dict[str, Any]] = [{"event": "start", "experiment": run.as_dict(), "versions": {}}]
    for task, row in enumerate(validation):
        events.append({"event": "task", "task": task, "test": [test] * len(row), "validation": list(row)})
    (folder / run.key).mkdir(parents=True)
    lines = (json.dumps(event) + "\n" for event in [*events, *[{"event": "done"}] * done])
    (folder / run.key / RECORDS).write_text("".join(lines))
