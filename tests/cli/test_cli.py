import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from selfreminder.cli import main
from selfreminder.experiment.folder import claimed
from selfreminder.memory.file import save_memory
from selfreminder.memory.memory import Memory

TINY = ["compare", "permuted-mnist", "--tasks", "2", "--epochs", "1", "--width", "0.06"]


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "selfreminder", *arguments]


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on standard error of a command that ends with 2."""
    assert main(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("selfreminder: ")
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compre"], 'Did you mean "compare"'),
        (["compare", "permuted-mnits"], "did you mean 'permuted-mnist'"),
        (["compare", "permuted-mnist", "--methods", "adam,fsr-logti"], "did you mean 'fsr-logit'"),
        (["compare", "permuted-mnist", "--sclae", "demo"], "Did you mean --scale"),
        (["compare", "permuted-mnist", "--scale", "smal"], "did you mean 'small'"),
        (["compare", "permuted-mnist", "--select", "randon"], "did you mean 'random'"),
        (["compare", "permuted-mnist", "--seeds", "x"], "'x' is no whole number"),
        (["compare", "permuted-mnist", "--seeds", "0"], "seeds is 0"),
        (["compare", "permuted-mnist", "--per-class", "1.5"], "'1.5' is no whole number"),
        (["compare", "permuted-mnist", "--methods", ""], "names no method"),
        (["compare", "permuted-mnist", "--tasks", "-1"], "tasks is -1"),
        (["compare", "permuted-mnist", "--jobs", "0"], "jobs is 0"),
        (["compare", "permuted-mnist", "--lr", "0"], "lr is 0.0: it must be above 0"),
        (["compare", "permuted-mnist", "--batch-size", "0"], "batch_size is 0: it must be at least 1"),
        (["compare", "permuted-mnist", "--evaluate-every", "0"], "evaluate_every is 0: it must be at least 1"),
        (["compare", "permuted-mnist", "--per-class", "0"], "at least one item"),
        (["compare", "permuted-mnist", "--per-task", "-5"], "at least one item"),
        (["compare", "permuted-mnist", "--per-class", "5", "--budget", "1MB"], "exactly one of"),
        (["compare", "permuted-mnist", "--budget", "much"], "'much' is no number of bytes"),
        (["compare", "permuted-mnist", "--data-dir", "nowhere"], "the data folder nowhere does not exist"),
        (["compare", "permuted-mnist", "--device", "cdua"], "device 'cdua'"),
        (["data", "get", "mnits"], "did you mean 'mnist'"),
        (["memory", "show", "missing"], "missing does not exist"),
    ],
)
def test_mistakes(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert message in complaint(capsys, *arguments)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (["--device", "cuda:77"], "torch finds no CUDA here"),
        (["--per-class", "600"], "600 per class is larger than the data: the largest class has 540 items"),
        (["--per-task", "5401"], "5401 items is larger than the data: 5400 items"),
        (["--budget", "800"], "holds 0 items of 839 bytes"),
    ],
)
def test_a_memory_that_cannot_be(size: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--methods", "fsr-logit", "--out", "x", "--jobs", "1", *size]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_a_folder_is_not_lost_to_a_mistake() -> None:
    one = [*TINY, "--out", "x", "--jobs", "1", "--seeds", "1"]
    assert main([*one, "--methods", "fsr-logit", "--per-class", "600"]) == 2
    assert main([*one, "--methods", "adam"]) == 0


def test_compare(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([*TINY, "--seeds", "2", "--methods", "adam,fsr-logit", "--per-class", "1"]) == 0
    folder = tmp_path / "runs/permuted-mnist-demo-1-per-class-tasks-2-epochs-1-width-0.06"
    out = capsys.readouterr().out
    assert re.search(r"fsr-logit +0\.\d{3} ± 0\.\d{3} +0\.\d{3} ± 0\.\d{3} +-?0\.\d{3} ± 0\.\d{3} +.*16\.8 kB", out)
    assert (folder / "accuracy.png").read_bytes()[:4] == b"\x89PNG"
    svg = (folder / "accuracy.svg").read_bytes()
    assert b"<svg" in svg
    # Again, as JSON: nothing is run again, and the figure is the same to the byte.
    assert main([*TINY, "--seeds", "2", "--methods", "adam,fsr-logit", "--per-class", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    adam, logit = answer["results"]
    assert (adam["method"], logit["method"]) == ("adam", "fsr-logit")
    assert (adam["bytes"], logit["bytes"]) == (0, 20 * 839)
    for key in ("task_average", "first_task", "forgetting"):
        assert 0 <= logit[key]["stderr"] < 1
        assert -1 < logit[key]["mean"] < 1
    assert (folder / "accuracy.svg").read_bytes() == svg
    assert json.loads((folder / "results.json").read_text()) == answer
    # One more method joins; another memory does not.
    more = [*TINY, "--seeds", "1", "--methods", "adam,sgd", "--per-class", "1", "--out", str(folder)]
    assert main(more) == 0
    capsys.readouterr()
    other = [*TINY, "--methods", "adam", "--per-class", "2", "--out", str(folder)]
    assert "holds another experiment, of other per_class" in complaint(capsys, *other)


def test_two_comparisons_at_once_do_not_share_a_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with claimed(tmp_path / "x", "comparison"):
        assert "another process is at work in" in complaint(capsys, *TINY, "--out", str(tmp_path / "x"))


def test_output_that_nobody_reads() -> None:
    for redirection in (">&-", "| head -c 1 > /dev/null"):
        line = f"{shlex.join(command('list'))} {redirection}"
        done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_of_somebody_else(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    assert "holds no comparison" in complaint(capsys, *TINY, "--out", "mine")
    assert "holds no comparison" in complaint(capsys, *TINY, "--out", "mine/thesis.tex")
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"


def test_wrong_checksum(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / f"{name}-ubyte").write_bytes(b"not digits")
    arguments = ["--scale", "small", "--data-dir", str(tmp_path)]
    assert "has the wrong checksum" in complaint(capsys, *TINY, *arguments)
    assert not (tmp_path / "runs").exists()
    assert "has the wrong checksum" in complaint(capsys, "data", "get", "mnist", "--data-dir", str(tmp_path))
    assert main(["data", "verify", "mnist", "--data-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().out.count("BAD") == 4


def test_no_write_permission(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if os.geteuid() == 0:  # root may write anywhere but here
        out = "/proc/selfreminder"
    else:
        (tmp_path / "closed").mkdir(mode=0o500)
        out = "closed/out"
    assert out in complaint(capsys, *TINY, "--out", out)


def test_interrupted_and_resumed(tmp_path: Path) -> None:
    """Ctrl-C ends it with 130 and says how to go on; then it goes on, and the records are the same."""
    arguments = [
        "compare",
        "permuted-mnist",
        "--tasks",
        "6",
        "--epochs",
        "2",
        "--width",
        "0.1",
        "--seeds",
        "1",
        "--methods",
        "fsr-logit",
    ]
    for out in "abc":  # it may be done before it is interrupted
        process = subprocess.Popen(command(*arguments, "--out", out), stderr=subprocess.PIPE, text=True)
        while process.poll() is None:
            if any('"event": "task"' in path.read_text() for path in tmp_path.glob(f"{out}/*/records.jsonl")):
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=600)
        if process.returncode == 130:
            break
    assert process.returncode == 130, errors
    assert "To go on: selfreminder compare permuted-mnist --tasks 6" in errors
    for each in (out, "whole"):
        assert main([*arguments, "--out", each]) == 0
    (a,), (b,) = tmp_path.glob(f"{out}/*/records.jsonl"), tmp_path.glob("whole/*/records.jsonl")
    assert a.read_bytes() == b.read_bytes()


def test_interrupted_when_all_is_done() -> None:
    """Ctrl-C while Python itself ends: the command has said all that it has to say, and there is no traceback."""
    late = "import atexit, os, signal, sys; atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))"
    code = f"{late}\nfrom selfreminder.__main__ import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "list"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
    assert "fsr-logit" in done.stdout and "permuted-mnist" in done.stdout


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    for name in ("fsr-logit", "permuted-mnist", "random", "paper"):
        assert name in out
    assert main(["list", "--json"]) == 0
    names = {row["name"] for row in json.loads(capsys.readouterr().out)["results"]}
    assert {"sgd", "adam", "joint", "fsr-logit", "fsr-distill", "fsr-logitlab", "demo"} <= names


def test_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list"]) == 0
    assert re.search(r"embedded-mnist .* 4 of 4 files at hand", capsys.readouterr().out)
    assert main(["data", "verify"]) == 0
    good = re.findall(r"^(\S+)/\S+: good$", capsys.readouterr().out, re.MULTILINE)
    assert good.count("embedded-mnist") == 4  # a package of the system may bring others
    assert main(["data", "verify", "mnist"]) == 1
    assert capsys.readouterr().out.count(": missing") == 4
    assert main(["data", "get", "embedded-mnist"]) == 0


def test_memory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    memory = Memory.of(
        {"x": torch.zeros(3, 4)}, torch.zeros(3, 2), task=0, labels=torch.tensor([0, 1, -1]), time=86_400
    )
    save_memory(memory, "m")
    assert main(["memory", "list", "m", "--json"]) == 0
    items = json.loads(capsys.readouterr().out)["results"]
    expected = {"id": 2, "task": 0, "label": None, "source": None, "selection": "given"}
    assert items[2].items() >= (expected | {"time": "1970-01-02T00:00:00+00:00"}).items()
    assert main(["memory", "list", "m"]) == 0
    assert "1970-01-02" in capsys.readouterr().out
    assert main(["memory", "show", "m"]) == 0
    assert "x (4,) kept as uint8 (codec uint8)" in capsys.readouterr().out
    assert main(["memory", "verify", "m"]) == 0
    assert "good, 3 items" in capsys.readouterr().out
    content = (tmp_path / "m").read_bytes()
    (tmp_path / "m").write_bytes(content[:-1])
    assert "cut short" in complaint(capsys, "memory", "verify", "m")
    (tmp_path / "m").write_bytes(content[:-1] + b"\x07")
    for verb in ("verify", "show", "list"):
        assert "was changed after it was written" in complaint(capsys, "memory", verb, "m")


def modules_of(code: str) -> set[str]:
    lister = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", lister], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_imports_are_as_light_as_they_can_be() -> None:
    """Help needs neither torch nor numpy; the library needs torch, numpy and safetensors only."""
    silent = "with contextlib.redirect_stdout(io.StringIO()): m.main(['--help'])"
    help_only = modules_of(f"import selfreminder.cli as m, contextlib, io\n{silent}")
    assert not {"torch", "numpy", "matplotlib"} & help_only
    assert "torch" not in modules_of("import selfreminder")
    library = modules_of("from selfreminder import Reminder")
    assert "torch" in library
    assert not {"cyclopts", "rich", "matplotlib"} & library


def test_help_of_a_command_says_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "from a TOML file" in (listed := capsys.readouterr().out)
    assert "[methods.NAME]" not in listed
    assert main(["run", "--help"]) == 0
    assert "[methods.NAME]" in capsys.readouterr().out
    assert main(["memory", "--help"]) == 0
    assert "Delete items" in capsys.readouterr().out


def test_a_missing_extra_is_named() -> None:
    code = "import sys; sys.modules['matplotlib'] = None\nfrom selfreminder.__main__ import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "selfreminder: the command line needs matplotlib: pip install 'selfreminder[cli]'\n"
