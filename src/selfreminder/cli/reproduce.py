"""`selfreminder reproduce`: the paper's figures and claims, from runs of its experiments."""

import json as json_format
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfreminder._base.errors import DataError, SelfReminderError, unknown
from selfreminder.benchmarks import SCALES
from selfreminder.cli.data import fetch
from selfreminder.cli.grid_command import Running, describe, run_grid
from selfreminder.cli.plan import Plan
from selfreminder.cli.terminal import Flag, Out, Whole, print_rows
from selfreminder.experiment.folder import claimed, read_about, read_grid, refuse_others
from selfreminder.experiment.pool.grid import Grid, Job
from selfreminder.experiment.pool.process import Done
from selfreminder.experiment.spec import Experiment
from selfreminder.paper.claims import summarize, summarize_read_again
from selfreminder.paper.likely_reasons import Reason, find_reasons
from selfreminder.paper.specs import FIGURES, Figure, FigureResults, experiments

if TYPE_CHECKING:
    from selfreminder.paper.reproduction import Reproduction

_ALL = "all"
_Files = dict[str, list[Path]]
"""of each figure"""


def reproduce(
    figure: str,
    *,
    scale: str = "demo",
    seeds: Whole | None = None,
    draw_only: Flag = False,
    out: Out = None,
    running: Running | None = None,
) -> int:
    """Run the experiments of a figure of the paper, or of all; draw the figures, judge the claims, write a page.

    Interrupted, the same command goes on where it was. All figures have one folder: a run that several of them show is
    done once, and a second process on the same folder takes the runs that nobody has. Figures are drawn as soon as
    their runs are done; one that is not finished is drawn from the runs that there are, and says how many are missing.

    Parameters
    ----------
    figure
        permuted, nonlinear, color, memory-sizes, logit-bars, heatmaps, rho, selection, generative-replay, bytes,
        bytes-split, mixture, or all.
    scale
        How large: demo, small, medium or paper.
    seeds
        Run so many seeds of each figure: fewer than usual for a look at it, as claims need all; or more, where there
        are too few to tell.
    draw_only
        Run nothing: draw and judge what the folder holds, or the folders in it.
    out
        Folder or URL (s3://…) for records, figures, claims.json and index.html; by default ./runs/paper-SCALE.
    """
    running = running or Running()
    asked = _figures(figure)
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    running.check()
    if seeds is not None and seeds < 1:
        raise SelfReminderError(f"seeds is {seeds}: it must be at least 1")
    folder = out or Path("runs") / f"paper-{scale}"
    if draw_only:
        return _draw_only(folder, scale, f"selfreminder reproduce {figure} --scale {scale}", running.json)
    tested = find_reasons(scale, [figure.name for figure in asked])
    wanted = _list_runs(asked, tested, scale, seeds)
    _check_folder(folder, scale)
    about = describe(folder, figure=figure, scale=scale)
    grid = running.make_grid(wanted, folder, about, check_first=False)
    _name_runs(grid, asked, tested, scale, seeds)
    if running.dry_run:
        return Plan(grid, running, lambda job: job.label.partition(":")[0], "figure").present()
    left = (job.experiment for job in grid.all if job.answer is None)
    _fetch(dict.fromkeys(name for experiment in left for name in experiment.data_sets), scale, running.data_dir)
    with claimed(folder, "figure"):
        grid.listed_too = _list_others(folder, asked, tested, scale)
        grid.write_list()

    def present() -> None:
        found = _read(folder, scale)
        _say(found.troubles)
        failures = [{"run": job.experiment.key, **vars(failure)} for job, failure in grid.failures]
        _present(found, found.write(), failures, running.json)

    return run_grid(grid, present, _draw_early(grid, asked, scale, seeds), tracking=running.tracking)


def _figures(name: str) -> list[Figure]:
    """In the order in which they are run: those on MNIST first, which take least."""
    if name != _ALL and name not in FIGURES:
        raise unknown("figure", name, (_ALL, *FIGURES))
    asked = list(FIGURES.values()) if name == _ALL else [FIGURES[name]]
    return sorted(asked, key=lambda figure: "mnist" not in figure.comparisons("paper")[0].benchmark)


def _list_runs(figures: Sequence[Figure], tested: Iterable[Reason], scale: str, seeds: int | None) -> list[Experiment]:
    """List the runs of figures, and those that test likely reasons, which have seeds of their own."""
    usual = {figure.name: figure.count_seeds(scale) for figure in figures}
    runs = {run.key: run for run in experiments(figures, scale, seeds) if seeds is None or run.seed < seeds}
    for reason in tested:
        whole = seeds is None or seeds >= usual[reason.figure]
        runs |= {run.key: run for run in reason.experiments() if whole or run.seed < (seeds or 0)}
    return list(runs.values())


def _list_others(folder: Path, figures: Sequence[Figure], tested: Iterable[Reason], scale: str) -> list[Experiment]:
    """List the runs of other figures that the folder was asked for before."""
    try:
        listed = read_grid(folder) or []
    except SelfReminderError:  # damaged: it is written anew
        return []
    most = 1 + max((run.seed for run in listed), default=0)
    own = {run.key for run in _list_runs(figures, tested, scale, most)}
    return [run for run in listed if run.key not in own]


