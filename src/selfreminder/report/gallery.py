"""A memory to look at: its items by task and class, each with its picture and its logits."""

import base64
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import torch
from torch import Tensor

from selfreminder import __version__
from selfreminder._base.sizes import share_evenly, show_bytes
from selfreminder.memory.memory import Memory
from selfreminder.memory.query import describe_items
from selfreminder.report.html import Child, decimal, document, element, note
from selfreminder.report.pictures import Pictures, pictures, png

MOST = 500
"""items that a page shows, unless told otherwise"""
_SIDE = 64
"""pixels of the longest side of a picture on the page"""
_WIDTH, _HEIGHT = 84, 64
_TOP, _BOTTOM, _BOTTOM_OF_NAMED = 7, 63, 54
_MOST_NAMED, _MOST_BARS, _LARGEST = 10, 100, 40
"""classes up to which bars have names; up to which all are drawn; else so many of the largest"""
_MOST_VALUES = 8
_MOST_IN_A_ROW = 6
_FEW_TASKS = 3
"""to which nobody needs links"""


def render_gallery(memory: Memory, title: str, *, most: int = MOST) -> str:
    """Write a memory as an HTML page, in one file that needs nothing beside it.

    Args:
        memory: whose items are shown, by task and class.
        title: of the page.
        most: items that are shown at most, evenly of tasks and classes.
    """
    about = f"{_count(len(memory), 'item')} of {_count(len(memory.counts), 'task')}"
    if len(memory):
        about += f", {memory.item_nbytes:,} bytes each, {show_bytes(memory.nbytes)} in all"
    kept = [f"{name} of shape {x.shape} by codec {x.codec}" for name, x in memory.inputs.items()]
    logits = f"{_count(memory.kept_logits.shape[0], 'logit')} by {memory.kept_logits.codec}"
    header = element(
        "header",
        element("h1", title),
        element("p", about, class_="answer"),
        note(f"Kept: {'; '.join([*kept, logits])}.") if len(memory) else None,
    )
    footer = element("footer", note(f"Made by selfreminder {__version__}."))
    return document(title, [header, gallery(memory, most=most), footer])


def gallery(memory: Memory, *, most: int = MOST) -> Element:
    """Show items of a memory, at most so many, evenly of tasks and classes: a block for any page of `document`."""
    style = element("style", (Path(__file__).parent / "gallery.css").read_text(encoding="utf-8"))
    if not len(memory):
        return element("div", style, note("The memory is empty."), class_="gallery")
    shown = take_evenly(memory, most)
    inputs = shown.read().inputs
    seen = {name: pictures(x) for name, x in inputs.items()}
    logits = [z[:width] for z, width in zip(shown.logits.tolist(), shown.widths.tolist())]
    cards: dict[int, dict[int | None, list[Element]]] = {}
    for row, (item, z) in enumerate(zip(describe_items(shown), logits)):
        card = _card(row, item, z, inputs, seen)
        cards.setdefault(item["task"], {}).setdefault(item["label"], []).append(card)
    links = [element("a", f"Task {task}", href=f"#task-{task}") for task in shown.counts]
    left_out = f"{len(shown):,} of {len(memory):,} items are shown, evenly of every task and of its classes."
    return element(
        "div",
        style,
        *_caption(shown, seen),
        note(left_out) if len(shown) < len(memory) else None,
        element("nav", *links, aria_label="Tasks") if len(links) > _FEW_TASKS else None,
        *(_task(task, by_label, memory.counts[task]) for task, by_label in cards.items()),
        class_="gallery",
    )


def take_evenly(memory: Memory, most: int) -> Memory:
    """Take at most so many items, evenly of every task, and there of every class."""
    groups: dict[int, dict[int, list[int]]] = {}
    for row, (task, label) in enumerate(zip(memory.tasks.tolist(), memory.labels.tolist())):
        groups.setdefault(task, {}).setdefault(label, []).append(row)
    chosen: list[int] = []
    of_tasks = share_evenly(most, [sum(map(len, classes.values())) for classes in groups.values()])
    for of_task, classes in zip(of_tasks, groups.values()):
        shares = share_evenly(of_task, [len(rows) for rows in classes.values()])
        chosen += [row for share, rows in zip(shares, classes.values()) for row in rows[:share]]
    return memory.take(torch.tensor(sorted(chosen), dtype=torch.long, device=memory.device))


def _caption(shown: Memory, seen: dict[str, Pictures | None]) -> list[Element]:
    bars = "one bar a class" if shown.logits.shape[1] <= _MOST_BARS else f"the {_LARGEST} largest, in order of class"
    illustrated = any(found is not None for found in seen.values())
    said: list[Child] = [
        "Beside each picture, the logits that the model gave it: "
        if illustrated
        else "The logits that the model gave each item: ",
        f"{bars}, each item on a scale of its own; ▾ marks the largest. ",
        element("span", element("span", class_="key label"), "The label."),
        " ",
        element("span", element("span", class_="key other"), "The largest,"),
        " where that is not the label.",
    ]
    texts = []
    if illustrated:
        texts.append(
            "Pictures show inputs as they are kept. Where a benchmark puts pixels in another order, they look like "
            "noise: that is what they are."
        )
    for name, found in seen.items():
        if found is not None and found.stretched:
            low, high = (f"{value:.3g}".replace("-", "−") for value in (found.low, found.high))
            texts.append(f"Values of {name} run from {low} (shown darkest) to {high} (shown brightest).")
    return [element("p", *said, class_="note"), *([note(" ".join(texts))] if texts else [])]


