"""A worker on a node of a Ray cluster: a thread that does what a local worker does, and an ear for its parent."""

import shutil
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import torch

from selfreminder._base.atomic import name_temporary, remove_stale
from selfreminder.experiment.carried import Carried, Versions, read_changes
from selfreminder.experiment.pool.process import Failed, Progress
from selfreminder.experiment.pool.worker import serve
from selfreminder.experiment.records import STATE
from selfreminder.experiment.spec import Experiment

_LISTEN = 1.0
"""seconds that the parent's question waits for an answer"""
_SEND_EVERY = 5.0
"""seconds between two looks at files, beside the state, that are to be sent to the parent"""
_SCRATCH = "selfreminder-run"


class Ended:
    """Said last by a worker whose thread has ended."""


@dataclass(frozen=True)
class Away:
    """An order for a node that does not see the folder of a run: what is in it comes along."""

    experiment: Experiment
    folder: Path
    files: Carried


class Scratch:
    """A folder of the node's own for such a run; whatever changes there is sent to the parent."""

    def __init__(self, order: Away) -> None:
        self._parents = order.folder
        around = Path(tempfile.gettempdir()) / _SCRATCH
        remove_stale(around.parent, _SCRATCH)  # of workers that were killed
        self._around = name_temporary(around)
        self.folder = self._around / order.folder.name
        order.files.put(self.folder)
        self._known: Versions = {}
        read_changes(self.folder, self._known)
        self._sent = time.monotonic()

    def read_news(self, at_once: bool) -> Carried:
        """Read what has changed: at once, if the state was saved, or every now and then."""
        state = self.folder / STATE
        saved = state.exists() and state.stat().st_mtime_ns != self._known.get(STATE, (0, 0))[1]
        if not at_once and not saved and time.monotonic() - self._sent < _SEND_EVERY:
            return Carried()
        self._sent = time.monotonic()
        return read_changes(self.folder, self._known)

    def say(self, word: Any) -> Any:
        """Give a word as it is to be said to the parent, who knows the run by another folder."""
        if isinstance(word, Failed):
            return replace(word, reason=word.reason.replace(str(self.folder), str(self._parents)))
        return word

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._around, ignore_errors=True)


class Actor:
    """The actor: its methods are called by the parent, its run is in a thread."""

    def __init__(self, data_dir: str | None, first: list[Experiment], threads: int) -> None:
        self._orders: Queue[Any] = Queue()
        self._words: Queue[Any] = Queue()
        self._asked_to_stop = threading.Event()
        self._scratch: Scratch | None = None
        work = (data_dir, first, threads)
        threading.Thread(target=self._serve, args=work, daemon=True).start()

    def _serve(self, data_dir: str | None, first: list[Experiment], threads: int) -> None:
        try:
            torch.set_num_threads(threads)
            serve(self, data_dir, first, self._asked_to_stop)
        finally:
            self._words.put(Ended())

    # The line of `serve`.

    def recv(self) -> Any:
        order = self._orders.get()
        if isinstance(order, Away):
            self._scratch = Scratch(order)
            return order.experiment, self._scratch.folder
        return order

    def poll(self) -> bool:
        return not self._orders.empty()

    def send(self, word: Any, /) -> None:
        if self._scratch is not None:
            ended = not isinstance(word, Progress)
            news = self._scratch.read_news(ended)
            if news != Carried():
                self._words.put(news)  # before the word: who hears that a run has ended has its files
            word = self._scratch.say(word)
            if ended:
                self._scratch.remove()
                self._scratch = None
        self._words.put(word)

    # What the parent calls.

    def order(self, order: Any) -> None:
        """Take an order: an experiment with its folder, `Away`, `Leave`, or None."""
        self._orders.put(order)

    def hear(self) -> list[Any]:
        """Give all words since the last time, waiting a little for one."""
        words = []
        try:
            words.append(self._words.get(timeout=_LISTEN))
            while True:
                words.append(self._words.get_nowait())
        except Empty:
            return words

    def stop(self) -> None:
        """Save the state of the run, and end."""
        self._asked_to_stop.set()
