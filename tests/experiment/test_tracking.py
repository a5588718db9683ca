"""Trackers are told what the records say, once, whatever happens in between; none of them can harm a run."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from selfreminder._base.checked import without_check
from selfreminder._base.errors import MissingExtraError, SelfReminderError
from selfreminder.cli import main
from selfreminder.experiment.records import RECORDS, Records, read_records
from selfreminder.experiment.run import run
from selfreminder.experiment.tracking import TrackedRun, Tracking, base, follow
from selfreminder.training import StoppedError
from tiny import TINY

LONGER = replace(TINY, method="fsr-logit", tasks=2, epochs=3)
COMMAND = ["compare", "permuted-mnist", "--tasks", "2", "--epochs", "3", "--width", "0.05", "--seeds", "1"]


def expected(records: Records) -> dict[str, dict[int, float]]:
    """What the records say, by name and step."""
    epochs = records.experiment.epochs
    found: dict[str, dict[int, float]] = {
        "loss": {e["task"] * epochs + e["epoch"] + 1: e["loss"] for e in records.epochs}
    }
    for event in records.tasks:
        step = (event["task"] + 1) * epochs
        for part in ("test", "validation"):
            for task, share in enumerate(event[part]):
                found.setdefault(f"{part}/task_{task}", {})[step] = share
            found.setdefault(f"{part}/average", {})[step] = sum(event[part]) / len(event[part])
        found.setdefault("bytes", {})[step] = event["bytes"]
    return found


def read_tensorboard(folder: Path, name: str) -> dict[str, dict[int, float]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder / "tensorboard" / name), size_guidance={"scalars": 0})
    events.Reload()
    told: dict[str, dict[int, float]] = {}
    for tag in events.Tags()["scalars"]:
        scalars = events.Scalars(tag)
        assert len({each.step for each in scalars}) == len(scalars)  # nothing was told twice
        told[tag] = {each.step: each.value for each in scalars}
    return told


def read_mlflow(folder: Path) -> dict[str, tuple[dict[str, str], dict[str, dict[int, float]], list[str]]]:
    """Of each tracked run: parameters, metrics, files."""
    client = pytest.importorskip("mlflow").MlflowClient(tracking_uri=f"sqlite:///{folder.resolve() / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(folder.name)
    found = {}
    for each in client.search_runs([experiment.experiment_id]):
        metrics = {}
        for name in each.data.metrics:
            history = client.get_metric_history(each.info.run_id, name)
            assert len({point.step for point in history}) == len(history)
            metrics[name] = {point.step: point.value for point in history}
        files = [item.path for item in client.list_artifacts(each.info.run_id)]
        assert each.info.run_name not in found
        found[each.info.run_name] = (each.data.params, metrics, files)
    return found


def without_times(told: Mapping[str, dict[int, float]]) -> dict[str, dict[int, float]]:
    return {name: points for name, points in told.items() if not name.endswith("seconds")}


class Listener:
    """A tracker that keeps what it hears."""

    heard: list[tuple[object, ...]]
    fail_at = -1

    def start(self, run: TrackedRun, known: str | None) -> str:
        Listener.heard.append(("start", run.name, known))
        return known or f"of {run.name}"

    def epoch(self, step: int, values: Mapping[str, float]) -> None:
        self._hear("epoch", step, dict(values))

    def task(self, step: int, values: Mapping[str, float]) -> None:
        self._hear("task", step, dict(values))

    def _hear(self, *words: object) -> None:
        if len(Listener.heard) == Listener.fail_at:
            raise RuntimeError("the server\nis away")
        Listener.heard.append(words)

    def end(self, files: Sequence[Path]) -> None:
        Listener.heard.append(("end", *(path.name for path in files)))


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> type[Listener]:
    monkeypatch.setattr(follow, "load_tracker", lambda name: Listener)
    monkeypatch.setattr(follow, "_EVERY", 0.02)
    Listener.heard, Listener.fail_at = [], -1
    return Listener


def test_what_a_kill_left_out_of_the_note_is_not_told_twice(tmp_path: Path) -> None:
    """It came between a tracker's word and the note of it."""
    tensorboard = pytest.importorskip("selfreminder.experiment.tracking.tensorboard")
    for known in (None, "before"):
        tracker = tensorboard.OwnTracker()
        tracker.start(TrackedRun("a", tmp_path, {"method": "adam"}), known)
        tracker.epoch(1, {"loss": 0.5})
    tracker.epoch(2, {"loss": 0.25})
    tracker.end([])
    assert read_tensorboard(tmp_path, "a") == {"loss": {1: 0.5, 2: 0.25}}


def test_a_run_that_goes_on_is_told_of_once(tmp_path: Path, listener: type[Listener]) -> None:
    """It is stopped at each of many steps, and another process follows it each time."""
    folder, asked = tmp_path / LONGER.key, iter(range(1000))
    stops, done = 0, False
    while not done:
        with Tracking(["any"]).following(tmp_path, lambda: [folder]), suppress(StoppedError):
            stops += 1
            done = run(LONGER, folder, stop=lambda: next(asked) % 5 == 4).done
    assert stops > 5
    records = read_records(folder)
    assert records is not None
    values = [(what, step) for what, step, *_ in listener.heard if what in ("epoch", "task")]
    assert values == [
        *(("epoch", step) for step in (1, 2, 3)),
        ("task", 3),
        *(("epoch", step) for step in (4, 5, 6)),
        ("task", 6),
    ]
    told: dict[str, dict[int, float]] = {}
    for what, step, *rest in listener.heard:
        if what in ("epoch", "task"):
            for name, value in rest[0].items():  # pyright: ignore
                told.setdefault(name, {})[step] = value  # pyright: ignore
    assert without_times(told) == expected(records)
    assert told["seconds"].keys() == {1, 2, 3, 4, 5, 6}
    assert {known for what, _, known in [e for e in listener.heard if e[0] == "start"][1:]} == {f"of {LONGER.key}"}
    assert listener.heard[-1] == ("end", "memory.safetensors")
    before = list(listener.heard)
    with Tracking(["any"]).following(tmp_path, lambda: [folder]):
        pass
    assert listener.heard == before


