"""`selfreminder compare`: run methods on a benchmark, then a table and the paper's two panels."""

import json as json_format
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from selfreminder._base.atomic import write_text
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import show_bytes
from selfreminder.cli.data import fetch
from selfreminder.cli.display import how_to_go_on, say_failures, show_estimate, watched
from selfreminder.cli.options import Extent, Kept, Whole, check_jobs, comparison_of, whole_number
from selfreminder.cli.tables import print_table
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.folder import TABLE, keep_copy
from selfreminder.experiment.pool.grid import Grid
from selfreminder.experiment.pool.progress import Done
from selfreminder.experiment.records import read_records
from selfreminder.experiment.tuning.tuned import join_untuned
from selfreminder.report.results import Result, group_runs, sort_best_first


def compare(
    benchmark: str,
    *,
    methods: Annotated[str | None, Parameter(name=["--methods", "-m"])] = None,
    scale: str = "demo",
    seeds: Whole | None = None,
    kept: Kept | None = None,
    select: str = "random",
    codec: str = "auto",
    logit_codec: str = "float32",
    extent: Extent | None = None,
    jobs: Annotated[int | None, Parameter(name=["--jobs", "-j"], converter=whole_number)] = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    tuned: Path | None = None,
    retry_failed: Annotated[bool, Parameter(negative="")] = False,
    json: bool = False,
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
    jobs
        Worker processes; by default one per core.
    out
        Folder for records and figures; by default a folder in ./runs named by what is compared.
    data_dir
        A folder with data files of yours, looked at first; SELFREMINDER_DATA does the same.
    device
        cpu or cuda.
    tuned
        A table by `selfreminder tune`, whose strengths and step sizes go before those that come with selfreminder.
    retry_failed
        Try runs again that have failed twice in the same way.
    json
        Print JSON instead of a table.
    """
    comparison = replace(
        comparison_of(benchmark, scale, methods, kept, extent, device, tuned, seeds=seeds),
        select=select,
        codec=codec,
        logit_codec=logit_codec,
    )
    check_jobs(jobs)
    experiments = comparison.experiments
    for name in experiments[0].data_sets:
        fetch(name, data_dir)
    folder = out or Path("runs") / comparison.name
    with comparison.claimed(folder):
        own_data, about = None if data_dir is None else str(data_dir), {}
        if tuned is not None:
            keep_copy(tuned, folder / TABLE)
            about = {"tuned": TABLE}
        grid = Grid(experiments, folder, jobs, own_data, retry_failed=retry_failed, about=about)
        try:
            _run(grid)
        except KeyboardInterrupt:
            how_to_go_on(folder)
            return 130
        found = group_runs(records for job in grid.all if (records := read_records(job.folder)) is not None)
        if found:
            _present(comparison, found, folder, json)
        elif json:
            print(json_format.dumps({"benchmark": benchmark, "scale": scale, "folder": str(folder), "results": []}))
    say_failures(grid)
    return 0 if all(isinstance(job.answer, Done) for job in grid.all) else 1


def _run(grid: Grid) -> None:
    with closing(watched(grid)) as news:  # closing it ends the workers
        for _ in news:
            for _, failure in grid.failures:
                if failure.users_mistake:
                    raise SelfReminderError(failure.reason)


def _present(comparison: Comparison, found: list[Result], folder: Path, as_json: bool) -> None:
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
    text = json_format.dumps(summary, indent=1)
    write_text(folder / "results.json", text + "\n")
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
