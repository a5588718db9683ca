"""A worker process: it runs one experiment after the other on one thread, and tells its parent how it goes."""

import signal
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch

from selfreminder._base.atomic import write_text
from selfreminder._base.errors import SelfReminderError, TrainingDivergedError, explain_os_error
from selfreminder._base.lock import LockedError
from selfreminder.experiment.pool.process import TRACE, Busy, Done, Failed, Leave, Left, Line, Progress, Stopped
from selfreminder.experiment.run import check, run
from selfreminder.experiment.spec import Experiment
from selfreminder.training import StoppedError

_TELL_EVERY = 0.2


def work(connection: Connection, data_dir: str | None, first: list[Experiment]) -> None:
    """Run what comes over a connection, as a process of its own, until None comes or the parent is gone."""
    torch.set_num_threads(1)
    asked_to_stop = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which sends SIGTERM
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.set())
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    serve(connection, data_dir, first, asked_to_stop)


def serve(line: Line, data_dir: str | None, first: list[Experiment], asked_to_stop: threading.Event) -> None:
    """Run the (experiment, folder) pairs that come over a line, one after the other, until None comes.

    Before it trains at all, it makes sure that the experiments `first` can be run.
    """
    while (order := line.recv()) is not None:
        if isinstance(order, Leave):  # what it should leave has ended meanwhile
            continue
        experiment, folder = order
        last = looked = 0.0

        def stop() -> bool:
            nonlocal looked
            if (now := time.monotonic()) - looked > _TELL_EVERY:
                looked = now
                if line.poll():
                    # While it has a run, it is told nothing but to leave it; else its parent is gone.
                    with suppress(EOFError, OSError):
                        line.recv()
                        return True
            return asked_to_stop.is_set()

        def tell(progress: Progress) -> None:
            nonlocal last
            if (now := time.monotonic()) - last > _TELL_EVERY or progress.fraction >= 1:
                last = now
                line.send(progress)

        def check_first() -> None:
            while first:
                check(first.pop(), data_dir)

        line.send(attempt(experiment, folder, data_dir, tell, stop, asked_to_stop, check_first))
        if asked_to_stop.is_set():
            return


def attempt(
    experiment: Experiment,
    folder: Path,
    data_dir: str | None,
    tell: Callable[[Progress], None],
    stop: Callable[[], bool],
    asked_to_stop: threading.Event,
    check_first: Callable[[], None] = lambda: None,
) -> Done | Stopped | Left | Busy | Failed:
    """Run an experiment, or go on with it; gives how it ended, whatever happens."""
    try:
        check_first()
        started = time.monotonic()
        run(experiment, folder, data_dir=data_dir, watch=tell, stop=stop)
        return Done(time.monotonic() - started)
    except StoppedError:
        return Stopped() if asked_to_stop.is_set() else Left()
    except LockedError:
        return Busy()
    except TrainingDivergedError as error:
        return Failed(str(error), "diverged")
    except SelfReminderError as error:
        return Failed(str(error), "mistake")
    except OSError as error:
        return Failed(explain_os_error(error), "system")
    except Exception as error:
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_text(Path(folder) / TRACE, traceback.format_exc())
        return Failed(f"{type(error).__name__}: {error} (see {TRACE} in {folder})", "error")


def _leave_with_parent() -> None:
    """End at once when the parent is gone: a run may end at any moment, nothing is lost."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        signal.raise_signal(signal.SIGKILL)
