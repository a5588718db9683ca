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
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from selfreminder.errors import SelfReminderError
from selfreminder.experiment.spec import Experiment

RECORDS = "records.jsonl"
TIMINGS = "timings.jsonl"
STATE = "state.safetensors"


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


def _check(records: Records) -> None:
    """Raise ValueError unless each task has an accuracy for every task so far: a wrong one would be averaged unseen."""
    for place, event in enumerate(records.tasks):
        row = event["test"]
        if event["task"] != place or len(row) != place + 1 or not all(0 <= share <= 1 for share in row):
            raise ValueError(f"test of task {event['task']} is {row}, not an accuracy for each of {place + 1} tasks")
        if place < records.experiment.probe and "probe" not in event:
            raise ValueError(f"task {place} has no probe")
