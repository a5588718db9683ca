"""Choose λ and step sizes on validation data: `python scripts/tune_table.py permuted-mnist demo`.

For every method with a strength λ: each candidate is run with seeds of its own (100, 101), and the one with the
best mean validation accuracy over all tasks after the last one is taken. For sgd: the smallest step size whose
validation accuracy on the newest task, averaged over tasks, is within 2 points of adam's. Test data has no part
in it. Prints the sections of src/selfreminder/experiment/tuned.toml, with the validation accuracy of every trial.
Interrupted, it goes on where it was.
"""

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
    "fsr-logit": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    "fsr-logitlab": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    "fsr-distill": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
}
STEP_SIZES = (0.001, 0.003, 0.01, 0.03, 0.1)
SEEDS = (100, 101)


def validation_average(experiments: list[Experiment], folder: Path, newest: bool = False) -> float:
    """Mean over seeds of the final task average, or of the accuracy on each task when it was the newest."""
    values = []
    for experiment in experiments:
        records = read(folder / experiment.key)
        assert records is not None
        matrix = records.validation
        values.append(fmean(row[-1] for row in matrix) if newest else fmean(matrix[-1]))
    return round(fmean(values), 4)


def main(benchmark: str, scale: str) -> None:
    names = (*STRENGTHS, "adam", "sgd")
    comparison = Comparison(benchmark=benchmark, scale=scale, methods=names, seeds=1)
    base = {experiment.method: experiment for experiment in comparison.experiments}

    def seeded(experiment: Experiment) -> list[Experiment]:
        return [replace(experiment, seed=seed) for seed in SEEDS]

    trials = {
        method: {strength: seeded(replace(base[method], strength=strength)) for strength in candidates}
        for method, candidates in STRENGTHS.items()
    }
    trials["adam"] = {0.0001: seeded(base["adam"])}
    trials["sgd"] = {lr: seeded(replace(base["sgd"], lr=lr)) for lr in STEP_SIZES}
    folder = Path("runs") / f"tune-{benchmark}-{scale}"
    grid = Grid([e for tried in trials.values() for runs in tried.values() for e in runs], folder)
    for job in grid.run():
        if job is not None and job.answer is not None:
            done = sum(isinstance(other.answer, Done) for other in grid.all)
            left = grid.seconds_left()
            print(f"{done}/{len(grid.all)} {job.experiment.key} {job.answer} {left or 0:.0f} s left", file=sys.stderr)

    adam = validation_average(trials["adam"][0.0001], folder, newest=True)
    for method, tried in trials.items():
        seen = {value: validation_average(runs, folder, newest=method == "sgd") for value, runs in tried.items()}
        if method == "sgd":
            best = next((lr for lr, accuracy in seen.items() if accuracy >= adam - 0.02), STEP_SIZES[-1])
            print(f"\n[{benchmark}.{scale}.sgd]\nlr = {best}\nadams_newest = {adam}")
        elif method in STRENGTHS:
            best = max(seen, key=lambda value: seen[value])
            print(f"\n[{benchmark}.{scale}.{method}]\nstrength = {best}")
        else:
            continue
        print("validation = {", ", ".join(f'"{value:g}" = {accuracy}' for value, accuracy in seen.items()), "}")


if __name__ == "__main__":
    main(*sys.argv[1:])
