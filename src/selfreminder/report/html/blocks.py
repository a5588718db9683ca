"""The blocks of a page: any page of tables and charts is made of these."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from selfreminder.report.curves import Estimate
from selfreminder.report.html.markup import Child, decimal, element, to_html

_FOLDER = Path(__file__).parent


def document(title: str, blocks: Sequence[Element]) -> str:
    """A whole page in one file. Its policy lets the browser load nothing, and run no script but ours."""
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
        *map(to_html, blocks),
        "</main>",
        to_html(element("script", script)),
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


def section(title: str, *content: Child) -> Element:
    """A part of the page under its heading."""
    return element("section", element("h2", title), *content)


def note(text: str) -> Element:
    return element("p", text, class_="note")


def warning(text: str) -> Element:
    """What a reader must know before he trusts the numbers."""
    return element("p", text, class_="warning")


def table(headings: Sequence[str], rows: Sequence[Sequence[Child]], caption: str, words: Sequence[str] = ()) -> Element:
    """A table whose first column names the rows; the others are of numbers, but for those in `words`."""
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
    """Mean ± standard error for a table: means stand under each other, whether or not there is an error."""
    if estimate is None:
        return element("span", "–")
    error = "" if estimate.stderr is None else f"± {decimal(estimate.stderr)}"
    return element("span", decimal(estimate.mean) + " ", element("span", error, class_="error-part"))


def facts(pairs: Sequence[tuple[str, str, str]]) -> Element:
    """Names, values, and what they mean."""
    children: list[Element] = []
    for name, value, meaning in pairs:
        more = element("small", f" {meaning}") if meaning else None
        children += [element("dt", name), element("dd", value, more)]
    return element("dl", *children, class_="keys")


def panel(heading: Child, chart: Element) -> Element:
    """A chart under its name."""
    of = heading if isinstance(heading, str) else None
    return element("div", element("h3", *_children(heading)), chart, class_="panel", data_of=of)


def plot(panels: Sequence[Element], *below: Child, kind: str = "panels") -> Element:
    """Charts side by side where there is room; a legend below them is theirs. `kind` may be maps, for smaller ones."""
    return element("figure", element("div", *panels, class_=kind), *below)


def _children(cell: Child) -> list[Child]:
    """A cell's content; a bare span only holds several children together."""
    if isinstance(cell, Element) and cell.tag == "span" and not cell.attrib:
        return [cell.text, *cell]
    return [cell]
