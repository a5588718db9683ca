"""`python -m chaos`: try every fault, print the table, and write it down; exit code 1 if anything went wrong."""

import argparse
import multiprocessing
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from chaos.apart import try_apart
from chaos.campaign import FAULTS
from chaos.trust import describe_row, is_good, write_row


def main() -> int:
    """Read the command line, try, print, write."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few of each, within three minutes; nothing is written")
    parser.add_argument("--write", action="store_true", help="put what was tried into the table and the page")
    parser.add_argument("--only", default="", help="faults whose name or group has this text")
    parser.add_argument("--minutes", type=float, default=1.0, help="for each fuzzed parser, in the long form")
    parser.add_argument("--share", type=float, default=1.0, help="of the long form's trials")
    parser.add_argument("--jobs", type=int, default=2, help="faults at a time")
    parser.add_argument("--seed", type=int, default=0, help="of chance")
    said = parser.parse_args()
    minutes = 0.03 if said.short else said.minutes
    names = [
        name
        for name, fault in FAULTS.items()
        if said.only.lower() in f"{fault.group} {name}".lower() and (fault.short if said.short else fault.long)
    ]
    rows: dict[str, dict[str, Any]] = {}
    shared = tempfile.TemporaryDirectory(prefix="chaos-shared-")
    os.environ["CHAOS_SHARED"] = shared.name
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["chaos.apart"])  # importing torch takes longer than many a fault
    with ThreadPoolExecutor(said.jobs) as pool:
        for future in as_completed([pool.submit(try_apart, context, name, said, minutes) for name in names]):
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


if __name__ == "__main__":
    sys.exit(main())
