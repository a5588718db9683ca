"""One of the other processes of a run that several train together: see `ranks`."""

import json
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

import torch

from selfreminder.experiment.checkpoint import RunState
from selfreminder.experiment.preparation import prepare
from selfreminder.experiment.ranks import READY, meet
from selfreminder.experiment.run import learn
from selfreminder.experiment.spec import Experiment
from selfreminder.training import StoppedError


def main() -> None:
    """Learn what the first process says, beside it."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    first = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nobody reads what a network of the user's own may print
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_leave_with, args=(sys.stdin,), daemon=True).start()
    torch.set_num_threads(order["threads"])
    experiment, rank, meeting = Experiment(**order["experiment"]), order["rank"], Path(order["meeting"])
    prepared = prepare(experiment, order["data_dir"], rank=rank)
    state = None if order["folder"] is None else RunState.load(Path(order["folder"]))
    unread = meeting / str(rank)
    unread.mkdir()
    os.write(first, READY)
    with meet(rank, experiment, meeting) as together, suppress(StoppedError):
        learn(experiment, prepared, unread, state, together)


def _leave_with(line: IO[str]) -> None:
    """End at once when the first process is gone: what is worth keeping is with that one."""
    line.read()
    os._exit(0)


if __name__ == "__main__":
    main()
