"""Links of a built site that lead nowhere."""

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """What a page points to, and what in it can be pointed to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if name in ("href", "src") and value and tag != "base":
                self.links.append(value)
                if name == "src" or tag == "link":
                    self.loaded.add(value)


@cache
def _read(path: Path) -> _Page:
    return _Page(path.read_text(encoding="utf-8"))


def dead_links(site: Path) -> list[str]:
    """A line for each link to a file or an anchor that is not there, and for each thing loaded from elsewhere."""
    dead = []
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html" or "results" in page.relative_to(site).parts:
            continue
        for link in _read(page).links:
            at = urlsplit(link)
            if at.scheme or at.netloc:
                if link in _read(page).loaded and at.scheme != "data":
                    dead.append(f"{page.relative_to(site)}: {link} is loaded from elsewhere")
                continue
            target = (page.parent / unquote(at.path)).resolve() if at.path else page
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                dead.append(f"{page.relative_to(site)}: {link} is not there")
            elif at.fragment and target.suffix == ".html" and unquote(at.fragment) not in _read(target).anchors:
                dead.append(f"{page.relative_to(site)}: {link} has no such anchor")
    return dead
