"""What a fault is, and what can come of one."""

import contextlib
import io
import math
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from selfreminder._base.errors import SelfReminderError
from selfreminder.cli import main
from selfreminder.experiment.spec import Experiment

HARMLESS, NOTICED, LOST, WRONG, TRACEBACK = KINDS = ("harmless", "noticed", "lost", "silently wrong", "traceback")
BAD = (LOST, WRONG, TRACEBACK)
ROOT = Path(__file__).parents[1]
_SECONDS, _WAITED = 60, 600
"""of the processor, and of the clock, after which reading one small file counts as a hang"""
_MOST_EXAMPLES = 5

TINY = Experiment(
    benchmark="permuted-mnist", method="fsr-logit", data="embedded-mnist", images=200, tasks=2, epochs=2, width=0.05,
    per_class=1,
)  # fmt: skip
"""a run of a second"""


class Outcome(NamedTuple):
    """What came of one trial of a fault."""

    kind: str
    what: str = ""


@dataclass
class Trial:
    """What a fault is given: how often to strike, a folder of its own, and chance that can be repeated."""

    count: int
    folder: Path
    random: random.Random
    minutes: float
    """for a fault that goes by time"""
    measured: list[tuple[str, float, float]] = field(default_factory=list)
    """(what, the number, its limit), of a fault that measures"""
    notes: dict[str, Any] = field(default_factory=dict)
    """what else the row says"""

    def fresh(self, template: Path | None = None) -> Path:
        """Make an empty folder, or a copy of one."""
        folder = self.folder / f"trial-{self.random.getrandbits(48):012x}"
        if template is None:
            folder.mkdir()
        else:
            shutil.copytree(template, folder)
        return folder


class Fault(NamedTuple):
    """A row of the table."""

    group: str
    strike: Callable[[Trial], Iterator[Outcome]]
    short: int
    long: int


FAULTS: dict[str, Fault] = {}


def fault(group: str, name: str, *, short: int, long: int) -> Callable[[Any], Any]:
    """Add a function to the table, with how often it is tried in the short form and in the long one."""

    def add(strike: Callable[[Trial], Iterator[Outcome]]) -> Callable[[Trial], Iterator[Outcome]]:
        FAULTS[name] = Fault(group, strike, short, long)
        return strike

    return add


def try_fault(name: str, trial: Trial) -> dict[str, Any]:
    """Strike, and count what came of it: a row of the table."""
    kinds: Counter[str] = Counter()
    examples: list[str] = []
    for outcome in FAULTS[name].strike(trial):
        kinds[outcome.kind] += 1
        example = f"{outcome.kind}: {outcome.what}"[:400]
        if outcome.kind in BAD and len(examples) < _MOST_EXAMPLES and example not in examples:
            examples.append(example)
    return {
        "group": FAULTS[name].group,
        "fault": name,
        "tried": kinds.total(),
        **{kind: kinds[kind] for kind in KINDS},
        "measured": [{"what": what, "number": number, "limit": limit} for what, number, limit in trial.measured],
        "examples": examples,
        **trial.notes,
    }


# Judging --------------------------------------------------------------------------------------------------


class HangError(BaseException):
    """Something took so long that nobody would wait for it."""


