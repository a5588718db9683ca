"""The site is made without a network, a warning or a dead link; a link that is dead is found."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.site.links import dead_links
from scripts.site.reference import api_page, commands_page, methods_page
from selfreminder import __all__, methods
from selfreminder.cli.examples import EXAMPLES

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_site_is_made() -> None:
    done = subprocess.run([sys.executable, "-m", "scripts.site"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "no dead link" in done.stdout
    assert (ROOT / "build" / "site" / "api.html").exists()


def test_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p id="here"><a href="b.html">b</a> <a href="#here">a</a> <a href="#gone">a</a>')
    (tmp_path / "c.html").write_text('<a href="a.html#here">a</a> <script src="https://example.org/x.js"></script>')
    assert dead_links(tmp_path) == [
        "a.html: b.html is not there",
        "a.html: #gone has no such anchor",
        "c.html: https://example.org/x.js is loaded from elsewhere",
    ]


@pytest.mark.slow
def test_the_reference_has_all_commands() -> None:
    commands = commands_page()
    for words in EXAMPLES:
        assert f"\n## selfreminder {words}\n" in commands
    assert "--gpus-per-run" in commands


def test_the_reference_has_all_that_is_public() -> None:
    api, of_methods = api_page(), methods_page()
    for name in set(__all__) - {"__version__"}:
        assert f"\n### {name}\n" in api, name
    for name in methods.names():
        assert f"\n## {name}\n" in of_methods
