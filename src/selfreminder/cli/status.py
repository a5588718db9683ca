"""`selfreminder status`: how the runs of a folder stand, at any moment."""

import json as json_format
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from selfreminder.cli.grid_command import failure_lines
from selfreminder.cli.terminal import print_table, show_time
from selfreminder.experiment.folder import label, varying
from selfreminder.experiment.status import RunStatus, Status, read_status


def show(
    folder: Path, *, every: Annotated[bool, Parameter(name=["--all", "-a"], negative="")] = False, json: bool = False
) -> None:
    """Say how the runs of a folder stand: done, running, failed or left, and how long it may take.

    It reads files only: a grid that is running is not disturbed.

    Parameters
    ----------
    folder
        Of a `run` or a `compare`.
    every
        List the runs that are done or have not begun too.
    json
        Print JSON.
    """
    found = read_status(folder)
    if json:
        print(json_format.dumps(_summary(folder, found), indent=1))
        return
    names = varying(run.experiment for run in found.runs)
    listed = [run for run in found.runs if every or (run.state != "done" and (run.epochs or run.state == "running"))]
    if listed:
        print_table(
            ["run", "state", "task", "epoch", "task average"],
            [[label(run.experiment, names), *_row(run)] for run in listed],
        )
    print(_line(found))
    failed = [run for run in found.runs if run.state == "failed"]  # one that is tried again may not fail again
    for line in failure_lines((run.experiment.key, run.failure) for run in failed if run.failure):
        print(line)


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


def _summary(folder: Path, found: Status) -> dict[str, object]:
    counts = {state: found.count(state) for state in ("done", "running", "failed", "left")}
    times = {"seconds_left": found.seconds_left, "work_left": found.work_left}
    return {
        "folder": str(folder),
        **counts,
        "others": found.others,
        "to_come": found.to_come,
        **times,
        "results": [run.as_dict() for run in found.runs],
    }
