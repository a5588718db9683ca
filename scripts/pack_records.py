"""Pack the records of all runs in a folder into one file, `runs.jsonl`: `python scripts/pack_records.py FOLDER`.

Runs that are packed need no folders any more: report, status, reproduce and the like read the packed file, and
compare, run and reproduce go on from it. Called again, it adds the runs that are done since. The losses of epochs are
left out.
"""

import sys
from pathlib import Path

from selfreminder._base.errors import SelfReminderError
from selfreminder.experiment.folder import check_exists
from selfreminder.experiment.records import PACKED, pack_records


def main(folder: Path) -> None:
    check_exists(folder)
    print(f"{folder / PACKED}: {len(pack_records(folder))} runs")


if __name__ == "__main__":
    try:
        if len(sys.argv) != 2:
            raise SelfReminderError("it takes one folder: python scripts/pack_records.py FOLDER")
        main(Path(sys.argv[1]))
    except SelfReminderError as error:
        print(f"pack_records: {error}", file=sys.stderr)
        sys.exit(2)
