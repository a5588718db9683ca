"""`selfreminder tune`: choose strengths and step sizes on validation data, then a table, figures and `tuned.toml`."""

import json as json_format
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from selfreminder._base.errors import SelfReminderError
from selfreminder.cli.grid_command import Running, describe, run_grid
from selfreminder.cli.own_data import OwnDataOptions, apply_own
from selfreminder.cli.plan import Plan
from selfreminder.cli.terminal import (
    Changes,
    Extent,
    MemorySize,
    Out,
    Whole,
    make_comparison,
    print_table,
    show_estimate,
)
from selfreminder.experiment.catalogue import uses
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.folder import TABLE, check_claimable, claimed, run_folders
from selfreminder.experiment.pool.grid import Job
from selfreminder.experiment.records import read_records
from selfreminder.experiment.spec import parse_option, parse_text
from selfreminder.experiment.tuning.candidates import TUNABLE, Candidates, Tuning, format_value
from selfreminder.experiment.tuning.tuned import read_table, write_sections
from selfreminder.report.results import Estimate

if TYPE_CHECKING:
    from selfreminder.experiment.tuning.search import Choice, Search


def tune(
    benchmark: str | None = None,
    *,
    own: OwnDataOptions | None = None,
    changes: Changes | None = None,
    methods: Annotated[str | None, Parameter(name=["--methods", "-m"])] = None,
    scale: str = "demo",
    fields: str | None = None,
    values: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    sampler: str = "grid",
    trials: Whole | None = None,
    seeds: Whole = 2,
    memory: MemorySize | None = None,
    extent: Extent | None = None,
    prune: Annotated[bool | None, Parameter(negative="--no-prune")] = None,
    device: str = "cpu",
    tuned: Path | None = None,
    into: Path | None = None,
    out: Out = None,
    running: Running | None = None,
) -> int:
    """Choose strengths λ, step sizes or other settings of methods, on validation data, never on test data.

    The best is what has the highest validation accuracy, averaged over all tasks after the last one, with seeds that
    no comparison uses. `tuned.toml` in the folder has what was chosen and of what; `compare --tuned` and `run --tuned`
    read it. Interrupted, the same command goes on where it was; no run is made twice.

    Parameters
    ----------
    benchmark
        Which: see `selfreminder list`.
    methods
        Names with commas between them; by default those of `compare`.
    scale
        How large: demo, small, medium or paper.
    fields
        What to choose: strength,lr for instance. By default strength; lr for sgd.
    values
        Candidates of a field, such as strength=10,30,100. May be given again.
    sampler
        grid: every combination of the candidates. tpe: guided by what was good so far.
    trials
        How many for each method, with tpe; by default 20.
    seeds
        Runs of each trial.
    prune
        End trials early that are below the median; by default with tpe.
    device
        cpu, cuda, mps or auto.
    tuned
        A table by an earlier `selfreminder tune`, for what is not tuned now.
    into
        A table to put the result into, beside that of the folder.
    out
        Folder, or URL such as s3://bucket/grid, for runs, figures and the table; by default one in ./runs.
    """
    running = running or Running()
    benchmark, extent, settings = apply_own(benchmark, own, changes, extent, running.json)
    of_scale = {"scale": scale, "device": device, "tuned": tuned, "seeds": 1, "settings": settings}
    comparison = make_comparison(benchmark, methods, memory, extent, **of_scale)
    tuning = Tuning(
        comparison=comparison,
        fields=() if fields is None else tuple(map(_name_field, fields.split(","))),
        values=_parse_values(values),
        sampler=sampler,
        trials=trials,
        seeds=seeds,
        prune=prune,
    )
    running.check()
    folder = out or Path("runs") / f"tune-{comparison.name}"
    _check(tuning, into)
    return plan_tuning([tuning], folder, running).present() if running.dry_run else _run(tuning, folder, into, running)


