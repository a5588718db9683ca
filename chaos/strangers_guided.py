"""Strangers' files, guided by coverage: atheris keeps the inputs that reach new code, and changes those further.

`python -m chaos.guided` does so; nothing else of the campaign needs atheris. What is found is kept in build/guided.
"""

import contextlib
import gc
import hashlib
import importlib
import multiprocessing
import os
import random
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

from chaos import strangers, strangers_data
from chaos.campaign import BAD, ROOT, TRACEBACK, Outcome, Trial, fault, judge, limit_memory
from chaos.strangers import ODD, Parser

PARSERS = {**strangers.PARSERS, **strangers_data.PARSERS}
FOUND = ROOT / "build" / "guided"
_SECONDS = 90
"""after which a child that says nothing is killed; it stops by itself what does not hang in C, and sooner"""


def _keep(content: bytes) -> str:
    """Keep an input, and give its name."""
    FOUND.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(content).hexdigest()[:16]
    (FOUND / name).write_bytes(content)
    return f"{FOUND.relative_to(ROOT)}/{name}"


def _fuzz_here(parser: Parser, trial: Trial, pipe: Any) -> None:
    """Fuzz in this process, which ends with it: what comes of each input goes into the pipe."""
    atheris: Any = importlib.import_module("atheris")
    log = os.open("log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    good, found = parser.good(), dict[str, Outcome]()
    judge(lambda: parser.read(good))  # what is imported when first needed is so now
    for each in gc.get_objects():
        if type(each) is FunctionType and (each.__module__ or "").partition(".")[0] == "selfreminder":
            atheris.instrument_func(each)
    Path("corpus").mkdir()
    Path("corpus", "good").write_bytes(good)
    limit_memory()

    def strike(content: bytes) -> None:
        Path("now").write_bytes(content)
        outcome = judge(lambda: parser.read(content))
        if outcome.kind in BAD:  # one of a kind is kept, and named for all of them
            kind = re.sub(r"[\W\d]", "", outcome.what)[:40]
            if kind not in found:
                found[kind] = Outcome(outcome.kind, f"{_keep(content)}{outcome.what}")
            outcome = found[kind]
        pipe.send(tuple(outcome))

    def mutate(content: bytes, most: int, number: int) -> bytes:
        """Put something odd where it can be read, with checks that are right; else change bytes."""
        if parser.put is not None and number % 2:
            chance = random.Random(number)
            with contextlib.suppress(Exception):
                made = parser.put(content, chance.randrange(10**6), chance.choice(ODD))
                if len(made) <= most:
                    return made
        return atheris.Mutate(content, most)

    limits = (f"-max_total_time={max(round(60 * trial.minutes), 1)}", f"-max_len={4 * len(good) + 1000}")
    ours = ("-timeout=0", "-rss_limit_mb=0", "-detect_leaks=0")  # the campaign's own limits are in force
    chance = f"-seed={trial.random.getrandbits(31) or 1}"
    atheris.Setup(["guided", *limits, *ours, chance, "-artifact_prefix=./", "corpus"], strike, custom_mutator=mutate)
    atheris.Fuzz()


def fuzz_guided(parser: Parser, trial: Trial) -> Iterator[Outcome]:
    """Fuzz in a child: an input that ends it, or from which it does not come back, is the last."""
    os.chdir(trial.folder)
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_fuzz_here, args=(parser, trial, theirs))
    child.start()
    theirs.close()
    with contextlib.suppress(EOFError):
        while ours.poll(_SECONDS):
            yield Outcome(*ours.recv())
        child.kill()
    child.join()
    log = Path("log").read_text(encoding="utf-8", errors="replace")
    trial.notes["edges"] = int((re.findall(r"cov: (\d+)", log) or ["0"])[-1])
    if child.exitcode:
        place = _keep(Path("now").read_bytes()) if Path("now").exists() else "before the first input"
        yield Outcome(TRACEBACK, f"{place}: the process ended with {child.exitcode}: {log.strip()[-150:]}")


for _name, _parser in PARSERS.items():
    fault("Strangers' files", f"guided: {_name}", short=0, long=0)(partial(fuzz_guided, _parser))
