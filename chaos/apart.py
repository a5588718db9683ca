"""Faults, each in a process of its own: whatever it does to that, the campaign goes on."""

import argparse
import json
import math
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from chaos import (  # noqa: F401
    concurrency,
    corruption,
    crashes,
    disk,
    load,
    numbers,
    power,
    strangers,
    strangers_data,
    strangers_guided,
)
from chaos.campaign import FAULTS, KINDS, TRACEBACK, Trial, try_fault
from chaos.trust import describe_row, is_good, write_row


def try_one(name: str, said: argparse.Namespace) -> dict[str, Any]:
    """Try a fault in this process."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    count = FAULTS[name].short if said.short else math.ceil(FAULTS[name].long * said.share)
    os.environ["SELFREMINDER_CACHE"] = str(folder / "cache")
    try:
        row = try_fault(name, Trial(count, folder, random.Random(f"{said.seed} {name}"), said.minutes))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    measure = (
        {"minutes": said.minutes}
        if name.startswith(("fuzzed", "guided"))
        else {"share": min(count / FAULTS[name].long, 1.0)}
    )
    return {**row, **measure, "seconds": round(sum(each.ru_utime + each.ru_stime for each in used), 1)}


def _try_there(place: str, *given: Any) -> None:
    """Try a fault, and write its row, or what went wrong, into a file."""
    with Path(place).open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        row = try_one(*given)
        print("\n" + json.dumps(row), flush=True)


def try_apart(context: Any, name: str, said: argparse.Namespace) -> dict[str, Any]:
    """Try a fault in a process of its own: whatever it does to that, the campaign goes on."""
    with tempfile.TemporaryDirectory(prefix="chaos-row-") as folder:
        place = Path(folder) / "row"
        process = context.Process(target=_try_there, args=(str(place), name, said))
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


def try_all(names: Sequence[str], said: argparse.Namespace) -> int:
    """Try faults, print what came of them, and write it down if that was asked for; 1 if anything went wrong."""
    rows: dict[str, dict[str, Any]] = {}
    shared = tempfile.TemporaryDirectory(prefix="chaos-shared-")
    os.environ["CHAOS_SHARED"] = shared.name
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["chaos.apart"])  # importing torch takes longer than many a fault
    with ThreadPoolExecutor(said.jobs) as pool:
        for future in as_completed([pool.submit(try_apart, context, name, said) for name in names]):
            row = future.result()
            rows[row["fault"]] = row
            print(
                f"{len(rows)} of {len(names)}: {describe_row(row)}; {row['seconds']:.0f} s", file=sys.stderr, flush=True
            )
            if said.write:
                write_row(row)
    bad = [rows[name] for name in names if not is_good(rows[name])]
    for row in bad:
        print(f"{describe_row(row)}\n  " + "\n  ".join(row["examples"]))
    spent = sum(row["seconds"] for row in rows.values()) / 60
    tried = sum(row["tried"] for row in rows.values())
    print(f"{tried} trials of {len(names)} faults, {spent:.1f} minutes of one core; {len(bad)} went wrong")
    return 1 if bad or not names else 0
