"""A Ray cluster as the place of a grid's workers: actors on its nodes, hired as nodes come, replaced as they go.

The parent gives out the runs, and a run's folder is locked by whoever has it: none is done twice. States are saved
there, so another node goes on where one was lost. For a node that does not see the folder the parent locks it, sends
along what is in it, and writes there what the node sends back.
"""

import os
import secrets
import socket
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from selfreminder import __version__
from selfreminder._base.errors import SelfReminderError
from selfreminder.experiment.cluster.ray_worker import Needs, RayWorker, list_nodes
from selfreminder.experiment.pool.estimate import estimate_memory
from selfreminder.experiment.pool.process import Worker
from selfreminder.experiment.spec import Experiment

_ANSWER = 5.0
"""seconds that an address has to answer"""
_CHECK = 120.0
"""seconds that a node has to start a process and answer"""
_TRIES, _NOT_STARTED = 3, "Starting Ray client server failed"
"""how often an address is asked that answers so"""
_LOOK_EVERY = 2.0
"""seconds between two looks at which nodes there are"""
_MOST_FAILURES = 3
"""of workers that do not come to life, after which a node is left alone"""


class RayPlace:
    """The nodes of a cluster that have the same version of selfreminder, and the data."""

    def __init__(self, address: str | None, needs: Needs, data_dir: str | None = None) -> None:
        _connect(address)
        self.needs, self.data_dir = needs, None if data_dir is None else str(Path(data_dir).resolve())
        self._first: list[Experiment] = []
        self._nodes: dict[str, dict[str, Any]] = {}
        """that are fit, by id"""
        self._refused: dict[str, str] = {}
        """what is wrong with those that are not fit"""
        self._apart: set[str] = set()
        """those that do not see the folder"""
        self._failures: Counter[str] = Counter()
        self._workers: list[RayWorker] = []
        self._looked = 0.0
        if needs.gpus and not any(node["Resources"].get("GPU") for node in list_nodes()):
            raise SelfReminderError(f"--gpus-per-run {needs.gpus:g}: no node of the Ray cluster has a GPU")
        if not any(_count_fitting(node, needs) for node in list_nodes()):
            raise SelfReminderError(
                f"no node of the Ray cluster has {needs.cpus:g} CPUs and {needs.gpus:g} GPUs: ask for fewer by run"
            )

    def begin(self, experiments: list[Experiment], first: list[Experiment], folder: Path) -> None:
        """Ask every node whether runs can be done there; raise what is wrong with the first that is not fit."""
        self._first = first
        if (most := max(experiment.processes for experiment in experiments)) > self.needs.cpus:
            raise SelfReminderError(f"processes is {most}: give each its core, --cpus-per-run {most}")
        like = {(e.data, e.benchmark, e.method, e.tasks): e for e in experiments}
        memory = max(estimate_memory(experiment, self.data_dir) for experiment in like.values())
        self.needs = Needs(self.needs.cpus, self.needs.gpus, self.needs.memory or memory)
        self._data = sorted({name for experiment in experiments for name in experiment.data_sets})
        self._token = folder.resolve() / f".seen-{secrets.token_hex(4)}"
        for node in list_nodes():
            self._take_in(node)
        if self._refused:
            raise SelfReminderError(next(iter(self._refused.values())))
        self._wait_for_nodes()
        if not sum(_count_fitting(node, self.needs) for node in self._nodes.values()):
            self.needs = Needs(self.needs.cpus, self.needs.gpus)  # the estimate is too high for every node: try it
        self._looked = time.monotonic()

    def count(self) -> int:
        """Count the workers for which there is room; nodes that have come are asked whether they are fit."""
        if not self._looked:  # before it begins, no node has been asked
            return sum(_count_fitting(node, self.needs) for node in list_nodes())
        if time.monotonic() - self._looked > _LOOK_EVERY:
            self._looked = time.monotonic()
            there = {node["NodeID"]: node for node in list_nodes()}
            for name in self._nodes.keys() - there.keys():
                del self._nodes[name]
            for name in there.keys() - self._nodes.keys() - self._refused.keys():
                self._take_in(there[name])
                if said := self._refused.get(name):
                    print(f"selfreminder: {said}; the node is not used", file=sys.stderr)
        return sum(self._room().values()) if self._nodes else 1

    def hire(self) -> Worker:
        """Start a worker on the node with the most room left."""
        self._workers = [worker for worker in self._workers if worker.alive]
        self._wait_for_nodes()
        room = self._room()
        room.subtract(worker.node for worker in self._workers)
        ((node, _),) = room.most_common(1)
        worker = RayWorker(node, self.needs, self.data_dir, self._first, self._failures, node in self._apart)
        self._workers.append(worker)
        return worker

    def wait(self, workers: list[Worker]) -> list[Worker]:
        """Wait a little for workers that have something to say; returns those."""
        by_answer = {worker.line.answer: worker for worker in workers if isinstance(worker, RayWorker)}
        if not by_answer:
            time.sleep(0.25)
            return []
        refs = list(by_answer)
        ray.wait(refs, timeout=0.25)
        ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        return [worker for ref in ready if (worker := by_answer[ref]).listen()]

    def _room(self) -> Counter[str]:
        fit = (node for name, node in self._nodes.items() if self._failures[name] < _MOST_FAILURES)
        room = Counter({node["NodeID"]: _count_fitting(node, self.needs) for node in fit})
        if not room and self._nodes:
            raise SelfReminderError("no node of the Ray cluster can start a worker: see the logs of Ray")
        return room

    def _wait_for_nodes(self) -> None:
        """Wait for a node: a cluster that has just begun, or just lost one, does not know its nodes at once."""
        deadline = time.monotonic() + _CHECK
        while not self._nodes:
            if time.monotonic() > deadline:
                raise SelfReminderError("no node of the Ray cluster answers: see `ray status` there")
            time.sleep(1)
            for node in list_nodes():
                if node["NodeID"] not in self._refused:
                    self._take_in(node)

    def _take_in(self, node: dict[str, Any]) -> None:
        """Use a node if it is fit. One that cannot be reached is neither used nor refused: it is asked again later."""
        try:
            said = self._find_trouble(node)
        except RayError:  # lost since it was listed, or so new that Ray does not place anything there yet
            return
        if said is None:
            self._nodes[node["NodeID"]] = node
        else:
            self._refused[node["NodeID"]] = said

    def _find_trouble(self, node: dict[str, Any]) -> str | None:
        """Ask a node for its version of selfreminder, its data, and whether it sees the folder; None if all is well."""
        name, folder = node["NodeManagerHostname"], self._token.parent
        self._token.touch()
        try:
            found: dict[str, Any] = ray.get(
                _ask_node(node["NodeID"], str(self._token), self._data, self.data_dir), timeout=_CHECK
            )
        except GetTimeoutError:
            return f"node {name} of the Ray cluster starts no process within {_CHECK:g} s"
        except RayTaskError as error:
            return f"node {name} of the Ray cluster cannot be asked: {str(error).strip().splitlines()[-1][:200]}"
        finally:
            self._token.unlink(missing_ok=True)
        if found["version"] != __version__:
            version = found["version"] or "none"
            return f"node {name} has selfreminder {version}, this machine {__version__}: install the same on both"
        if found["missing"]:
            data = found["missing"][0]
            return f"node {name} has no {data}: `selfreminder data get {data}` there, or a shared --data-dir"
        if not found["sees"]:
            if not self._apart:
                print(f"selfreminder: node {name} does not see {folder}: files go through Ray", file=sys.stderr)
            self._apart.add(node["NodeID"])
        return None


