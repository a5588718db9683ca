"""Load: long streams, large memories, many runs. Memory stays flat, time linear; the table has the powers.

Time is the processor's: that of the clock has the machine's other work in it.
"""

import json
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from statistics import median

import torch

from chaos.campaign import HARMLESS, TINY, Outcome, Trial, call, fault, growth
from selfreminder import Memory, open_memory, save_memory
from selfreminder.experiment.folder import write_grid
from selfreminder.experiment.pool.process import Progress
from selfreminder.experiment.records import PACKED, RECORDS
from selfreminder.experiment.run import run
from selfreminder.experiment.spec import Experiment

_FLAT = 0.1
_LINEAR = 1.1
_POWER, _TRIES = "power of ", 5
Numbers = list[tuple[str, float, float]]
"""(what, the number, its limit)"""


def resident() -> float:
    """Read the megabytes that this process has at this moment."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def _measure(trial: Trial, measure: Callable[[], Numbers]) -> Iterator[Outcome]:
    """Measure numbers; one trial for each: whether it is within its limit, its row says.

    If a time is not, all are measured again, and the least of each counts: what grows with the size does so each time,
    and what the machine's other work adds to the late half or the large size, now and then. Memory is as it was the
    first time: later on, what was given back is taken again.
    """
    least = measure()
    for _ in range(_TRIES - 1):
        if all(number <= limit for what, number, limit in least if what.startswith(_POWER)):
            break
        both = zip(least, measure(), strict=True)
        least = [min(one, other) if one[0].startswith(_POWER) else one for one, other in both]
    trial.measured += least
    for _ in least:
        yield Outcome(HARMLESS)


@fault("Load", "a stream of many tiny tasks", short=60, long=1000)
def learn_tasks(trial: Trial) -> Iterator[Outcome]:
    """Learn task after task: what one takes in memory and time does not depend on how many there were."""
    newest = {"evaluate": "newest"} if "evaluate" in {field.name for field in fields(Experiment)} else {}
    stream = replace(
        TINY, tasks=trial.count, epochs=1, images=100, width=0.02, memory_batch=10, batch_size=50, **newest
    )

    def measure() -> Numbers:
        megabytes, seconds = {0: resident()}, {0: time.process_time()}

        def note(progress: Progress) -> None:
            megabytes[progress.task], seconds[progress.task] = resident(), time.process_time()

        run(stream, trial.fresh() / "run", watch=note, save_every=600.0)
        half, tenth = trial.count // 2, max(trial.count // 10, 1)
        grown = round((megabytes[trial.count] - megabytes[half]) / (trial.count - half), 3)
        taken = [seconds[task] - seconds[task - 1] for task in range(1, trial.count + 1)]
        early, late = median(taken[tenth : 3 * tenth]), median(taken[-2 * tenth :])
        power = growth((2 * tenth, early), (trial.count - tenth, late))
        return [
            (f"MB a task, over {trial.count:,}", grown, _FLAT),
            (f"{_POWER}time a task, over {trial.count:,}", power, _FLAT),
        ]

    yield from _measure(trial, measure)


def _time(act: Callable[[int], object], item: int) -> float:
    started = time.process_time()
    act(item)
    return time.process_time() - started


@fault("Load", "a memory of many items", short=20_000, long=1_000_000)
def keep_items(trial: Trial) -> Iterator[Outcome]:
    """Save, open, draw from and delete of a memory, at a tenth of the size and in full."""
    path = trial.folder / "memory.safetensors"

    def measure() -> Numbers:
        seconds: dict[str, list[tuple[float, float]]] = {}
        for items in (trial.count // 10, trial.count):
            memory = Memory.of(
                {"x": torch.randint(0, 256, (items, 64), dtype=torch.uint8)}, torch.zeros(items, 10), task=0,
                labels=torch.arange(items) % 10,
            )  # fmt: skip
            acts = {
                "save": lambda _, memory=memory: save_memory(memory, path),
                "open": lambda _: open_memory(path),
                "delete": lambda item: call("memory", "delete", path, "--id", str(item)),
            }
            for name, act in acts.items():
                seconds.setdefault(name, []).append((items, min(_time(act, item) for item in range(3))))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        return [
            *(
                (f"{_POWER}{name}, up to {trial.count:,}", growth(*both), _LINEAR + 0.1)
                for name, both in seconds.items()
            ),
            (f"peak MB of {trial.count:,}", round(peak), 2500.0),
        ]

    yield from _measure(trial, measure)


@fault("Load", "a folder of many runs", short=300, long=10_000)
def list_runs(trial: Trial) -> Iterator[Outcome]:
    """Ask for the status and the report of a folder, at a tenth of its size and in full."""
    run(TINY, trial.folder / "one")
    lines = (trial.folder / "one" / RECORDS).read_text().splitlines(keepends=True)

    def measure() -> Numbers:
        seconds: dict[str, list[tuple[float, float]]] = {}
        for runs in (trial.count // 10, trial.count):
            folder = trial.fresh()
            made = [replace(TINY, seed=number) for number in range(runs)]
            for each in made:
                start = {k: v for k, v in json.loads(lines[0]).items() if k != "check"}
                start |= {"experiment": each.as_recorded()}
                (folder / each.key).mkdir()
                (folder / each.key / RECORDS).write_text(json.dumps(start) + "\n" + "".join(lines[1:]))
            write_grid(folder, made, {})
            for name in ("status", "report"):
                started = time.process_time()
                call(name, folder)
                seconds.setdefault(name, []).append((runs, time.process_time() - started))
        return [
            (f"{_POWER}{name}, up to {trial.count:,}", growth(*both), _LINEAR + 0.1) for name, both in seconds.items()
        ]

    yield from _measure(trial, measure)
    assert not list(trial.folder.glob(f"*/{PACKED}"))
