"""Draw the paper's pages in results/ anew, from the records there: `python scripts/draw_results.py`, or `make results`.

Each page has the verdicts of the other scales too, so that all claims are judged before the first page is written.
"""

import sys
from pathlib import Path

from selfreminder.experiment.folder import read_about
from selfreminder.paper.reproduction import read_reproduction
from selfreminder.paper.scales import CLAIMS

RESULTS = Path(__file__).parents[1] / "results"


def main() -> int:
    folders = sorted(path.parent for path in RESULTS.glob(f"*/{CLAIMS}"))
    found = [read_reproduction(folder, (read_about(folder) or {})["scale"]) for folder in folders]
    if troubles := [trouble for each in found for trouble in each.troubles]:
        print(*troubles, sep="\n", file=sys.stderr)
        return 1
    for each in found:
        each.write_claims()
    for each in found:
        each.write()
        print(each.page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