def _connect(address: str | None) -> None:
    """Connect to a cluster: "auto" for the one that this machine is part of, None for one of its own."""
    if address and address.startswith("ray://"):
        parts = urlsplit(address)
        try:
            if not parts.hostname or not parts.port:
                raise ValueError
            with socket.create_connection((parts.hostname, parts.port), timeout=_ANSWER):
                pass
        except ValueError:
            raise SelfReminderError(f"--on {address}: write ray://HOST:PORT, mostly with the port 10001") from None
        except OSError as error:
            raise SelfReminderError(
                f"--on {address} does not answer ({error.strerror or error}): start `ray start --head` there, or mend "
                "the address"
            ) from None
    quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    options = quiet if address is None or not address.startswith("ray://") else {}
    for left in reversed(range(_TRIES)):
        try:
            ray.init(address, **options) if address else ray.init(include_dashboard=False, **options)
            return
        except (ConnectionError, RuntimeError, RayError) as error:
            said = " ".join(str(error).split())[:300]
            # Ray's process for a client dies at times within milliseconds, before it is any program at all.
            if not left or _NOT_STARTED not in str(error):
                raise SelfReminderError(f"--on {address or 'ray'}: Ray cannot be reached ({said})") from None
        time.sleep(1)


def _count_fitting(node: dict[str, Any], needs: Needs) -> int:
    """Count the runs for which a node has room."""
    wanted = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory}
    has = node["Resources"]
    return int(min(has.get(name, 0.0) / amount for name, amount in wanted.items() if amount))


def _ask_node(node: str, token: str, data: list[str], data_dir: str | None) -> Any:
    """Ask a node what it has. The function is sent as it is: of another version, nothing is taken for granted."""

    def look() -> dict[str, Any]:
        import importlib  # noqa: PLC0415 - on the node
        import pathlib  # noqa: PLC0415

        found: dict[str, Any] = {"version": None, "sees": pathlib.Path(token).exists(), "missing": []}
        try:
            found["version"] = importlib.import_module("selfreminder").__version__
            at_hand = importlib.import_module("selfreminder.data")
            source = importlib.import_module("selfreminder.data.source")
        except (ImportError, AttributeError):
            return found
        for name in data:
            described = at_hand.dataset(name)
            if len(source.find(described, data_dir)) < len(described.files):
                found["missing"].append(name)
        return found

    there = NodeAffinitySchedulingStrategy(node, soft=False)
    remote: Any = ray.remote(look)
    return remote.options(num_cpus=0, scheduling_strategy=there, max_retries=1).remote()
