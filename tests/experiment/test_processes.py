"""A run by two processes: the records of one up to rounding, stopped and gone on with, killed, and what is refused."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from selfreminder._base.errors import SelfReminderError
from selfreminder.experiment.pool.estimate import count_cores, count_workers
from selfreminder.experiment.records import RECORDS, STATE, Records
from selfreminder.experiment.run import run
from selfreminder.experiment.spec import Experiment
from selfreminder.training import StoppedError
from tiny import TINY

LEARNING = replace(TINY, method="fsr-logit", images=1000, width=0.1, lr=0.003, epochs=3, per_class=10)


def compare_records(one: Records, two: Records) -> None:
    """Say that two runs are the same but for rounding."""
    losses = [event["loss"] for event in one.epochs]
    assert [event["loss"] for event in two.epochs] == pytest.approx(losses, rel=1e-3)
    for row, other in zip(one.test, two.test, strict=True):
        assert other == pytest.approx(row, abs=0.01)
    for name in ("bytes", "steps", "new_items", "passes"):
        assert [event[name] for event in two.tasks] == [event[name] for event in one.tasks]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["adam", "ewc", "fsr-logit", "derpp", "gem", "lwf"])
def test_the_accuracies_of_one_process(tmp_path: Path, method: str) -> None:
    experiment = replace(LEARNING, method=method)
    one, two = run(experiment, tmp_path / "1"), run(replace(experiment, processes=2), tmp_path / "2")
    assert one.test[0][0] > 0.5, "it learns"
    compare_records(one, two)


@pytest.mark.slow
def test_batch_norm_and_heads(tmp_path: Path) -> None:
    pictures = Experiment(
        benchmark="color-cifar10", method="fsr-logit", data="generated-10", tasks=2, epochs=2, width=0.05, per_class=2
    )
    heads = replace(LEARNING, benchmark="split-mnist", method="hat", lr=0.05, optimizer="sgd")
    for name, experiment in (("pictures", pictures), ("heads", heads)):
        one = run(experiment, tmp_path / name / "1")
        two = run(replace(experiment, processes=2), tmp_path / name / "2")
        losses = [event["loss"] for event in one.epochs]
        assert [event["loss"] for event in two.epochs] == pytest.approx(losses, rel=0.02)


@pytest.mark.slow
def test_stopped_and_gone_on_with(tmp_path: Path) -> None:
    """After a step, and in an evaluation: the records are those of two processes in one go."""
    experiment = replace(LEARNING, images=300, epochs=2, processes=2)
    run(experiment, tmp_path / "whole")
    places = []
    for last in (3, 4):
        count = iter(range(1000))
        with pytest.raises(StoppedError) as stopped:
            run(experiment, tmp_path / "cut", stop=lambda count=count, last=last: next(count) == last)
        places.append(stopped.traceback[-1].name)
        assert (tmp_path / "cut" / STATE).exists()
    assert places == ["_epoch", "_predict"]
    run(experiment, tmp_path / "cut")
    assert (tmp_path / "cut" / RECORDS).read_bytes() == (tmp_path / "whole" / RECORDS).read_bytes()
    assert sorted(path.name for path in (tmp_path / "cut").iterdir() if path.name[0] != ".") == [
        "memory.safetensors",
        RECORDS,
        "timings.jsonl",
    ]


@pytest.mark.slow
def test_ctrl_c_and_a_process_that_is_lost(tmp_path: Path) -> None:
    """The command saves at Ctrl-C; a process that is killed ends the run in a line; none is left over."""
    (tmp_path / "g.toml").write_text(
        'benchmark = "permuted-mnist"\nmethod = "adam"\ndata = "embedded-mnist"\ntasks = 1\nepochs = 100000\n'
        "width = 0.05\nimages = 300\n"
    )
    command = [sys.executable, "-m", "selfreminder", "run", "g.toml", "--processes", "2", "--jobs", "1"]
    folder = tmp_path / "runs" / "g"
    for number, code, said in ((signal.SIGINT, 130, "To go on"), (signal.SIGKILL, 1, "process 2 of this run ended")):
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
            before = time.time()
            while not any(path.stat().st_mtime > before for path in folder.glob("*/timings.jsonl")):
                assert process.poll() is None
                time.sleep(0.1)
            others = _find_others(tmp_path)
            assert others
            if number == signal.SIGINT:
                process.send_signal(number)
            else:
                os.kill(others[0], number)
            _, errors = process.communicate(timeout=300)
        assert process.returncode == code and said in errors, errors
        assert list(folder.glob(f"*/{STATE}")) and not _find_others(tmp_path)


def _find_others(folder: Path) -> list[int]:
    """The processes of a run that a command in this folder began: another test may have begun some meanwhile."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is somebody else's
            of_a_run = b"experiment.rank_process" in (place / "cmdline").read_bytes()
            if of_a_run and (place / "cwd").readlink() == folder.resolve():
                found.append(int(place.name))
    return found


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SelfReminderError, match="processes is 0: it must be at least 1"):
        replace(TINY, processes=0)
    for device in ("mps", "cuda:1"):
        with pytest.raises(SelfReminderError, match=f"the device is cpu or cuda, not {device}"):
            replace(TINY, processes=2, device=device)
    with pytest.raises(SelfReminderError, match="other processes cannot be given a stream or a model of yours"):
        run(replace(TINY, processes=2), tmp_path, model=lambda: nn.Linear(784, 10))


def test_workers_have_a_core_for_each_process() -> None:
    assert count_workers([replace(TINY, processes=64)])[0] == 1
    assert count_workers([TINY])[0] <= count_cores()


def test_one_process_is_the_same_run() -> None:
    assert replace(TINY, processes=1).key == TINY.key and "processes" not in TINY.as_recorded()
    two = replace(TINY, processes=2)
    assert two.key != TINY.key and two.as_recorded()["processes"] == 2