def test_runs_that_are_done_are_told_of_afterwards(tmp_path: Path, listener: type[Listener]) -> None:
    run(TINY, tmp_path / TINY.key)
    with Tracking(["any"]).following(tmp_path, lambda: [tmp_path / TINY.key, tmp_path / "none"]):
        pass
    assert [what for what, *_ in listener.heard] == ["start", *["epoch", "epoch", "task"] * 2, "end"]
    kept = without_check(json.loads((tmp_path / TINY.key / follow.TRACKED).read_text()))
    assert kept["any"]["ended"]


@pytest.mark.parametrize("fail_at", [1, 3])
def test_a_tracker_that_fails_warns_and_stops_nothing(
    fail_at: int, tmp_path: Path, listener: type[Listener], capsys: pytest.CaptureFixture[str]
) -> None:
    listener.fail_at = fail_at
    with Tracking(["any"]).following(tmp_path, lambda: [tmp_path / TINY.key]):
        run(TINY, tmp_path / TINY.key)
    assert capsys.readouterr().err.count("\n") == 1
    assert len(listener.heard) == fail_at
    listener.fail_at = -1  # it is back: what it has not heard is told
    with Tracking(["any"]).following(tmp_path, lambda: [tmp_path / TINY.key]):
        pass
    steps = [words[:2] for words in listener.heard if words[0] in ("epoch", "task")]
    assert steps == [("epoch", 1), ("epoch", 2), ("task", 2), ("epoch", 3), ("epoch", 4), ("task", 4)]


def test_the_warning_is_a_line(tmp_path: Path, listener: type[Listener], capsys: pytest.CaptureFixture[str]) -> None:
    listener.fail_at = 1
    run(TINY, tmp_path / TINY.key)
    with Tracking(["any"]).following(tmp_path, lambda: [tmp_path / TINY.key]):
        pass
    said = "selfreminder: --track any failed (RuntimeError: the server is away); the runs go on without it\n"
    assert capsys.readouterr().err == said


def test_bad_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SelfReminderError, match="unknown tracker 'mlfow': did you mean 'mlflow'"):
        base.load_tracker("mlfow")
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    monkeypatch.delitem(sys.modules, "selfreminder.experiment.tracking.tensorboard", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'selfreminder\[tensorboard\]'"):
        base.load_tracker("tensorboard")
    assert main([*COMMAND, "--track", "tensorboard"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # of MLflow's own
def test_tensorboard_and_mlflow_hold_what_the_records_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the command line, killed with -9 in the middle and started again: each run is one tracked run."""
    pytest.importorskip("tensorboard")
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    folder = tmp_path / "tracked"
    words = ["--methods", "adam,fsr-logit", "--track", "mlflow", "--track", "tensorboard"]
    command = [sys.executable, "-m", "selfreminder", *COMMAND, *words, "--jobs", "1", "--out", str(folder)]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 600
    while not any("bytes" in path.read_text() for path in folder.glob(f"*/{follow.TRACKED}")):
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"]
    in_mlflow = read_mlflow(folder)
    runs = {path.parent.name: read_records(path.parent) for path in folder.glob(f"*/{RECORDS}")}
    assert len(runs) == 2
    assert in_mlflow.keys() == {*runs, "figures"}
    for name, records in runs.items():
        assert records is not None
        parameters, metrics, files = in_mlflow[name]
        assert parameters["method"] == records.experiment.method
        assert without_times(metrics) == expected(records)
        assert files == (["memory.safetensors"] if records.experiment.method == "fsr-logit" else [])
        rounded = {
            tag: {step: float(np.float32(value)) for step, value in points.items()}
            for tag, points in expected(records).items()
        }
        assert without_times(read_tensorboard(folder, name)) == rounded
        assert metrics["seconds"].keys() == metrics["loss"].keys()
    assert in_mlflow["figures"][2] == ["accuracy.png", "costs.png"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trackio", "wandb"])
def test_the_others_offline(name: str, tmp_path: Path) -> None:
    """In a process of its own: they keep threads, and wandb a process."""
    pytest.importorskip(name)
    folder = tmp_path / "tracked"
    environment = {"TRACKIO_DIR": str(tmp_path / "trackio"), "WANDB_MODE": "offline", "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "selfreminder", *COMMAND, "--methods", "fsr-logit", "--track", name]
    done = subprocess.run(
        [*command, "--out", str(folder), "--json"],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stderr
    json.loads(done.stdout)
    (path,) = folder.glob(f"*/{follow.TRACKED}")
    assert without_check(json.loads(path.read_text()))[name]["ended"]
    if name == "trackio":
        records = read_records(path.parent)
        assert records is not None
        with sqlite3.connect(tmp_path / "trackio" / "tracked.db") as data:
            query = "select step, metrics from metrics where run_name = ?"
            rows = [(step, json.loads(text)) for step, text in data.execute(query, [path.parent.name])]
        told: dict[str, dict[int, float]] = {}
        for step, values in rows:
            for tag, value in values.items():
                told.setdefault(tag, {})[step] = value
        assert without_times(told) == expected(records)
