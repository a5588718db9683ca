"""Write what is computed of the committed results into their pages: `python scripts/results_tables.py`.

- `<!-- standing -->`, in README.md and results/README.md: how many of the paper's claims hold, each at the largest
  scale at which it was judged, by the `claims.json` of results/.
- `<!-- verdicts -->`, in results/README.md: each claim's verdict at that scale, the seeds and runs that it rests on,
  the core-hours of these and their processors, as far as records say.
- `<!-- fairness -->`, in results/README.md: how each method was tuned, by `tuned.toml` and the methods that the paper's
  figures show: what was searched, over how many candidates and seeds, and whether the choice is at the edge of those.

Each goes between two such lines.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from selfreminder._base.atomic import write_text
from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks import SCALES
from selfreminder.experiment.folder import read_about, show
from selfreminder.experiment.tuning.tuned import TUNED, read_table
from selfreminder.paper.scales import CLAIMS
from selfreminder.paper.specs import FIGURES

ROOT = Path(__file__).parents[1]
_SAID = {
    "held": "{} hold",
    "contradicted": "{} are contradicted",
    "too few to tell": "{} have too few seeds to tell",
    "not enough data": "{} cannot be judged",
}
_SCALES = ("small", "paper")
"""at which there are results"""
_USUAL_SEEDS = (100, 101)
_HEADINGS = ("benchmark", "scale", "method", "searched", "candidates", "seeds", "chosen", "at an edge")
_OF_VERDICTS = ("rule", "verdict", "scale", "seeds", "runs", "core-hours", "processor")
_NOTHING = ("–", "0", "–")


# How the claims stand -----------------------------------------------------------------------------------------


def read_standing(results: Path) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Read of every claim the largest scale at which it was judged, and what `claims.json` says of it there."""
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    folders = {(read_about(path.parent) or {}).get("scale"): path for path in results.glob(f"*/{CLAIMS}")}
    for scale in SCALES:  # from the smallest
        if (path := folders.get(scale)) is None:
            continue
        for id, each in json.loads(path.read_text(encoding="utf-8")).items():
            if id not in found or each["verdict"] != "not enough data":
                found[id] = scale, each
    return found


def describe_standing(results: Path) -> tuple[str, str]:
    """Say how many claims hold, and at which scale: by the first rules, and by those that were written later."""
    standing = read_standing(results).values()
    first, again = (
        [(each["verdict"], scale) for scale, each in standing if ("read_again" in each) == later]
        for later in (False, True)
    )
    return (
        f"Of the paper's {len(first)} claims, each at the largest scale at which it was judged, {_tally(first)}.\n",
        f"By {len(again)} rules written later, where the text says more or less than the first rule asks for, "
        f"{_tally(again)}.\n",
    )


def _tally(verdicts: list[tuple[str, str]]) -> str:
    said = []
    for verdict, words in _SAID.items():
        scales = Counter(scale for each, scale in verdicts if each == verdict)
        if scales:
            where = " and ".join(f"{count} at `{scale}`" for scale, count in scales.items())
            said.append(f"{words.format(scales.total())} ({where})")
    return ", ".join(said)


def tabulate_verdicts(results: Path) -> str:
    """Make the table of what each verdict rests on."""
    rows = [_OF_VERDICTS, ("---",) * len(_OF_VERDICTS)]
    for id, (scale, each) in read_standing(results).items():
        runs, timed = each["runs"], each["timed"]
        hours = (
            f"{each['hours']:.2g}" + ("" if timed == runs else f" ({timed} of {runs} runs)")
            if timed
            else "not recorded"
        )
        kinds = [
            f"{name} ({count})" if len(each["processors"]) > 1 else name for name, count in each["processors"].items()
        ]
        if not runs:
            hours, kinds = "–", ["–"]
        rows.append((id, each["verdict"], scale, str(each["seeds"] or "–"), str(runs or "–"), hours, ", ".join(kinds)))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


# How methods were tuned ---------------------------------------------------------------------------------------


