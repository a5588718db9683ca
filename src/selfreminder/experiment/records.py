"""What a run measured: `records.jsonl`, the same bytes for the same experiment. Times are kept apart.

First line: {"event": "start", "experiment": …, "versions": …}. Then {"event": "epoch", "task", "epoch", "loss"}
for each epoch, {"event": "task", "task", "test": […], "validation": […], "flips": […], "chance", "bytes", "next",
"next_untrained"} for each task, and {"event": "done"} at the end. Tasks and epochs count from 0. A task's lists
have a value for each task so far: accuracies, and the shares of test items that were right when their task had
been learned and are wrong now. `chance` is a random stratified classifier's accuracy on the task, `next` the
accuracy on the task to come, `next_untrained` that of the initial weights. A method may add "measures": HAT adds
the share of its units in use.
"""

import json
import math
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from selfreminder._base.errors import SelfReminderError
from selfreminder.experiment.spec import Experiment

RECORDS = "records.jsonl"
TIMINGS = "timings.jsonl"
STATE = "state.safetensors"
_MEASURED = ("flips", "chance", "bytes")
"""beside accuracies; earlier versions did not have all of them"""


class Writer:
    """Appends lines to a file, from a given length on: what lies behind it is cut off."""

    def __init__(self, path: Path, length: int) -> None:
        self._path = path
        self._file: IO[bytes] = path.open("r+b" if path.exists() else "w+b")
        self._file.truncate(length)
        self._file.seek(length)

    def write(self, event: dict[str, Any]) -> None:
        try:
            self._file.write((json.dumps(event, ensure_ascii=False) + "\n").encode())
            self._file.flush()
        except OSError as error:
            error.filename = str(self._path)
            raise

    def sync(self) -> int:
        """Make sure that all is on disk; gives the file's length."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # what could not be written has been said
            self._file.close()


@dataclass(frozen=True)
class Records:
    """The events of one run."""

    experiment: Experiment
    versions: dict[str, str]
    epochs: tuple[dict[str, Any], ...]
    tasks: tuple[dict[str, Any], ...]
    done: bool

    @property
    def key(self) -> str:
        """What it is a run of, wherever it was run: the experiment's key on a CPU."""
        return self.experiment.key if self.experiment.device == "cpu" else replace(self.experiment, device="cpu").key

    @property
    def test(self) -> list[list[float]]:
        """The accuracy matrix: row t has the test accuracies on tasks 0…t after task t."""
        return [event["test"] for event in self.tasks]

    @property
    def validation(self) -> list[list[float]]:
        """The same on validation data: what λ and step sizes are chosen on."""
        return [event["validation"] for event in self.tasks]


def read(folder: Path, length: int | None = None) -> Records | None:
    """The records of a run's folder; None if it has not begun.

    After a power cut, what was written since the last state may be lost: of a run that has a state to go on from, the
    records end before the first line that cannot be read. `length` asks for exactly so many bytes, all of them sound.
    """
    path = folder / RECORDS
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    lines = content[:length].split(b"\n")[:-1]  # the last is being written, or was when its process was killed
    if not lines and not length:
        return None
    try:
        if length is not None and len(content) < length:
            raise ValueError(f"{len(content)} bytes are left of {length}")
        events: list[dict[str, Any]] = []
        for line in lines:
            try:
                events.append(json.loads(line.decode()))
            except ValueError:
                if not events or length is not None or not (folder / STATE).exists():
                    raise
                break
        found = Records(
            experiment=Experiment(**events[0]["experiment"]),
            versions=events[0]["versions"],
            epochs=tuple(event for event in events if event["event"] == "epoch"),
            tasks=tuple(event for event in events if event["event"] == "task"),
            done=events[-1]["event"] == "done",
        )
        _check(found)
        return found
    except (ValueError, LookupError, TypeError) as error:
        raise SelfReminderError(f"{path} is damaged ({error}): remove its folder to run it again") from None


def read_current(folder: Path) -> Records | None:
    """The same, of this version alone: earlier ones did not measure all that a report shows."""
    records = read(folder)
    if records is not None and (lacks := [name for name in _MEASURED for event in records.tasks if name not in event]):
        raise SelfReminderError(
            f"{folder / RECORDS} is of an earlier version, without '{lacks[0]}': remove its folder to run it again"
        )
    return records


def by_experiment(records: Iterable[Records]) -> dict[str, Records]:
    """One for each key; of several one that is done, and the same one in whatever order they come."""
    found: dict[str, Records] = {}
    for record in records:
        other = found.setdefault(record.key, record)
        if (other.done, repr(other.tasks)) < (record.done, repr(record.tasks)):
            found[record.key] = record
    return found


def _check(records: Records) -> None:
    """Raise ValueError for numbers that no run writes: a wrong one would be averaged unseen."""
    if records.done and len(records.tasks) != records.experiment.tasks:
        raise ValueError(f"it is done with {len(records.tasks)} of {records.experiment.tasks} tasks")
    for place, event in enumerate(records.tasks):
        row = event["test"]
        if event["task"] != place or len(row) != place + 1 or not all(0 <= share <= 1 for share in row):
            raise ValueError(f"test of task {event['task']} is {row}, not an accuracy for each of {place + 1} tasks")
        if not 0 <= event.get("chance", 0) <= 1:
            raise ValueError(f"chance of task {place} is {event['chance']}, not an accuracy")
        if not 0 <= event.get("bytes", 0) < math.inf:
            raise ValueError(f"bytes of task {place} are {event['bytes']}")
        if place < records.experiment.probe:
            _check_probe(event["probe"])


def _check_probe(probe: dict[str, list[list[float]]]) -> None:
    classes = len(probe["confusion"])
    for name in ("confusion", "logit_mean", "logit_deviation"):
        if not classes or [len(row) for row in probe[name]] != [classes] * classes:
            raise ValueError(f"{name} has not a number for each two of {classes} classes")
    counts = [count for row in probe["confusion"] for count in row]
    if not any(counts) or not all(0 <= count < math.inf for count in counts):
        raise ValueError("confusion does not count predictions")
