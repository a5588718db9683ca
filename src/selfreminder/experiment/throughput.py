"""How much each machine gets done: runs an hour and steps a second, from the timings of a folder's runs."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfreminder.experiment.records import Records, read_timing_lines


@dataclass(frozen=True)
class Throughput:
    """What one machine has done of the runs of a folder."""

    node: str
    runs: float
    """parts of runs count as such; what was done again counts once"""
    steps: int
    """of the optimizer, in tasks that are complete"""
    busy: float
    """seconds in which it was at work on at least one run"""
    workers: float
    """runs that it was at work on at once, on average"""

    def as_dict(self) -> dict[str, Any]:
        """As JSON can say it."""
        hours = self.busy / 3600
        return {
            "node": self.node,
            "runs": round(self.runs, 3),
            "runs_per_hour": round(self.runs / hours, 3),
            "steps_per_second": round(self.steps / self.busy, 3),
            "workers": round(self.workers, 2),
            "hours": round(hours, 4),
        }


def measure_throughput(runs: Iterable[tuple[Path, Records]]) -> list[Throughput]:
    """Measure what each machine got done of these runs, by name; earlier versions did not write where a run was."""
    parts, steps = defaultdict[str, float](float), defaultdict[str, float](float)
    spans = defaultdict[str, list[tuple[float, float]]](list)
    for folder, records in runs:
        done, trained = 0.0, dict[tuple[int, int], str]()
        for event in read_timing_lines(folder):
            if not isinstance(node := event.get("host"), str) or "at" not in event:
                continue
            taken = sum(float(value) for name, value in event.items() if name.endswith("seconds"))
            spans[node].append((event["at"] - taken, event["at"]))
            part = float(event.get("done", 0.0))
            parts[node] += max(0.0, part - done)
            done = max(done, part)
            if "epoch" in event:
                trained[event["task"], event["epoch"]] = node
        epochs = Counter(task for task, _ in trained)
        for (task, _), node in trained.items():
            if task < len(records.tasks):
                steps[node] += records.tasks[task].get("steps", 0) / epochs[task]
    return [
        Throughput(node, parts[node], round(steps[node]), busy, sum(end - start for start, end in spans[node]) / busy)
        for node in sorted(spans)
        if (busy := _cover(spans[node]))
    ]


def _cover(spans: Iterable[tuple[float, float]]) -> float:
    """Add up the seconds that spans cover.

    >>> _cover([(0, 2), (1, 4), (6, 7)])
    5.0
    """
    covered, last = 0.0, float("-inf")
    for start, end in sorted(spans):
        covered += max(0.0, end - max(start, last))
        last = max(last, end)
    return covered
