"""What runs measured: `records.jsonl` in each run's folder, or `runs.jsonl`, one packed file for many runs.

A run's records are the same bytes for the same experiment; times are kept apart. They begin with the line
{"event": "start", "experiment": …, "versions": …}. Then come {"event": "epoch", "task", "epoch", "loss"} for each
epoch, {"event": "task", "task", "test": […], "validation": […], "flips": […], "chance", "bytes", "next",
"next_untrained"} for each task, and {"event": "done"} at the end. Tasks and epochs count from 0. A task's lists
have a value for each task so far: accuracies, and the shares of test items that were right when their task had
been learned and are wrong now. `chance` is a random stratified classifier's accuracy on the task, `next` the
accuracy on the task to come, `next_untrained` that of the initial weights. A method may add "measures": HAT adds
the share of its units in use.

A packed file lies in the folder that its runs' folders were in, and has the lines of one run after the other, without
those of epochs. Every run in it is done, and is read as if its folder were still there.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from selfreminder._base.atomic import replace_file
from selfreminder._base.errors import SelfReminderError
from selfreminder.experiment.spec import Experiment

RECORDS = "records.jsonl"
PACKED = "runs.jsonl"
TIMINGS = "timings.jsonl"
STATE = "state.safetensors"
_REPORTED = ("flips", "chance", "bytes")
"""what reports show of a task beside accuracies; earlier versions did not record all of it"""


class Writer:
    """Appends events to a run's records.

    Args:
        path: the file, which may exist.
        length: how many of its bytes stay; what lies behind them is cut off.
    """

    def __init__(self, path: Path, length: int) -> None:
        self._path = path
        self._file: IO[bytes] = path.open("r+b" if path.exists() else "w+b")
        self._file.truncate(length)
        self._file.seek(length)

    def write(self, event: dict[str, Any]) -> None:
        """Append one event as a line."""
        try:
            self._file.write((json.dumps(event, ensure_ascii=False) + "\n").encode())
            self._file.flush()
        except OSError as error:
            error.filename = str(self._path)
            raise

    def sync(self) -> int:
        """Make sure that all is on disk, and give the file's length."""
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
    """The records of one run, as far as it is."""

    experiment: Experiment
    versions: dict[str, str]
    epochs: tuple[dict[str, Any], ...]
    """none of a packed run"""
    tasks: tuple[dict[str, Any], ...]
    done: bool

    @property
    def key(self) -> str:
        """The experiment's key as it is on a CPU: the same on whatever device it was run."""
        return replace(self.experiment, device="cpu").key

    @property
    def test(self) -> list[list[float]]:
        """The accuracy matrix: row t has the test accuracies on tasks 0…t after task t."""
        return [event["test"] for event in self.tasks]

    @property
    def validation(self) -> list[list[float]]:
        """The same on validation data: what λ and step sizes are chosen on."""
        return [event["validation"] for event in self.tasks]


def read_records(folder: Path) -> Records | None:
    """Read the records of a run: those in its folder, or in the packed file beside it. None if it has not begun.

    After a power cut, what was written since the last state may be lost: of a run that has a state to go on from, the
    records end before the first line that cannot be read.
    """
    own = read_folder(folder)
    packed = read_packed(folder.parent).get(folder.name)
    if packed is None:
        return own
    if own is None or not own.done:
        return packed
    if own.tasks != packed.tasks:
        raise SelfReminderError(
            f"{folder} and {folder.parent / PACKED} are of one run and differ: remove the folder, or its packed lines"
        )
    return own


def read_current_records(folder: Path) -> Records | None:
    """Read the records of a run; refuse those of earlier versions, which lack some of what a report shows."""
    records = read_records(folder)
    if records is not None and (lacks := [name for name in _REPORTED for event in records.tasks if name not in event]):
        own = folder / RECORDS
        path, rest = (own, "its folder") if own.is_file() else (folder.parent / PACKED, f"the lines of {folder.name}")
        raise SelfReminderError(f"{path} is of an earlier version, without '{lacks[0]}': remove {rest} to run it again")
    return records


def read_folder(folder: Path, length: int | None = None) -> Records | None:
    """Read the records in a run's own folder; `length` asks for exactly so many bytes, all of them sound."""
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
        return _from_events(events)
    except (ValueError, LookupError, TypeError) as error:
        raise SelfReminderError(f"{path} is damaged ({error}): remove its folder to run it again") from None


def read_packed(folder: Path) -> Mapping[str, Records]:
    """Read the packed records of a folder's runs, by key; none if nothing has been packed."""
    path = folder / PACKED
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return _parse_packed(path, (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size))


