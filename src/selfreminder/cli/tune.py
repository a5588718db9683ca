"""`selfreminder tune`: choose strengths and step sizes on validation data, then a table, figures and `tuned.toml`."""

import json as json_format
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder.cli.data import fetch
from selfreminder.cli.display import how_to_go_on, say_failures, show_estimate, watched
from selfreminder.cli.options import Extent, Kept, Whole, check_jobs, comparison_of, whole_number
from selfreminder.cli.tables import print_table
from selfreminder.experiment.catalogue import uses
from selfreminder.experiment.spec import parse_text
from selfreminder.experiment.tuning.candidates import TUNABLE, Tuning
from selfreminder.experiment.tuning.choice import Choice, Outcome, Tried, text_of
from selfreminder.experiment.tuning.tuned import read_table, write_sections
from selfreminder.report.results import Estimate

if TYPE_CHECKING:
    from selfreminder.experiment.tuning.search import Search

TABLE = "tuned.toml"
_HEADER = "# Chosen on validation data by `selfreminder tune`: each section says by which command, and of what.\n"


def tune(
    benchmark: str,
    *,
    methods: Annotated[str | None, Parameter(name=["--methods", "-m"])] = None,
    scale: str = "demo",
    fields: str | None = None,
    values: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    sampler: str = "grid",
    trials: Whole | None = None,
    seeds: Whole = 2,
    kept: Kept | None = None,
    extent: Extent | None = None,
    prune: bool | None = None,
    tuned: Path | None = None,
    into: Path | None = None,
    jobs: Annotated[int | None, Parameter(name=["--jobs", "-j"], converter=whole_number)] = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    retry_failed: Annotated[bool, Parameter(negative="")] = False,
    json: bool = False,
) -> int:
    """Choose strengths λ, step sizes or other settings of methods, on validation data: test data has no part in it.

    The best is what has the highest validation accuracy, averaged over all tasks after the last one, with seeds that
    no comparison uses. Step sizes of fine-tuning are judged by the newest task: adam's is the best, sgd's the smallest
    that learns it about as well.
    `tuned.toml` in the folder has what was chosen and of what; `compare --tuned` and `run --tuned` read it.
    Interrupted, the same command goes on where it was; no run is made twice.

    Parameters
    ----------
    benchmark
        Which: see `selfreminder list`.
    methods
        Names with commas between them; by default those that `compare` would run.
    scale
        How large: demo, small, medium or paper.
    fields
        What to choose, with commas between: strength,lr for instance. By default strength, and lr for sgd.
    values
        Candidates of a field, such as strength=10,30,100, instead of the usual ones. May be given again.
    sampler
        grid: every combination of the candidates. tpe: values in their range and threefold beyond it, chosen by what
        was good so far.
    trials
        How many for each method, with tpe; by default 20.
    seeds
        Runs of each trial.
    prune
        End trials early that are worse than the median of those before; by default with tpe.
    tuned
        A table by an earlier `selfreminder tune`, for what is not tuned now.
    into
        A table to put the result into, beside that of the folder; made if there is none.
    jobs
        Worker processes; by default one per core.
    out
        Folder for runs, figures and the table; by default a folder in ./runs named by what is tuned.
    data_dir
        A folder with data files of yours, looked at first; SELFREMINDER_DATA does the same.
    device
        cpu or cuda.
    retry_failed
        Try runs again that have failed twice in the same way.
    json
        Print JSON instead of a table.
    """
    comparison = comparison_of(benchmark, scale, methods, kept, extent, device, tuned, seeds=1)
    tuning = Tuning(
        comparison=comparison,
        fields=() if fields is None else tuple(_field(name) for name in fields.split(",")),
        values=_candidates(values),
        sampler=sampler,
        trials=trials,
        seeds=seeds,
        prune=prune,
    )
    _check(tuning, jobs, into)
    # Optuna is an extra, and takes a second to import.
    from selfreminder.experiment.tuning.search import Search  # noqa: PLC0415
    from selfreminder.experiment.tuning.study import claimed  # noqa: PLC0415

    for name in tuning.choices[0].base.data_sets:
        fetch(name, data_dir)
    folder = out or Path("runs") / f"tune-{comparison.name}"
    with claimed(folder):
        if tuning.skipped:
            print(f"selfreminder: nothing to tune for {', '.join(tuning.skipped)}", file=sys.stderr)
        search = Search(tuning, folder, jobs, None if data_dir is None else str(data_dir), retry_failed)
        try:
            _run(search)
        except KeyboardInterrupt:
            how_to_go_on(folder)
            return 130
        _present(tuning, search.outcomes(), folder, into, json)
    say_failures(search.grid)
    return 0 if search.is_complete else 1


