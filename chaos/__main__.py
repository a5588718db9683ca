"""`python -m chaos`: try every fault, print the table, and write it down; exit code 1 if anything went wrong."""

import argparse
import sys

from chaos.apart import try_all
from chaos.campaign import FAULTS


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
    if said.short:
        said.minutes = 0.03
    names = [
        name
        for name, fault in FAULTS.items()
        if said.only.lower() in f"{fault.group} {name}".lower() and (fault.short if said.short else fault.long)
    ]
    return try_all(names, said)


if __name__ == "__main__":
    sys.exit(main())
