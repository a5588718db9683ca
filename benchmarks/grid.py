"""What the runner of grids costs: `python benchmarks/grid.py`, or `python benchmarks/grid.py overhead --runs 500`.

`speedup`: the wall time of 8 independent runs with one worker against that with two, one after the other in each
round; the median over rounds of the ratios within a round. It means something only where two cores are free: with it
comes the share of the time in which the workers had a core each, near 1 if nobody else was at work, and the ratio by
their CPU seconds, which is what it would be then.

`overhead`: many runs of about two seconds each. The share of the workers' wall time that is not the runs' own,
1 − Σ (seconds of the runs) / (workers × wall): starting processes, handing out runs, waiting for the last one. Of the
runs' own seconds, the share that is neither epochs nor evaluation: preparing data, saving, what a method does after a
task. And how much the parent's memory grew from a tenth of the runs on.

`ray`: the same runs by the local pool and by a Ray of its own on this machine, one after the other in each round, with
as many workers; which is first changes from round to round. The median over rounds of the ratios of wall times within a
round, and each one's share of the workers' wall time that is not the runs' own. Ray itself is started before.
"""

import argparse
import os
import resource
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from selfreminder.experiment.cluster import open_place
from selfreminder.experiment.pool.grid import Grid
from selfreminder.experiment.pool.process import Done, Place
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.status import read_status

RUN = Experiment(
    benchmark="permuted-mnist",
    method="fsr-logit",
    data="embedded-mnist",
    tasks=3,
    epochs=2,
    width=0.25,
    per_class=5,
    strength=0.01,
)


@dataclass
class Cost:
    """Of one grid."""

    wall: float
    own: float
    """seconds of all runs"""
    timed: float
    """of these, in epochs and evaluation"""
    cores: float
    """share of the wall time in which each worker had a core to itself"""
    growth: int
    """of the parent, in bytes"""


def memory() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def workers_cpu() -> float:
    """CPU seconds of all processes that this one has started and seen the end of."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cost(experiments: list[Experiment], workers: int, place: Place | None = None) -> Cost:
    """Run a grid in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        grid, early = Grid(experiments, Path(folder), workers, place=place), memory()
        started, cpu = time.monotonic(), workers_cpu()
        for job in grid.run():
            if job is not None and sum(other.answer is not None for other in grid.all) <= len(grid.all) // 10:
                early = memory()
        wall, late = time.monotonic() - started, memory()
        assert all(job.answer == Done() for job in grid.all), grid.failures
        own = sum(job.answer.seconds for job in grid.all if isinstance(job.answer, Done))
        timed = sum(run.seconds for run in read_status(Path(folder)).runs)
        return Cost(wall, own, timed, (workers_cpu() - cpu) / (workers * wall), late - early)


def speedup(rounds: int) -> None:
    experiments = [replace(RUN, seed=seed, epochs=4) for seed in range(8)]
    ratios, by_cpu = [], []
    for current in range(rounds):
        one, two = cost(experiments, 1), cost(experiments, 2)
        ratios.append(one.wall / two.wall)
        by_cpu.append(one.wall * one.cores / (two.wall * two.cores))
        print(
            f"round {current + 1}: 1 worker {one.wall:.1f} s, 2 workers {two.wall:.1f} s; "
            f"they had {one.cores:.0%} and {two.cores:.0%} of their cores"
        )
    print(f"8 runs, 1 worker / 2 workers    {median(ratios):.2f}   (goal ≥ 1.7)")
    print(f"  by their CPU seconds          {median(by_cpu):.2f}")


def overhead(runs: int, workers: int) -> None:
    methods = ("adam", "fsr-logit", "lwf", "ewc", "fsr-distill")
    found = cost([replace(RUN, method=methods[i % 5], seed=i // 5) for i in range(runs)], workers)
    print(f"{runs} runs of {found.own / runs:.1f} s with {workers} workers: {found.wall:.1f} s")
    print(f"  they had                      {found.cores:.0%} of their cores")
    print(f"  overhead                      {1 - found.own / (workers * found.wall):.1%}")
    print(f"  not epochs or evaluation      {1 - found.timed / found.own:.1%} of the runs' seconds")
    print(f"  growth of the parent          {found.growth / 1e6:.1f} MB")


def ray(rounds: int, runs: int, workers: int, epochs: int) -> None:
    place = open_place("ray")
    experiments = [replace(RUN, seed=seed, epochs=epochs) for seed in range(runs)]
    ratios: list[float] = []
    shares: dict[str, list[float]] = {"local": [], "ray": []}
    for current in range(rounds):
        walls: dict[str, float] = {}
        for name in ("local", "ray") if current % 2 == 0 else ("ray", "local"):
            found = cost(experiments, workers, place if name == "ray" else None)
            walls[name] = found.wall
            shares[name].append(1 - found.own / (workers * found.wall))
            print(f"round {current + 1}, {name}: {found.wall:.1f} s, runs of {found.own / runs:.1f} s", flush=True)
        ratios.append(walls["ray"] / walls["local"])
    print(f"{runs} runs, {workers} workers, wall time on Ray / local pool   {median(ratios):.3f}   (goal ≤ 1.10)")
    for name, found in shares.items():
        print(f"  not the runs' own, {name:<6}       {median(found):.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("speedup", "overhead", "ray"), default="speedup")
    parser.add_argument("--rounds", type=int, default=3, help="of speedup and ray")
    parser.add_argument("--runs", type=int, default=30, help="of overhead and ray")
    parser.add_argument("--workers", type=int, default=2, help="of overhead and ray")
    parser.add_argument("--epochs", type=int, default=8, help="of ray: how long its runs are")
    asked = parser.parse_args()
    if asked.what == "speedup":
        speedup(asked.rounds)
    elif asked.what == "ray":
        ray(asked.rounds, asked.runs, asked.workers, asked.epochs)
    else:
        overhead(asked.runs, asked.workers)


if __name__ == "__main__":  # workers import this file too
    main()
