"""`selfreminder compare`: run methods on a benchmark, then a table and the paper's two panels."""

import dataclasses
import json as json_format
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from selfreminder._base.errors import SelfReminderError
from selfreminder.cli.grid_command import Running, describe, draw_results, run_grid, write_summary
from selfreminder.cli.own_data import OwnDataOptions, apply_own
from selfreminder.cli.plan import Plan
from selfreminder.cli.terminal import (
    Changes,
    Extent,
    Flag,
    MemorySize,
    Out,
    Whole,
    make_comparison,
    print_table,
    tabulate_results,
)
from selfreminder.cli.tune import plan_tuning, tune_comparison, tunings_of
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.folder import TABLE, check_claimable, check_same_comparison, claimed, keep_copies
from selfreminder.experiment.pool.grid import Grid
from selfreminder.experiment.records import read_records
from selfreminder.experiment.tuning.tuned import join_untuned
from selfreminder.report.results import (
    describe_evaluation,
    describe_other_code,
    describe_over_budget,
    describe_unlearned,
    describe_unseen_moments,
    group_runs,
    sort_best_first,
)


def compare(
    benchmark: str | None = None,
    *,
    own: OwnDataOptions | None = None,
    changes: Changes | None = None,
    methods: Annotated[str | None, Parameter(name=["--methods", "-m"])] = None,
    scale: str = "demo",
    seeds: Whole | None = None,
    memory: MemorySize | None = None,
    select: str = "random",
    codec: str = "auto",
    logit_codec: str = "float32",
    extent: Extent | None = None,
    evaluate: Literal["newest", "sample", "all"] = "all",
    device: str = "cpu",
    tuned: Path | None = None,
    tune: Flag = False,
    out: Out = None,
    running: Running | None = None,
) -> int:
    """Compare methods on a benchmark: a table, and the accuracy on the first task and over all tasks as figures.

    Strengths and step sizes come from a table, chosen on validation data. Interrupted, the same
    command goes on where it was; with more methods or seeds it adds to what the folder holds.

    Parameters
    ----------
    benchmark
        Which: see `selfreminder list`; none with data of your own.
    methods
        Names with commas between them; by default those of the paper's figure.
    scale
        How large: demo, small, medium or paper.
    seeds
        Runs of each method; by default as the scale says.
    select
        How items are selected; see `selfreminder list`.
    codec
        How items are kept: auto, float32, float16, uint8, affine8, compressed.
    logit_codec
        How their logits are kept: float32, float16, int8.
    evaluate
        Which tasks are tested after each: all so far, the newest, or a sample of ten.
    device
        cpu, cuda, mps or auto.
    tuned
        A table by `selfreminder tune`, which goes before the one that comes with selfreminder.
    tune
        Choose every method's step size, and then its λ, on this very stream first, on validation data, as `selfreminder
        tune` does.
    out
        Folder, or URL such as s3://bucket/grid, for records and figures; by default one in ./runs.
    """
    running = running or Running()
    benchmark, extent, settings = apply_own(benchmark, own, changes, extent, running.json)
    items = {"select": select, "codec": codec, "logit_codec": logit_codec}
    of_scale = {"scale": scale, "seeds": seeds, "device": device, "tuned": tuned, "evaluate": evaluate}
    comparison = make_comparison(benchmark, methods, memory, extent, settings=settings, **of_scale, **items)
    running.check()
    if running.dry_run:
        return _plan(comparison, out or Path("runs") / comparison.name, tune, running)
    if tune:
        folder = out or Path("runs") / comparison.name
        if code := tune_comparison(comparison, folder.with_name(f"{folder.name}-tuning"), running):
            return code
        if (table := folder.with_name(f"{folder.name}-tuning") / TABLE).is_file():  # else nothing was to be chosen
            tuned = table
        comparison, out = dataclasses.replace(comparison, tuned=tuned), folder
    running.fetch_data(comparison.experiments)
    folder = out or Path("runs") / comparison.name
    given = {} if tuned is None else {TABLE: tuned}
    with claimed(folder, "comparison", patience=1.0):
        check_same_comparison(folder, comparison)
        keep_copies(folder, given)
        about = describe(folder, given, comparison=comparison.as_dict())
        grid = running.make_grid(comparison.experiments, folder, about)
        return run_grid(
            grid,
            lambda: _present(comparison, grid, running.json),
            lambda _: _refuse_mistakes(grid),
            tracking=running.tracking,
        )


def _plan(comparison: Comparison, folder: Path, tune: bool, running: Running) -> int:
    """Print what is left of a comparison, and before it of its tuning, and what that takes."""
    first = folder.with_name(f"{folder.name}-tuning")
    tuning = plan_tuning(tunings_of(comparison, first), first, running) if tune else None
    if tune and (first / TABLE).is_file():
        comparison = dataclasses.replace(comparison, tuned=first / TABLE)
    check_claimable(folder, "comparison")
    check_same_comparison(folder, comparison)
    plan = Plan(running.make_grid(comparison.experiments, folder, {}), running)
    if tuning is None:
        return plan.present()
    if running.json:
        print(json_format.dumps({**plan.as_dict(), "tuning": tuning.as_dict()}, indent=1))
        return 0
    print("To tune first:")
    tuning.present()
    print("Then:")
    return plan.present()


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
        "evaluate": experiment.evaluate,
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
    whole = describe_evaluation(experiment.evaluate)
    for said in (whole, describe_over_budget(best_first), describe_unseen_moments(best_first)):
        if said is not None:
            print(said)
    if experiment.has_generated_data:
        print("Made-up data: this shows that the command works, not how methods compare.")
    if comparison.untuned:
        print(join_untuned(comparison.untuned))
    for said in (describe_unlearned(found), describe_other_code(found)):
        if said is not None:
            print(said)
    print(f"Figures: {', '.join(map(str, figures))}")
