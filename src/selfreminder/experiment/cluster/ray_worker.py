"""An actor on a node of a Ray cluster, as its parent sees it."""

from collections import Counter, deque
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from selfreminder._base.errors import explain_os_error
from selfreminder._base.lock import LockedError, locked
from selfreminder.experiment.carried import Carried, read_changes
from selfreminder.experiment.cluster.ray_actor import Actor, Away, Ended
from selfreminder.experiment.pool.process import Busy, Failed, Progress, Worker
from selfreminder.experiment.spec import Experiment


@dataclass(frozen=True)
class Needs:
    """What each run is given."""

    cpus: float = 1.0
    gpus: float = 0.0
    memory: int = 0
    """bytes; 0: not reserved"""


def list_nodes() -> list[dict[str, Any]]:
    """List the nodes of the cluster that are alive."""
    return [node for node in ray.nodes() if node["Alive"]]


class RayWorker(Worker):
    """A worker that is an actor."""

    def __init__(
        self,
        node: str,
        needs: Needs,
        data_dir: str | None,
        first: list[Experiment],
        failures: Counter[str],
        apart: bool,
    ) -> None:
        self.node, self._failures = node, failures
        options: dict[str, Any] = {
            "num_cpus": needs.cpus,
            "num_gpus": needs.gpus,
            "max_concurrency": 4,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
        }
        options |= {"memory": needs.memory} if needs.memory else {}
        threads = max(1, int(needs.cpus))
        remote: Any = ray.remote(Actor)
        self._actor: Any = remote.options(**options).remote(data_dir, list(first), threads)
        self.line = self.connection = _Line(self._actor, apart)
        self._ready = False

    @property
    def free(self) -> bool:
        """Whether it can take a job at once: one whose node is full waits for its turn."""
        return self.idle and self._ready

    def listen(self) -> bool:
        """Fetch what it has said; tells whether that is anything."""
        alive = self.line.fetch()
        if alive:
            self._ready = True
        elif not self._ready:
            self._failures[self.node] += 1
        return self.connection.poll()

    def stop(self) -> None:
        self._actor.stop.remote()

    def _join(self) -> None:
        self.kill()

    def _explain_death(self) -> str | None:
        alive = {node["NodeID"] for node in list_nodes()}
        return "of a Ray worker" if self.node in alive else None  # a node that is lost is not the run's fault

    def kill(self) -> None:
        ray.kill(self._actor)
        self.line.release()


class _Line:
    """The words of an actor, fetched one question ahead. If it is apart, files come and go over it, too."""

    def __init__(self, actor: Any, apart: bool) -> None:
        self._actor, self._apart, self._words = actor, apart, deque[Any]()
        self._folder = Path()
        self._lock = ExitStack()
        self.answer = actor.hear.remote()

    def fetch(self) -> bool:
        """Take the words that have come, and ask for the next; tells whether the actor lives."""
        try:
            words = ray.get(self.answer)
        except RayError:
            self.release()
            self._words.append(Ended())
            return False
        for word in words:
            if isinstance(word, Carried):
                word.put(self._folder)
                continue
            if not isinstance(word, Progress):
                self.release()
            self._words.append(word)
        self.answer = self._actor.hear.remote()
        return True

    def send(self, word: Any, /) -> None:
        if isinstance(word, tuple):  # a run: a node has another working folder
            experiment, folder = word
            folder = folder.resolve()
            try:
                word = self._send_away(experiment, folder) if self._apart else (experiment, folder)
            except LockedError:
                self._words.append(Busy())
                return
            except OSError as error:
                self.release()
                self._words.append(Failed(explain_os_error(error), "system"))
                return
        self._actor.order.remote(word)

    def _send_away(self, experiment: Experiment, folder: Path) -> Away:
        """Lock the folder of a run for an actor that cannot do it, and read what is in it."""
        folder.mkdir(parents=True, exist_ok=True)
        self._lock.enter_context(locked(folder, patience=0.0))
        self._folder = folder
        return Away(experiment, folder, read_changes(folder, {}))

    def release(self) -> None:
        """Unlock the folder of the run."""
        self._lock.close()

    def poll(self) -> bool:
        return bool(self._words)

    def recv(self) -> Any:
        word = self._words.popleft()
        if isinstance(word, Ended):
            raise EOFError
        return word
