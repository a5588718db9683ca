"""Tables on standard output."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def console() -> Console:
    """Standard output, wide enough that nothing is cut: a narrow terminal wraps."""
    found = Console(highlight=False)
    return Console(highlight=False, width=max(found.width, 100) if found.is_terminal else 200)


def print_rows(title: str, rows: Iterable[Sequence[str]]) -> None:
    """A heading and aligned rows."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    for row in rows:
        table.add_row(*(Text(cell, style="bold" if i == 0 else "") for i, cell in enumerate(row)))
    out = console()
    out.print(Text(title, style="bold underline"))
    out.print(table)
    out.print()


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table with headings; the first column to the left, the others to the right."""
    table = Table(box=box.SIMPLE_HEAD)
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="left" if i == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    console().print(table)
