"""HTML and SVG as trees of elements, and the blocks that pages are made of.

A page is always well-formed, and whatever text is put into it is escaped.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from xml.etree.ElementTree import Element

from selfreminder.report.results import Estimate

_FOLDER = Path(__file__).parent
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_FEW = 4
"""with fewer parts, a page has no table of contents"""
_EMPTY = ("br", "hr", "img", "input", "link", "meta", "wbr")

Child = Element | str | None


def element(tag: str, *children: Child, **attributes: str | float | None) -> Element:
    """Make an element. `class_` stands for class and `_` for -; None as a child or a value is left out.

    >>> to_html(element("p", "a < b", element("b", "!"), class_="note", data_x=1.5))
    '<p class="note" data-x="1.5">a &lt; b<b>!</b></p>'
    """
    made = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            made.set(name.rstrip("_").replace("_", "-"), _printable(value))
    last: Element | None = None
    for child in children:
        if isinstance(child, Element):
            made.append(child)
            last = child
        elif child is not None and last is None:
            made.text = (made.text or "") + _printable(child)
        elif child is not None and last is not None:
            last.tail = (last.tail or "") + _printable(child)
    return made


def to_html(tree: Element) -> str:
    """Write an element as HTML, of which the SVG parts are XML too. The text of script and style is left as it is."""
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in tree.items())
    if tree.tag in _EMPTY:
        return f"<{tree.tag}{attributes}>"
    texts = [tree.text or "", *(child.tail or "" for child in tree)]
    if tree.tag not in ("script", "style"):
        texts = [escape(text, quote=False) for text in texts]
    inner = texts[0] + "".join(to_html(child) + text for child, text in zip(tree, texts[1:]))
    return f"<{tree.tag}{attributes}>{inner}</{tree.tag}>"


def decimal(value: float, digits: int = 3) -> str:
    """Write a number without the zero before its point, with a true minus.

    >>> decimal(0.8849), decimal(-0.0352), decimal(-0.0001), decimal(1, 0), decimal(12.34, 1)
    ('.885', '−.035', '.000', '1', '12.3')
    """
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return re.sub(r"^(-?)0\.", r"\1.", text).replace("-", "−")


def in_words(estimate: Estimate | None) -> str:
    """Write mean ± standard error.

    >>> in_words(Estimate(0.885, 0.0021)), in_words(Estimate(0.885, None)), in_words(None)
    ('.885 ± .002', '.885', '–')
    """
    if estimate is None:
        return "–"
    error = "" if estimate.stderr is None else f" ± {decimal(estimate.stderr)}"
    return decimal(estimate.mean) + error


# Blocks -------------------------------------------------------------------------------------------------------


def document(title: str, blocks: Sequence[Element]) -> str:
    """Write a whole page in one file. Its policy lets the browser load nothing, and run no script but ours."""
    style, script = ((_FOLDER / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    ours = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{ours}'"
    head = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("link", rel="icon", href="data:,"),
        element("style", style),
    ]
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        *map(to_html, head),
        "</head>",
        "<body>",
        "<main>",
        *map(to_html, with_contents(blocks)),
        "</main>",
        to_html(element("script", script)),
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


def with_contents(blocks: Sequence[Element]) -> list[Element]:
    """Put a table of contents before the first part, where there are several: what is before it is the answer."""
    parts = [block for block in blocks if block.tag == "section"]
    if len(parts) < _FEW:
        return list(blocks)
    links = []
    for part in parts:
        title = "".join(part[0].itertext())
        if part.get("id") is None:
            part.set("id", re.sub(r"\W+", "-", title.lower()).strip("-"))
        # A long heading has a short name too.
        links.append(element("li", element("a", part.get("data-name", title), href=f"#{part.get('id')}")))
    first = blocks.index(parts[0])
    contents = element("nav", element("ul", *links), class_="contents", aria_label="On this page")
    return [*blocks[:first], contents, *blocks[first:]]


def section(title: str, *content: Child) -> Element:
    """Make a part of the page under its heading."""
    return element("section", element("h2", title), *content)


def note(text: str) -> Element:
    """Make a paragraph in small letters."""
    return element("p", text, class_="note")


def warning(text: str) -> Element:
    """Make a paragraph of what a reader must know before trusting the numbers."""
    return element("p", text, class_="warning")


def table(headings: Sequence[str], rows: Sequence[Sequence[Child]], caption: str, words: Sequence[str] = ()) -> Element:
    """Make a table whose first column names the rows; the others are of numbers, but for those in `words`."""
    kinds = ["words" if heading in words else None for heading in headings]
    head = element("tr", *(element("th", heading, scope="col", class_=kind) for heading, kind in zip(headings, kinds)))
    body = [
        element(
            "tr",
            element("th", *_children(row[0]), scope="row"),
            *(element("td", *_children(cell), class_=kind) for cell, kind in zip(row[1:], kinds[1:])),
        )
        for row in rows
    ]
    made = element("table", element("caption", caption), element("thead", head), element("tbody", *body))
    # Wider than a phone, it is scrolled, by the keyboard too.
    return element("div", made, class_="scroll", role="region", aria_label=caption, tabindex="0")


def number(estimate: Estimate | None) -> Element:
    """Make a cell of mean ± standard error: means stand under each other, whether or not there is an error."""
    if estimate is None:
        return element("span", "–")
    error = "" if estimate.stderr is None else f"± {decimal(estimate.stderr)}"
    return element("span", decimal(estimate.mean) + " ", element("span", error, class_="error-part"))


def facts(pairs: Sequence[tuple[str, str, str]]) -> Element:
    """Make a list of names, values, and what they mean."""
    children: list[Element] = []
    for name, value, meaning in pairs:
        more = element("small", f" {meaning}") if meaning else None
        children += [element("dt", name), element("dd", value, more)]
    return element("dl", *children, class_="keys")


def panel(heading: Child, chart: Element) -> Element:
    """Put a chart under its name."""
    of = heading if isinstance(heading, str) else None
    return element("div", element("h3", *_children(heading)), chart, class_="panel", data_of=of)


def plot(panels: Sequence[Element], *below: Child, kind: str = "panels") -> Element:
    """Put charts side by side where there is room, with their legend below; `kind` may be maps, for smaller ones."""
    return element("figure", element("div", *panels, class_=kind), *below)


def _children(cell: Child) -> list[Child]:
    """Give a cell's content; a bare span only holds several children together."""
    if isinstance(cell, Element) and cell.tag == "span" and not cell.attrib:
        return [cell.text, *cell]
    return [cell]


def _printable(value: str | float) -> str:
    """Make text that HTML, XML and UTF-8 can hold; lengths to a hundredth."""
    if isinstance(value, float):
        return f"{round(value, 2) + 0.0:.12g}"
    return _UNPRINTABLE.sub("\ufffd", str(value))
