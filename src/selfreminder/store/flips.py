"""The very items that flipped between two versions, as a block of a page: pictures, or rows of numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import torch
from torch import Tensor

from selfreminder import report
from selfreminder.report.html import element, note, section, table
from selfreminder.store.gate import Slice
from selfreminder.store.heldout import HeldOut

MOST = 50
"""items that a page shows"""
_MOST_COLUMNS = 6
_MOST_LETTERS = 200
_MOST_NUMBERS = 8


def flips_block(slices: Sequence[Slice], heldout: HeldOut, classes: Sequence[str], most: int = MOST) -> Element | None:
    """Show what was right and is wrong, of every slice; None where nothing is."""
    found = [(each, row) for each in slices for row in each.worse.nonzero().flatten().tolist()]
    if not found:
        return None
    kept = {item: row for row, item in enumerate(heldout.items.tolist())}
    # In turn of every slice, so that a large one leaves room for the others.
    turns = sorted(found, key=lambda pair: (int(pair[0].worse[: pair[1]].sum()), slices.index(pair[0])))
    shown = [(each, row, kept[int(each.ids[row])]) for each, row in turns if int(each.ids[row]) in kept][:most]
    shown.sort(key=lambda item: (slices.index(item[0]), item[2]))
    count = f"{len(found):,} item{'s' if len(found) > 1 else ''} {'were' if len(found) > 1 else 'was'} right before"
    said = f"{count} and {'are' if len(found) > 1 else 'is'} wrong now" + (
        f"; {len(shown)} are shown, in turn of every slice." if len(shown) < len(found) else "."
    )
    if not shown:
        return section("What flipped", note(said))
    where = torch.tensor([row for *_, row in shown])
    inputs = {name: x.decode(where) for name, x in heldout.inputs.items()}
    answers = [_say(each, row, classes) for each, row, _ in shown]
    cards = _make_cards(inputs, shown, answers)
    body = _make_table(inputs, heldout, shown, answers) if cards is None else cards
    return section("What flipped", note(said), body)


def _say(each: Slice, row: int, classes: Sequence[str]) -> tuple[str, str]:
    """What was right, and what is said now."""
    return _name(int(each.truth[row]), classes), _name(int(each.after[row]), classes)


def _name(label: int, classes: Sequence[str]) -> str:
    return classes[label] if 0 <= label < len(classes) else str(label)


def _make_cards(
    inputs: dict[str, Tensor], shown: Sequence[tuple[Slice, int, int]], answers: Sequence[tuple[str, str]]
) -> Element | None:
    """Pictures with what was said of them; None where inputs are none, or Pillow is not installed."""
    try:
        from selfreminder.report.gallery import show_image  # noqa: PLC0415 (Pillow is of the extra cli)
        from selfreminder.report.pictures import pictures  # noqa: PLC0415
    except ImportError:
        return None
    seen = {name: found for name, x in inputs.items() if (found := pictures(x)) is not None}
    if not seen:
        return None
    cards = []
    for place, ((each, row, _), (right, said)) in enumerate(zip(shown, answers)):
        item = int(each.ids[row])
        images = [show_image(found, place, f"item {item}, {right}, taken for {said}") for found in seen.values()]
        cards.append(
            element(
                "div",
                element("div", *images, class_="view"),
                element("p", element("b", right), element("span", f"now {said}", title=said)),
                element("p", element("span", f"{each.name}, item {item}")),
                class_="item",
            )
        )
    style = element("style", (Path(report.__file__).parent / "gallery.css").read_text(encoding="utf-8"))
    return element("div", style, element("div", *cards, class_="items"), class_="gallery")


def _make_table(
    inputs: dict[str, Tensor],
    heldout: HeldOut,
    shown: Sequence[tuple[Slice, int, int]],
    answers: Sequence[tuple[str, str]],
) -> Element:
    columns = list(heldout.columns)[:_MOST_COLUMNS]
    rows = []
    for place, ((each, row, kept), (right, said)) in enumerate(zip(shown, answers)):
        values = [_shorten(heldout.columns[name][kept] or "–") for name in columns]
        numbers = "; ".join(_show_numbers(name, x[place], len(inputs) > 1) for name, x in inputs.items())
        rows.append([f"{each.name}, item {int(each.ids[row])}", right, said, *values, numbers])
    headings = ["Item", "Right", "Now", *columns, "Input"]
    return table(headings, rows, "Right before, wrong now", words=headings[1:])


def _show_numbers(name: str, x: Tensor, named: bool) -> str:
    flat: list[Any] = x.flatten()[:_MOST_NUMBERS].tolist()
    shown = " ".join(f"{value:.3g}" if isinstance(value, float) else str(value) for value in flat).replace("-", "−")
    more = f" … ({' × '.join(map(str, x.shape))})" if x.numel() > _MOST_NUMBERS else ""
    return f"{name}: {shown}{more}" if named else shown + more


def _shorten(words: str) -> str:
    return words if len(words) <= _MOST_LETTERS else f"{words[: _MOST_LETTERS - 1]}…"
