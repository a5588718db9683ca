"""The campaign against faults: its short form finds nothing, its page is made of its table, and it can fail."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from chaos import apart, power  # noqa: F401
from chaos.campaign import FAULTS, KINDS, Outcome, Trial, judge
from chaos.guided import main as fuzz_guided
from chaos.trust import TABLE, TRUST, is_good, render
from selfreminder._base.sizes import parse_bytes

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_short_form_finds_nothing() -> None:
    """About three minutes on two cores."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "chaos", "--short"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_the_page_is_made_of_the_table() -> None:
    rows = json.loads(TABLE.read_text(encoding="utf-8"))
    assert TRUST.read_text(encoding="utf-8") == render(rows)
    assert {row["fault"] for row in rows} <= FAULTS.keys()
    assert all(map(is_good, rows))


def test_a_power_cut_is_felt_where_nothing_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign can fail: without its syncs, a save loses what it has saved."""
    monkeypatch.setattr("selfreminder._base.atomic._sync_folder", lambda folder: None)
    trial = Trial(1000, tmp_path, random.Random(0), 0.0)
    outcomes = list(power.cut_power(power.SAVES["a grid's list"], trial))
    assert any(outcome.kind == "lost" for outcome in outcomes)


def test_what_counts_as_what() -> None:
    def crash() -> None:
        raise KeyError("x")

    assert judge(lambda: 1, 1) == Outcome("harmless")
    assert judge(lambda: 2, 1).kind == "silently wrong"
    assert judge(crash).kind == "traceback"
    assert judge(lambda: parse_bytes("many"), 1).kind == "noticed"
    row = {**dict.fromkeys(KINDS, 0), "measured": [{"what": "x", "number": 2.0, "limit": 1.0}]}
    assert not is_good(row)
    assert is_good(row | {"measured": []})
    assert not is_good(row | {"measured": [], "lost": 1})


def test_what_is_fuzzed_is_fuzzed_guided_too() -> None:
    names = {kind: {name[8:] for name in FAULTS if name.startswith(kind)} for kind in ("fuzzed: ", "guided: ")}
    assert len(names["fuzzed: "]) > 20
    assert names["fuzzed: "] == names["guided: "]


def test_without_atheris_it_is_said_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "atheris", None)
    monkeypatch.setattr(sys, "argv", ["guided"])
    assert fuzz_guided() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "make fuzz" in line
