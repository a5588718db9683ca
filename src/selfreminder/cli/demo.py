"""`selfreminder demo`: see forgetting, and what a few reminders do about it."""

import json as json_format
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from selfreminder._base.sizes import show_bytes
from selfreminder.cli.compare import compare
from selfreminder.cli.folder import report
from selfreminder.cli.grid_command import Running
from selfreminder.cli.terminal import Out

BENCHMARK = "permuted-mnist"
_TOLD = ("adam", "fsr-logit")
"""what the story is about: forgetting, and the reminder"""


def demo(*, out: Out = None, running: Running | None = None) -> int:
    """See a network forget, and remember: ten tasks of real digits, a first look within a minute, then the whole.

    The digits come with selfreminder; nothing is downloaded. Interrupted, the same command goes on where it was.

    Parameters
    ----------
    out
        Folder for records, figures and a page; by default runs/permuted-mnist-demo.
    """
    folder = out or Path("runs") / f"{BENCHMARK}-demo"
    quiet = running is not None and running.json
    if not quiet:
        print("Ten tasks, one after the other: the same digits, each time with their pixels in another order.")
        print("A first look, by one run of two methods: fine-tuning (adam), and with a few reminders (fsr-logit).")
        print("While they learn you see their average: the share of all tasks' test images so far that is right.\n")
        sys.stdout.flush()
    if code := compare(BENCHMARK, methods=",".join(_TOLD), seeds=1, out=folder, running=running):
        return code
    if not quiet:
        print("\nNow the whole, with error bars: four methods, three runs of each.\n", flush=True)
    if code := compare(BENCHMARK, out=folder, running=running):
        return code
    if not quiet:
        report(folder)
        print(_tell(json_format.loads((folder / "results.json").read_text(encoding="utf-8")), folder))
    return 0


def _tell(summary: dict[str, Any], folder: Path) -> str:
    """Say what was seen, and what to type next."""
    by_method = {row["method"]: row for row in summary["results"]}
    (first, average), (first_with, average_with) = (
        (f"{by_method[name]['first_task']['mean']:.0%}", f"{by_method[name]['task_average']['mean']:.0%}")
        for name in _TOLD
    )
    kept = show_bytes(by_method["fsr-logit"]["bytes"])
    command = "selfreminder" if shutil.which("selfreminder") else os.path.relpath(sys.argv[0])
    memory, tasks = summary["memory"], summary["tasks"]
    return f"""
What you saw: a network that goes on learning forgets.
  After {tasks} tasks, plain fine-tuning (adam) is right on {average} of all test images, {first} of the first task's.
  With {memory} and task remembered ({kept} in all), it is {average_with}, {first_with} of the first (fsr-logit).

Next:
  open {folder / "report.html"} in a browser: the same as a page, with every curve
  {command} list                                     all methods, benchmarks and scales
  {command} compare split-mnist                      another benchmark: two new digits at a time
  {command} compare {BENCHMARK} --scale small     more data (fetched if it is not at hand), more methods
  {command} doctor                                   what this machine has
In your own training loop it is three lines: see "The three lines" in README.md."""
