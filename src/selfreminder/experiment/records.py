"""What runs measured: `records.jsonl` in each run's folder, or `runs.jsonl`, one packed file for many runs.

A run's records are the same bytes for the same experiment; times are kept apart. They begin with the line
{"event": "start", "experiment": …, "versions": …}. Then come {"event": "epoch", "task", "epoch", "loss"} for each
epoch, {"event": "task", "task", "test": […], "validation": […], "flips": […], "chance", "bytes", "next",
"next_untrained"} for each task, and {"event": "done"} at the end. Tasks and epochs count from 0. A task's lists
have a value for each task so far: accuracies, and the shares of test items that were right when their task had
been learned and are wrong now. `chance` is a random stratified classifier's accuracy on the task, `next` the
accuracy on the task to come, `next_untrained` that of the initial weights. "calibration_error" has a value for each
task so far, too; "steps", "new_items" and "passes" are what the task cost: the optimizer's steps, the items of the task
in them, and the items that went forward through the network, a method's own included. With the field `evaluate_every`
there are lines {"event": "steps", "task", "steps", "test": […]}, too: what it was after so many steps of the task. A
method may add "measures": HAT adds the share of its units in use. Where not all tasks so far were evaluated, "on" has
those that were, and the lists have a value for each of them. Each line ends with its "check", see
`selfreminder._base.checked`; earlier ones have none.

A packed file lies in the folder that its runs' folders were in. Its first line is {"event": "packed", "runs",
"sha256"}, of all that follows: the lines of one run after the other, without those of epochs, but with what is shown
of them and of the timings: {"event": "rest", "losses": […], "timings": […]}, before the last one. Every run in it is
done, and is read as if its folder were still there.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import IO, Any

from selfreminder._base.atomic import replace_file
from selfreminder._base.checked import DAMAGE, format_line, parse_line
from selfreminder._base.errors import SelfReminderError
from selfreminder.experiment.spec import Experiment

RECORDS = "records.jsonl"
PACKED = "runs.jsonl"
TIMINGS = "timings.jsonl"
STATE = "state.safetensors"
_LARGEST = 1e30
"""no number that a run writes is larger"""
_REPORTED = ("flips", "chance", "bytes")
"""what reports show of a task beside accuracies; earlier versions did not record all of it"""
_PACKED_LINES = "the lines of {} and the first line"


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
            self._file.write(format_line(event))
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
    looks: tuple[dict[str, Any], ...] = ()
    """what was measured between steps, see `Experiment.evaluate_every`"""
    folder: Path | None = field(default=None, compare=False)
    """the run's own, where its times are; None of a packed run"""
    rest: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """of a packed run: what is shown of its epochs and timings"""

    @property
    def losses(self) -> dict[int, float]:
        """The mean loss of each task's last epoch."""
        return {event["task"]: event["loss"] for event in self.epochs} or dict(enumerate(self.rest.get("losses", ())))

    @property
    def key(self) -> str:
        """The experiment's key as it is on a CPU: the same on whatever device it was run, by how many processes."""
        return replace(self.experiment, device="cpu", processes=1).key

    @cached_property
    def test(self) -> list[list[float]]:
        """The accuracy matrix: row t has the test accuracies on tasks 0…t after task t; nan where none was measured."""
        return [_on_all_tasks(event, "test") for event in self.tasks]

    @cached_property
    def validation(self) -> list[list[float]]:
        """The same on validation data: what λ and step sizes are chosen on."""
        return [_on_all_tasks(event, "validation") for event in self.tasks]

    @cached_property
    def flips(self) -> list[list[float]]:
        """The same of shares of test items that were right when their task had been learned, and are wrong."""
        return [_on_all_tasks(event, "flips") for event in self.tasks]

    @cached_property
    def timings(self) -> list[dict[str, float]]:
        """What each task took, as far as it was measured: `seconds` to learn it and to end it, and `peak_bytes`."""
        if self.folder is None:
            return list(self.rest.get("timings", [{}] * len(self.tasks)))
        found: list[dict[tuple[Any, ...], float]] = [{} for _ in self.tasks]
        for event in read_timing_lines(self.folder):
            place = event["task"], event.get("epoch")
            for name in ("seconds", "after_task_seconds", "peak_bytes"):
                if name in event and event["task"] < len(found):  # of what was done again, the last time
                    found[event["task"]][(*place, name)] = event[name]
        return [_sum_timings(of_task) for of_task in found]


