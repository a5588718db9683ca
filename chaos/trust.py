"""`docs/trust.md`, made of the campaign's table."""

import json
from typing import Any

from chaos.campaign import BAD, FAULTS, NOTICED, ROOT
from selfreminder._base.atomic import write_text
from selfreminder._base.lock import locked_file

TABLE = ROOT / "chaos" / "table.json"
TRUST = ROOT / "docs" / "trust.md"
_COLUMNS = ("tried", NOTICED, *BAD)
_HEAD = """# What selfreminder withstands
This page is made by `make chaos`, which tries faults by the thousand and counts what came of them: all at once, or a
part of them by `python -m chaos --only … --share … --write`, which replaces their rows; what is *guided*, by coverage,
is of `make fuzz`. What is *noticed* was said in a line; what is neither that nor in the last three columns did no harm.
*Lost* is work or a deletion that is gone after the same command was given again, *silently wrong* another result than
without the fault, *traceback* any end that is not a plain line: a crash, a hang or gigabytes of memory included. The
last three columns must be zero, and what is measured within its limit; else `make chaos` ends with 1. [The threat
model](threat-model.md) says who may give us what.
"""


def write_row(row: dict[str, Any]) -> None:
    """Put a row into the table, in the order of the campaign's faults, and make the page of it."""
    with locked_file(TABLE):  # another part of the campaign may be under way
        known = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else []
        rows = {each["fault"]: each for each in (*known, row)}
        table = [rows[name] for name in FAULTS if name in rows]
        write_text(TABLE, json.dumps(table, indent=1, ensure_ascii=False) + "\n")
        write_text(TRUST, render(table))


def is_good(row: dict[str, Any]) -> bool:
    """Tell whether nothing was lost, silently wrong, a traceback, or beyond its limit."""
    return not any(row[kind] for kind in BAD) and all(m["number"] <= m["limit"] for m in row["measured"])


def describe_row(row: dict[str, Any]) -> str:
    """Write a row in one line."""
    measured = "".join(f", {m['what']} {m['number']:g} (limit {m['limit']:g})" for m in row["measured"])
    edges = f", {row['edges']} edges" if "edges" in row else ""
    return f"{row['fault']}: " + ", ".join(f"{row[kind]} {kind}" for kind in _COLUMNS) + measured + edges


def render(rows: list[dict[str, Any]]) -> str:
    """Write the page."""
    bad = [row for row in rows if not is_good(row)]
    tried = sum(row["tried"] for row in rows)
    shares = sorted(row["share"] for row in rows if "share" in row) or [1.0]
    seconds = sorted(60 * row["minutes"] for row in rows if "minutes" in row) or [0.0]
    parts = [
        _HEAD,
        f"{tried:,} trials of {len(rows)} faults, the last of each: {_range(shares, '.0%')} of the long form's counts "
        f"(the median is {shares[len(shares) // 2]:.0%}), and {_range(seconds, '.0f')} seconds for each fuzzed parser, "
        f"for which the long form has a minute. {str(len(bad) or 'None').capitalize()} of the faults did harm.\n",
    ]
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    for group, listed in groups.items():
        parts.append(f"## {group}\n| fault | {' | '.join(_COLUMNS)} |\n|---|{'---:|' * len(_COLUMNS)}")
        parts += [f"| {row['fault']} | {' | '.join(f'{row[kind]:,}' for kind in _COLUMNS)} |" for row in listed]
        measured = [(row["fault"], each) for row in listed for each in row["measured"]]
        if measured:
            parts.append("\n| measured | | number | limit |\n|---|---|---:|---:|")
            parts += [f"| {fault} | {m['what']} | {m['number']:g} | {m['limit']:g} |" for fault, m in measured]
        parts.append("")
    return "\n".join(parts)


def _range(values: list[float], form: str) -> str:
    least, most = format(values[0], form), format(values[-1], form)
    return least if least == most else f"{least} to {most}"