def _task(task: int, cards: dict[int | None, list[Element]], in_all: int) -> Element:
    """Show a task's items by class; `in_all` is how many it has, those that are not shown among them."""
    labels = sorted(cards, key=lambda label: (label is None, label))
    classes = [
        element(
            "div",
            element("h3", "No label" if label is None else f"Class {label}"),
            element("div", *cards[label], class_="items"),
            class_="class",
        )
        for label in labels
    ]
    lengths = [len(of_class) for of_class in cards.values()]
    widest = min(max(lengths), _MOST_IN_A_ROW)
    count = _count(in_all, "item") if sum(lengths) == in_all else f"{sum(lengths):,} of {in_all:,} items"
    heading = element("h2", f"Task {task}", element("small", count))
    body = element("div", *classes, class_="classes", style=f"--widest: {widest}")
    return element("section", heading, body, id=f"task-{task}")


def _card(
    row: int,
    item: dict[str, Any],
    logits: Sequence[float],
    inputs: dict[str, Tensor],
    seen: dict[str, Pictures | None],
) -> Element:
    images = [
        show_image(found, row, f"{name} of item {item['id']}") for name, found in seen.items() if found is not None
    ]
    texts = [show_values(name, inputs[name][row], len(inputs) > 1) for name, found in seen.items() if found is None]
    source = None if item["source"] is None else element("span", f"source {item['source']}")
    time = None if item["time"] is None else item["time"].replace("T", " ").replace("+00:00", " UTC")
    return element(
        "div",
        element("div", *images, _bars(logits, item["label"]), class_="view"),
        element("p", element("b", f"id {item['id']}"), source),
        element("p", element("code", item["hash"]), element("span", item["selection"], title=item["selection"])),
        None if time is None else element("p", element("span", time)),
        *texts,
        class_="item",
    )


def show_image(found: Pictures, row: int, name: str) -> Element:
    """Show one picture, its pixels in the page itself."""
    pixels = found.pixels[row]
    height, width = pixels.shape[:2]
    # A whole multiple, so that all pixels are of one size. Large ones keep twice the pixels, for sharp screens.
    factor = _SIDE // max(height, width) or _SIDE / max(height, width)
    content = base64.b64encode(png(pixels, 2 * _SIDE)).decode()
    return element(
        "img",
        src=f"data:image/png;base64,{content}",
        width=str(max(1, round(width * factor))),
        height=str(max(1, round(height * factor))),
        alt=name,
        class_="large" if factor < 1 else None,
    )


def show_values(name: str, x: Tensor, named: bool) -> Element:
    """Show the first few numbers of an input that is no picture."""
    flat = x.flatten()
    few = (f"{value:.3g}" if isinstance(value, float) else str(value) for value in flat[:_MOST_VALUES].tolist())
    shown = " ".join(few).replace("-", "−")
    more = f" … ({' × '.join(map(str, x.shape))})" if flat.numel() > _MOST_VALUES else ""
    return element("p", f"{name}: {shown}{more}" if named else shown + more, class_="values")


def _bars(logits: Sequence[float], label: int | None) -> Element:
    """Draw logits as bars from zero, the label's and the largest marked."""
    finite = [0.0, *(z for z in logits if math.isfinite(z))]
    low, high = min(finite), max(finite)
    high = high if high > low else low + 1.0
    values = [min(max(0.0 if math.isnan(z) else z, low), high) for z in logits]
    largest = max(range(len(values)), key=values.__getitem__, default=None)
    classes = list(range(len(values)))
    if len(values) > _MOST_BARS:
        ranked = sorted(classes, key=lambda index: -values[index])[:_LARGEST]
        classes = sorted({*ranked, *(index for index in classes if index == label)})
    named = len(classes) <= _MOST_NAMED
    bottom = _BOTTOM_OF_NAMED if named else _BOTTOM
    step = _WIDTH / max(len(classes), 1)
    thick = max(0.75 * step, 0.8)

    def y(value: float) -> float:
        return _TOP + (high - value) / (high - low) * (bottom - _TOP)

    paths = {"plain": "", "label": "", "other": ""}
    marks: list[Element] = []
    for place, index in enumerate(classes):
        kind = "label" if index == label else "other" if index == largest and label is not None else "plain"
        centre, wide = (place + 0.5) * step, thick if kind == "plain" else max(thick, 1.6)
        paths[kind] += f"M{centre - wide / 2:.1f} {y(0):.1f}h{wide:.1f}V{y(values[index]):.1f}h{-wide:.1f}z"
        if index == largest:
            tip = y(max(values[index], 0.0)) - 1.5
            marks.append(element("path", d=f"M{centre:.1f} {tip:.1f}l-2.6 -4.2h5.2z", class_="largest"))
        if named:
            name_class = "label-name" if index == label else None
            marks.append(element("text", str(index), x=f"{centre:.1f}", y=str(_HEIGHT - 1), class_=name_class))
    return element(
        "svg",
        element("title", _in_words(logits, label, largest)),
        *(element("path", d=d, class_=kind) for kind, d in paths.items() if d),
        element("path", d=f"M0 {y(0):.1f}h{_WIDTH}", class_="zero"),
        *marks,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        width=str(_WIDTH),
        height=str(_HEIGHT),
        role="img",
    )


def _in_words(logits: Sequence[float], label: int | None, largest: int | None) -> str:
    if largest is None:
        return "no logits"
    said = f"largest logit: class {largest}, {decimal(logits[largest], 2)}"
    if label is not None and label < len(logits):
        said += f"; label: class {label}, {decimal(logits[label], 2)}"
    return said


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
