import io
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from selfreminder._base.atomic import replace_file
from selfreminder._base.checked import without_check
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.lock import LockedError, is_locked, locked
from selfreminder.cli import grid_command, main
from selfreminder.cli.grid_command import failure_lines
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.folder import GRID, claimed, read_grid, write_grid
from selfreminder.experiment.pool import estimate, worker
from selfreminder.experiment.pool.estimate import RunTimes
from selfreminder.experiment.pool.grid import Grid
from selfreminder.experiment.pool.process import (
    FAILURE,
    TRACE,
    Done,
    Failed,
    Job,
    Progress,
    Worker,
    is_given_up,
    keep_failure,
    read_failure,
)
from selfreminder.experiment.records import RECORDS, STATE, TIMINGS
from selfreminder.experiment.run import run
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.status import read_status
from selfreminder.training import StoppedError
from tiny import TINY

SPEC = """
benchmark = "permuted-mnist"
data = "embedded-mnist"
images = 300
tasks = 2
epochs = 2
width = 0.05
per_class = 2
"""


def finish(grid: Grid) -> Grid:
    for _ in grid.run():
        pass
    return grid


def stop_after(steps: int, experiment: Experiment, folder: Path) -> None:
    count = iter(range(1000))
    with pytest.raises(StoppedError):
        run(experiment, folder, stop=lambda: next(count) == steps)


def epochs_timed(folder: Path) -> int:
    lines = (folder / TIMINGS).read_text().splitlines()
    return sum("epoch" in json.loads(line) for line in lines)


def written(folder: Path) -> int:
    """How many epochs and evaluations the runs of a folder have timed."""
    return sum(path.read_bytes().count(b"\n") for path in folder.glob(f"*/{TIMINGS}"))


# Failures -------------------------------------------------------------------------------------------------


def test_a_failure_is_kept_until_the_run_succeeds(tmp_path: Path) -> None:
    """Twice the same end, and it is not tried again unless told to; the others are run all the same."""
    folder = tmp_path / TINY.key
    stop_after(5, TINY, folder)
    state = (folder / STATE).read_bytes()
    (folder / STATE).write_bytes(b"nothing")
    other = replace(TINY, seed=1)
    for times in (1, 2):
        grid = finish(Grid([TINY, other], tmp_path, 1, check_first=False))
        (failed,) = [failure for _, failure in grid.failures]
        assert (failed.kind, failed.times) == ("mistake", times)
        assert without_check(json.loads((folder / FAILURE).read_text())) == vars(failed)
        assert grid.all[1].answer == Done()
    (folder / STATE).write_bytes(state)  # whatever it was, it has been mended
    for job in (grid := Grid([TINY, other], tmp_path, 1, check_first=False)).run():
        assert job is None
    ((_, failed),) = grid.failures
    assert is_given_up(failed)
    grid = finish(Grid([TINY, other], tmp_path, 1, check_first=False, retry_failed=True))
    assert [job.answer for job in grid.all] == [Done(), Done()]
    assert not (folder / FAILURE).exists()


def test_what_a_kill_left_of_a_run_that_is_done_is_removed(tmp_path: Path) -> None:
    """It came between the last record and the removal of the state or the failure."""
    folder = tmp_path / TINY.key
    run(TINY, folder)
    before = (folder / RECORDS).stat().st_mtime_ns
    for name in (STATE, FAILURE):
        (folder / name).write_text("{}")
    grid = finish(Grid([TINY], tmp_path))
    assert grid.all[0].answer == Done()
    assert sorted(path.name for path in folder.iterdir()) == [".lock", RECORDS, TIMINGS]
    assert (folder / RECORDS).stat().st_mtime_ns == before


def test_a_run_that_diverges_is_kept_with_its_reason(tmp_path: Path) -> None:
    wild, mistaken = replace(TINY, lr=1e30), replace(TINY, per_class=500, method="fsr-logit")
    grid = finish(Grid([wild], tmp_path, 1))
    kept = read_failure(tmp_path / wild.key)
    assert kept == grid.all[0].answer
    assert kept is not None
    assert kept.kind == "diverged"
    assert "at task 1, epoch" in kept.reason
    grid = finish(Grid([mistaken], tmp_path, 1))
    assert grid.failures[0][1].kind == "mistake"
    assert read_failure(grid.all[0].folder) is None  # a mistake in a comparison is mended, not kept
    assert [run.state for run in read_status(tmp_path).runs] == ["left"]


