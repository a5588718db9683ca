"""A method of one's own: by a path, a module or an entry point; checked from outside; named when its code changes."""

import json
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from selfreminder import methods
from selfreminder._base import factories
from selfreminder._base.errors import SelfReminderError
from selfreminder.cli import main
from selfreminder.experiment import catalogue
from selfreminder.experiment.run import run
from selfreminder.testing import check_method
from tiny import TINY

SLOW = '''"""Fine-tuning that is slow to move: a penalty on the distance from where the task began."""
from dataclasses import dataclass
import torch
from selfreminder.methods import Method

@dataclass(kw_only=True)
class Slow(Method):
    strength: float = 1.0
    needs_boundaries = True

    def __post_init__(self):
        self._before = {}

    def loss(self, model, batch, step):
        moved = [(p - self._before[n]).square().sum() for n, p in model.named_parameters() if n in self._before]
        return super().loss(model, batch, step) + self.strength * sum(moved, torch.zeros(()))

    def after_task(self, model, task):
        self._before = {name: p.detach().clone() for name, p in model.named_parameters()}

    def state_dict(self):
        return dict(self._before)

    def load_state_dict(self, state):
        self._before = dict(state)
'''


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for cached in (methods.method_class, factories.installed, methods.names, catalogue._facts_of_others):
        cached.cache_clear()
    (tmp_path / "slow.py").write_text(SLOW)
    return tmp_path


def test_by_its_path_it_keeps_the_contract() -> None:
    check_method("slow.py")


def test_what_breaks_the_contract_is_named() -> None:
    Path("forgetful.py").write_text(SLOW.replace("self._before = dict(state)", "pass").replace("Slow(", "Forgetful("))
    with pytest.raises(AssertionError, match=r"did not go on as it was|does not give back what state_dict gave"):
        check_method("forgetful.py")


def test_it_runs_by_path_module_and_entry_point(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    point = EntryPoint("slow", "slow:Slow", methods.GROUP)
    monkeypatch.setattr(factories, "entry_points", lambda group: [point] if group == methods.GROUP else [])
    assert "slow" in methods.names()
    found = {
        name: run(replace(TINY, method=name), mine / str(place))
        for place, name in enumerate(("slow.py", "slow:Slow", "slow"))
    }
    assert len({json.dumps(each.tasks) for each in found.values()}) == 1
    assert found["slow.py"].experiment.key.startswith("slow.py-seed0-")
    assert found["slow:Slow"].experiment.key.startswith("slow-Slow-seed0-")
    assert main(["list"]) == 0
    assert "Fine-tuning that is slow to move" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.py", "nowhere.py: there is no such file"),
        ("two.py", "two.py defines 2 classes that derive from Method: it should define one"),
        ("bad.py", "bad.py: importing it raised ZeroDivisionError"),
        ("math:sqrt", "math:sqrt is no method: it should be a class that derives from"),
        ("slow:Sloww", "did you mean 'Slow'"),
        ("adaam", "did you mean 'adam'"),
    ],
)
def test_mistakes(name: str, message: str) -> None:
    Path("two.py").write_text(SLOW + "class Other(Method): pass\n")
    Path("bad.py").write_text("1 / 0\n")
    with pytest.raises(SelfReminderError) as found:
        replace(TINY, method=name)
    assert message in str(found.value)


def test_changed_code_is_named(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the same settings a run is not silently taken for done; a comment is no change."""
    asked = ["compare", "permuted-mnist", "--methods", "slow.py", "--tasks", "2", "--epochs", "1", "--width", "0.05"]
    asked += ["--seeds", "1", "--jobs", "1", "--out", "out"]
    assert main(asked) == 0
    assert "earlier code" not in capsys.readouterr().out
    for text, said in ((SLOW + "# a comment\n", False), (SLOW.replace("1.0", "2.0"), True)):
        Path("slow.py").write_text(text)
        for name in [name for name in sys.modules if name.startswith("selfreminder_file_")]:
            del sys.modules[name]
        for cached in (methods.method_class, catalogue._facts_of_others):
            cached.cache_clear()
        assert main(asked) == 0
        assert ("Made with earlier code: slow.py" in capsys.readouterr().out) == said
