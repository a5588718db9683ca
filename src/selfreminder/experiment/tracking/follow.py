"""Follow the records of a grid's runs, and tell trackers what is new in them.

How far a run has been told is kept in its folder as `tracked.json`: for each tracker {"id", "bytes", "ended"}. Records
are the same to the byte after an interruption, so a run that goes on is told from there on, in the same tracked run.
"""

import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from selfreminder._base.atomic import write_text
from selfreminder._base.checked import DAMAGE, parse_line, with_check, without_check
from selfreminder._base.lock import LockedError, locked
from selfreminder.experiment.records import RECORDS, TIMINGS
from selfreminder.experiment.tracking.base import TrackedRun, Tracker, load_tracker

TRACKED = "tracked.json"
MEMORY = "memory.safetensors"
_EVERY = 1.0
"""seconds between two looks at the records"""
_PATIENCE = 60.0
"""seconds that trackers have at the end; what they have not heard by then, the same command tells again"""


class Tracking:
    """Tells trackers of the runs of a grid, in a thread of its own: a tracker that hangs holds nothing up."""

    def __init__(self, names: Iterable[str]) -> None:
        self.trackers = {name: load_tracker(name) for name in dict.fromkeys(names)}

    @contextmanager
    def following(self, folder: Path, runs: Callable[[], Iterable[Path]]) -> Iterator[None]:
        """Follow the runs in these folders while the block lasts, and to the end of their records after it."""
        if not self.trackers:
            yield
            return
        over = threading.Event()
        end = _begin(lambda: self._follow(folder, runs, over))
        try:
            yield
        finally:
            over.set()
            end()

    def tell_figures(self, folder: Path) -> None:
        """Tell trackers of the figures in a grid's folder, as a tracked run of that name."""
        figures = sorted(folder.glob("*.png"))
        if figures and self.trackers:
            told = _Told(folder, TrackedRun("figures", folder))
            _begin(lambda: self._each(told, lambda told, name: told.end(name, figures)))()

    def _follow(self, folder: Path, runs: Callable[[], Iterable[Path]], over: threading.Event) -> None:
        locks: dict[Path, ExitStack] = {}
        found: dict[Path, _Told | None] = {}
        last = False
        while self.trackers and not last:
            last = over.wait(_EVERY)  # what came before it was over is looked at once more
            for run in runs():
                if run not in found and (run / RECORDS).is_file():
                    lock = ExitStack()
                    with suppress(LockedError, OSError):  # another process tells of it
                        lock.enter_context(locked(run, 0.0, ".tracked.lock"))
                        locks[run], found[run] = lock, _open(run, folder)
                if told := found.get(run):
                    self._each(told, lambda told, name: told.catch_up(name))
                    if all(name in told.ended for name in self.trackers):
                        found[run] = None
                        locks.pop(run).close()
        for lock in locks.values():
            lock.close()

    def _each(self, told: "_Told", tell: Callable[["_Told", str], None]) -> None:
        for name, make in list(self.trackers.items()):
            try:
                if name not in told.open:
                    told.start(name, make())
                tell(told, name)
            except Exception as error:
                del self.trackers[name]
                said = " ".join(str(error).split())[:300]
                _warn(f"--track {name} failed ({type(error).__name__}: {said}); the runs go on without it")


def _begin(tell: Callable[[], None]) -> Callable[[], None]:
    """Begin to tell trackers in a thread of its own; gives what waits for its end, but not for ever."""

    def work() -> None:
        with redirect_stdout(sys.stderr):  # some print what nobody asked for
            tell()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def end() -> None:
        thread.join(_PATIENCE)
        if thread.is_alive():
            _warn("trackers are slow: what they have not heard, the same command tells them")

    return end


