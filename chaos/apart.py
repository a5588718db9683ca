"""One fault in a process of its own: whatever it does to that, the campaign goes on."""

import argparse
import json
import math
import os
import random
import resource
import shutil
import tempfile
from pathlib import Path
from typing import Any

from chaos import concurrency, corruption, crashes, disk, load, numbers, power, strangers, strangers_data  # noqa: F401
from chaos.campaign import FAULTS, KINDS, TRACEBACK, Trial, try_fault


def try_one(name: str, said: argparse.Namespace, minutes: float) -> dict[str, Any]:
    """Try a fault in this process."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    count = FAULTS[name].short if said.short else math.ceil(FAULTS[name].long * said.share)
    os.environ["SELFREMINDER_CACHE"] = str(folder / "cache")
    try:
        row = try_fault(name, Trial(count, folder, random.Random(f"{said.seed} {name}"), minutes))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    measure = {"minutes": minutes} if name.startswith("fuzzed") else {"share": min(count / FAULTS[name].long, 1.0)}
    return {**row, **measure, "seconds": round(sum(each.ru_utime + each.ru_stime for each in used), 1)}


def _try_there(place: str, *given: Any) -> None:
    """Try a fault, and write its row, or what went wrong, into a file."""
    with Path(place).open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        row = try_one(*given)
        print("\n" + json.dumps(row), flush=True)


def try_apart(context: Any, name: str, said: argparse.Namespace, minutes: float) -> dict[str, Any]:
    """Try a fault in a process of its own: whatever it does to that, the campaign goes on."""
    with tempfile.TemporaryDirectory(prefix="chaos-row-") as folder:
        place = Path(folder) / "row"
        process = context.Process(target=_try_there, args=(str(place), name, said, minutes))
        process.start()
        process.join()
        printed = place.read_text(encoding="utf-8", errors="replace") if place.exists() else ""
    try:
        if process.exitcode:
            raise ValueError(process.exitcode)
        return json.loads(printed.splitlines()[-1])
    except (IndexError, ValueError):
        why = f"the trial itself ended with {process.exitcode}: {printed.strip()[-1500:]}"
        row = {"group": FAULTS[name].group, "fault": name, "tried": 1, **dict.fromkeys(KINDS, 0), "measured": []}
        return {**row, TRACEBACK: 1, "examples": [why], "seconds": 0.0}