def _sum_timings(measured: dict[tuple[Any, ...], float]) -> dict[str, float]:
    seconds = [value for (*_, name), value in measured.items() if name != "peak_bytes"]
    peaks = [value for (*_, name), value in measured.items() if name == "peak_bytes"]
    return ({"seconds": math.fsum(seconds)} if seconds else {}) | ({"peak_bytes": max(peaks)} if peaks else {})


def read_timing_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """Read the lines of a run's timings that are sound: times are no results, a damaged line is passed over."""
    try:
        lines = (folder / TIMINGS).read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        with suppress(*DAMAGE):  # it is being written, or was when its process was killed
            event, _ = parse_line(line)
            numbers = [value for name, value in event.items() if name != "host"]
            if isinstance(event["task"], int) and all(isinstance(value, float | int) for value in numbers):
                yield event


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
            f"{folder} and {folder.parent / PACKED} are of one run and differ: remove the folder, or its packed lines "
            "and the first line"
        )
    return own


def read_current_records(folder: Path) -> Records | None:
    """Read the records of a run; refuse those of earlier versions, which lack some of what a report shows."""
    records = read_records(folder)
    if records is not None and (lacks := [name for name in _REPORTED for event in records.tasks if name not in event]):
        own = folder / RECORDS
        path, rest = (
            (own, "its folder") if own.is_file() else (folder.parent / PACKED, _PACKED_LINES.format(folder.name))
        )
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
        try:
            for event in _parse_lines(lines):
                events.append(event)
        except DAMAGE:
            if not events or length is not None or not (folder / STATE).exists():
                raise
        return replace(_from_events(events), folder=folder)
    except DAMAGE as error:
        raise SelfReminderError(f"{path} is damaged ({_say(error)}): remove its folder to run it again") from None


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
            records = _from_events(list(_parse_lines(lines)))
            key = records.experiment.key
            if key in found or not records.done:
                raise ValueError(f"{key} is there twice" if key in found else f"{key} is not done")
            found[key] = records
    except DAMAGE as error:
        raise SelfReminderError(
            f"{path} is damaged, or was edited ({_say(error)}): restore it, or remove it to run all again"
        ) from None
    return found


