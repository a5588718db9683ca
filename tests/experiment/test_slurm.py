"""The array job of Slurm, by submitit's local executor: tasks take runs, and go on after a time limit."""

import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from selfreminder._base.errors import MissingExtraError, SelfReminderError
from selfreminder.cli import main
from selfreminder.experiment.cluster import find_slurm
from selfreminder.experiment.folder import write_grid
from selfreminder.experiment.pool.process import Failed, keep_failure, read_failure
from selfreminder.experiment.records import RECORDS, STATE, read_records
from selfreminder.experiment.run import run
from tiny import TINY

pytest.importorskip("submitit")
SPEC = """
benchmark = "permuted-mnist"
data = "embedded-mnist"
images = 300
tasks = 2
epochs = {epochs}
width = 0.05
per_class = 2
method = "fsr-logit"
seeds = {seeds}
"""


def test_a_task_takes_what_is_left(tmp_path: Path) -> None:
    """Not what is done, nor what has failed since, nor more once it is asked to stop."""
    slurm = pytest.importorskip("selfreminder.experiment.cluster.slurm")
    runs = [replace(TINY, seed=seed) for seed in range(3)] + [replace(TINY, lr=1e30)]
    write_grid(tmp_path, runs, {})
    run(runs[0], tmp_path / runs[0].key)
    before = (tmp_path / runs[0].key / RECORDS).stat().st_mtime_ns
    keep_failure(tmp_path / runs[1].key, Failed("no", "error"))
    asked = threading.Event()
    slurm.take_runs(tmp_path, None, {}, asked)
    assert (tmp_path / runs[0].key / RECORDS).stat().st_mtime_ns == before
    assert read_records(tmp_path / runs[1].key) is None
    done = read_records(tmp_path / runs[2].key)
    assert done is not None and done.done
    failure = read_failure(tmp_path / runs[3].key)
    assert failure is not None and failure.kind == "diverged" and failure.times == 1
    asked.set()
    slurm.take_runs(tmp_path, None, {runs[1].key: read_failure(tmp_path / runs[1].key)}, asked)
    assert read_records(tmp_path / runs[1].key) is None


def test_a_run_that_nobody_wants_any_more_is_left(tmp_path: Path) -> None:
    slurm = pytest.importorskip("selfreminder.experiment.cluster.slurm")
    write_grid(tmp_path, [TINY], {})
    unlisted = slurm._Unlisted(tmp_path, TINY.key, threading.Event())
    assert not unlisted()
    write_grid(tmp_path, [replace(TINY, seed=1)], {})
    unlisted.looked = 0.0
    assert unlisted()


def test_mistakes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SelfReminderError, match="write a setting of submitit, such as timeout_min=240"):
        find_slurm(["time"])
    compare = ["compare", "permuted-mnist", "--seeds", "1", "--out", str(tmp_path / "out")]
    monkeypatch.setenv("PATH", "")
    for words, said in (
        (["--on", "slurm"], "--on slurm: the array cannot be submitted"),
        (["--on", "slurm", "--slurm", "cluster=local", "--slurm", "nonsense=1"], "the array cannot be submitted"),
        (["--slurm", "timeout_min=1"], "--slurm timeout_min=1 is for --on slurm"),
    ):
        assert main([*compare, *words]) == 2
        line = capsys.readouterr().err
        assert said in line and line.count("\n") == 1
    monkeypatch.setitem(sys.modules, "selfreminder.experiment.cluster.slurm", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'selfreminder\[slurm\]'"):
        find_slurm([])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_array_goes_on_after_its_time_limit(tmp_path: Path) -> None:
    """From the command line. The signal that submitit sends before the limit is sent once the run has begun.

    submitit's own processes outlive what started them, and Python warns of that.
    """
    spec, folder = tmp_path / "grid.toml", tmp_path / "out"
    spec.write_text(SPEC.format(epochs=200, seeds=2))

    def send_signal() -> None:
        begun: list[Path] = []
        while not begun:
            time.sleep(0.05)
            begun = [path for path in folder.glob(f"*/{RECORDS}") if b'"epoch"' in path.read_bytes()]
        process = (begun[0].parent / ".lock").read_text().split()[1]
        os.kill(int(process), signal.SIGUSR2)

    threading.Thread(target=send_signal, daemon=True).start()
    words = ["run", str(spec), "--on", "slurm", "--jobs", "1", "--slurm", "cluster=local", "--slurm", "timeout_min=10"]
    assert main([*words, "--out", str(folder)]) == 0
    logs = "".join(path.read_text() for path in (folder / ".slurm").glob("*_log.*"))
    assert logs.count("Requeued job") == 1
    assert not list(folder.glob(f"*/{STATE}"))
    for path in folder.glob(f"*/{RECORDS}"):
        records = read_records(path.parent)
        assert records is not None
        run(records.experiment, tmp_path / "here" / path.parent.name)
        assert (tmp_path / "here" / path.parent.name / RECORDS).read_bytes() == path.read_bytes()
