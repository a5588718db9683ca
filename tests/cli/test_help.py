"""What each command says of itself, and what a newcomer meets first."""

import json
import os
import pty
import re
import subprocess
import sys
from functools import reduce
from pathlib import Path

import pytest
from cyclopts import App

import selfreminder
from selfreminder.cli import app, main
from selfreminder.cli.examples import EXAMPLES

ROOT = Path(__file__).parents[2]
SCREEN = 46, 100
"""lines and columns of a common terminal window"""


def commands(of: App = app, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command, by its words."""
    found = []
    for name in of:
        if not name.startswith("-"):
            words = (*path, name)
            found += commands(app[name], words) if words in (("data",), ("memory",)) else [words]
    return found


@pytest.mark.parametrize("words", [(), ("data",), ("memory",), *commands()], ids=" ".join)
def test_help_fits_a_screen(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(SCREEN[1]))
    for depth in range(len(words) + 1):  # each keeps the console, and its width, that it first wrote to
        monkeypatch.setattr(reduce(lambda of, word: of[word], words[:depth], app), "_fallback_console", None)
    assert main([*words, "--help"]) == 0
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert 4 < len(lines) <= SCREEN[0]
    if words and words not in (("data",), ("memory",)):
        assert lines[-1] == f"Example: {EXAMPLES[' '.join(words)]}", "in one line, to be copied"


@pytest.mark.parametrize("command", ["compare", "reproduce"])
def test_help_all_has_the_rest(command: str) -> None:
    usual, all_of_it = (
        subprocess.run([sys.executable, "-m", "selfreminder", command, word], capture_output=True, text=True).stdout
        for word in ("--help", "--help-all")
    )
    assert f"selfreminder {command} --help-all" in usual
    for word in ("--on", "--track"):
        assert word not in usual
        assert word in all_of_it


def test_every_example_is_of_a_command() -> None:
    assert set(EXAMPLES) == {" ".join(words) for words in commands()}
    for words, example in EXAMPLES.items():
        assert example.startswith(f"selfreminder {words}")
        _, bound, _ = app.parse_args(example.split()[1:], exit_on_error=False, print_error=False)
        assert bound is not None


def test_the_version_is_in_one_place() -> None:
    assert f"\nversion: {selfreminder.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert 'dynamic = ["version"]' in (ROOT / "pyproject.toml").read_text()


def shown_on_a_terminal(**environment: str) -> str:
    """What `selfreminder list` writes to a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "selfreminder", "list"]
    plain = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    with subprocess.Popen(command, stdout=theirs, env={**plain, "TERM": "xterm-256color", **environment}):
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:  # the other side has closed
            pass
    os.close(ours)
    return shown.decode()


def test_no_color() -> None:
    """Headings are bold on a terminal; with NO_COLOR nothing has a colour."""
    coloured = re.compile(r"\x1b\[[\d;]*(?:3[0-7]|38|9[0-7])[\d;]*m")
    assert "\x1b[1" in shown_on_a_terminal()
    assert not coloured.search(shown_on_a_terminal(NO_COLOR="1"))


def test_completion_knows_commands_and_options() -> None:
    script = app.generate_completion(shell="bash")
    for word in ("compare", "doctor", "--per-class", "--retry-failed"):
        assert word in script
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"]
    assert found["about"]["selfreminder"] == selfreminder.__version__
    assert found["data"]["embedded-mnist"] == "4 of 4 files at hand"
    assert found["extras"]["cli"].startswith("cyclopts ")
    assert str(Path.home()) not in json.dumps(found), "no path of the user's"


def test_doctor_finds_what_does_not_work(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("selfreminder.cli.doctor.update_digits", lambda: {"lost": 0.5, "kept": 0.5})
    assert main(["doctor"]) == 1
    assert "a reminder held nothing" in capsys.readouterr().out