def plan_tuning(tunings: Iterable[Tuning], folder: Path, running: Running) -> Plan:
    """Plan the runs of tunings in a folder, without asking for a trial."""
    check_claimable(folder, "tuning")
    begun = (read_records(path) for path in run_folders(folder))
    done = [records.experiment for records in begun if records is not None and records.done]
    wanted = list(tunings)
    runs = [run for tuning in wanted for run in tuning.list_runs(done)]
    note = "At most: trials that fall behind are ended early." if any(each.prunes for each in wanted) else None
    return Plan(running.make_grid(runs, folder, {}, check_first=False), running, note=note)


def tune_comparison(comparison: Comparison, folder: Path, running: Running) -> int:
    """Choose the step sizes and the strengths of a comparison's methods in a folder; give the exit code."""
    # Where JSON is asked for, it is the comparison's alone.
    with redirect_stdout(sys.stderr) if running.json else nullcontext():
        codes = (_run(each, folder, None, replace(running, json=False)) for each in tunings_of(comparison, folder))
        return next((code for code in codes if code), 0)


def tunings_of(comparison: Comparison, folder: Path) -> Iterator[Tuning]:
    """Give the tunings of a comparison's methods, the same for each: the step size, then λ with what was chosen.

    A step size that the user says is not chosen. Both write into the folder's table, where the second reads the first.
    """
    of_one = replace(comparison, seeds=1)
    if "lr" not in comparison.settings:
        yield Tuning(comparison=of_one, fields=("lr",))
        if (folder / TABLE).is_file():
            of_one = replace(of_one, tuned=folder / TABLE)
    if (strengths := Tuning(comparison=of_one, fields=("strength",))).candidates:
        yield strengths


def _run(tuning: Tuning, folder: Path, into: Path | None, running: Running) -> int:
    # Optuna is an extra, and takes a second to import.
    from selfreminder.experiment.tuning.search import Search  # noqa: PLC0415

    running.fetch_data([tuning.candidates[0].base])
    with claimed(folder, "tuning", patience=1.0):
        if tuning.skipped:
            print(f"selfreminder: nothing to tune for {', '.join(tuning.skipped)}", file=sys.stderr)
        about = describe(folder)
        search = Search(tuning, folder, running.jobs, running.own_data, running.retry_failed, about, running.grid_type)
        return run_grid(
            search.grid,
            lambda: _present(tuning, search.choose(), folder, into, running.json),
            lambda job: _take(search, job),
            lambda _: search.is_complete,
            running.tracking,
        )


def _check(tuning: Tuning, into: Path | None) -> None:
    if not tuning.candidates:
        raise SelfReminderError(f"there is nothing to tune for {', '.join(tuning.skipped)}: see --fields")
    if into is not None:
        if into.exists():
            if into.stat().st_size:  # else it is to be filled
                read_table(into)
        elif not into.absolute().parent.is_dir():
            raise SelfReminderError(f"--into {into}: {into.parent} is no folder")
        if not tuning.is_writable:
            raise SelfReminderError(f"a table has no place for all of these fields: leave --into {into} out")


def _name_field(text: str) -> str:
    """Name a field, or a method's own option, which `run` has as options.NAME."""
    return text.strip().replace("-", "_").removeprefix("options.")


def _parse_values(texts: tuple[str, ...]) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, equals, listed = text.partition("=")
        if not equals or not listed.strip():
            raise SelfReminderError(f"--values {text}: write a field and its candidates, such as strength=10,30,100")
        name = _name_field(name)
        # A method's own options are known by the method: it says what is wrong.
        parse = parse_text if name in TUNABLE else parse_option
        try:
            found[name] = (*found.get(name, ()), *(parse(name, each.strip()) for each in listed.split(",")))
        except SelfReminderError as error:
            raise SelfReminderError(f"--values {text}: {error}") from None
    return found


