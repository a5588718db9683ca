"""Runs on a Ray cluster of two nodes of this machine: nodes and drivers come and go, the records stay the same."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ports import find_port
from selfreminder._base.errors import MissingExtraError, SelfReminderError
from selfreminder.cli import main
from selfreminder.experiment.carried import Carried, read_changes
from selfreminder.experiment.cluster import open_place
from selfreminder.experiment.cluster.ray_actor import Actor, Away, Ended
from selfreminder.experiment.pool.process import Done, Failed
from selfreminder.experiment.records import RECORDS, STATE, TIMINGS, read_records
from selfreminder.experiment.run import run
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.sweep import read_sweep
from selfreminder.training import StoppedError

SPEC = """
benchmark = "permuted-mnist"
data = "embedded-mnist"
images = 300
tasks = 2
width = 0.05
per_class = 2
epochs = {epochs}

[grid]
seed = {seeds}
method = ["adam", "fsr-logit"]
"""
COMPARE = ["compare", "permuted-mnist"]
SECONDS = 600
"""after which something hangs: a node that starts imports torch several times, while the machine may do other things"""


def make_spec(epochs: int, seeds: int) -> str:
    """So many runs of each method, in turn."""
    return SPEC.format(epochs=epochs, seeds=list(range(seeds)))


def add_node(cluster: Any) -> Any:
    """Ray itself waits half a minute at most."""
    node = cluster.add_node(num_cpus=1, wait=False)
    cluster._wait_for_node(node, SECONDS)
    return node


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head with one core, which other drivers reach at `client`, and another node."""
    utils = pytest.importorskip("ray.cluster_utils")
    port = find_port()
    head = {"num_cpus": 1, "include_dashboard": False, "ray_client_server_port": port, "wait": False}
    made = utils.Cluster(initialize_head=True, head_node_args=head)
    made._wait_for_node(made.head_node, SECONDS)
    made.client = f"ray://127.0.0.1:{port}"
    made.second = add_node(made)
    before = os.environ.get("RAY_ADDRESS")
    os.environ["RAY_ADDRESS"] = made.address
    yield made
    made.shutdown()
    if before is None:
        del os.environ["RAY_ADDRESS"]
    else:
        os.environ["RAY_ADDRESS"] = before


UNSEEN = """
import sys
from pathlib import Path
from selfreminder.cli import main
touch = Path.touch
Path.touch = lambda self, *a, **k: None if self.name.startswith(".seen") else touch(self, *a, **k)
sys.exit(main())
"""
"""a driver whose folder the nodes do not see: what they look for there is missing"""


def start(spec: Path, folder: Path, on: str, log: Path, program: str | None = None) -> subprocess.Popen[bytes]:
    command = [sys.executable, *(("-c", program) if program else ("-m", "selfreminder"))]
    command += ["run", str(spec), "--out", str(folder), "--on", on]
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)


def count_done(folder: Path) -> int:
    return sum(b'"done"' in path.read_bytes() for path in folder.glob(f"*/{RECORDS}"))


def count_under_way(folder: Path, epochs: int) -> int:
    """How many runs train, and have, as far as is known here, a quarter or more before them: none ends at once."""
    found = [records.parent for records in folder.glob(f"*/{RECORDS}") if b'"done"' not in records.read_bytes()]
    lines = [(run / TIMINGS).read_bytes().count(b"\n") for run in found if (run / TIMINGS).exists()]
    return sum(0 < count < 1.5 * epochs for count in lines)  # of two tasks


