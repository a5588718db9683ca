"""Crashes: a command is killed at random moments, then given again."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch

from chaos.campaign import HARMLESS, LOST, NOTICED, TRACEBACK, WRONG, Outcome, Said, Trial, fault, finish, start
from chaos.command import make_archive
from chaos.shop import make_shop
from selfreminder import Memory, save_memory
from selfreminder._base.lock import locked_file

SPEC = """benchmark = "permuted-mnist"
data = "embedded-mnist"
images = 300
tasks = 2
epochs = 2
width = 0.05
per_class = 2
seeds = 2
[grid]
method = ["adam", "fsr-logit"]
"""
_SMALL = "--tasks 2 --epochs 1 --width 0.05 --jobs 1 --out out"
COMMANDS = {
    "compare": f"compare permuted-mnist --methods adam,fsr-logit --seeds 1 --per-class 2 {_SMALL}",
    "run": "run spec.toml --jobs 2 --out out",
    "tune": f"tune permuted-mnist --methods ewc --values strength=10,100 --seeds 1 {_SMALL}",
    "memory delete": "memory delete memory.safetensors --where task=0",
    "data get": "data get chaos --data-dir given",
    "update": "update --data new.npz",
    "delete": "delete --where site=B",
}
"""a later command joins the campaign by one line"""
_APART = ("timings.jsonl", "journal.jsonl")
"""files with the times of what was done"""
_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_MOST_STRIKES = 4


def make_memory(items: int = 40, inputs: int = 2000) -> Memory:
    """Make a memory of two tasks."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (items, inputs), dtype=torch.uint8, generator=generator)
    logits = torch.randn(items, 10, generator=generator)
    halves = [
        Memory.of({"x": x[part]}, logits[part], labels=torch.arange(len(x[part])) % 10, task=task)
        for task, part in enumerate((slice(0, items // 2), slice(items // 2, None)))
    ]
    return halves[0] + halves[1]


def make_template(folder: Path) -> Path:
    """Make what every command starts from."""
    (folder / "given").mkdir(parents=True)
    (folder / "given" / "chaos.tar.gz").write_bytes(make_archive())
    (folder / "spec.toml").write_text(SPEC)
    save_memory(make_memory(), folder / "memory.safetensors")
    return make_shop(folder)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Read all that a command left, but for times and locks; figures say nothing that records do not."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in _APART)
    return {
        str(path.relative_to(folder)): _read_without_times(path)
        for path in files
        if path.suffix not in (".png", ".svg", ".lock", ".pyc") and path.name != ".lock"
    }


def _read_without_times(path: Path) -> bytes:
    """Read a file; of results, all but what the machine took."""
    content = path.read_bytes()
    if path.name != "results.json":
        return content
    found = json.loads(content)
    for result in found.get("results", ()):
        for name in ("seconds", "peak_bytes"):
            result.pop(name, None)
    return json.dumps(found).encode()


class Undisturbed:
    """What a command leaves when nothing happens, how long it takes, and how it may end."""

    def __init__(self, words: list[str], trial: Trial) -> None:
        self.words, self.trial = words, trial
        self.template = make_template(trial.folder / "template")
        # Several faults are of one command: one of them sees what it does, the others look there.
        shared = Path(os.environ.get("CHAOS_SHARED", trial.folder)) / " ".join(words).replace("/", "_")[:200]
        with locked_file(shared, patience=600.0):
            if not shared.exists():
                self._see(shared)
            self.seconds, codes = json.loads((shared / "seen.json").read_text())
        self.codes, self.files = set(codes), snapshot(shared / "left")

    def _see(self, shared: Path) -> None:
        folder = self.trial.fresh(self.template)
        started = time.monotonic()
        first = finish(start(self.words, folder))
        seconds = time.monotonic() - started
        if first.code:
            raise RuntimeError(f"{' '.join(self.words)} fails without any fault: {first.err}")
        codes = [0, finish(start(self.words, folder)).code]  # the second time, there may be nothing to do
        made = self.trial.fresh()
        folder.rename(made / "left")
        (made / "seen.json").write_text(json.dumps([seconds, codes]))
        shutil.copytree(made, shared)

    def again(self, folder: Path) -> Outcome:
        """Give the command again after a fault: it leaves what it would have left without."""
        said = finish(start(self.words, folder))
        if said.outcome.kind == TRACEBACK:
            return said.outcome
        if said.code not in self.codes:
            return Outcome(LOST, f"the same command again: exit {said.code}, {said.err.strip()[-300:]}")
        return self.compare(folder)

    def compare(self, folder: Path) -> Outcome:
        """Judge what is left, to the byte."""
        found = snapshot(folder)
        if missing := self.files.keys() - found.keys():
            return Outcome(LOST, f"without {', '.join(sorted(missing))}")
        if differing := sorted(name for name, content in self.files.items() if found[name] != content):
            return Outcome(WRONG, f"other bytes in {', '.join(differing)}")
        if more := found.keys() - self.files.keys():
            return Outcome(WRONG, f"left behind: {', '.join(sorted(more))}")
        shutil.rmtree(folder)
        return Outcome(HARMLESS)


def _strike(process: subprocess.Popen[str], number: signal.Signals, whole_group: bool) -> None:
    with suppress(ProcessLookupError):
        (os.killpg if whole_group else os.kill)(process.pid, number)


def crash(words: list[str], trial: Trial) -> Iterator[Outcome]:
    """Kill a command again and again at random moments; in the end it is done, as if it had not been killed."""
    undisturbed = Undisturbed(words, trial)
    while trial.count > 0:
        folder, struck = trial.fresh(undisturbed.template), []
        for strike in range(min(trial.random.randint(1, _MOST_STRIKES), trial.count)):
            number = trial.random.choice(_SIGNALS)
            begun = trial.folder / f"begun-{trial.count}-{strike}"
            process = start(words, folder, CHAOS_BEGUN=str(begun))
            # What Python itself says of a Ctrl-C before it has begun with us is not ours.
            while number != signal.SIGKILL and not begun.exists() and process.poll() is None:
                time.sleep(0.005)
            time.sleep(trial.random.uniform(0, undisturbed.seconds))
            # A terminal's Ctrl-C reaches every process, and so does the end of the machine.
            _strike(process, number, number == signal.SIGINT or trial.random.random() < 0.5)
            said = finish(process)
            struck.append(said.outcome if said.outcome.kind == TRACEBACK else Outcome(_answer(said)))
        trial.count -= len(struck)
        end = undisturbed.again(folder)
        yield from struck if end.kind == HARMLESS else [end] * len(struck)


def _answer(said: Said) -> str:
    return NOTICED if said.code in (130, 2) else HARMLESS


for _name, _words in COMMANDS.items():
    fault(
        "Crashes",
        f"`{_name}` is killed (-9, SIGTERM, Ctrl-C)",
        short=2 if _name in ("compare", "memory delete", "update", "delete") else 0,
        long=30,
    )(partial(crash, _words.split()))