def tabulate_fairness() -> str:
    """Make the table of how each method was tuned."""
    rows = [_HEADINGS, ("---",) * len(_HEADINGS), *_rows()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _rows() -> Iterator[tuple[str, ...]]:
    table = read_table(TUNED)
    runs = [run for scale in _SCALES for figure in FIGURES.values() for run in figure.experiments(scale)]
    benchmarks = dict.fromkeys(run.benchmark for run in runs)
    for benchmark in benchmarks:
        for scale in _SCALES:
            methods = dict.fromkeys(
                run.method
                for figure in FIGURES.values()
                for run in figure.experiments(scale)
                if run.benchmark == benchmark
            )
            found: dict[tuple[str, ...], list[str]] = {}
            for method in methods:
                entry = table.get(benchmark, {}).get(scale, {}).get(method, {})
                found.setdefault(_describe(entry), []).append(method)
                sizes = entry.get("at_per_class", {})
                for size in sorted(sizes, key=int):
                    found.setdefault(_describe(sizes[size]), []).append(f"{method} ({size} per class)")
            for described, names in found.items():
                yield (benchmark, scale, ", ".join(names), *described)


def _describe(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what was searched, with how many candidates and seeds, what was chosen, and whether at an edge."""
    chosen = {name: entry[name] for name in ("strength", "lr", "batch_size") if name in entry}
    said = ", ".join(f"{_NAMES[name]} {show(value)}" for name, value in chosen.items()) or "the default"
    if "validation" not in entry:
        by = f"{said} (by {entry['by']})" if "by" in entry else said
        return (*_NOTHING, by, "not searched")
    trials = list(_trials(entry))
    tried = {name: sorted({trial[name] for trial in trials if name in trial}) for name in chosen}
    searched = ", ".join(_NAMES[name] for name, values in tried.items() if len(values) > 1) or "one candidate"
    where = "".join(f"; {value} {name}" for name, value in entry.get("where", {}).items())
    unfinished = len(entry.get("unfinished", {}))
    count = f"{len(trials)}, of which {unfinished} came to no end" if unfinished else str(len(trials))
    edges = [_edge(name, chosen[name], values) for name, values in tried.items()]
    return (
        searched,
        count,
        f"{len(entry.get('seeds', _USUAL_SEEDS))}{where}",
        said,
        "; ".join(filter(None, edges)) or "no",
    )


def _trials(entry: Mapping[str, Any]) -> Iterator[dict[str, float]]:
    """Give the settings of each trial, of those that came to no end too."""
    for said in entry.get("unfinished", {}):
        words = said.split()
        yield {name: float(value) for name, value in zip(words[::2], words[1::2])}
    if isinstance(entry["validation"], list):
        for trial in entry["validation"]:
            yield {name: value for name, value in trial.items() if name in _NAMES}
        return
    (name,) = entry.get("fields", ["strength" if "strength" in entry else "lr"])
    for value in entry["validation"]:
        yield {name: float(value)}


def _edge(name: str, chosen: float, tried: list[float]) -> str:
    if len(tried) < 2:
        return f"{_NAMES[name]}: one value"
    end = {min(tried): "the smallest", max(tried): "the largest"}.get(chosen)
    return f"{_NAMES[name]}: {end} of {len(tried)}" if end else ""


_NAMES = {"strength": "λ", "lr": "step size", "batch_size": "batch"}


# Pages --------------------------------------------------------------------------------------------------------


def fill_pages() -> dict[Path, str]:
    """Make the text of each page with what is computed in its place."""
    first, again = describe_standing(ROOT / "results")
    pages = {
        ROOT / "README.md": {"standing": first},
        ROOT / "results" / "README.md": {
            "standing": first + again,
            "verdicts": tabulate_verdicts(ROOT / "results"),
            "fairness": tabulate_fairness(),
        },
    }
    return {path: _fill(path, blocks) for path, blocks in pages.items()}


def _fill(path: Path, blocks: Mapping[str, str]) -> str:
    text = path.read_text(encoding="utf-8")
    for name, block in blocks.items():
        mark = f"<!-- {name} -->\n"
        if text.count(mark) != 2:
            raise SelfReminderError(f"{path} has not two lines {mark.strip()}: what is computed goes between them")
        before, _, after = text.split(mark)
        text = f"{before}{mark}{block}{mark}{after}"
    return text


if __name__ == "__main__":
    try:
        for page, text in fill_pages().items():
            write_text(page, text)
    except (SelfReminderError, OSError) as error:
        print(f"results_tables: {error}", file=sys.stderr)
        sys.exit(2)