def wait_until(happened: Callable[[], bool], driver: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert driver.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def check_same_bytes(folder: Path, here: Path) -> None:
    """Run all runs of a folder on this machine, and compare their records."""
    for path in folder.glob(f"*/{RECORDS}"):
        records = read_records(path.parent)
        assert records is not None
        run(records.experiment, here / path.parent.name)
        assert (here / path.parent.name / RECORDS).read_bytes() == path.read_bytes()


def check_goes_on(stopped: Path, here: Path) -> None:
    """Go on with a run that was stopped, and compare its records with those of one that was not."""
    records = read_records(stopped)
    assert records is not None
    run(records.experiment, stopped)
    run(records.experiment, here)
    assert (here / RECORDS).read_bytes() == (stopped / RECORDS).read_bytes()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own, of its import and of processes that were killed
def test_nodes_and_drivers_may_die(cluster: Any, tmp_path: Path) -> None:
    spec, folder, logs = tmp_path / "grid.toml", tmp_path / "out", [tmp_path / "first.log", tmp_path / "second.log"]
    spec.write_text(make_spec(epochs=8, seeds=12))
    first = start(spec, folder, "auto", logs[0])
    wait_until(lambda: count_done(folder) >= 3, first, logs[0])
    cluster.remove_node(cluster.second, allow_graceful=False)
    cluster.second = add_node(cluster)
    wait_until(lambda: count_done(folder) >= 9, first, logs[0])
    first.kill()
    first.wait()
    time.sleep(1)  # what it had begun ends with it, a moment later
    done = {path: path.stat().st_mtime_ns for path in folder.glob(f"*/{RECORDS}") if b'"done"' in path.read_bytes()}
    assert 9 <= len(done) < 24
    second = start(spec, folder, cluster.client, logs[1])
    assert second.wait(SECONDS) == 0, logs[1].read_text()
    assert count_done(folder) == 24
    assert {path: path.stat().st_mtime_ns for path in done} == done  # what was done is not done again
    ended = [line.split(":")[0] for log in logs for line in log.read_text().splitlines() if ": done" in line]
    assert len(ended) == len(set(ended))
    check_same_bytes(folder, tmp_path / "here")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ctrl_c_saves_all(cluster: Any, tmp_path: Path) -> None:
    """The local pool goes on from there."""
    spec, folder, log = tmp_path / "grid.toml", tmp_path / "out", tmp_path / "log"
    spec.write_text(make_spec(epochs=1500, seeds=50))  # so that both nodes have one, however late one is
    driver = start(spec, folder, "auto", log)
    wait_until(lambda: count_under_way(folder, 1500) == 2, driver, log)
    os.killpg(driver.pid, signal.SIGINT)
    assert driver.wait(SECONDS) == 130, log.read_text()
    assert "Stopped; what was done is in" in log.read_text()
    states = sorted(folder.glob(f"*/{STATE}"))
    assert len(states) == 2
    check_goes_on(states[0].parent, tmp_path / "here")


def begin(experiment: Experiment, folder: Path, epochs: int) -> None:
    """Run an experiment until so many lines are in its timings, and leave it with its state."""
    with pytest.raises(StoppedError):
        run(experiment, folder, stop=lambda: (folder / TIMINGS).read_text().count("\n") >= epochs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_without_a_shared_folder(cluster: Any, tmp_path: Path) -> None:
    """Files go through Ray; a run that was begun goes on, a node may be lost."""
    spec, folder, log = tmp_path / "grid.toml", tmp_path / "out", tmp_path / "log"
    spec.write_text(make_spec(epochs=8, seeds=5))
    first = read_sweep(spec).experiments[0]
    begin(first, folder / first.key, 3)
    (folder / "grid.json").write_text("{}")  # the folder of a grid
    driver = start(spec, folder, "auto", log, UNSEEN)
    wait_until(lambda: count_done(folder) >= 3, driver, log)
    cluster.remove_node(cluster.second, allow_graceful=False)
    cluster.second = add_node(cluster)
    assert driver.wait(SECONDS) == 0, log.read_text()
    assert "files go through Ray" in log.read_text()
    assert count_done(folder) == 10
    check_same_bytes(folder, tmp_path / "here")
    assert not list(folder.glob(f"*/{STATE}"))
    for lock in folder.glob("*/.lock"):  # nobody but the driver has been there
        assert f"process {driver.pid} on" in lock.read_text()
    epochs = [line.partition('"seconds"')[0] for line in (folder / first.key / TIMINGS).read_text().splitlines()]
    assert all(epochs.count(line) == 1 for line in epochs[:3])  # before it was left: not done again


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ctrl_c_brings_states_home(cluster: Any, tmp_path: Path) -> None:
    spec, folder, log = tmp_path / "grid.toml", tmp_path / "out", tmp_path / "log"
    # Files are sent every now and then: a run lasts some times longer, so that both are seen to be under way.
    spec.write_text(make_spec(epochs=2500, seeds=50))
    driver = start(spec, folder, "auto", log, UNSEEN)
    wait_until(lambda: count_under_way(folder, 2500) == 2, driver, log)
    os.killpg(driver.pid, signal.SIGINT)
    assert driver.wait(SECONDS) == 130, log.read_text()
    states = sorted(folder.glob(f"*/{STATE}"))
    assert len(states) == 2
    for state in states:
        records = read_records(state.parent)
        assert records is not None and not records.done
    check_goes_on(states[0].parent, tmp_path / "here")


def test_what_an_actor_sends_can_be_gone_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has arrived: each time that its state is saved, and at its end."""
    monkeypatch.setattr("selfreminder.experiment.run._WORTH_SAVING", 0.0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "node"))
    (tmp_path / "node").mkdir()
    spec = tmp_path / "grid.toml"
    spec.write_text(make_spec(epochs=2, seeds=1))
    experiment = read_sweep(spec).experiments[1]
    whole, here, arrived = tmp_path / "whole", tmp_path / "here", []
    run(experiment, whole)
    begin(experiment, here, 1)
    actor = Actor(None, [experiment], 1)
    actor.order(Away(experiment, here, read_changes(here, {})))
    words: list[Any] = []
    while not any(isinstance(word, Done | Failed | Ended) for word in words):
        for word in actor.hear():
            words.append(word)
            if isinstance(word, Carried):
                word.put(here)
                shutil.copytree(here, tmp_path / str(len(arrived)))
                arrived.append(STATE in word.written)
    actor.order(None)
    assert words[-1] == Done() and any(arrived), words
    names = {path.name for path in whole.iterdir() if not path.name.startswith(".")}
    assert {path.name for path in here.iterdir() if not path.name.startswith(".")} == names
    for name in names - {TIMINGS}:
        assert (here / name).read_bytes() == (whole / name).read_bytes()
    for number in range(len(arrived)):
        run(experiment, tmp_path / str(number))
        assert (tmp_path / str(number) / RECORDS).read_bytes() == (whole / RECORDS).read_bytes()
    assert not list((tmp_path / "node").glob(".selfreminder*"))


def test_failures_name_the_folder_that_the_parent_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spec, here = tmp_path / "grid.toml", tmp_path / "here"
    spec.write_text(make_spec(epochs=2, seeds=1))
    first, other = read_sweep(spec).experiments
    begin(other, here, 1)
    actor = Actor(None, [], 1)
    actor.order(Away(first, here, read_changes(here, {})))
    words: list[Any] = []
    while not any(isinstance(word, Failed | Ended) for word in words):
        words += actor.hear()
    actor.order(None)
    assert words[-1] == Failed(f"{here} holds another experiment: choose another folder", "mistake")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mistakes_are_a_line_before_any_training(cluster: Any, tmp_path: Path) -> None:
    """In a process of its own, which is connected once."""
    program = """
import sys
from selfreminder.cli import main
from selfreminder.experiment.cluster import ray_place
out = sys.argv[1]
def compare(*words):
    sys.stderr.write(f"{main(['compare', 'permuted-mnist', '--seeds', '1', '--out', out, '--on', 'auto', *words])}\\n")
compare("--gpus-per-run", ".25")
import ray; ray.shutdown()
compare("--cpus-per-run", "64")
ray.shutdown()
ray_place.__version__ = "99.0"
compare()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "out")], capture_output=True, text=True, timeout=SECONDS
    )
    said = [line for line in done.stderr.splitlines() if line.startswith("selfreminder: ") or line == "2"]
    assert said[1::2] == ["2"] * 3, done.stderr
    gpus, cpus, version = said[::2]
    assert gpus == "selfreminder: --gpus-per-run 0.25: no node of the Ray cluster has a GPU"
    assert cpus.startswith("selfreminder: no node of the Ray cluster has 64 CPUs and 0 GPUs")
    assert "has selfreminder 0.1.0, this machine 99.0: install the same on both" in version
    assert not list((tmp_path / "out").glob(f"*/{RECORDS}"))


