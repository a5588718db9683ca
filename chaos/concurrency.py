"""Concurrency: readers and writers, threads and processes, locks that somebody has left."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence

from chaos.campaign import HARMLESS, LOST, TINY, TRACEBACK, WRONG, Outcome, Trial, call, fault, finish, judge, start
from chaos.crashes import Undisturbed, make_memory
from chaos.shop import make_shop
from selfreminder import open_memory, save_memory
from selfreminder._base.atomic import remove_stale
from selfreminder.experiment.folder import read_grid, write_grid
from selfreminder.experiment.tuning.tuned import read_table, write_sections
from selfreminder.store import Store
from selfreminder.store.delete import list_items


def _delete(path: str, number: int) -> None:
    call("memory", "delete", path, "--id", number)


@fault("Concurrency", "several `memory delete` at once", short=2, long=20)
def delete_at_once(trial: Trial) -> Iterator[Outcome]:
    """Delete an item from each of several processes at once: all are gone, and no other."""
    for _ in range(trial.count):
        path = trial.fresh() / "memory.safetensors"
        save_memory(make_memory(), path)
        context = multiprocessing.get_context("fork")
        processes = [context.Process(target=_delete, args=(str(path), number)) for number in range(4)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        left = set(open_memory(path).ids.tolist())
        kept = sorted(left & set(range(4)))
        yield (
            Outcome(LOST, f"still there: {kept}") if kept else Outcome(HARMLESS if len(left) == 36 else WRONG, "others")
        )


Acts = Sequence[Callable[[], object]]


def use_at_once(writers: Acts, readers: Acts, times: int) -> list[Outcome]:
    """Let threads write and read the same thing many times."""
    outcomes: list[Outcome] = []

    def repeat(act: Callable[[], object]) -> None:
        for _ in range(times):
            try:
                outcomes.append(Outcome(HARMLESS if act() in (None, True) else WRONG, "neither the old nor the new"))
            except Exception as error:
                outcomes.append(Outcome(TRACEBACK, f"{type(error).__name__}: {error}"))

    threads = [threading.Thread(target=repeat, args=(act,)) for act in (*writers, *readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


@fault("Concurrency", "threads save and open one memory file", short=10, long=300)
def save_and_open(trial: Trial) -> Iterator[Outcome]:
    """Four threads save, two read: a reader finds one of the memories, whole."""
    path = trial.folder / "memory.safetensors"
    memories = [make_memory(items, 500) for items in (10, 20, 30, 40)]
    save_memory(memories[0], path)
    writers = [lambda memory=memory: save_memory(memory, path) for memory in memories]
    yield from use_at_once(writers, [lambda: len(open_memory(path)) in (10, 20, 30, 40)] * 2, trial.count)


@fault("Concurrency", "threads write a list of runs and read it", short=10, long=300)
def write_and_read_list(trial: Trial) -> Iterator[Outcome]:
    """A reader finds the list, whoever writes it."""
    write_grid(trial.folder, [TINY], {})
    writers = [lambda n=n: write_grid(trial.folder, [TINY], {"n": [n]}) for n in range(4)]
    yield from use_at_once(writers, [lambda: read_grid(trial.folder) == [TINY]] * 2, trial.count)


@fault("Concurrency", "threads write sections of one table", short=2, long=20)
def write_table(trial: Trial) -> Iterator[Outcome]:
    """Every section is there in the end."""
    path, methods = trial.folder / "tuned.toml", ("ewc", "lwf", "hat", "icarl")
    for _ in range(trial.count):
        path.unlink(missing_ok=True)
        writers = [
            lambda name=name: write_sections(path, {("permuted-mnist", "demo", name): {"strength": 1.0}})
            for name in methods
        ]
        yield from use_at_once(writers, [], 1)
        yield Outcome(
            HARMLESS if read_table(path)["permuted-mnist"]["demo"].keys() == set(methods) else LOST, "section"
        )


@fault("Concurrency", "two `run` in one folder, and readers meanwhile", short=0, long=6)
def run_twice(trial: Trial) -> Iterator[Outcome]:
    """Two commands share the runs of one folder, and status and report look on."""
    undisturbed = Undisturbed(["run", "spec.toml", "--jobs", "1", "--out", "out"], trial)
    for _ in range(trial.count):
        folder = trial.fresh(undisturbed.template)
        processes = [start(undisturbed.words, folder) for _ in range(2)]
        while any(process.poll() is None for process in processes):
            if (folder / "out" / "grid.json").exists():
                yield judge(lambda folder=folder: call("status", folder / "out", "--json"), what="status")
                yield judge(lambda folder=folder: call("report", folder / "out", "--out", folder / "p"), what="report")
        (folder / "p").unlink(missing_ok=True)
        for process in processes:
            if (said := finish(process)).outcome.kind == TRACEBACK or said.code:
                yield Outcome(TRACEBACK, said.err[-300:])
        yield undisturbed.compare(folder)


@fault("Concurrency", "two `update` and a `delete` of one store, and readers meanwhile", short=1, long=15)
def update_twice(trial: Trial) -> Iterator[Outcome]:
    """One update is promoted and one deletion made, in some order; who finds the store held is told so, and waits."""
    for _ in range(trial.count):
        folder = make_shop(trial.fresh())
        waiting = [["update", "--data", "new.npz"]] * 2 + [["delete", "--where", "site=B"]]
        while waiting:
            processes = [(words, start(words, folder)) for words in waiting]
            waiting = []
            while any(process.poll() is None for _, process in processes):
                yield judge(lambda folder=folder: call("history", "--store", folder / "store"), what="history")
                yield judge(lambda folder=folder: call("verify", "--store", folder / "store").code, 0, "verify")
            for words, process in processes:
                said = finish(process)
                if said.code not in (0, 2, 3) or said.outcome.kind == TRACEBACK:
                    yield Outcome(TRACEBACK, said.err[-300:])
                elif said.code == 2:
                    waiting.append(words)
        store = Store.open(folder / "store")
        sites = {each.columns.get("site") for each in list_items(store, store.current)}
        moves = sorted(move.why for move in store.moves)
        if moves not in (["delete", "init", "update"], ["delete", "delete", "init", "update"]):
            yield Outcome(WRONG, f"the pointer moved by {moves}")
        else:
            yield Outcome(HARMLESS if not store.verify() else WRONG, "not whole")
        if moves.count("delete") == 1 and store.moves[-1].why == "delete" and "B" in sites:
            yield Outcome(LOST, "what was deleted is there")


@fault("Concurrency", "locks and parts of files that others left", short=1, long=1)
def meet_leftovers(trial: Trial) -> Iterator[Outcome]:
    """A lock file without its process holds nobody up; a part is removed if its process is gone, and only then."""
    path = trial.folder / "memory.safetensors"
    save_memory(make_memory(), path)
    for content in (b"", b"\0" * 100, b"999999999\nelsewhere\n"):
        (trial.folder / ".memory.safetensors.lock").write_bytes(content)
        yield judge(lambda: call("memory", "delete", path, "--id", "3").code in (0, 1), True, "a lock file")
    dead = trial.folder / ".x.999999999.part"
    alive = trial.folder / f".x.{os.getpid()}.part"
    elsewhere = trial.folder / f".x.{'0' * 8}.999999999.{'0' * 8}.part"
    for part in (dead, alive, elsewhere):
        part.touch()
    remove_stale(trial.folder)
    found = [part.exists() for part in (dead, alive, elsewhere)]
    yield Outcome(HARMLESS if found == [False, True, True] else LOST, f"parts: {found}")
