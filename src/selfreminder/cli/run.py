"""`selfreminder run`: a grid of experiments from a file, then a table of what varies."""

import json as json_format
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from selfreminder.cli.grid_command import Running, describe, draw_results, run_grid, write_summary
from selfreminder.cli.terminal import Flag, Out, print_table, tabulate_results
from selfreminder.experiment.catalogue import uses
from selfreminder.experiment.folder import TABLE, claimed, keep_copy, show, varying, write_grid
from selfreminder.experiment.pool.grid import Grid
from selfreminder.experiment.pool.process import Done, Failed
from selfreminder.experiment.records import read_records
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.sweep import Sweep, read_sweep
from selfreminder.experiment.tuning.tuned import join_untuned
from selfreminder.report.results import Result, group_runs

SPEC = "spec.toml"
_MOST_LINES = 12
"""in a figure"""


def run(
    spec: Path,
    *,
    fixed: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    swept: Annotated[tuple[str, ...], Parameter(name="--sweep", negative="")] = (),
    tuned: Path | None = None,
    out: Out = None,
    dry_run: Flag = False,
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
        A field's values, such as strength=0.01,0.1, instead of what the file says. May be given again.
    tuned
        A table by `selfreminder tune`, whose strengths and step sizes go before those that come with selfreminder.
    out
        Folder for records and figures; by default a folder in ./runs named like the file.
    dry_run
        Say what would be run, and do nothing.
    """
    running = running or Running()
    sweep = read_sweep(spec, fixed, swept, tuned)
    running.check()
    experiments, folder = sweep.experiments, out or Path("runs") / spec.stem
    about = describe(folder, tuned, spec=SPEC, set=list(fixed), sweep=list(swept))
    if not dry_run:
        running.fetch_data(experiments)
        with claimed(folder, "spec"):
            write_grid(folder, experiments, about)
            keep_copy(spec, folder / SPEC)
            keep_copy(tuned, folder / TABLE)
    grid = running.make_grid(experiments, folder, about, check_first=False)
    if dry_run:
        _plan(grid, running.json)
        return 0
    return run_grid(grid, lambda: _present(sweep, grid, running.json))


def _plan(grid: Grid, as_json: bool) -> None:
    """Print which runs there are, and which of them are to be run."""
    words = {Done: "done", Failed: "failed, not tried again"}
    rows = [(job.experiment, words.get(type(job.answer), "to be run")) for job in grid.all]
    if as_json:
        runs = [{"run": e.key, "state": state, "experiment": e.as_dict()} for e, state in rows]
        print(json_format.dumps({"folder": str(grid.folder), "results": runs}, indent=1))
        return
    names = varying(experiment for experiment, _ in rows)
    print_table(
        ["method", *names, "seed", "state", "folder"],
        [[e.method, *_format_settings(e, names), str(e.seed), state, e.key] for e, state in rows],
    )
    left = sum(job.answer is None for job in grid.all)
    print(f"{len(rows)} runs, {left} of them to be run by {grid.workers} workers, in {grid.folder}")


def _format_settings(experiment: Experiment, names: list[str]) -> list[str]:
    return [show(getattr(experiment, name)) if uses(experiment.method, name) else "-" for name in names]


def _present(sweep: Sweep, grid: Grid, as_json: bool) -> None:
    """Draw and print the results of the runs that are done, and write them down."""
    names = varying(job.experiment for job in grid.all)
    ended = [job for job in grid.all if isinstance(job.answer, Done)]
    found = group_runs(records for job in ended if (records := read_records(job.folder)) is not None)
    # Of more lines, nobody could tell one from the other.
    figures = draw_results(found, sweep.name, grid.folder) if 0 < len(found) <= _MOST_LINES else []
    summary = {
        "spec": sweep.name,
        "folder": str(grid.folder),
        "runs": len(grid.all),
        "done": len(ended),
        "varying": names,
        "figures": [str(path) for path in figures],
        "untuned": sweep.untuned,
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
    if sweep.untuned:
        print(join_untuned(sweep.untuned))
    if figures:
        print(f"Figures: {', '.join(map(str, figures))}")


def _as_dict(result: Result, names: list[str]) -> dict[str, Any]:
    values = result.experiment.as_dict()
    settings = {name: values[name] for name in names}
    return {"settings": settings} | result.as_dict() | {"validation": vars(result.validation)}
