import contextlib
import io
import json
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import optuna
import pytest

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import Size
from selfreminder.cli import main
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.folder import JOURNAL, claimed
from selfreminder.experiment.records import RECORDS, read_records
from tunings import make_records, tuning

TINY = ["permuted-mnist", "--tasks", "2", "--epochs", "1", "--width", "0.06"]


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.glob(f"*/{RECORDS}")}


TUNE = [
    "tune",
    *TINY,
    "--methods",
    "fsr-logit,adam",
    "--values",
    "strength=0.1,1000",
    "--per-class",
    "1",
    "--jobs",
    "1",
]
NAME = "tune-permuted-mnist-demo-1-per-class-tasks-2-epochs-1-width-0.06"


@pytest.fixture(scope="module")
def tuned_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """Where TUNE was run, with a table of the user's own to put its result into, and what it said."""
    folder, out, err = tmp_path_factory.mktemp("tuned"), io.StringIO(), io.StringIO()
    (folder / "mine.toml").write_text("# mine\n[permuted-mnist.demo.fsr-logit]\nstrength = 5\n")
    with contextlib.chdir(folder), redirect_stdout(out), redirect_stderr(err):
        assert main([*TUNE, "--into", "mine.toml"]) == 0
    return folder, out.getvalue(), err.getvalue()


@pytest.fixture
def tuned_folder(tuned_once: tuple[Path, str, str], in_folder: Path) -> Path:
    """The folder of a tuning in the current one: a copy, to which a test may add."""
    shutil.copytree(tuned_once[0], in_folder, dirs_exist_ok=True)
    (folder,) = (in_folder / "runs").iterdir()
    return folder


def read_entry(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())["permuted-mnist"]["demo"]["fsr-logit"]["at_per_class"]["1"]


def test_a_methods_own_option(in_folder: Path) -> None:
    """What was chosen of it is in the table, and a comparison takes it from there."""
    asked = [*TINY, "--methods", "fsr-distill", "--per-class", "1", "--seeds", "1", "--jobs", "1"]
    values = ["--values", "strength=3", "--values", "temperature=2.5,3"]
    assert main(["tune", *asked, "--fields", "strength,options.temperature", *values, "--out", "tuned"]) == 0
    section = tomllib.loads((in_folder / "tuned/tuned.toml").read_text())["permuted-mnist"]["demo"]["fsr-distill"]
    (chosen,) = section["at_per_class"].values()
    assert chosen["strength"] == 3 and chosen["options"]["temperature"] in (2.5, 3)
    assert main(["compare", *asked, "--tuned", "tuned/tuned.toml", "--out", "compared"]) == 0
    (found,) = (read_records(path.parent) for path in in_folder.glob(f"compared/*/{RECORDS}"))
    assert found is not None and found.experiment.options == chosen["options"]


def test_what_tune_says(tuned_once: tuple[Path, str, str]) -> None:
    _, out, err = tuned_once
    assert "nothing to tune for adam" in err
    assert "fsr-logit strength 0.1: validation 0." in err
    assert "is the smallest candidate" in out or "is the largest candidate" in out


def test_what_tune_writes(tuned_folder: Path) -> None:
    assert tuned_folder.name == NAME
    runs = times(tuned_folder)
    assert len(runs) == 4
    entry = read_entry(tuned_folder / "tuned.toml")
    assert entry["seeds"] == [100, 101]
    assert entry["where"] == {"tasks": 2, "epochs": 1, "width": 0.06}
    assert entry["command"].endswith("--per-class 1 --tasks 2 --epochs 1 --width 0.06 --values strength=0.1,1000")
    assert max(entry["validation"], key=lambda name: entry["validation"][name]) == f"{entry['strength']:g}"
    values: dict[str, list[float]] = {}
    for path in runs:
        records = read_records(path.parent)
        assert records is not None
        values.setdefault(f"{records.experiment.strength:g}", []).append(sum(records.validation[-1]) / 2)
    assert entry["validation"] == {name: round(sum(found) / 2, 4) for name, found in values.items()}
    assert (tuned_folder / "fsr-logit-strength.png").exists()


def test_tune_into_a_table(tuned_folder: Path, in_folder: Path) -> None:
    """What the table has already stays; one that there is not is made, and nothing is run again for it."""
    before = times(tuned_folder)
    mine = in_folder / "mine.toml"
    first, _, rest = mine.read_text().partition("\n")
    assert first.startswith("# sha256 of what follows: ")
    assert rest.startswith("# mine\n[permuted-mnist.demo.fsr-logit]\nstrength = 5\n")
    assert read_entry(mine) == read_entry(tuned_folder / "tuned.toml")
    assert main([*TUNE, "--into", "new.toml"]) == 0
    assert (in_folder / "new.toml").read_text() == (tuned_folder / "tuned.toml").read_text()
    assert times(tuned_folder) == before


