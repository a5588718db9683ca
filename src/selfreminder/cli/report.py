"""`selfreminder report`: a comparison as one HTML page."""

import shlex
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from selfreminder._base.atomic import write_text
from selfreminder._base.errors import SelfReminderError
from selfreminder.report.folder_results import read_folder_results
from selfreminder.report.page import render_comparison


def report(folder: Path, *, out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None) -> None:
    """Make one HTML page of a comparison's records, at any moment: tables, charts, settings, the command.

    The page is a single file that needs no network. Where runs learned different tasks, each stream of tasks has its
    own tables and charts.

    Parameters
    ----------
    folder
        The folder of a comparison or a grid, done or running.
    out
        The file to write; by default report.html in the folder.
    """
    found = read_folder_results(folder)
    path = out or folder / "report.html"
    if path.is_dir():
        raise SelfReminderError(f"{path} is a folder: name a file, such as {path / 'report.html'}")
    write_text(path, render_comparison(found))
    print(f"Report: {path}, {found.done} of {len(found.experiments)} runs done")
    if redraw := found.origin.redraw:
        print(f"The paper's figures and claims: {redraw} --out {shlex.quote(str(folder))}")
