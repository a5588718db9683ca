"""`selfreminder status` and `selfreminder report`: how the runs of a folder stand, and a page of their results."""

import json as json_format
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from selfreminder._base.atomic import write_text
from selfreminder._base.errors import SelfReminderError
from selfreminder.cli.grid_command import failure_lines
from selfreminder.cli.terminal import Flag, Json, Out, print_table, show_time
from selfreminder.experiment.folder import label, varying
from selfreminder.experiment.status import RunStatus, Status, read_status
from selfreminder.experiment.table import list_columns, records
from selfreminder.report.export import write_csv, write_latex, write_results_csv
from selfreminder.report.folder_results import FolderResults, read_folder_results
from selfreminder.report.page import render_comparison


def status(
    folder: Path, *, every: Annotated[bool, Parameter(name=["--all", "-a"], negative="")] = False, json: Json = False
) -> None:
    """Say how the runs of a folder stand: done, running, failed or left, how long it may take, what each node got done.

    It reads files only: a grid that is running is not disturbed.

    Parameters
    ----------
    folder
        Of a `run` or a `compare`.
    every
        List the runs that are done or have not begun too.
    """
    found = read_status(folder)
    if json:
        print(json_format.dumps({"folder": str(folder), **found.as_dict()}, indent=1))
        return
    names = varying(run.experiment for run in found.runs)
    listed = [run for run in found.runs if every or (run.state != "done" and (run.epochs or run.state == "running"))]
    if listed:
        print_table(
            ["run", "state", "task", "epoch", "task average"],
            [[label(run.experiment, names), *_row(run)] for run in listed],
        )
    print(_line(found))
    for line in found.mixed:
        print(line)
    if found.nodes:
        nodes = [node.as_dict() for node in found.nodes]
        names = ("runs", "hours", "workers", "runs_per_hour", "steps_per_second")
        print_table(
            ["node", "runs", "busy hours", "workers", "runs an hour", "steps a second"],
            [[node["node"], *(f"{node[name]:,.4g}" for name in names)] for node in nodes],
        )
    failed = [run for run in found.runs if run.state == "failed"]  # one that is tried again may not fail again
    for line in failure_lines((run.experiment.key, run.failure) for run in failed if run.failure):
        print(line)


def report(folder: Path, *, out: Out = None, csv: Flag = False, latex: Flag = False, pdf: Flag = False) -> None:
    """Make one HTML page of a comparison's records, at any moment: tables, charts, settings, the command.

    The page is a single file that needs no network. Where runs learned different tasks, each stream of tasks has its
    own tables and charts.

    Parameters
    ----------
    folder
        The folder of a comparison or a grid, done or running.
    out
        The file to write; by default report.html in the folder. The files below come beside it.
    csv
        Write results.csv, a row for each method, and records.csv, all that was measured.
    latex
        Write the table of results as results.tex.
    pdf
        Draw accuracy.pdf and costs.pdf.
    """
    found = read_folder_results(folder)
    path = out or folder / "report.html"
    if path.is_dir():
        raise SelfReminderError(f"{path} is a folder: name a file, such as {path / 'report.html'}")
    write_text(path, render_comparison(found))
    print(f"Report: {path}, {found.done} of {len(found.experiments)} runs done")
    if (latex or pdf) and not found.done:
        print("No run is done: there are no results to write yet")
    for written in _export(found, folder, path.parent, csv=csv, latex=latex, pdf=pdf):
        print(f"Wrote {written}")
    if redraw := found.origin.redraw:
        print(f"The paper's figures and claims: {redraw} --out {shlex.quote(str(folder))}")


def _export(found: FolderResults, folder: Path, into: Path, *, csv: bool, latex: bool, pdf: bool) -> Iterator[Path]:
    """Write what is asked for, a file for each stream of tasks where there are several; gives their paths."""
    texts: dict[str, str] = {}
    if csv:
        texts["records.csv"] = write_csv(records(folder), list(list_columns()))
    streams = {name: each for name, each in found.streams.items() if each.results}
    for name, each in streams.items():
        ending = "" if len(streams) == 1 else "-" + re.sub(r"\W+", "-", name).strip("-")
        if csv:
            texts[f"results{ending}.csv"] = write_results_csv(each.results)
        if latex:
            texts[f"results{ending}.tex"] = write_latex(each.results)
        if pdf:
            # matplotlib takes half a second to import: only when there is something to draw.
            from selfreminder.report.figures import draw_accuracy, draw_costs  # noqa: PLC0415

            yield from draw_accuracy(each.results, name, into / f"accuracy{ending}", ("pdf",))
            yield from draw_costs(each.results, name, into / f"costs{ending}", ("pdf",))
    for name, text in texts.items():
        write_text(into / name, text)
        yield into / name


def _row(run: RunStatus) -> list[str]:
    spec = run.experiment
    average = "-" if run.average is None else f"{run.average:.3f}"
    if run.state != "running" and not run.epochs and not run.tasks:
        return [run.state, "-", "-", average]
    # What is being done: after a task's last epoch, that task is being looked at.
    task, epoch = (min(done + 1, most) for done, most in ((run.tasks, spec.tasks), (run.epoch, spec.epochs)))
    return [run.state, f"{task}/{spec.tasks}", "-" if run.state == "done" else f"{epoch}/{spec.epochs}", average]


def _line(found: Status) -> str:
    running, waiting = found.count("running"), found.count("left")
    line = f"{found.count('done')} of {len(found.runs)} runs done, {running} running, "
    line += f"{found.count('failed')} failed, {waiting} left"
    line += f", about {found.to_come} to come" if found.to_come else ""
    if running:
        line += f"; {show_time(found.seconds_left)} left"
    elif waiting or found.to_come:
        line += f"; {show_time(found.work_left)} of work left for one process: start the same command again"
    if found.others:
        line += f" ({found.others} more in the folder, of earlier grids or ended early)"
    return line
