"""Choose λ and step sizes on validation data: `python scripts/tune_table.py permuted-mnist small`.

For every method with a strength λ, each candidate is run with seeds of its own (100, 101), and the one with the
best mean validation accuracy over all tasks after the last one is taken. For sgd, the smallest step size whose
validation accuracy on the newest task, averaged over tasks, is within 2 points of adam's; if none is, the largest.
Test data has no part in it. Prints the sections of src/selfreminder/experiment/tuned.toml with the validation
accuracy of every trial. Interrupted, it goes on where it was.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.grid import Grid
from selfreminder.experiment.progress import Done
from selfreminder.experiment.records import read
from selfreminder.experiment.spec import Experiment

STRENGTHS = {
    "fsr-logit": (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    "fsr-logitlab": (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    "fsr-distill": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
    "icarl": (0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    "lwf": (0.03, 0.1, 0.3, 1.0, 3.0),
    "ewc": (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0),
    "generative-replay": (0.3, 1.0, 3.0),
    "hat": (0.1, 0.3, 0.75, 1.5, 2.5),
}
STEP_SIZES = (0.001, 0.003, 0.01, 0.03, 0.1)
ADAMS_STEP_SIZE = 0.0001


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark")
    parser.add_argument("scale")
    parser.add_argument("--methods", nargs="+", choices=(*STRENGTHS, "sgd"), help="only these; by default all")
    parser.add_argument("--tasks", type=int, help="fewer tasks than the scale has, where it would take too long")
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101])
    parser.add_argument("--every", type=int, default=1, help="take every so many-th candidate, from the last one back")
    return parser.parse_args()


def validation_average(experiments: list[Experiment], folder: Path, newest: bool = False) -> float:
    """Mean over seeds of the final task average, or of the accuracy on each task when it was the newest."""
    values = []
    for experiment in experiments:
        records = read(folder / experiment.key)
        if records is None or not records.done:  # it failed or does not apply: never the best
            return float("-inf")
        matrix = records.validation
        values.append(fmean(row[-1] for row in matrix) if newest else fmean(matrix[-1]))
    return round(fmean(values), 4)


def main() -> None:
    asked = arguments()
    tuned = asked.methods or [*STRENGTHS, "sgd"]
    comparison = Comparison(
        benchmark=asked.benchmark, scale=asked.scale, methods=("adam", *tuned), seeds=1, tasks=asked.tasks
    )
    base = {experiment.method: experiment for experiment in comparison.experiments}
    trials: dict[str, dict[float, list[Experiment]]] = {}
    for method in tuned:
        field, candidates = ("lr", STEP_SIZES) if method == "sgd" else ("strength", STRENGTHS[method])
        thinned = candidates[:: -asked.every][::-1]
        trials[method] = {value: [replace(base[method], **{field: value})] for value in thinned}
    if "sgd" in tuned:
        trials["adam"] = {ADAMS_STEP_SIZE: [base["adam"]]}
    for tried in trials.values():
        for value, (experiment,) in tried.items():
            tried[value] = [replace(experiment, seed=seed) for seed in asked.seeds]
    folder = Path("runs") / f"tune-{asked.benchmark}-{asked.scale}"
    grid = Grid([e for tried in trials.values() for runs in tried.values() for e in runs], folder)
    for job in grid.run():
        if job is not None and job.answer is not None:
            done = sum(isinstance(other.answer, Done) for other in grid.all)
            left = f"{grid.seconds_left() or 0:.0f} s left"
            print(f"{done}/{len(grid.all)} {job.experiment.key} {job.answer} {left}", file=sys.stderr)

    for method in tuned:
        newest = method == "sgd"
        seen = {value: validation_average(runs, folder, newest) for value, runs in trials[method].items()}
        print(f"\n[{asked.benchmark}.{asked.scale}.{method}]")
        if newest:
            adam = validation_average(trials["adam"][ADAMS_STEP_SIZE], folder, newest=True)
            lr = next((lr for lr, accuracy in seen.items() if accuracy >= adam - 0.02), max(seen))
            print(f"lr = {lr}\nadams_newest = {adam}")
        else:
            print(f"strength = {max(seen, key=lambda value: seen[value])}")
        print("validation = {", ", ".join(f'"{value:g}" = {accuracy}' for value, accuracy in seen.items()), "}")


if __name__ == "__main__":
    main()