def test_mistakes_without_a_cluster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SelfReminderError, match="unknown place 'rai': did you mean 'ray'"):
        open_place("rai")
    with pytest.raises(SelfReminderError, match="are for --on ray"):
        open_place("local", gpus=0.5)
    with pytest.raises(SelfReminderError, match="a run needs some CPU"):
        open_place("ray", cpus=0)
    monkeypatch.setitem(sys.modules, "selfreminder.experiment.cluster.ray_place", None)
    with pytest.raises(MissingExtraError, match=r"--on ray needs .*: pip install 'selfreminder\[ray\]'"):
        open_place("ray")
    assert main([*COMPARE, "--on", "ray"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.filterwarnings("ignore")
def test_an_address_that_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    with socket.socket() as held:  # nobody else has its port, and it does not listen
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        for address, said in (
            (
                f"ray://127.0.0.1:{port}",
                "does not answer (Connection refused): start `ray start --head` there, or mend",
            ),
            ("ray://127.0.0.1", "write ray://HOST:PORT"),
        ):
            assert main([*COMPARE, "--on", address]) == 2
            line = capsys.readouterr().err
            assert line.startswith(f"selfreminder: --on {address}") and said in line and line.count("\n") == 1


@pytest.mark.filterwarnings("ignore")
def test_a_client_that_ray_fails_to_serve_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    place = pytest.importorskip("selfreminder.experiment.cluster.ray_place")
    asked: list[str] = []

    def init(address: str, **_: object) -> None:
        asked.append(address)
        if len(asked) != 2:
            raise RuntimeError("Starting Ray client server failed. See the logs.")

    monkeypatch.setattr(place.ray, "init", init)
    monkeypatch.setattr(place.time, "sleep", lambda seconds: None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"ray://127.0.0.1:{server.getsockname()[1]}"
        place._connect(address)
        assert asked == [address] * 2
        with pytest.raises(SelfReminderError, match=r"Ray cannot be reached \(Starting Ray client server failed"):
            place._connect(address)
    assert len(asked) == 5


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_lost_all_of_its_nodes_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is hired on the node that has come instead, as soon as that answers."""
    place = pytest.importorskip("selfreminder.experiment.cluster.ray_place")
    nodes = [{"NodeID": "first", "Resources": {"CPU": 1.0}}]
    answers = iter([None, place.RayError("it has just come"), None])
    waited: list[float] = []

    def find_trouble(*_: object) -> None:
        if (answer := next(answers)) is not None:
            raise answer

    monkeypatch.setattr(place, "_connect", lambda address: None)
    monkeypatch.setattr(place, "list_nodes", lambda: nodes)
    monkeypatch.setattr(place, "_LOOK_EVERY", -1.0)
    monkeypatch.setattr(place.RayPlace, "_find_trouble", find_trouble)
    monkeypatch.setattr(place, "RayWorker", lambda node, *_: SimpleNamespace(node=node, alive=True))
    monkeypatch.setattr(place.time, "sleep", waited.append)
    (tmp_path / "grid.toml").write_text(make_spec(epochs=2, seeds=1))
    experiment = read_sweep(tmp_path / "grid.toml").experiments[0]
    made = place.RayPlace(None, place.Needs())
    made.begin([experiment], [], tmp_path)
    assert made.count() == 1 and made.hire().node == "first"
    nodes[:] = []
    made.count()
    nodes[:] = [{"NodeID": "second", "Resources": {"CPU": 1.0}}]
    assert made.hire().node == "second"
    assert waited == [1, 1]
