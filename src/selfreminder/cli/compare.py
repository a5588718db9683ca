"""`selfreminder compare`: run methods on a benchmark, then a table and the paper's two panels."""

import json as json_format
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import show_bytes
from selfreminder.cli.grid_command import Running, describe, keep_table, run_grid, write_summary
from selfreminder.cli.terminal import Extent, MemorySize, Out, Whole, make_comparison, print_table, show_estimate
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.folder import check_same_comparison, claimed
from selfreminder.experiment.pool.grid import Grid
from selfreminder.experiment.records import read_records
from selfreminder.experiment.tuning.tuned import join_untuned
from selfreminder.report.results import Result, group_runs, sort_best_first


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
    comparison = replace(
        make_comparison(benchmark, scale, methods, memory, extent, device, tuned, seeds=seeds),
        select=select,
        codec=codec,
        logit_codec=logit_codec,
    )
    running.check()
    running.fetch_data(comparison.experiments)
    folder = out or Path("runs") / comparison.name
    with claimed(folder, "comparison", patience=1.0):
        check_same_comparison(folder, comparison)
        keep_table(folder, tuned)
        about = describe(folder, tuned, comparison=comparison.as_dict())
        grid = running.make_grid(comparison.experiments, folder, about)
        return run_grid(grid, lambda: _present(comparison, grid, running.json), lambda _: _refuse_mistakes(grid))


def _refuse_mistakes(grid: Grid) -> None:
    """Raise what is wrong with one run: it is wrong with the comparison."""
    for _, failure in grid.failures:
        if failure.users_mistake:
            raise SelfReminderError(failure.reason)


def _present(comparison: Comparison, grid: Grid, as_json: bool) -> None:
    found = group_runs(records for job in grid.all if (records := read_records(job.folder)) is not None)
    about = {"benchmark": comparison.benchmark, "scale": comparison.scale, "folder": str(grid.folder)}
    if found:
        _show(comparison, found, grid.folder, as_json)
    elif as_json:
        print(json_format.dumps({**about, "results": []}))


def _show(comparison: Comparison, found: list[Result], folder: Path, as_json: bool) -> None:
    # matplotlib takes half a second to import: only when there is something to draw.
    from selfreminder.report.figures import draw_accuracy, draw_ratio  # noqa: PLC0415

    experiment = comparison.experiments[0]
    seeds = min(result.seeds for result in found)
    of_seeds = "one seed" if seeds == 1 else f"mean and standard error of {seeds} seeds"
    title = (
        f"{comparison.benchmark} ({experiment.data}), scale {comparison.scale}, memory of {experiment.size}; {of_seeds}"
    )
    figures = draw_accuracy(found, title, folder / "accuracy") + draw_ratio(found, title, folder / "rho")
    summary = {
        "benchmark": comparison.benchmark,
        "scale": comparison.scale,
        "data": experiment.data,
        "tasks": experiment.tasks,
        "memory": str(experiment.size),
        "folder": str(folder),
        "figures": [str(path) for path in figures],
        "untuned": comparison.untuned,
        "results": [result.as_dict() for result in found],
    }
    text = write_summary(summary, folder)
    if as_json:
        print(text)
        return
    print(f"{title}, after {experiment.tasks} tasks")
    columns = ["method", "task average", "first task", "forgetting", "ρ", "bytes kept"]
    rows = [
        [r.method, *map(show_estimate, (r.task_average, r.first_task, r.forgetting, r.rho)), show_bytes(r.bytes)]
        for r in sort_best_first(found)
    ]
    if not any(r.rho for r in found):
        columns.remove("ρ")
        rows = [row[:4] + row[5:] for row in rows]
    print_table(columns, rows)
    if experiment.has_generated_data:
        print("Made-up images: this shows that the command works, not how methods compare.")
    if comparison.untuned:
        print(join_untuned(comparison.untuned))
    print(f"Figures: {', '.join(map(str, figures))}")
