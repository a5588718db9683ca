"""The processes that train one run together: the first has the run's folder, and starts the others.

The others are processes of their own, see `rank_process`. They are told what to run by a line of JSON, write into a
folder that nobody reads, and end when the line to the first is closed, however that one ends. Signals come to the first
alone: it saves, and all stop at the same step.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from selfreminder._base import distributed
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.together import Together
from selfreminder.experiment.spec import Experiment

READY = b"ready\n"
"""said by a process that is about to meet the others"""
_PROCESS = "selfreminder.experiment.rank_process"
_LONGEST = timedelta(days=1)
"""that one process waits for another: a method's end of a task may take long"""


@contextmanager
def gathered(
    experiment: Experiment, folder: Path, data_dir: str | os.PathLike[str] | None, *, resumed: bool
) -> Iterator[Together]:
    """Start the other processes of a run, and meet them; alone, where the experiment has one process.

    Args:
        experiment: what all run.
        folder: of the run, whose state the others go on from.
        data_dir: a folder with data files of the user's own.
        resumed: whether they go on from that state.
    """
    if experiment.processes == 1:
        yield Together()
        return
    if distributed.get_ranks()[1] > 1:
        raise SelfReminderError(f"processes is {experiment.processes}: it starts them itself, run it without torchrun")
    threads = torch.get_num_threads()
    own = max(1, threads // experiment.processes)
    with ExitStack() as stack:
        meeting = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="selfreminder-")))
        order = {
            "experiment": experiment.as_recorded(),
            "folder": str(folder.resolve()) if resumed else None,
            "data_dir": None if data_dir is None else str(Path(data_dir).resolve()),
            "meeting": str(meeting),
            "threads": own,
        }
        others = [
            stack.enter_context(_Other({**order, "rank": rank}, meeting)) for rank in range(1, experiment.processes)
        ]
        for other in others:
            other.wait_until_ready()
        torch.set_num_threads(own)
        stack.callback(torch.set_num_threads, threads)
        try:
            with meet(0, experiment, meeting) as together:
                yield together
        except RuntimeError as error:
            # A lost process is seen as a connection that was closed; what else went wrong is said as it is.
            if not (lost := [other for other in others if other.ended_badly()]):
                raise
            raise ConnectionAbortedError(f"{lost[0].explain()}: run the same command again") from error


@contextmanager
def meet(rank: int, experiment: Experiment, meeting: Path) -> Iterator[Together]:
    """Meet the other processes of a run by a file in a folder."""
    backend = "nccl" if experiment.device == "cuda" else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(rank)
    elif sys.platform == "linux":  # they are on one machine, whatever its name resolves to
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    where = f"file://{meeting / 'meeting'}"
    world = experiment.processes
    dist.init_process_group(backend, init_method=where, rank=rank, world_size=world, timeout=_LONGEST)
    try:
        with distributed.alike():
            yield Together(rank, world)
    finally:
        dist.destroy_process_group()


class _Other:
    """Another process of a run, as the first sees it."""

    def __init__(self, order: dict[str, Any], folder: Path) -> None:
        self._rank, self._errors = order["rank"], folder / f"errors-{order['rank']}.txt"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _PROCESS],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                start_new_session=True,  # Ctrl-C is for the first
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._line, self._words = self._process.stdin, self._process.stdout
        with suppress(BrokenPipeError):  # `wait_until_ready` will say so
            self._line.write(json.dumps(order).encode() + b"\n")
            self._line.flush()

    def wait_until_ready(self) -> None:
        """Wait until it has its data and its state."""
        if self._words.readline() != READY:
            self._process.wait()
            raise ConnectionAbortedError(f"{self.explain()}: run the same command again")

    def ended_badly(self) -> bool:
        """Whether it is gone though nobody asked it to."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)  # its connection is closed before its end is known
        return bool(self._process.poll())

    def explain(self) -> str:
        """Say how it ended, with the last line that it wrote."""
        said = self._errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = f", {said[-1][:300]}" if said else ""
        return f"process {self._rank + 1} of this run ended (exit code {self._process.poll()}{last})"

    def __enter__(self) -> "_Other":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # what is worth keeping is with the first
        self._process.wait()
        for file in (self._line, self._words):
            with suppress(OSError):
                file.close()