def _check(tuning: Tuning, jobs: int | None, into: Path | None) -> None:
    check_jobs(jobs)
    if not tuning.choices:
        raise SelfReminderError(f"there is nothing to tune for {', '.join(tuning.skipped)}: see --fields")
    if into is not None:
        if into.exists():
            read_table(into)
        elif not into.absolute().parent.is_dir():
            raise SelfReminderError(f"--into {into}: {into.parent} is no folder")
        if not tuning.writable:
            raise SelfReminderError(f"a table has no place for all of these fields: leave --into {into} out")


def _field(text: str) -> str:
    name = text.strip().replace("-", "_")
    if name not in TUNABLE:
        raise unknown("field", name, TUNABLE)
    return name


def _candidates(texts: tuple[str, ...]) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, equals, listed = text.partition("=")
        if not equals or not listed.strip():
            raise SelfReminderError(f"--values {text}: write a field and its candidates, such as strength=10,30,100")
        name = _field(name)
        try:
            found[name] = (*found.get(name, ()), *(parse_text(name, each.strip()) for each in listed.split(",")))
        except SelfReminderError as error:
            raise SelfReminderError(f"--values {text}: {error}") from None
    return found


def _run(search: "Search") -> None:
    with closing(watched(search.grid)) as news:  # closing it ends the workers
        for job in news:
            for choice, tried in search.take(job):
                print(f"{choice.method} {_words(tried)}: {_result(tried)}", file=sys.stderr, flush=True)


def _words(tried: Tried) -> str:
    return ", ".join(f"{name} {text_of(value)}" for name, value in tried.settings.items())


def _result(tried: Tried) -> str:
    return tried.state if tried.value is None else f"validation {tried.value:.4f}"


def _present(tuning: Tuning, outcomes: list[Outcome], folder: Path, into: Path | None, as_json: bool) -> None:
    # matplotlib takes half a second to import: only when there is something to draw.
    from selfreminder.report.figures import draw_tuning  # noqa: PLC0415

    figures = {}
    for outcome in outcomes:
        title = _title(tuning, outcome.choice)
        figures[outcome.choice.method] = draw_tuning(outcome, title, folder / outcome.choice.name)
    found = [outcome for outcome in outcomes if outcome.chosen is not None]
    sections = {outcome.choice.section: tuning.entry(outcome) for outcome in found}
    table = folder / TABLE if tuning.writable else None
    if table is not None and sections:
        write_sections(table, sections, _HEADER)
        if into is not None:
            write_sections(into, sections, _HEADER)
    if as_json:
        results = [_as_dict(outcome, figures[outcome.choice.method]) for outcome in outcomes]
        at = {"benchmark": tuning.comparison.benchmark, "scale": tuning.comparison.scale, "folder": str(folder)}
        about = {"table": table and str(table), "skipped": tuning.skipped}
        print(json_format.dumps({**at, **about, "results": results}, indent=1))
        return
    names = list(dict.fromkeys(name for outcome in outcomes for name in outcome.choice.candidates))
    rows = []
    for outcome in outcomes:
        best, count = outcome.chosen, str(len(outcome.tried))
        chosen = [text_of(best.settings[n]) if best and n in best.settings else "-" for n in names]
        rows.append([outcome.choice.method, *chosen, show_estimate(_estimate(best)), count])
    print_table(["method", *names, "validation", "trials"], rows)
    for outcome in found:
        for name, word in outcome.at_edge.items():
            value = outcome.chosen and text_of(outcome.chosen.settings[name])
            print(f"{outcome.choice.method}: {name} {value} is the {word} candidate; --values {name}=… goes beyond it")
    if drawn := [str(path) for paths in figures.values() for path in paths]:
        print(f"Figures: {', '.join(drawn)}")
    if table is None:
        print("A comparison says those fields itself: nothing was written to a table.")
    elif sections:
        print(f"Chosen: {', '.join(map(str, [table, *([into] if into else [])]))}")


def _estimate(tried: Tried | None) -> Estimate | None:
    return None if tried is None or tried.value is None else Estimate(tried.value, tried.stderr)


def _title(tuning: Tuning, choice: Choice) -> str:
    at, base = tuning.comparison, choice.base
    memory = f"\nmemory of {base.size}" if uses(base.method, "per_class") else ""
    judged = "the newest task" if choice.by_newest else "all tasks at the end"
    of_seeds = "one seed" if tuning.seeds == 1 else f"mean and standard error of {tuning.seeds} seeds"
    return f"{base.method} on {at.benchmark} ({base.data}), scale {at.scale}{memory}\n{judged}; {of_seeds}"


def _as_dict(outcome: Outcome, figures: list[Path]) -> dict[str, Any]:
    best = outcome.chosen
    return {
        "method": outcome.choice.method,
        "chosen": best and best.settings,
        "validation": best and vars(_estimate(best)),
        "adams_newest": outcome.adams_newest,
        "at_edge": outcome.at_edge,
        "study": outcome.study,
        "seeds": list(outcome.choice.seeds),
        "trials": [vars(trial) for trial in outcome.tried],
        "figures": [str(path) for path in figures],
    }