@lru_cache(maxsize=16)
def _parse_packed(path: Path, _version: tuple[int, ...]) -> Mapping[str, Records]:
    """Parse a packed file, once for all its runs; a file that was replaced has another version."""
    found: dict[str, Records] = {}
    try:
        for lines in _split_packed(path.read_bytes()):
            records = _from_events([json.loads(line.decode()) for line in lines])
            key = records.experiment.key
            if key in found or not records.done:
                raise ValueError(f"{key} is there twice" if key in found else f"{key} is not done")
            found[key] = records
    except (ValueError, LookupError, TypeError) as error:
        raise SelfReminderError(f"{path} is damaged ({error}): restore it, or remove it to run all again") from None
    return found


def _split_packed(content: bytes) -> list[list[bytes]]:
    """Split the lines of a packed file into those of each run."""
    if content and not content.endswith(b"\n"):
        raise ValueError("its last line has no end")
    runs: list[list[bytes]] = []
    for line in content.splitlines(keepends=True):
        if not runs or json.loads(line)["event"] == "start":
            runs.append([])
        runs[-1].append(line)
    return runs


def pack_records(folder: Path) -> list[str]:
    """Pack the runs of a folder that are done into one file, together with those packed before; gives all their keys.

    Each run's lines stay as they are, but for those of its epochs, and runs are sorted by key: the same runs give the
    same bytes. Damaged records are refused, and a run that is there twice with different results: then the file stays
    as it was. The folders of packed runs stay too, but are needed no more.
    """
    path = folder / PACKED
    before = read_packed(folder)
    runs = dict(zip(before, _split_packed(path.read_bytes()), strict=True)) if before else {}
    for own in sorted(folder.glob(f"*/{RECORDS}")):
        records = read_records(own.parent)
        if records is None or not records.done or records.experiment.key in runs:
            continue
        key = records.experiment.key
        if own.parent.name != key:
            raise SelfReminderError(f"{own.parent} holds the run {key}: name it so, or move it elsewhere")
        lines = (line for line in own.read_bytes().splitlines(keepends=True) if line.endswith(b"\n"))
        runs[key] = [line for line in lines if json.loads(line)["event"] != "epoch"]
    if not runs:
        raise SelfReminderError(f"{folder} holds no runs that are done: there is nothing to pack")
    with replace_file(path) as temporary:
        temporary.write_bytes(b"".join(line for key in sorted(runs) for line in runs[key]))
    return sorted(runs)


def index_by_key(records: Iterable[Records]) -> dict[str, Records]:
    """Take one of the records of each key: one that is done, and the same one in whatever order they come."""
    found: dict[str, Records] = {}
    for record in records:
        other = found.setdefault(record.key, record)
        if (other.done, repr(other.tasks)) < (record.done, repr(record.tasks)):
            found[record.key] = record
    return found


def _from_events(events: Sequence[dict[str, Any]]) -> Records:
    """Make records of a run's lines; raises ValueError, LookupError or TypeError if they are damaged.

    Numbers that no run writes are damage, too: a wrong one would be averaged unseen.
    """
    experiment, versions = Experiment(**events[0]["experiment"]), events[0]["versions"]
    epochs = tuple(event for event in events if event["event"] == "epoch")
    tasks = tuple(event for event in events if event["event"] == "task")
    done = events[-1]["event"] == "done"
    if done and len(tasks) != experiment.tasks:
        raise ValueError(f"it is done with {len(tasks)} of {experiment.tasks} tasks")
    for place, event in enumerate(tasks):
        row = event["test"]
        if event["task"] != place or len(row) != place + 1 or not all(0 <= share <= 1 for share in row):
            raise ValueError(f"test of task {event['task']} is {row}, not an accuracy for each of {place + 1} tasks")
        if not 0 <= event.get("chance", 0) <= 1:
            raise ValueError(f"chance of task {place} is {event['chance']}, not an accuracy")
        if not 0 <= event.get("bytes", 0) < math.inf:
            raise ValueError(f"bytes of task {place} are {event['bytes']}")
        if place < experiment.probe:
            _check_probe(event["probe"])
    return Records(experiment, versions, epochs, tasks, done)


def _check_probe(probe: dict[str, list[list[float]]]) -> None:
    """Raise ValueError unless a probe has three square tables, one of which counts predictions."""
    classes = len(probe["confusion"])
    for name in ("confusion", "logit_mean", "logit_deviation"):
        if not classes or [len(row) for row in probe[name]] != [classes] * classes:
            raise ValueError(f"{name} has not a number for each two of {classes} classes")
    counts = [count for row in probe["confusion"] for count in row]
    if not any(counts) or not all(0 <= count < math.inf for count in counts):
        raise ValueError("confusion does not count predictions")
