"""HTML and SVG as trees of elements: always well-formed, and whatever text is put in is escaped."""

import re
from html import escape
from xml.etree.ElementTree import Element

from selfreminder.report.curves import Estimate

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_EMPTY = ("br", "hr", "img", "input", "link", "meta", "wbr")

Child = Element | str | None


def element(tag: str, *children: Child, **attributes: str | float | None) -> Element:
    """An element. `class_` stands for class and `_` for -; None as a child or a value is left out.

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
    """An element as HTML, of which the SVG parts are XML too. The text of script and style is left as it is."""
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in tree.items())
    if tree.tag in _EMPTY:
        return f"<{tree.tag}{attributes}>"
    said = [tree.text or "", *(part for child in tree for part in (child, child.tail or ""))]
    inner = (to_html(part) if isinstance(part, Element) else _text(part, tree.tag) for part in said)
    return f"<{tree.tag}{attributes}>{''.join(inner)}</{tree.tag}>"


def decimal(value: float, digits: int = 3) -> str:
    """A number without the zero before its point, with a true minus.

    >>> decimal(0.8849), decimal(-0.0352), decimal(-0.0001), decimal(1, 0), decimal(12.34, 1)
    ('.885', '−.035', '.000', '1', '12.3')
    """
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return re.sub(r"^(-?)0\.", r"\1.", text).replace("-", "−")


def in_words(estimate: Estimate | None, digits: int = 3) -> str:
    """Mean ± standard error.

    >>> in_words(Estimate(0.885, 0.0021)), in_words(Estimate(0.885, None)), in_words(None)
    ('.885 ± .002', '.885', '–')
    """
    if estimate is None:
        return "–"
    error = "" if estimate.stderr is None else f" ± {decimal(estimate.stderr, digits)}"
    return decimal(estimate.mean, digits) + error


def _text(text: str, tag: str) -> str:
    return text if tag in ("script", "style") else escape(text, quote=False)


def _printable(value: str | float) -> str:
    """Text that HTML, XML and UTF-8 can hold; lengths to a hundredth."""
    if isinstance(value, float):
        return f"{round(value, 2) + 0.0:.12g}"
    return _UNPRINTABLE.sub("\ufffd", str(value))
