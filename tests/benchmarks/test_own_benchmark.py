"""A benchmark of one's own: by a path or an entry point; with data of its own; named when its code changes."""

import json
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from selfreminder import benchmarks
from selfreminder._base import factories
from selfreminder._base.errors import SelfReminderError
from selfreminder.cli import main
from selfreminder.experiment import catalogue
from selfreminder.experiment.run import run
from tiny import TINY

INVERTED = '''"""Digits, and their inverse."""
from selfreminder.benchmarks import Benchmark, Scale, Stream, Task

BENCHMARK = Benchmark(
    model="mlp:32x1",
    methods=("adam", "fsr-logit"),
    scales={"demo": Scale(data="embedded-mnist", tasks=2, epochs=1, width=1.0, seeds=1, per_class=2)},
)

def make_stream(spec):
    parts, classes = spec.load_parts()
    changes = (lambda x: x, lambda x: 1 - x)
    return Stream((classes,), lambda i: Task(i, f"part {i}", classes, parts.flatten(), changes[i]), length=spec.tasks)
'''

MADE = '''"""Two tasks that are made here."""
import torch
from selfreminder.benchmarks import Benchmark, Scale, Stream

BENCHMARK = Benchmark(
    model="mlp:32x1",
    methods=("adam", "fsr-logit"),
    scales={"demo": Scale(data="made here", tasks=2, epochs=2, width=1.0, seeds=1, per_class=2)},
    own_data=True,
)

def make_stream(spec):
    x = torch.rand(300, 6, generator=torch.Generator().manual_seed(spec.seed))
    return Stream.of([(x, (x[:, place] > 0.5).long()) for place in range(spec.tasks)])
'''


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    forget()
    Path("inverted.py").write_text(INVERTED)
    return tmp_path


def forget() -> None:
    for name in [name for name in sys.modules if name.startswith("selfreminder_file_")]:
        del sys.modules[name]
    for cached in (factories.installed, benchmarks.names, benchmarks.make_stream, catalogue._load_others):
        cached.cache_clear()


def test_it_runs_by_path_and_entry_point(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    point = EntryPoint("mirror", "inverted", benchmarks.GROUP)
    monkeypatch.setattr(factories, "entry_points", lambda group: [point] if group == benchmarks.GROUP else [])
    sys.path.append(str(mine))
    tiny = replace(TINY, width=1.0, epochs=1)
    found = [run(replace(tiny, benchmark=name), mine / name.partition(".")[0]) for name in ("inverted.py", "mirror")]
    assert json.dumps(found[0].tasks) == json.dumps(found[1].tasks)
    assert main(["list"]) == 0
    assert "mirror" in (said := capsys.readouterr().out) and "Digits, and their inverse" in said


def test_it_is_compared_by_path(capsys: pytest.CaptureFixture[str]) -> None:
    """Its own methods and scale; the folder is named after it."""
    assert main(["compare", "inverted.py", "--scale", "demo", "--jobs", "1"]) == 0
    assert "fsr-logit" in capsys.readouterr().out
    assert len(list(Path().glob("**/inverted.py-demo/*/records.jsonl"))) == 2


def test_changed_code_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """With the same settings a run is not silently taken for done; a comment is no change."""
    asked = ["compare", "inverted.py", "--scale", "demo", "--methods", "adam", "--jobs", "1", "--out", "out"]
    for text, said in ((INVERTED, False), (INVERTED + "# a comment\n", False), (INVERTED.replace("1 - x", "-x"), True)):
        Path("inverted.py").write_text(text)
        forget()
        assert main(asked) == 0
        assert ("Made with earlier code: inverted.py" in capsys.readouterr().out) == said


def test_it_may_have_data_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Which nothing here knows: `own_data` says so."""
    Path("made.py").write_text(MADE)
    assert main(["compare", "made.py", "--jobs", "1", "--out", "out"]) == 0
    assert "made here" in capsys.readouterr().out
    assert main(["compare", "made.py", "--dry-run", "--seeds", "2", "--out", "out"]) == 0
    asked = ["tune", "made.py", "--methods", "fsr-logit", "--values", "strength=.1,1", "--seeds", "1", "--jobs", "1"]
    assert main([*asked, "--out", "tuned"]) == 0
    assert '"made.py"' in next(Path("tuned").glob("tuned.toml")).read_text()
    capsys.readouterr()
    asked = ["compare", "made.py", "--tuned", "tuned/tuned.toml", "--methods", "fsr-logit", "--jobs", "1", "--out", "b"]
    assert main(asked) == 0
    assert "Not tuned" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("nowhere.py", None, "nowhere.py: there is no such file"),
        ("empty.py", "", "empty.py is no benchmark: it should have BENCHMARK, a Benchmark, and make_stream(spec)"),
        ("half.py", INVERTED.replace("def make_stream", "def make"), "half.py is no benchmark"),
        ("bad.py", "1 / 0\n", "bad.py: importing it raised ZeroDivisionError"),
        ("scale.py", INVERTED.replace('"demo"', '"huge"'), "scale.py: its scales should be some of demo, small"),
        ("permuted-mnits", None, "did you mean 'permuted-mnist'"),
    ],
)
def test_mistakes(name: str, text: str | None, message: str) -> None:
    if text is not None:
        Path(name).write_text(text)
    with pytest.raises(SelfReminderError) as found:
        replace(TINY, benchmark=name)
    assert message in str(found.value)
    assert main(["compare", name]) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (INVERTED.replace("return Stream", "return 3, Stream"), "make_stream gives a tuple: it should give a Stream"),
        (INVERTED.replace("return Stream", "1 / 0; return Stream"), "make_stream raised ZeroDivisionError: division"),
    ],
)
def test_mistakes_of_its_function(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd.py").write_text(text)
    assert main(["compare", "odd.py", "--methods", "adam", "--out", "odd"]) == 2
    assert f"odd.py: {message}" in capsys.readouterr().err