def test_which_failures_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = keep_failure(tmp_path / "new", Failed("no", "diverged"))
    assert first.times == 1
    assert not is_given_up(first)
    assert keep_failure(tmp_path / "new", Failed("other", "diverged")).times == 1
    again = keep_failure(tmp_path / "new", Failed("other", "diverged"))
    assert is_given_up(again)
    assert read_failure(tmp_path / "new") == again
    assert not is_given_up(replace(again, kind="system"))  # a full disk is not the run's fault
    monkeypatch.setattr("selfreminder.experiment.pool.process.__version__", "99.0")
    assert not is_given_up(again)  # a new version may do better
    (tmp_path / "new" / FAILURE).write_text("{")
    assert read_failure(tmp_path / "new") is None
    with locked(tmp_path / "new"):  # another process has it now
        keep_failure(tmp_path / "new", first)
    assert read_failure(tmp_path / "new") is None


def test_failures_in_words() -> None:
    many = [(f"run{i}", Failed("too large", "mistake")) for i in range(7)]
    lines = failure_lines([*many, ("other", Failed("diverged", "diverged", times=2))])
    assert lines == [
        "7 runs failed: too large (run0, run1, run2, run3, run4, 2 more)",
        "other failed: diverged; more than once, so not tried again without --retry-failed",
    ]


# Several processes ----------------------------------------------------------------------------------------


def test_locks(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "nowhere")
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(LockedError, match="another process is at work"), locked(tmp_path, patience=0.0):
            pass
    assert not is_locked(tmp_path)