def test_tune_again_with_one_more_candidate(tuned_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was run is not run again; and a comparison takes what was chosen."""
    before = times(tuned_folder)
    assert main([*TUNE, "--values", "strength=3", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    (result,) = answer["results"]
    assert [trial["settings"] for trial in result["trials"]] == [{"strength": s} for s in (0.1, 3.0, 1000.0)]
    assert result["validation"]["stderr"] is not None
    after = times(tuned_folder)
    assert len(after) == 6
    assert after.items() >= before.items()
    at = {"methods": ("fsr-logit",), "size": Size(1), "tuned": tuned_folder / "tuned.toml"}
    compared = Comparison(benchmark="permuted-mnist", **at)
    assert compared.experiments[0].strength == result["chosen"]["strength"]
    assert compared.untuned == []


@pytest.mark.slow
def test_tpe_by_command(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", *TINY, "-m", "ewc,adam", "--fields", "strength,lr", "--sampler", "tpe", "--seeds", "1"]
    command += ["--jobs", "1", "--out", "x", "--json"]
    found: dict[Path, int] = {}
    for trials in (1, 3):
        assert main([*command, "--trials", str(trials)]) == 0
        ewc, adam = json.loads(capsys.readouterr().out)["results"]
        assert [len(result["trials"]) for result in (ewc, adam)] == [trials, trials]
        assert (ewc["chosen"].keys(), adam["chosen"].keys()) == ({"strength", "lr"}, {"lr"})
        assert times(in_folder / "x").items() >= found.items()
        found = times(in_folder / "x")
        assert len(found) == 2 * trials
    entry = tomllib.loads((in_folder / "x/tuned.toml").read_text())["permuted-mnist"]["demo"]["ewc"]
    assert [set(trial) for trial in entry["validation"]] == [{"strength", "lr", "validation"}] * 3


def test_what_is_a_comparisons_own_is_not_written(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", "permuted-mnist", "-m", "adam", "--values", "epochs=1,2", "--seeds", "1", "--out", "x"]
    (candidates,) = tuning("adam", values={"epochs": (1, 2)}, seeds=1).candidates
    for settings in candidates.combine():
        make_records(in_folder / "x", *candidates.runs(settings), [[0.5] * (task + 1) for task in range(10)])
    (in_folder / "mine.toml").write_text("")
    assert main([*command, "--into", "mine.toml"]) == 2
    assert "a table has no place for all of these fields" in capsys.readouterr().err
    assert main(command) == 0
    assert "nothing was written to a table" in capsys.readouterr().out
    assert not (in_folder / "x/tuned.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["permuted-mnits"], "did you mean 'permuted-mnist'"),
        (["permuted-mnist", "--scale", "smal"], "did you mean 'small'"),
        (["permuted-mnist", "--methods", "ewx"], "did you mean 'ewc'"),
        (["permuted-mnist", "--methods", "adam"], "there is nothing to tune for adam"),
        (["permuted-mnist", "--fields", "strenght"], "did you mean 'strength'"),
        (["permuted-mnist", "--fields", "seed"], "unknown field 'seed'"),
        (["permuted-mnist", "--fields", "lr", "--values", "strength=1"], "values of strength, but the fields are lr"),
        (["permuted-mnist", "--fields", "weight_decay"], "weight_decay has no usual candidates: give some, --values"),
        (["permuted-mnist", "--values", "strength"], "--values strength: write a field and its candidates"),
        (["permuted-mnist", "--values", "strength=1,x"], '--values strength=1,x: strength is "x"'),
        (["permuted-mnist", "--values", "lr=0.1,-1"], "lr is -1.0: it must be above 0"),
        (["permuted-mnist", "--sampler", "gird"], "did you mean 'grid'"),
        (["permuted-mnist", "--trials", "5"], "trials are for --sampler tpe"),
        (["permuted-mnist", "--sampler", "tpe", "--trials", "0"], "trials is 0"),
        (["permuted-mnist", "--seeds", "0"], "seeds is 0"),
        (["permuted-mnist", "--jobs", "0"], "jobs is 0"),
        (["permuted-mnist", "--into", "nowhere/mine.toml"], "nowhere is no folder"),
        (["permuted-mnist", "--tuned", "nowhere.toml"], "nowhere.toml: No such file"),
        (["permuted-mnist", "--out", "mine"], "mine exists and holds no tuning"),
        (["permuted-mnist", "--tasks", "0"], "tasks is 0"),
    ],
)
def test_mistakes(in_folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    (in_folder / "mine").mkdir()
    (in_folder / "mine" / "thesis.tex").write_text("years of work")
    assert main(["tune", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.strip().splitlines()
    assert message in line
    assert not (in_folder / "runs").exists()
    assert [path.name for path in (in_folder / "mine").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("command", ["compare permuted-mnist", "run spec.toml"])
def test_other_commands_read_tables(in_folder: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    (in_folder / "spec.toml").write_text('benchmark = "permuted-mnist"\nscale = "demo"\n')
    (in_folder / "x.toml").write_text("[permuted-mnist.demo.ewc]\nstrenght = 3\n")
    assert main([*command.split(), "--tuned", "x.toml"]) == 2
    assert "x.toml: [permuted-mnist.demo.ewc]: unknown field 'strenght'" in capsys.readouterr().err


def test_a_method_that_does_not_apply(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", *TINY, "--methods", "ewc,hat", "--jobs", "1"]) == 2
    assert "hat does not apply here" in capsys.readouterr().err
    assert not list(in_folder.glob(f"runs/*/*/{RECORDS}"))


def test_folders(tmp_path: Path) -> None:
    """Runs of anybody may be in it; a comparison, or another tuning at the same time, may not."""
    with (
        claimed(tmp_path / "new", "tuning", patience=1.0),
        pytest.raises(SelfReminderError, match="another process"),
        claimed(tmp_path / "new", "tuning", patience=1.0),
    ):
        pass
    (candidates,) = tuning("ewc").candidates
    make_records(tmp_path / "runs", candidates.base, [[0.5]])
    with claimed(tmp_path / "runs", "tuning"):
        pass
    (tmp_path / "runs" / "comparison.json").write_text("{}")
    with pytest.raises(SelfReminderError, match="holds a comparison"), claimed(tmp_path / "runs", "tuning"):
        pass


@pytest.mark.parametrize("missing", ["Optuna", "tomlkit"])
def test_without_the_extra(in_folder: Path, missing: str) -> None:
    code = (
        f"import sys; sys.modules['{missing.lower()}'] = None\nfrom selfreminder.__main__ import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, "tune", "permuted-mnist"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"selfreminder: tuning needs {missing}: pip install 'selfreminder[tune]'\n"
    assert not (in_folder / "runs").exists()
    subprocess.run([*command, "--help"], capture_output=True, check=True)


def test_optuna_is_for_tuning_alone() -> None:
    imports = "import sys, selfreminder.cli.tune, selfreminder.cli.compare"
    code = f"{imports}; print({{'optuna', 'tomlkit', 'torch'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def told(folder: Path) -> list[int]:
    """Numbers of the trials that the journal has as complete."""
    found = []
    for line in (folder / JOURNAL).read_bytes().splitlines() if (folder / JOURNAL).exists() else []:
        try:
            log = json.loads(line)
        except ValueError:
            continue
        if log.get("state") == optuna.trial.TrialState.COMPLETE.value:
            found.append(log["trial_id"])
    return found


@pytest.mark.slow
def test_killed_and_interrupted_it_goes_on(in_folder: Path) -> None:
    """kill -9 and Ctrl-C in the middle: no trial that was told is lost, no run is made twice, the table is the same."""
    command = [sys.executable, "-m", "selfreminder", "tune", "permuted-mnist", "--methods", "fsr-logit", "--out"]
    at = ["--tasks", "2", "--epochs", "3", "--width", "0.1", "--jobs", "1"]
    more = ["--values", "strength=0.01,0.03,0.1,0.3,1,3,10,30", *at]
    folder, done = in_folder / "x", 0
    for number in (signal.SIGKILL, signal.SIGINT, signal.SIGKILL):
        process = subprocess.Popen([*command, "x", *more], stderr=subprocess.PIPE, text=True)
        while len(told(folder)) <= done:
            assert process.poll() is None
            time.sleep(0.02)
        time.sleep(0.7)
        process.send_signal(number)
        _, errors = process.communicate(timeout=600)
        if number == signal.SIGINT:
            assert process.returncode == 130, errors
            assert "To go on: selfreminder tune permuted-mnist --methods fsr-logit --out x" in errors
        assert len(told(folder)) > done
        done = len(told(folder))
        with (folder / JOURNAL).open("ab") as journal:  # a power cut in the middle of a write
            journal.write(b'{"op_code": 6, "worker')
    before, finished = times(folder), [p for p in folder.glob(f"*/{RECORDS}") if '"done"' in p.read_text()]
    assert len(finished) >= 2 * done
    subprocess.run([*command, "x", *more], check=True, capture_output=True)
    after = times(folder)
    assert all(before[path] == after[path] for path in finished)
    subprocess.run([*command, "y", *more], check=True, capture_output=True)
    assert (folder / "tuned.toml").read_text() == (in_folder / "y" / "tuned.toml").read_text()
    for path in after:
        assert path.read_bytes() == (in_folder / "y" / path.relative_to(folder)).read_bytes()
    assert len(told(folder)) == 8
