"""Results for papers and spreadsheets: CSV of results and of records, and a table in LaTeX."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from selfreminder._base.sizes import show_bytes
from selfreminder.report.results import Estimate, Result

_ESTIMATES = (
    *("task_average", "first_task", "forgetting", "rho", "backward_transfer", "forward_transfer", "intransigence"),
    *("negative_flips", "anytime", "calibration_error", "validation", "steps", "passes", "seconds"),
)
_LATEX = {
    "Average": "task_average",
    "First task": "first_task",
    "Forgetting": "forgetting",
    r"$\rho$": "rho",
    "ECE": "calibration_error",
}
"""columns of accuracies and the like, by their headings"""
_SPECIAL = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "λ": r"$\lambda$"}


def write_results_csv(results: Iterable[Result]) -> str:
    """Write results as CSV, one row each: every measure as mean and standard error, empty where there is none."""
    rows = []
    for result in results:
        row: dict[str, Any] = {"name": result.name, "method": result.method, "seeds": result.seeds}
        for name in _ESTIMATES:
            found: Estimate | None = getattr(result, name)
            row |= {name: found and found.mean, f"{name}_stderr": found and found.stderr}
        rows.append(row | {"bytes": result.bytes, "peak_bytes": result.peak_bytes})
    return write_csv(rows, list(rows[0]) if rows else [])


def write_csv(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Write rows as CSV; what has no value is empty.

    >>> write_csv([{"a": 1, "b": None}], ["a", "b"])
    'a,b\\n1,\\n'
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: as_cell(row.get(name)) for name in columns} for row in rows)
    return text.getvalue()


def as_cell(value: object) -> object:
    """What a spreadsheet shows as it is: to such a program, a text that begins like this is a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def write_latex(results: Sequence[Result]) -> str:
    """Write results as a LaTeX tabular that needs no package; the best average that is no reference is bold."""
    shown = {heading: name for heading, name in _LATEX.items() if any(getattr(result, name) for result in results)}
    with_time = any(result.seconds for result in results)
    best = next((result for result in results if not result.is_reference), None)
    lines = [
        rf"\begin{{tabular}}{{l{'r' * (len(shown) + 1 + with_time)}}}",
        r"\hline",
        " & ".join(["Method", *shown, "Bytes", *(["Seconds"] if with_time else [])]) + r" \\",
        r"\hline",
    ]
    for result in results:
        cells = [_write_estimate(getattr(result, name)) for name in shown.values()]
        if result is best:
            cells[0] = rf"\textbf{{{cells[0]}}}"
        cells.append(show_bytes(result.bytes))
        if with_time:
            cells.append("--" if result.seconds is None else f"{result.seconds.mean:.3g}")
        lines.append(" & ".join([_escape(result.name), *cells]) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}"]) + "\n"


def _write_estimate(estimate: Estimate | None) -> str:
    if estimate is None:
        return "--"
    return f"{estimate.mean:.3f}" + ("" if estimate.stderr is None else rf" $\pm$ {estimate.stderr:.3f}")


def _escape(text: str) -> str:
    return "".join(_SPECIAL.get(letter, letter) for letter in text)
