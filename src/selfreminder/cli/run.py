"""`selfreminder run`: a grid of experiments from a file, then a table of what varies."""

import json as json_format
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from selfreminder.cli.grid_command import Running, describe, draw_results, run_grid, write_summary
from selfreminder.cli.own_data import pin_own_data
from selfreminder.cli.plan import Plan
from selfreminder.cli.terminal import Out, Whole, print_table, tabulate_results
from selfreminder.experiment.catalogue import uses
from selfreminder.experiment.folder import TABLE, check_claimable, claimed, keep_copies, show, varying, write_grid
from selfreminder.experiment.pool.grid import Grid
from selfreminder.experiment.pool.process import Done, Failed
from selfreminder.experiment.records import read_records
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.sweep import Sweep, read_sweep
from selfreminder.experiment.tuning.tuned import join_untuned
from selfreminder.report.results import (
    Result,
    describe_evaluation,
    describe_other_code,
    describe_unlearned,
    group_runs,
)

SPEC = "spec.toml"
_MOST_LINES = 12
"""in a figure"""


def run(
    spec: Path,
    *,
    fixed: Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False)] = (),
    swept: Annotated[tuple[str, ...], Parameter(name="--sweep", negative="", show_default=False)] = (),
    processes: Whole | None = None,
    tuned: Path | None = None,
    out: Out = None,
    running: Running | None = None,
) -> int:
    """Run a grid of experiments from a TOML file: a table of what varies, figures, results.json.

    The file has the fields of an experiment; under [grid], lists of values whose product is run; under
    [methods.NAME], what is for one method alone. `scale = "demo"` takes what the file does not say from the
    benchmark's scale. Interrupted, the same command goes on where it was; a grid that has grown adds to what the
    folder holds; a second process on the same folder takes the runs that nobody has.

    Parameters
    ----------
    spec
        The TOML file.
    fixed
        A field's value in all runs, such as epochs=3, instead of what the file says. May be given again.
    swept
        A field's values, such as strength=0.01,0.1, or of a method's own option, such as options.alpha=0.1,1, instead
        of what the file says. May be given again.
    processes
        That train each run together, on a part of every batch each; the same as --set processes=N.
    tuned
        A table by `selfreminder tune`, which goes before the one that comes with selfreminder.
    out
        Folder, or URL such as s3://bucket/x, for records and figures; by default one in ./runs named like the file.
    """
    running = running or Running()
    fixed = fixed if processes is None else (*fixed, f"processes={processes}")
    sweep = read_sweep(spec, fixed, swept, tuned)
    running.check()
    experiments, folder = pin_own_data(sweep.experiments, quiet=running.json), out or Path("runs") / spec.stem
    given = {SPEC: spec} | ({} if tuned is None else {TABLE: tuned})
    about = describe(folder, given, spec=SPEC, set=list(fixed), sweep=list(swept))
    if running.dry_run:
        check_claimable(folder, "spec")
    else:
        running.fetch_data(experiments)
        with claimed(folder, "spec"):
            write_grid(folder, experiments, about)
            keep_copies(folder, given)
    grid = running.make_grid(experiments, folder, about, check_first=False)
    if running.dry_run:
        return _plan(Plan(grid, running))
    return run_grid(grid, lambda: _present(sweep, grid, running.json), tracking=running.tracking)


def _plan(plan: Plan) -> int:
    """Print which runs there are, which of them are to be run, and what that takes."""
    words = {Done: "done", Failed: "failed, not tried again"}
    rows = [(job.experiment, words.get(type(job.answer), "to be run")) for job in plan.grid.all]
    if plan.running.json:
        runs = [{"run": e.key, "state": state, "experiment": e.as_dict()} for e, state in rows]
        print(json_format.dumps(plan.as_dict(runs), indent=1))
        return 0
    names = varying(experiment for experiment, _ in rows)
    print_table(
        ["method", *names, "seed", "state", "folder"],
        [[e.method, *_format_settings(e, names), str(e.seed), state, e.key] for e, state in rows],
    )
    plan.say()
    return 0


def _format_settings(experiment: Experiment, names: list[str]) -> list[str]:
    return [show(getattr(experiment, name)) if uses(experiment.method, name) else "-" for name in names]


def _present(sweep: Sweep, grid: Grid, as_json: bool) -> None:
    """Draw and print the results of the runs that are done, and write them down."""
    names = varying(job.experiment for job in grid.all)
    ended = [job for job in grid.all if isinstance(job.answer, Done)]
    found = group_runs(records for job in ended if (records := read_records(job.folder)) is not None)
    untuned = sweep.find_untuned(job.experiment for job in grid.all)
    # Of more lines, nobody could tell one from the other.
    figures = draw_results(found, sweep.name, grid.folder) if 0 < len(found) <= _MOST_LINES else []
    summary = {
        "spec": sweep.name,
        "folder": str(grid.folder),
        "runs": len(grid.all),
        "done": len(ended),
        "varying": names,
        "figures": [str(path) for path in figures],
        "untuned": untuned,
        "results": [_as_dict(result, names) for result in found],
        "failures": [{"run": job.experiment.key, **vars(failure)} for job, failure in grid.failures],
    }
    text = write_summary(summary, grid.folder)
    if as_json:
        print(text)
        return
    done = f"{len(ended)} of {len(grid.all)} runs done"
    print(f"{sweep.name}: {done}; mean and standard error over seeds, after the last task")
    if found:
        headings, cells = tabulate_results(found, validation=True)
        settings = [_format_settings(result.experiment, names) for result in found]
        rows = [[r.method, *own, str(r.seeds), *row] for r, own, row in zip(found, settings, cells)]
        print_table(["method", *names, "seeds", *headings], rows)
    for said in dict.fromkeys(describe_evaluation(result.experiment.evaluate) for result in found):
        if said is not None:
            print(said)
    for said in (
        join_untuned(untuned) if untuned else None,
        describe_unlearned(found),
        describe_other_code(found),
    ):
        if said is not None:
            print(said)
    if figures:
        print(f"Figures: {', '.join(map(str, figures))}")


def _as_dict(result: Result, names: list[str]) -> dict[str, Any]:
    values = result.experiment.as_dict()
    settings = {name: values[name] for name in names}
    return {"settings": settings} | result.as_dict() | {"validation": vars(result.validation)}
