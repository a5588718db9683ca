"""The guide for contributors names files that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^\| \d+ \|.*\| `([^`]+)` \|$", GUIDE, re.MULTILINE)
PATHS = re.findall(r"`((?:src|tests)/[^` ]+)`", GUIDE)


@pytest.mark.parametrize("path", [*(f"src/selfreminder/{step}" for step in STEPS), *PATHS])
def test_a_file_that_the_guide_names_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_each_way_through_the_code_is_short() -> None:
    for way in re.findall(r"(?:^\| \d+ \|.*\n)+", GUIDE, re.MULTILINE):
        files = re.findall(r"`([a-z_/]+\.py)` \|$", way, re.MULTILINE)
        assert 5 < len(files) <= 15
        assert len(set(files)) == len(files), "no back and forth"
