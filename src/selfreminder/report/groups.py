"""Results of a sweep: one for each method and setting, mean and standard error over seeds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from selfreminder.experiment.catalogue import references
from selfreminder.experiment.records import Records
from selfreminder.metrics import task_average
from selfreminder.report.curves import Estimate, MethodResult, results

_BOUND = ("benchmark", "data", "images", "tasks", "split_into", "validation", "width", "epochs")
"""fields in which joint training and what it bounds agree"""


@dataclass(frozen=True)
class Group:
    """One method with one setting of the fields that vary."""

    settings: dict[str, Any]
    result: MethodResult
    validation: Estimate
    """accuracy on validation data over all tasks at the end: what settings are chosen by"""

    def as_dict(self) -> dict[str, Any]:
        """As JSON can say it."""
        return {"settings": self.settings} | self.result.as_dict() | {"validation": vars(self.validation)}


def grouped(records: Iterable[Records], varying: Sequence[str]) -> list[Group]:
    """A result for each method and setting of the fields that vary, over its seeds; unfinished runs are left out."""
    groups: dict[str, list[Records]] = {}
    for record in records:
        if record.done:
            groups.setdefault(replace(record.experiment, seed=0).key, []).append(record)
    bounds: dict[tuple[Any, ...], list[Records]] = {}
    for runs in groups.values():
        if runs[0].experiment.method in references():
            bounds.setdefault(_bound(runs[0]), runs)
    found = []
    for runs in groups.values():
        joint = [] if runs[0].experiment.method in references() else bounds.get(_bound(runs[0]), [])
        values = runs[0].experiment.as_dict()
        validation = Estimate.of([task_average(run.validation)[-1] for run in runs])
        found.append(Group({name: values[name] for name in varying}, results([*runs, *joint])[0], validation))
    return found


def _bound(record: Records) -> tuple[Any, ...]:
    return tuple(getattr(record.experiment, name) for name in _BOUND)