def test_a_lock_goes_with_its_process(tmp_path: Path) -> None:
    """However it ends; and to ask for a lock leaves no trace in a folder, which may be an archive."""
    asked = "from selfreminder._base.lock import *\nwith locked(Path(r'{}')): print(flush=True); input()"
    command = [sys.executable, "-c", asked.format(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    assert is_locked(tmp_path)
    process.kill()
    process.communicate()
    assert not is_locked(tmp_path)
    (tmp_path / ".lock").unlink()
    assert not is_locked(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_parent_that_is_short_of_time_does_not_fall_behind() -> None:
    busy, (here, there) = object.__new__(Worker), multiprocessing.Pipe()
    busy.connection, busy.job = here, (job := Job(TINY, Path()))
    for epoch in (1, 2, 3):
        there.send(Progress(1, 2, epoch, 3, 0.5, epoch / 6))
    assert list(busy.news(deque(), stopping=False)) == [job]
    assert (job.progress, job.first_fraction) == (Progress(1, 2, 3, 3, 0.5, 0.5), 1 / 6)
    there.send(Progress(2, 2, 3, 3, 0.7, 1.0))
    there.send(Done())
    assert list(busy.news(deque(), stopping=False)) == [job]
    assert (job.progress, job.answer) == (Progress(2, 2, 3, 3, 0.7, 1.0), Done())


@pytest.mark.parametrize("terminal", [True, False])
def test_the_display(
    terminal: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = Grid([replace(TINY, seed=seed) for seed in range(3)], tmp_path, jobs=1)
    first, second, _ = grid.all

    def news() -> Iterator[Job | None]:
        first.started, first.answer = 0.0, Done()
        yield first
        second.started, second.first_fraction = time.monotonic() - 30, 0.0
        second.advance(Progress(2, 2, 1, 2, 0.75, 0.5))
        for grid.stopping in (False, True):
            monkeypatch.setattr(grid_command, "_PLAIN_EVERY", 0.0)
            monkeypatch.setattr(grid_command, "_LIVE_EVERY", 0.0)
            yield None

    monkeypatch.setattr(grid, "run", news)
    monkeypatch.setenv("FORCE_COLOR" if terminal else "NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    for _ in grid_command.run_live(grid):
        pass
    shown = re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", capsys.readouterr().err)
    assert re.search(r"permuted-mnist: 1 of 3 runs done, 1:3\d left", shown)  # a moment has passed
    assert "permuted-mnist: 1 of 3 runs done, stopping, Ctrl-C again ends it at once" in shown
    if terminal:
        assert re.search(r"adam seed 1 .* task 2/2  epoch 1/2  average 0.750  0:3\d left", shown)
    else:
        assert "adam seed 0: done; permuted-mnist: 1 of 3 runs done, ? left" in shown
        assert shown.count("; adam seed 1 task 2/2 (average 0.750)\n") == 2


@pytest.mark.parametrize("width", [80, 100, 130, 200])
def test_a_run_has_one_line_in_a_narrow_terminal(width: int, tmp_path: Path) -> None:
    named = replace(TINY, method="fsr-logit", strength=0.003, select="herding:kernel=gaussian")
    runs = [replace(named, seed=seed, per_class=size) for size in (1, 10) for seed in (8, 9)]
    grid = Grid([*runs, replace(runs[0], strength=0.3, select="random", seed=10)], tmp_path, jobs=2)
    for job in grid.all[:2]:
        job.started, job.first_fraction = time.monotonic() - 30, 0.0
    grid.all[0].advance(Progress(12, 20, 10, 20, 0.75, 0.5))
    console = Console(width=width, force_terminal=True, color_system=None, file=io.StringIO(), record=True)
    console.print(grid_command._picture(grid, width))
    first, second, _, *more = console.export_text().splitlines()
    assert more == []
    assert re.match(r"fsr-logit stre.*8 .*task 12/20  epoch 10/20  average 0.750  \d:\d\d left", first)
    assert re.match(r"fsr-logit stre.*9 +starting", second)


def test_what_another_process_is_writing_is_left_to_it(tmp_path: Path) -> None:
    """A folder's results and pages are written without its lock; only what the dead have left is removed."""
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        pass
    (tmp_path / GRID).write_text("{}")
    stale, report = tmp_path / f".results.json.{dead.pid}.part", tmp_path / "report.html"
    stale.touch()
    with replace_file(report) as temporary:
        temporary.write_text("whole")
        with claimed(tmp_path, "spec"):
            assert not stale.exists()
    assert report.read_text() == "whole"


def test_runs_that_others_have_are_left_to_them(tmp_path: Path) -> None:
    """One is finished by its owner, one fails there, one is given back unfinished: only that one is run here."""
    done, failing, given_back, own = experiments = [replace(TINY, seed=seed) for seed in range(4)]
    run(done, tmp_path / "elsewhere")
    with ExitStack() as owner:
        for experiment in (done, failing, given_back):
            (tmp_path / experiment.key).mkdir()
            owner.enter_context(locked(tmp_path / experiment.key))
        grid = Grid(experiments, tmp_path, 1)
        for job in grid.run():
            if job is grid.all[3] and job.answer is not None:
                assert [job.answer for job in grid.all] == [None, None, None, Done()]
                (tmp_path / done.key / RECORDS).write_bytes((tmp_path / "elsewhere" / RECORDS).read_bytes())
                (tmp_path / failing.key / FAILURE).write_text(json.dumps(vars(Failed("no", "diverged"))))
            elif all(job.elsewhere for job in grid.all[:3]) and grid.all[3].answer:
                assert read_status(tmp_path).count("running") == 2  # the third has just been finished
                owner.close()
    assert [job.answer for job in grid.all] == [Done(), Failed("no", "diverged"), Done(), Done()]
    assert not (tmp_path / done.key / TIMINGS).exists()
    assert not (tmp_path / failing.key / RECORDS).exists()
    assert epochs_timed(tmp_path / given_back.key) == epochs_timed(tmp_path / own.key) == 4


def test_two_commands_share_a_folder(tmp_path: Path) -> None:
    """Both end well, and every epoch of every run was trained once."""
    (tmp_path / "g.toml").write_text(SPEC + 'seeds = 3\n[grid]\nmethod = ["adam", "lwf"]\n')
    command = [sys.executable, "-m", "selfreminder", "run", "g.toml", "--jobs", "1", "--json"]
    both = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    for process in both:
        out, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
        assert json.loads(out)["done"] == 6
    assert [epochs_timed(path.parent) for path in tmp_path.glob(f"runs/g/*/{RECORDS}")] == [4] * 6


# Memory ---------------------------------------------------------------------------------------------------


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_free_memory(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    assert estimate.measure_free_memory(proc, groups) is None
    write(proc / "meminfo", "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    assert estimate.measure_free_memory(proc, groups) == 8000 * 1024
    # A group of version 2 without a limit, within one that has a limit; old files in memory can be given up.
    write(proc / "self" / "cgroup", "0::/outer/inner\n")
    write(groups / "outer" / "inner" / "memory.max", "max\n")
    write(groups / "outer" / "inner" / "memory.current", "5\n")
    assert estimate.measure_free_memory(proc, groups) == 8000 * 1024
    write(groups / "outer" / "memory.max", "3000000\n")
    write(groups / "outer" / "memory.current", "2500000\n")
    write(groups / "outer" / "memory.stat", "anon 7\ninactive_file 100000\n")
    assert estimate.measure_free_memory(proc, groups) == 600_000
    # Version 1, seen from within a container: the path is the host's, the folder is the container's own.
    write(proc / "self" / "cgroup", "5:cpu:/host/x\n4:memory:/host/x\n0::/\n")
    write(groups / "memory" / "memory.limit_in_bytes", "400000\n")
    write(groups / "memory" / "memory.usage_in_bytes", "500000\n")
    write(groups / "memory" / "memory.stat", "total_inactive_file 150000\n")
    assert estimate.measure_free_memory(proc, groups) == 50_000


def test_fewer_workers_where_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiments = [replace(TINY, seed=seed) for seed in range(9)]
    monkeypatch.setattr(estimate, "count_cores", lambda: 8)
    monkeypatch.setattr(estimate, "measure_free_memory", lambda: 2_000_000_000)
    grid = Grid(experiments, tmp_path)
    assert grid.workers == 3
    assert grid.note is not None
    assert grid.note.startswith("3 workers instead of 8: 2.0 GB of memory are free, and a worker may need 0.6 GB")
    assert Grid(experiments, tmp_path, jobs=8).workers == 8  # the user knows
    assert Grid(experiments, tmp_path, jobs=8).note is None
    assert Grid(experiments[:2], tmp_path).note is None  # not more are needed
    monkeypatch.setattr(estimate, "measure_free_memory", lambda: 1000)
    assert Grid(experiments, tmp_path).workers == 1  # one is tried in any case
    monkeypatch.setattr(estimate, "measure_free_memory", lambda: None)
    assert Grid(experiments, tmp_path).workers == 8
    more = replace(TINY, tasks=20)
    alone, long, joint = map(estimate.estimate_memory, (TINY, more, replace(more, method="joint")))
    assert alone < long < joint


# Status ---------------------------------------------------------------------------------------------------


def test_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done, partial, failed, left, running = [replace(TINY, seed=seed) for seed in range(5)]
    run(done, tmp_path / done.key)
    stop_after(5, partial, tmp_path / partial.key)  # 270 images: 3 steps an epoch
    keep_failure(tmp_path / failed.key, Failed("for no reason", "error"))
    earlier = replace(TINY, seed=9)
    run(earlier, tmp_path / earlier.key)
    # Without a list of runs, what has begun is known.
    assert [run.state for run in read_status(tmp_path).runs] == ["done", "left", "done"]
    write_grid(tmp_path, [done, partial, failed, left, running], {})
    (tmp_path / running.key).mkdir(exist_ok=True)
    with locked(tmp_path / running.key):
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
        found = read_status(tmp_path)
        assert main(["status", str(tmp_path), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before
    assert [run.state for run in found.runs] == ["done", "left", "failed", "left", "running"]
    assert [(run.tasks, run.epochs, run.epoch) for run in found.runs[:3]] == [(2, 4, 0), (0, 1, 1), (0, 0, 0)]
    assert found.others == 1
    seconds = [run.seconds for run in found.runs]
    per_epoch = (seconds[0] + seconds[1]) / 5
    assert found.work_left == pytest.approx((3 + 4 + 4) * per_epoch)
    assert found.seconds_left == found.work_left
    counts = {"done": 1, "running": 1, "failed": 1, "left": 2, "others": 1}
    assert {name: told[name] for name in counts} == counts
    assert [row["state"] for row in told["results"]] == [run.state for run in found.runs]
    assert told["results"][2]["failure"]["reason"] == "for no reason"
    assert main(["status", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "1 of 5 runs done, 0 running, 1 failed, 3 left;" in out
    assert f"{failed.key} failed: for no reason" in out
    assert "1/2     2/2" in out  # the partial run's task and epoch
    for damaged in (b"{}\n", b"\xff\n"):
        (tmp_path / done.key / RECORDS).write_bytes(damaged)
        assert read_status(tmp_path).runs[0].state == "failed"


def test_a_list_of_runs_that_is_damaged_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / GRID).write_bytes(b"\xff")
    write_grid(tmp_path, [TINY], {})
    assert read_grid(tmp_path) == [TINY]


def test_status_of_a_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--tasks", "2", "--epochs", "1", "--width", "0.05", "--seeds", "1", "--out", str(tmp_path / "x")]
    assert main(["compare", "permuted-mnist", "--methods", "adam", *small]) == 0
    capsys.readouterr()
    assert main(["status", str(tmp_path / "x"), "--all"]) == 0
    out = capsys.readouterr().out
    assert "1 of 1 runs done, 0 running, 0 failed, 0 left\n" in out
    assert "adam seed 0" in out


def test_status_of_what_is_no_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs").mkdir()
    for name, message in (("", "holds no runs"), ("rans", "did you mean 'runs'"), ("no/where", "does not exist")):
        assert main(["status", str(tmp_path / name)]) == 2
        assert message in capsys.readouterr().err
    (tmp_path / GRID).write_text("{")
    assert main(["status", str(tmp_path)]) == 2
    assert "grid.json is damaged" in capsys.readouterr().err


# The command ----------------------------------------------------------------------------------------------


def test_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not applicable fails alone; a grid that grows adds to the folder; one that shrinks shows its own."""
    monkeypatch.chdir(tmp_path)
    spec = Path("g.toml")
    spec.write_text(SPEC + '[grid]\nmethod = ["adam", "ewc", "hat"]\nseed = [0, 1]\n[methods.ewc]\nstrength = [1, 9]')
    assert main(["run", "g.toml", "--dry-run"]) == 0
    assert "8 of 8 runs are left: about" in capsys.readouterr().out
    assert not Path("runs").exists()
    assert main(["run", "g.toml", "--jobs", "1"]) == 1
    captured = capsys.readouterr()
    assert "2 runs failed: hat does not apply here" in captured.err
    assert "6 of 8 runs done" in captured.out
    folder = Path("runs/g")
    assert (folder / "spec.toml").read_bytes() == spec.read_bytes()
    assert len(read_grid(folder) or []) == 8
    assert (folder / "accuracy.png").exists()
    before = {path: path.stat().st_mtime_ns for path in folder.glob(f"*/{RECORDS}")}
    # Other grids in the same folder: nothing is run again, and only what belongs to them is shown.
    more = ["--set", "method=ewc", "--sweep", "strength=1,3", "--json"]
    assert main(["run", "g.toml", *more, "--jobs", "1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["varying"] == ["strength"]
    assert [(row["method"], row["settings"], row["seeds"]) for row in told["results"]] == [
        ("ewc", {"strength": 1.0}, 2),
        ("ewc", {"strength": 3.0}, 2),
    ]
    for row in told["results"]:
        for name in ("task_average", "first_task", "forgetting", "validation"):
            assert -1 <= row[name]["mean"] <= 1
            assert 0 <= row[name]["stderr"] <= 1
    assert json.loads((folder / "results.json").read_text()) == told
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(list(folder.glob(f"*/{RECORDS}"))) == 8
    about = json.loads((folder / GRID).read_text())
    assert (about["set"], about["sweep"]) == (["method=ewc"], ["strength=1,3"])
    assert main(["run", "g.toml", "--dry-run", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    states = [row["state"] for row in said["results"]]
    assert (states.count("done"), states.count("to be run")) == (6, 2)  # hat has failed once only
    assert (said["left"], said["by_times"]) == (2, 0), "nobody has timed hat"


def test_interrupted(tmp_path: Path) -> None:
    """Ctrl-C: the state is saved, 130, and how to go on is said; then status says where it stopped."""
    (tmp_path / "g.toml").write_text(SPEC.replace("epochs = 2", "epochs = 2000") + 'method = "adam"\n')
    command = [sys.executable, "-m", "selfreminder", "run", "g.toml"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    folder = tmp_path / "runs" / "g"
    while not written(folder):
        assert process.poll() is None
        time.sleep(0.02)
    assert read_status(folder).count("running") == 1
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130, errors
    assert "To go on: selfreminder run g.toml" in errors
    assert list(folder.glob(f"*/{STATE}"))
    (stopped,) = read_status(folder).runs
    assert stopped.state == "left"
    assert 0 < stopped.epochs < 4000


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (SPEC + "epochs = ", [], "no TOML"),
        (SPEC + "epoch = 1", [], "did you mean 'epochs'"),
        (SPEC + 'method = "adam"', ["--set", "epochs=x"], "it must be a whole number"),
        (SPEC + 'method = "adam"', ["--jobs", "0"], "jobs is 0"),
        (SPEC + 'method = "adam"', ["--out", "mine"], "holds no grid"),
        (SPEC + 'method = "adam"', ["--out", "mine/thesis.tex"], "holds no grid"),
        (SPEC + 'method = "adam"', ["--data-dir", "nowhere"], "the data folder nowhere does not exist"),
        (None, [], "g.toml: No such file"),
    ],
)
def test_mistakes(
    text: str | None,
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    if text is not None:
        (tmp_path / "g.toml").write_text(text)
    assert main(["run", "g.toml", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not (tmp_path / "runs").exists()
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_a_damaged_record_does_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.toml").write_text(SPEC + 'method = "adam"\nseeds = 2')
    assert main(["run", "g.toml", "--jobs", "1"]) == 0
    first = min((tmp_path / "runs" / "g").glob(f"*/{RECORDS}"))
    first.write_text("nonsense\n")
    capsys.readouterr()
    assert main(["run", "g.toml", "--jobs", "1", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["done"], len(told["failures"]), len(told["results"])) == (1, 1, 1)
    # Nor is a folder of the paper's figures taken over, whose own command would then refuse it.
    (tmp_path / "paper").mkdir()
    write_grid(tmp_path / "paper", [TINY], {"figure": "all", "scale": "demo"})
    before = (tmp_path / "paper" / GRID).read_bytes()
    assert main(["run", "g.toml", "--out", "paper"]) == 2
    assert "paper holds the paper's figures" in capsys.readouterr().err
    assert (tmp_path / "paper" / GRID).read_bytes() == before


def test_a_grid_takes_as_long_as_its_longest_run(tmp_path: Path) -> None:
    grid = Grid([replace(TINY, seed=seed) for seed in range(2)], tmp_path, jobs=2, more=list)
    done, last = grid.all
    for job, fraction in ((done, 1.0), (last, 0.25)):
        job.started, job.first_fraction = time.monotonic() - 10, 0.0
        job.progress = Progress(1, 2, 1, 2, None, fraction)
    done.answer = Done()
    assert grid.seconds_left() == pytest.approx(30, rel=0.1)


def test_times_are_those_of_the_runs_most_alike() -> None:
    small, large = replace(TINY, method="ewc"), replace(TINY, method="ewc", width=1.0)
    seen = [(small, 1.0, 4.0)] * 30 + [(large, 0.5, 200.0), (replace(TINY, images=150), 1.0, 2.0)]
    times = RunTimes(seen)
    assert times.estimate(replace(large, seed=9)) == pytest.approx(400.0)
    assert times.estimate(replace(large, seed=9, tasks=4)) == pytest.approx(800.0)
    assert times.estimate(replace(small, method="lwf")) == pytest.approx(4.0)  # the same data, another method
    assert times.estimate(replace(TINY, images=150, method="ewc")) == pytest.approx(2.0)
    assert RunTimes([]).estimate(small) is None


def test_a_comparison_without_results_is_json_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    comparison = Comparison(benchmark="permuted-mnist", methods=("adam",), seeds=1, tasks=2)
    (run,) = comparison.experiments
    for _ in range(2):
        keep_failure(tmp_path / "x" / run.key, Failed("loss is nan", "diverged"))
    write_grid(tmp_path / "x", [run], {"comparison": comparison.as_dict()})
    options = ["--methods", "adam", "--seeds", "1", "--tasks", "2", "--out", str(tmp_path / "x"), "--json"]
    assert main(["compare", "permuted-mnist", *options]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["results"] == []
    assert "loss is nan" in captured.err


def test_a_damaged_record_stops_a_comparison_and_fails_in_a_grid(tmp_path: Path) -> None:
    (tmp_path / TINY.key).mkdir()
    (tmp_path / TINY.key / RECORDS).write_text("nonsense\n")
    with pytest.raises(SelfReminderError, match="is damaged"):
        Grid([TINY], tmp_path)
    grid = finish(Grid([TINY], tmp_path, 1, check_first=False))
    assert "remove its folder to run it again" in grid.failures[0][1].reason


# Killed at any moment -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_grid_that_is_killed_again_and_again(tmp_path: Path) -> None:
    """kill -9 of all its processes, ten times: the records are those of a grid never killed, nothing is done twice."""
    spec = tmp_path / "g.toml"
    of_method = '\nseeds = 6\n[grid]\nmethod = ["adam", "ewc", "lwf", "fsr-logit"]\n'
    spec.write_text(SPEC.replace("images = 300", "images = 1000").replace("epochs = 2", "epochs = 4") + of_method)
    command = [sys.executable, "-m", "selfreminder", "run", str(spec), "--jobs", "2", "--out"]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    folder, chance = tmp_path / "killed", random.Random(0)
    finished: dict[Path, tuple[int, int]] = {}
    cut = 0
    for kill in range(10):
        before = written(folder)
        process = subprocess.Popen([*command, str(folder)], start_new_session=True, stderr=subprocess.DEVNULL)
        if kill % 4 == 0:
            time.sleep(chance.uniform(0.0, 2.0))  # most likely while it starts
        else:  # by what has been done, so that a slow machine gets as far as a fast one
            enough = before + chance.randint(1, 40)  # short runs begin again: some must come to their end
            while written(folder) < enough:
                time.sleep(0.005)
                assert process.poll() is None
            time.sleep(chance.uniform(0.0, 0.05))
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        found = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.glob(f"*/{RECORDS}")}
        assert {path: found[path] for path in finished} == finished
        finished |= {path: seen for path, seen in found.items() if b'"event": "done"' in path.read_bytes()}
        cut += len(found) - len(finished)
    assert 0 < len(finished) < 24
    assert cut > 0
    subprocess.run([*command, str(folder)], check=True, capture_output=True)
    whole = {path.parent.name: path.read_bytes() for path in (tmp_path / "whole").glob(f"*/{RECORDS}")}
    assert {path.parent.name: path.read_bytes() for path in folder.glob(f"*/{RECORDS}")} == whole
    assert len(whole) == 24
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in finished} == finished
    assert not list(folder.glob(f"*/{STATE}"))


def test_a_run_that_takes_its_worker_down_three_times_is_given_up(tmp_path: Path) -> None:
    job, waiting = Job(TINY, tmp_path / TINY.key), deque[Job]()
    for death in (1, 2, 3):
        taken = Worker(None)
        taken.kill()
        taken.take(waiting.popleft() if waiting else job)
        assert list(taken.news(waiting, stopping=False)) == [job]
        assert (job.deaths, taken.alive) == (death, False)
        assert list(waiting) == ([job] if death < 3 else [])
    assert job.answer == Failed("its process died 3 times (exit code -9)", "died")


def test_a_defect_leaves_its_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the worker goes on to the next run."""
    monkeypatch.setattr(worker, "run", lambda *_, **__: 1 / 0)
    monkeypatch.setattr(worker.signal, "signal", lambda *_: None)  # those of the tests stay
    ours, theirs = multiprocessing.Pipe()
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        ours.send((TINY, folder))
    ours.send(None)
    worker.work(theirs, None, [])
    for folder in folders:
        assert ours.recv() == Failed(f"ZeroDivisionError: division by zero (see error.txt in {folder})", "error")
        assert "ZeroDivisionError" in (folder / TRACE).read_text()


def test_a_folder_that_is_removed_under_way(tmp_path: Path) -> None:
    """It is said, and the same command goes on: what is there is a grid's folder again."""
    folder, experiments = tmp_path / "grid", [TINY, replace(TINY, seed=1)]
    grid, removed = Grid(experiments, folder, jobs=1), False
    with pytest.raises(SelfReminderError, match=r"grid was removed while its runs were under way: run the same"):
        for job in grid.run():
            if not removed and job is not None and job.progress is not None:
                shutil.rmtree(folder)
                removed = True
    again = Grid(experiments, folder, jobs=1)
    assert read_grid(folder) == experiments
    list(again.run())
    assert all(isinstance(job.answer, Done) for job in again.all)


def test_a_run_whose_folder_is_removed_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="removed while its run was under way"):
        run(TINY, tmp_path / "run", watch=lambda progress: shutil.rmtree(tmp_path / "run", ignore_errors=True))