@dataclass
class _Told:
    """A run, and how much of it each tracker has been told."""

    folder: Path
    run: TrackedRun
    kept: dict[str, dict[str, Any]] = field(init=False)
    open: dict[str, Tracker] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.kept = _read_kept(self.folder)

    def start(self, name: str, tracker: Tracker) -> None:
        before = self.kept.get(name, {})
        if before.get("ended") and self.run.settings:
            self.ended.add(name)
        else:
            known = tracker.start(self.run, before.get("id"))
            self._keep(name, id=known, bytes=before.get("bytes", 0))
        self.open[name] = tracker

    def catch_up(self, name: str) -> None:
        """Tell a tracker what it has not heard. The newest line waits for the next, as its time may be missing."""
        if name in self.ended:
            return
        with (self.folder / RECORDS).open("rb") as file:
            file.seek(begin := self.kept[name]["bytes"])
            lines = file.read().split(b"\n")[:-1]
        events = list(_parse(lines))
        times = _read_times(self.folder) if len(events) > 1 else {}
        for place, (event, length) in enumerate(events):
            if event["event"] == "done":
                memory = self.folder / MEMORY
                self.end(name, [memory] if memory.is_file() else [])
            elif place + 1 == len(events):
                return
            elif event["event"] in ("epoch", "task"):
                step, values = _describe(event, self.run.settings["epochs"], times)
                (self.open[name].epoch if event["event"] == "epoch" else self.open[name].task)(step, values)
            begin += length
            self._keep(name, bytes=begin)

    def end(self, name: str, files: list[Path]) -> None:
        self.open[name].end(files)
        self.ended.add(name)
        self._keep(name, ended=True)

    def _keep(self, name: str, **what: Any) -> None:
        self.kept[name] = self.kept.get(name, {}) | what
        write_text(self.folder / TRACKED, json.dumps(with_check(self.kept), indent=1) + "\n")


def _open(run: Path, folder: Path) -> _Told | None:
    """Open a run of which the first line is there; one that cannot be read is not told of."""
    try:
        with (run / RECORDS).open("rb") as file:
            start, _ = parse_line(file.readline().removesuffix(b"\n"))
        return _Told(run, TrackedRun(run.name, folder, start["experiment"], start["versions"]))
    except DAMAGE:
        return None


def _parse(lines: Iterable[bytes]) -> Iterator[tuple[dict[str, Any], int]]:
    """Parse lines with their lengths, up to one that is damaged."""
    for line in lines:
        try:
            yield parse_line(line)[0], len(line) + 1
        except DAMAGE:
            return


def _describe(
    event: Mapping[str, Any], epochs: int, times: Mapping[tuple[int, int | None], float]
) -> tuple[int, dict[str, float]]:
    """Give the step and the values of a line of records."""
    task = event["task"]
    seconds = times.get((task, event.get("epoch")))
    values = {} if seconds is None else {"seconds" if "epoch" in event else "task_end_seconds": seconds}
    if event["event"] == "epoch":
        return task * epochs + event["epoch"] + 1, {"loss": event["loss"], **values}
    for name in ("test", "validation"):
        on = event.get("on", range(task + 1))
        values |= {f"{name}/task_{each}": share for each, share in zip(on, event[name])}
        values[f"{name}/average"] = sum(event[name]) / len(event[name])
    return (task + 1) * epochs, {**values, "bytes": event["bytes"], **event.get("measures", {})}


def _read_times(folder: Path) -> dict[tuple[int, int | None], float]:
    """Read the seconds of each epoch and of each task's end; of what was done again, the last time."""
    found: dict[tuple[int, int | None], dict[str, float]] = {}
    with suppress(OSError):
        for event, _ in _parse((folder / TIMINGS).read_bytes().splitlines()):
            seconds = {name: value for name, value in event.items() if name.endswith("seconds")}
            found[event["task"], event.get("epoch")] = found.get((event["task"], event.get("epoch")), {}) | seconds
    return {place: sum(seconds.values()) for place, seconds in found.items()}


def _read_kept(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        return without_check(json.loads((folder / TRACKED).read_text(encoding="utf-8")))
    except (OSError, *DAMAGE):
        return {}


def _warn(text: str) -> None:
    print(f"selfreminder: {text}", file=sys.stderr)
