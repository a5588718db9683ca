"""What the documents point to is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MADE = {"api.md", "commands.md", "methods.md"}
"""pages of the site that scripts/site makes of the code"""
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^\| \d+ \|.*\| `([^`]+)` \|$", GUIDE, re.MULTILINE)
PATHS = re.findall(r"`((?:src|tests)/[^` ]+)`", GUIDE)
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("results/*.md")]


@pytest.mark.parametrize("path", [*(f"src/selfreminder/{step}" for step in STEPS), *PATHS])
def test_a_file_that_the_guide_names_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_each_way_through_the_code_is_short() -> None:
    ways = re.findall(r"(?:^\| \d+ \|.*\n)+", GUIDE, re.MULTILINE)
    assert len(ways) == 2
    for way in ways:
        files = re.findall(r"`([a-z_/]+\.py)` \|$", way, re.MULTILINE)
        assert 5 < len(files) <= 15
        assert len(set(files)) == len(files), "no back and forth"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("http://", "https://")):
            made = document.parent == ROOT / "docs" and target in MADE
            assert made or (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_anchors_are_headings(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", text):
        if not target.startswith(("http://", "https://")):
            other = (document.parent / target if target else document).read_text(encoding="utf-8")
            headings = [re.sub(r"[^\w\- ]", "", line).replace(" ", "-").lower() for line in _headings(other)]
            assert anchor in headings, f"{target}#{anchor}"


def _headings(text: str) -> list[str]:
    without_code = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#+ (.*)$", without_code, re.MULTILINE)
