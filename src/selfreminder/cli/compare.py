"""`selfreminder compare`: run methods on a benchmark, then a table and the paper's two panels."""

import json as json_format
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from selfreminder._base.errors import SelfReminderError
from selfreminder.cli.grid_command import Running, describe, draw_results, run_grid, write_summary
from selfreminder.cli.terminal import Extent, MemorySize, Out, Whole, make_comparison, print_table, tabulate_results
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.folder import TABLE, check_same_comparison, claimed, keep_copy
from selfreminder.experiment.pool.grid import Grid
from selfreminder.experiment.records import read_records
from selfreminder.experiment.tuning.tuned import join_untuned
from selfreminder.report.results import group_runs, sort_best_first


def compare(
    benchmark: str,
    *,
    methods: Annotated[str | None, Parameter(name=["--methods", "-m"])] = None,
    scale: str = "demo",
    seeds: Whole | None = None,
    memory: MemorySize | None = None,
    select: str = "random",
    codec: str = "auto",
    logit_codec: str = "float32",
    extent: Extent | None = None,
    device: str = "cpu",
    tuned: Path | None = None,
    out: Out = None,
    running: Running | None = None,
) -> int:
    """Compare methods on a benchmark: a table, and the accuracy on the first task and over all tasks as figures.

    Strengths and step sizes come from a table, chosen on validation data at each scale. Interrupted, the same
    command goes on where it was; with more methods or seeds it adds to what the folder holds.

    Parameters
    ----------
    benchmark
        Which: see `selfreminder list`.
    methods
        Names with commas between them; by default those of the paper's figure, or a few of them at scale demo.
    scale
        How large: demo, small, medium or paper.
    seeds
        Runs of each method; by default as the scale says.
    select
        How items are selected, with options after a colon: herding:kernel=gaussian. See `selfreminder list`.
    codec
        How items are kept: auto, float32, float16, uint8, affine8, compressed.
    logit_codec
        How their logits are kept: float32, float16, int8.
    device
        cpu or cuda.
    tuned
        A table by `selfreminder tune`, whose strengths and step sizes go before those that come with selfreminder.
    out
        Folder for records and figures; by default a folder in ./runs named by what is compared.
    """
    running = running or Running()
    items = {"select": select, "codec": codec, "logit_codec": logit_codec}
    of_scale = {"scale": scale, "seeds": seeds, "device": device, "tuned": tuned}
    comparison = make_comparison(benchmark, methods, memory, extent, **of_scale, **items)
    running.check()
    running.fetch_data(comparison.experiments)
    folder = out or Path("runs") / comparison.name
    with claimed(folder, "comparison", patience=1.0):
        check_same_comparison(folder, comparison)
        keep_copy(tuned, folder / TABLE)
        about = describe(folder, tuned, comparison=comparison.as_dict())
        grid = running.make_grid(comparison.experiments, folder, about)
        return run_grid(grid, lambda: _present(comparison, grid, running.json), lambda _: _refuse_mistakes(grid))


def _refuse_mistakes(grid: Grid) -> None:
    """Raise what is wrong with one run: it is wrong with the comparison."""
    for _, failure in grid.failures:
        if failure.users_mistake:
            raise SelfReminderError(failure.reason)


def _present(comparison: Comparison, grid: Grid, as_json: bool) -> None:
    """Draw and print the results, and write them down; there are none where every run failed."""
    found = group_runs(records for job in grid.all if (records := read_records(job.folder)) is not None)
    about = {"benchmark": comparison.benchmark, "scale": comparison.scale}
    if not found:
        if as_json:
            print(json_format.dumps({**about, "folder": str(grid.folder), "results": []}))
        return
    experiment = comparison.experiments[0]
    seeds = min(result.seeds for result in found)
    of_seeds = "one seed" if seeds == 1 else f"mean and standard error of {seeds} seeds"
    title = (
        f"{comparison.benchmark} ({experiment.data}), scale {comparison.scale}, memory of {experiment.size}; {of_seeds}"
    )
    figures = draw_results(found, title, grid.folder)
    summary = {
        **about,
        "data": experiment.data,
        "tasks": experiment.tasks,
        "memory": str(experiment.size),
        "folder": str(grid.folder),
        "figures": [str(path) for path in figures],
        "untuned": comparison.untuned,
        "results": [result.as_dict() for result in found],
    }
    text = write_summary(summary, grid.folder)
    if as_json:
        print(text)
        return
    print(f"{title}, after {experiment.tasks} tasks")
    best_first = sort_best_first(found)
    headings, cells = tabulate_results(best_first)
    print_table(["method", *headings], [[result.method, *row] for result, row in zip(best_first, cells)])
    if experiment.has_generated_data:
        print("Made-up images: this shows that the command works, not how methods compare.")
    if comparison.untuned:
        print(join_untuned(comparison.untuned))
    print(f"Figures: {', '.join(map(str, figures))}")