def _check_folder(folder: Path, scale: str) -> None:
    """Refuse what is no folder, and one of other runs, of which a page of this scale would say nothing."""
    if folder.exists() and not folder.is_dir():
        raise SelfReminderError(f"{folder} is a file: choose a folder with --out")
    about = read_about(folder)
    # Where nothing is known: whose folder it is, and whether it may be ours, will be seen.
    if about is not None and about.get("scale") != scale:
        what = f"the paper's figures at scale {about['scale']}" if "scale" in about else "another grid"
        raise SelfReminderError(f"{folder} holds {what}: choose another folder with --out")


def _name_runs(grid: Grid, figures: Iterable[Figure], tested: Iterable[Reason], scale: str, seeds: int | None) -> None:
    """Call each run by the first figure that shows it, or by the claim it is a test of."""
    names: dict[str, str] = {}
    for figure in figures:
        shown = FigureResults(figure, scale, tuple(figure.experiments(scale, seeds)), ())
        for run in shown.wanted:
            names.setdefault(run.key, f"{figure.name}: {shown.name_of(run)} seed {run.seed}")
    for reason in tested:
        for run in reason.experiments():
            names.setdefault(run.key, f"{reason.figure}, why not {reason.claim}: {run.method} seed {run.seed}")
    for job in grid.all:
        job.label = names[job.experiment.key]


def _fetch(names: Iterable[str], scale: str, data_dir: Path | None) -> None:
    """Fetch data sets; where one cannot be had, say which figures do without it."""
    for name in names:
        try:
            fetch(name, data_dir)
        except DataError as error:
            without = [f.name for f in FIGURES.values() if all(name not in e.data_sets for e in f.experiments(scale))]
            more = f"; figures that do without {name}: {', '.join(without)}" if without else ""
            raise DataError(f"{error}{more}") from None


def _draw_early(grid: Grid, figures: Iterable[Figure], scale: str, seeds: int | None) -> Callable[[Job | None], None]:
    """Make what is told a grid's news, and draws a figure when the last of its runs is done."""
    left = {job.experiment.key for job in grid.all if job.answer is None}
    keys = {figure.name: left & {run.key for run in figure.experiments(scale, seeds)} for figure in figures}

    def note(job: Job | None) -> None:
        if job is None or not isinstance(job.answer, Done) or job.experiment.key not in left:
            return
        key = job.experiment.key
        left.remove(key)
        if left and (drawn := [name for name, own in keys.items() if key in own and not own & left]):
            try:
                _read(grid.folder, scale).write(drawn)
            except (OSError, SelfReminderError) as error:  # no reason to stop runs: it is drawn again at the end
                _say([error])

    return note


def _draw_only(folder: Path, scale: str, command: str, as_json: bool) -> int:
    if not folder.is_dir():
        raise SelfReminderError(f"{folder} is no folder: {command} makes it, or name one with --out")
    _check_folder(folder, scale)
    refuse_others(folder, "figure")
    found = _read(folder, scale)
    _say(found.troubles)
    if not found.done:
        raise SelfReminderError(f"{folder} holds no run of the figures at scale {scale} that is done: see {command}")
    found.check_may_write()
    _present(found, found.write(), [], as_json)
    return 1 if found.troubles else 0


def _say(troubles: Iterable[object]) -> None:
    for trouble in troubles:
        print(f"selfreminder: {trouble}", file=sys.stderr)


def _read(folder: Path, scale: str) -> "Reproduction":
    # matplotlib and torch, which a page's gallery needs, take seconds to import: only when there is something to draw.
    from selfreminder.paper.reproduction import read_reproduction  # noqa: PLC0415

    return read_reproduction(folder, scale)


def _present(found: "Reproduction", files: _Files, failures: Sequence[dict[str, Any]], as_json: bool) -> None:
    said = summarize(found.verdicts, found.scale)
    if as_json:
        figures = [
            {
                "figure": shown.figure.name,
                "runs": len(shown.wanted),
                "done": len(shown.runs),
                "files": [str(path) for path in files.get(shown.figure.name, [])],
            }
            for shown in found.shown
        ]
        summary = {
            "scale": found.scale,
            "folder": str(found.folder),
            "page": str(found.page),
            "answer": said,
            "read_again": summarize_read_again(found.verdicts),
            "figures": figures,
            "results": [{"id": verdict.id, **verdict.as_dict()} for verdict in found.verdicts],
            "failures": failures,
        }
        print(json_format.dumps(summary, indent=1, ensure_ascii=False))
        return
    said = f"{said} {summarize_read_again(found.verdicts)}"
    print_rows(said.strip(), [(verdict.id, verdict.verdict, verdict.claim) for verdict in found.verdicts])
    rows = [
        (shown.figure.name, f"{len(shown.runs)} of {len(shown.wanted)} runs", _said(files.get(shown.figure.name, [])))
        for shown in found.shown
    ]
    print_rows("Figures", rows)
    print(f"Page: {found.page}")


def _said(paths: Sequence[Path]) -> str:
    return f"{paths[0].with_suffix('')}.{{{','.join(path.suffix[1:] for path in paths)}}}" if paths else ""
