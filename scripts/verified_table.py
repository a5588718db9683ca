"""Write the table of results/verified/README.md anew from the runs beside it and from what was published.

    python scripts/verified_table.py results/verified

A row of `published.toml` names a run; its lines in the `.jsonl` files are its seeds, or, of a folder that `selfreminder
run` made, the runs of a method, `name+model` where both are files. What is outside 1.5 points of the published number
is bold, with its `why`.
"""

import json
import sys
import tomllib
from math import isnan, nan, sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from selfreminder.experiment.records import read_packed
from selfreminder.experiment.spec import Experiment

WITHIN = 1.5
BEGIN, END = "<!-- made by scripts/verified_table.py -->", "<!-- end -->"


def make_table(folder: Path) -> str:
    """One line a row: published, ours, how far apart, minutes of a run on one core."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*/runs.jsonl")):
        for run in read_packed(path.parent).values():
            seconds = sum(task.get("seconds", nan) for task in run.timings)
            found = {"mean": mean(run.test[-1]), "cpu_seconds": seconds}
            runs.setdefault(f"{path.parent.name}/{_name(run.experiment)}", []).append(found)
    for path in sorted(folder.glob("*.jsonl")):
        for run in map(json.loads, path.read_text().splitlines()):
            runs.setdefault(f"{path.stem}/{run['run']}", []).append(run)
    lines = ["| | published | ours | apart | minutes a run |", "|---|---|---|---|---|"]
    reasons = []
    for row in tomllib.loads((folder / "published.toml").read_text())["row"]:
        spread = f" ± {row['spread']:.2f}" if "spread" in row else ""
        published, found = f"{row['published']:.2f}{spread} [{row['source']}]", runs.get(row["run"])
        if not found:
            lines.append(f"| {row['run']} | {published} | not run | | |")
            continue
        ours = [100 * run["mean"] for run in found]
        error = f" ± {stdev(ours) / sqrt(len(ours)):.2f}" if len(ours) > 1 else ""
        apart, minutes = mean(ours) - row["published"], mean(run["cpu_seconds"] for run in found) / 60
        outside, took = abs(apart) > WITHIN, "–" if isnan(minutes) else f"{minutes:.1f}"
        shown = f"**{apart:+.2f}**" if outside else f"{apart:+.2f}"
        lines.append(f"| {row['run']} | {published} | {mean(ours):.2f}{error} ({len(ours)}) | {shown} | {took} |")
        if outside:
            reasons.append(f"- {row['run']}, {apart:+.2f}: {row.get('why', 'not looked into')}.")
    return "\n".join([*lines, "", *reasons])


def _name(experiment: Experiment) -> str:
    """Name a method, by its file's name where it has one, and with it that of its model."""
    files = (experiment.method, (experiment.model or "").partition(":")[0])
    return "+".join(Path(name).stem for name in files if name == experiment.method or name.endswith(".py"))


def main(folder: Path) -> None:
    """Put the table between its marks."""
    path = folder / "README.md"
    before, _, rest = path.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n{make_table(folder)}\n{END}{after}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