@contextlib.contextmanager
def no_hang() -> Iterator[None]:
    """Raise `HangError` after some time; in the main thread only.

    The processor's time decides: on the clock, a machine that has much else to do is slow without any hang.
    """
    timers = {
        signal.SIGPROF: (signal.ITIMER_PROF, _SECONDS, f"more than {_SECONDS} s of the processor"),
        signal.SIGALRM: (signal.ITIMER_REAL, _WAITED, f"more than {_WAITED} s"),
    }

    def ring(number: int, frame: FrameType | None) -> None:
        raise HangError(timers[signal.Signals(number)][2])

    before = {number: signal.signal(number, ring) for number in timers}
    try:
        for timer, seconds, _ in timers.values():
            signal.setitimer(timer, seconds)
        yield
    finally:
        for number, (timer, *_) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def judge(look: Callable[[], Any], expected: Any = None, what: str = "") -> Outcome:
    """Look at something damaged: it is refused in so many words, is as it was, or is silently another.

    Without `expected`, whatever is found is good; who finds NOTICED was told.
    """
    try:
        with no_hang():
            found = look()
    except (SelfReminderError, OSError) as error:
        return Outcome(NOTICED) if str(error).strip() else Outcome(TRACEBACK, f"{what}: {type(error)} without a word")
    except (Exception, HangError) as error:
        return Outcome(TRACEBACK, f"{what}: {type(error).__name__}: {error}")
    if expected is None or found == expected:
        return Outcome(HARMLESS)
    if found == NOTICED:
        return Outcome(NOTICED)
    if isinstance(found, Said) and found.code:
        return found.outcome
    return Outcome(WRONG, f"{what}: {_difference(expected, found)}")


def judge_apart(look: Callable[[], Any], what: str) -> Outcome:
    """Look at something in a process of its own with little memory: it may die of it."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def look_there() -> None:
        limit_memory()
        theirs.send(tuple(judge(look, what=what)))

    process = context.Process(target=look_there)
    process.start()
    theirs.close()
    try:
        return Outcome(*ours.recv())
    except EOFError:
        process.join()
        return Outcome(TRACEBACK, f"{what}: the process ended with {process.exitcode}")
    finally:
        process.join()


def _difference(expected: Any, found: Any) -> str:
    old, new = str(expected), str(found)
    same = next((i for i, (a, b) in enumerate(zip(old, new)) if a != b), min(len(old), len(new)))
    place = max(same - 20, 0)
    return f"…{old[place : place + 60]}… became …{new[place : place + 60]}…"


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """Give the worst of several: what several readers made of one damage is one outcome."""
    return max(outcomes, key=lambda outcome: KINDS.index(outcome.kind))


def limit_memory(more: int = 1_500_000_000) -> None:
    """Let this process take no more than so many bytes beyond what it has: what would take gigabytes fails."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def growth(small: tuple[float, float], large: tuple[float, float]) -> float:
    """Compute the power by which a second number grows with the first.

    >>> growth((10, 1), (100, 10))
    1.0
    """
    return round(math.log(large[1] / small[1]) / math.log(large[0] / small[0]), 2)


# Commands -------------------------------------------------------------------------------------------------


class Said(NamedTuple):
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def outcome(self) -> Outcome:
        """Judge a command by its words: a refusal is one line."""
        if "Traceback" in self.err or "Error:" in self.err.replace("selfreminder: ", "", 1).split(" ")[0]:
            return Outcome(TRACEBACK, f"exit {self.code}: {self.err.strip()[-300:]}")
        if self.code == 2 and sum(line.startswith("selfreminder:") for line in self.err.splitlines()) == 0:
            return Outcome(TRACEBACK, f"exit 2 without a line of its own: {self.err.strip()[-300:]}")
        return Outcome(NOTICED if self.code else HARMLESS, self.err.strip()[-300:])


def call(*words: object) -> Said:
    """Run a command in this process; whatever it raises is raised."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return Said(code, out.getvalue(), err.getvalue())


def start(words: Sequence[str], folder: Path, within: Sequence[str] = (), **environment: str) -> subprocess.Popen[str]:
    """Start a command in a folder, as the first of a process group, within another command if one is given."""
    more = {"SELFREMINDER_CACHE": "cache", "OMP_NUM_THREADS": "1", "COLUMNS": "200", **environment}
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [*within, sys.executable, "-m", "chaos.command", *words],
        cwd=folder,
        env={**os.environ, **more, "PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[str], seconds: int = 300) -> Said:
    """Wait for a command's end; one that hangs is killed, and said to have hung."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        err += f"\nTraceback: none, but it hung for {seconds} s"
    return Said(process.returncode, out, err)
