"""Disks: full, read-only, failing at any write, or with a folder that goes away."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from chaos.campaign import HARMLESS, NOTICED, TRACEBACK, Outcome, Said, Trial, fault, finish, start
from chaos.crashes import COMMANDS, Undisturbed

_ON_A_SMALL_DISK = """set -e
mount -t tmpfs -o size=64m none disk; cp -r template/. disk; cd disk
if [ "$1" = read-only ]; then mount -o remount,ro .
else head -c $(( ($(df --output=avail -k . | tail -1) - $1) * 1024 )) /dev/zero > .filler; fi
shift; "$@" || echo "exit $?" >&2
mount -o remount,rw .; rm -f .filler; cp -r . ../after
"""
"""within namespaces of its own, in which anybody may mount"""


def can_mount() -> bool:
    """Tell whether a disk of our own can be had here."""
    try:
        return subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def use_small_disk(words: list[str], undisturbed: Undisturbed, trial: Trial, left: str) -> tuple[Said, Path]:
    """Run a command on a disk that is read-only or has so many kB left; gives what it said, and what is there then."""
    base = trial.fresh()
    (base / "disk").mkdir()
    shutil.copytree(undisturbed.template, base / "template")
    command = ["unshare", "-rm", "bash", "-c", _ON_A_SMALL_DISK, "bash", left]
    said = finish(start(words, base, command))
    code = int(said.err.rpartition("exit ")[2].split()[0]) if "exit " in said.err else said.code
    return said._replace(code=code, err=said.err.rpartition("exit ")[0] or said.err), base / "after"


def judge_failure(said: Said, undisturbed: Undisturbed, folder: Path) -> Outcome:
    """What failed was said in a line; then the same command again leaves what it would have left."""
    if said.outcome.kind == TRACEBACK:
        return said.outcome
    if traces := list(folder.rglob("error.txt")):
        return Outcome(TRACEBACK, traces[0].read_text()[-300:])
    again = undisturbed.again(folder)
    return again if again.kind != HARMLESS else Outcome(NOTICED if said.code else HARMLESS)


def fill(words: list[str], trial: Trial) -> Iterator[Outcome]:
    """Let a disk be read-only, or have room for a part of what a command writes."""
    undisturbed = Undisturbed(words, trial)
    written = sum(
        len(content) for name, content in undisturbed.files.items() if not (undisturbed.template / name).exists()
    )
    mounts = can_mount()
    for number in range(trial.count):
        kilobytes = trial.random.randint(0, max(written, 100_000)) // 1000
        if mounts:
            left = "read-only" if number == 0 else str(kilobytes)
            said, folder = use_small_disk(words, undisturbed, trial, left)
        else:  # no file can grow beyond a limit: the nearest that anybody can have
            folder = trial.fresh(undisturbed.template)
            said = finish(start(words, folder, CHAOS_LONGEST=str(kilobytes * 100)))
        yield judge_failure(said, undisturbed, folder)


def fail_writes(words: list[str], trial: Trial) -> Iterator[Outcome]:
    """Let one write after the other fail: content, syncs and renames."""
    undisturbed = Undisturbed(words, trial)
    for number in range(1, trial.count + 1):
        folder = trial.fresh(undisturbed.template)
        said = finish(start(words, folder, CHAOS_WRITE=f"{trial.random.choice(['EIO', 'ENOSPC'])}:{number}"))
        yield judge_failure(said, undisturbed, folder)


def remove_folder(words: list[str], trial: Trial) -> Iterator[Outcome]:
    """Remove a command's folder while it is at work."""
    undisturbed = Undisturbed(words, trial)
    for _ in range(trial.count):
        folder = trial.fresh(undisturbed.template)
        process = start(words, folder)
        while not (folder / "out").exists() and process.poll() is None:
            time.sleep(0.005)
        time.sleep(trial.random.uniform(0, undisturbed.seconds / 2))
        shutil.rmtree(folder / "out", ignore_errors=True)
        yield judge_failure(finish(process, 120), undisturbed, folder)


for _name, _words in COMMANDS.items():
    _few = 2 if _name == "memory delete" else 0
    fault("Disks", f"`{_name}` on a disk that is read-only or full", short=_few, long=8)(partial(fill, _words.split()))
    fault("Disks", f"`{_name}`, one write fails", short=_few, long=30)(partial(fail_writes, _words.split()))
    if "--out" in _words:
        fault("Disks", f"`{_name}`, its folder is removed", short=0, long=8)(partial(remove_folder, _words.split()))
