"""`python -m chaos.guided`: fuzz each parser, guided by coverage; exit code 1 if anything was found."""

import argparse
import importlib.util
import sys

from chaos.apart import try_all
from chaos.strangers_guided import PARSERS


def main() -> int:
    """Read the command line, fuzz, print, write."""
    parser = argparse.ArgumentParser(prog="python -m chaos.guided", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put what was tried into the table and the page")
    parser.add_argument("--only", default="", help="parsers whose name has this text")
    parser.add_argument("--minutes", type=float, default=1.0, help="for each parser")
    parser.add_argument("--jobs", type=int, default=1, help="parsers at a time")
    parser.add_argument("--seed", type=int, default=0, help="of chance")
    parser.set_defaults(short=False, share=1.0)
    said = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print("chaos.guided: atheris is missing; `make fuzz` has it, or `pip install atheris`", file=sys.stderr)
        return 2
    return try_all([f"guided: {name}" for name in PARSERS if said.only.lower() in name.lower()], said)


if __name__ == "__main__":
    sys.exit(main())