def _take(search: "Search", job: Job | None) -> None:
    """Let the search know a job's news, and say which trials have ended."""
    for candidates, result in search.take(job):
        settings = ", ".join(f"{name} {format_value(value)}" for name, value in result.settings.items())
        ended = result.state if result.value is None else f"validation {result.value:.4f}"
        print(f"{candidates.method} {settings}: {ended}", file=sys.stderr, flush=True)


def _present(tuning: Tuning, choices: list["Choice"], folder: Path, into: Path | None, as_json: bool) -> None:
    """Draw the figures, write the tables, and print what was chosen."""
    # matplotlib takes half a second to import: only when there is something to draw.
    from selfreminder.experiment.tuning.search import describe_choice  # noqa: PLC0415
    from selfreminder.report.figures import draw_tuning  # noqa: PLC0415

    figures = [
        draw_tuning(choice, _title(tuning, choice.candidates), folder / choice.candidates.name) for choice in choices
    ]
    sections = {
        choice.candidates.section: describe_choice(choice, tuning) for choice in choices if choice.chosen is not None
    }
    tables = [path for path in (folder / TABLE, into) if path is not None] if tuning.is_writable else []
    for path in tables if sections else []:
        write_sections(path, sections)
    if as_json:
        summary = {
            "benchmark": tuning.comparison.benchmark,
            "scale": tuning.comparison.scale,
            "folder": str(folder),
            "table": str(tables[0]) if tables else None,
            "skipped": tuning.skipped,
            "results": [_as_dict(choice, paths) for choice, paths in zip(choices, figures)],
        }
        print(json_format.dumps(summary, indent=1))
        return
    _print_choices(choices)
    if drawn := [str(path) for paths in figures for path in paths]:
        print(f"Figures: {', '.join(drawn)}")
    if not tables:
        print("Fields such as these are the same for all methods of a comparison: nothing was written to a table.")
    elif sections:
        print(f"Chosen: {', '.join(map(str, tables))}")


def _print_choices(choices: list["Choice"]) -> None:
    names = list(dict.fromkeys(name for choice in choices for name in choice.candidates.values))
    rows = []
    for choice in choices:
        settings = choice.chosen.settings if choice.chosen else {}
        values = [format_value(settings[name]) if name in settings else "-" for name in names]
        rows.append([choice.candidates.method, *values, show_estimate(_estimate(choice)), str(len(choice.results))])
    print_table(["method", *names, "validation", "trials"], rows)
    for choice in choices:
        for name, word in choice.at_edge.items():
            value = choice.chosen and format_value(choice.chosen.settings[name])
            method = choice.candidates.method
            print(f"{method}: {name} {value} is the {word} candidate; --values {name}=… goes beyond it")


def _estimate(choice: "Choice") -> Estimate | None:
    return choice.chosen and Estimate(choice.chosen.value or 0.0, choice.chosen.stderr)


def _title(tuning: Tuning, candidates: Candidates) -> str:
    at, base = tuning.comparison, candidates.base
    memory = f"\nmemory of {base.size}" if uses(base.method, "per_class") else ""
    judged = "the newest task" if candidates.by_newest else "all tasks at the end"
    of_seeds = "one seed" if tuning.seeds == 1 else f"mean and standard error of {tuning.seeds} seeds"
    return f"{base.method} on {at.benchmark} ({base.data}), scale {at.scale}{memory}\n{judged}; {of_seeds}"


def _as_dict(choice: "Choice", figures: list[Path]) -> dict[str, Any]:
    estimate = _estimate(choice)
    return {
        "method": choice.candidates.method,
        "chosen": choice.chosen and choice.chosen.settings,
        "validation": estimate and vars(estimate),
        "adams_newest": choice.adams_newest,
        "at_edge": choice.at_edge,
        "study": choice.study,
        "seeds": list(choice.candidates.seeds),
        "trials": [vars(result) for result in choice.results],
        "figures": [str(path) for path in figures],
    }