def _parse_lines(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Parse the lines of a run. An earlier version may have begun it: after a line with a check, all have one."""
    checked = False
    for line in lines:
        event, has_check = parse_line(line)
        if checked and not has_check:
            raise ValueError("a line has no check")
        checked = has_check
        yield event


def _split_packed(content: bytes) -> list[list[bytes]]:
    """Split the lines of a packed file into those of each run; raises ValueError or the like if it is damaged."""
    if not content.endswith(b"\n"):
        raise ValueError("its last line has no end" if content else "it is empty")
    lines = content[:-1].split(b"\n")
    about, has_check = parse_line(lines[0])
    if is_sealed := about["event"] == "packed":
        del lines[0]
    runs: list[list[bytes]] = []
    for line in lines:
        if not runs or parse_line(line)[0]["event"] == "start":
            runs.append([])
        runs[-1].append(line)
    if is_sealed and (not has_check or about != _describe_packed(lines, len(runs))):
        raise ValueError("it is not what its first line says")
    return runs


def _describe_packed(lines: Iterable[bytes], runs: int) -> dict[str, Any]:
    """Make the first line of a packed file: a file that was cut short at the end of a run would look whole."""
    digest = hashlib.sha256(b"".join(line + b"\n" for line in lines)).hexdigest()
    return {"event": "packed", "runs": runs, "sha256": digest}


def pack_records(folder: Path) -> list[str]:
    """Pack the runs of a folder that are done into one file, together with those packed before; gives all their keys.

    Each run's lines stay as they are, but for those of its epochs, of which one line remains, and runs are sorted by
    key: the same runs give the same bytes. Damaged records are refused, and a run that is there twice with different
    results: then the file stays as it was. The folders of packed runs stay too, but are needed no more.
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
        lines = own.read_bytes().split(b"\n")[:-1]
        *most, last = (line for line in lines if parse_line(line)[0]["event"] != "epoch")
        rest = {"event": "rest", "losses": list(records.losses.values()), "timings": records.timings}
        # An earlier version may have begun it, whose lines have no check: see `_parse_lines`.
        runs[key] = [*most, format_line(rest).rstrip() if parse_line(last)[1] else json.dumps(rest).encode(), last]
    if not runs:
        raise SelfReminderError(f"{folder} holds no runs that are done: there is nothing to pack")
    packed = [line for key in sorted(runs) for line in runs[key]]
    first = format_line(_describe_packed(packed, len(runs)))
    with replace_file(path) as temporary:
        temporary.write_bytes(first + b"".join(line + b"\n" for line in packed))
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
    """Make records of a run's lines; raises one of `DAMAGE` if they are damaged.

    Numbers that no run writes are damage, too: a wrong one would be averaged unseen.
    """
    experiment, versions = Experiment(**events[0]["experiment"]), events[0]["versions"]
    if not isinstance(versions, dict) or not all(isinstance(version, str) for version in versions.values()):
        raise ValueError("its versions are no texts by name")
    epochs = tuple(event for event in events if event["event"] == "epoch")
    tasks = tuple(event for event in events if event["event"] == "task")
    done = events[-1]["event"] == "done"
    if done and len(tasks) != experiment.tasks:
        raise ValueError(f"it is done with {len(tasks)} of {experiment.tasks} tasks")
    if not all(isinstance(event["task"], int) for event in epochs):
        raise ValueError("an epoch is of no task")
    for place, event in enumerate(tasks):
        _check_task(event, place)
        if place < experiment.probe:
            _check_probe(event["probe"])
    rest = next((event for event in events if event["event"] == "rest"), {})
    for name in ("losses", "timings"):
        if rest and len(rest[name]) != len(tasks):
            raise ValueError(f"it has {name} for {len(rest[name])} of {len(tasks)} tasks")
    spent = [number for of_task in rest.get("timings", ()) for number in of_task.values()]
    if not all(_is_number(loss) for loss in (*(event["loss"] for event in epochs), *rest.get("losses", ()), *spent)):
        raise ValueError("a loss or a time is no number")
    looks = tuple(event for event in events if event["event"] == "steps")
    for event in looks:
        _check_look(event)
    return Records(experiment, versions, epochs, tasks, done, looks, rest=rest)


def _check_task(event: dict[str, Any], place: int) -> None:
    """Raise unless the line of a task has a share for each of the tasks that were evaluated after it."""
    on = event.get("on", range(place + 1))
    if event["task"] != place or not on or on[-1] != place or list(on) != sorted({*on}) or on[0] < 0:
        raise ValueError(f"task {event['task']} at place {place} was evaluated on {list(on)}")
    for name in ("test", "validation", "flips", "calibration_error"):
        row = event[name] if name in ("test", "validation") else event.get(name, [0.0] * len(on))
        if len(row) != len(on) or not all(0 <= share <= 1 for share in row):
            raise ValueError(f"{name} of task {place} is {row}, not an accuracy for each of {len(on)} tasks")
    if ("next" in event) != ("next_untrained" in event):
        raise ValueError(f"task {place} has one of next and next_untrained without the other")
    for name in ("chance", "next", "next_untrained"):
        if not 0 <= event.get(name, 0) <= 1:
            raise ValueError(f"{name} of task {place} is {event[name]}, not an accuracy")
    for name in ("bytes", "steps", "new_items", "passes"):
        if not 0 <= event.get(name, 0) <= _LARGEST:
            raise ValueError(f"{name} of task {place} are {event[name]}")


def _check_look(event: dict[str, Any]) -> None:
    """Raise unless the line has a share for each of the tasks that were evaluated in the middle of one."""
    on = event.get("on", range(event["task"] + 1))
    if not isinstance(event["steps"], int) or event["steps"] < 1 or len(event["test"]) != len(on):
        raise ValueError(f"after {event['steps']} steps of task {event['task']} it has no accuracy for each task")
    if not all(0 <= share <= 1 for share in event["test"]):
        raise ValueError(f"after {event['steps']} steps of task {event['task']} an accuracy is {event['test']}")


def _is_number(value: object) -> bool:
    """Whether a value is a number that arithmetic can be done with; not a number is one that a loss can be."""
    return isinstance(value, int | float) and not isinstance(value, bool) and not abs(value) > _LARGEST


def _on_all_tasks(event: dict[str, Any], name: str) -> list[float]:
    """Give a task's list with a value for each task so far: nan for one that was not evaluated."""
    if "on" not in event:
        return event[name]
    row = [math.nan] * (event["task"] + 1)
    for task, value in zip(event["on"], event[name], strict=True):
        row[task] = value
    return row


def _say(error: BaseException) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def _check_probe(probe: dict[str, list[list[float]]]) -> None:
    """Raise ValueError unless a probe has three square tables, one of which counts predictions."""
    classes = len(probe["confusion"])
    for name in ("confusion", "logit_mean", "logit_deviation"):
        if not classes or [len(row) for row in probe[name]] != [classes] * classes:
            raise ValueError(f"{name} has not a number for each two of {classes} classes")
    counts = [count for row in probe["confusion"] for count in row]
    if not any(counts) or not all(0 <= count < math.inf for count in counts):
        raise ValueError("confusion does not count predictions")
