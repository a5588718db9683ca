"""Numbers: specs with odd values. Each begins to train, or is refused before that in one line."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from chaos.campaign import TINY, TRACEBACK, Outcome, Trial, call, fault, judge, limit_memory
from chaos.strangers import ODD
from selfreminder.experiment.run import run
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.sweep import read_sweep
from selfreminder.training import StoppedError

_KNOWN = [field.name for field in fields(Experiment)]
_USUAL = {
    "method": ("adam", "sgd", "ewc", "fsr-logit", "hat", "icarl", "lwf", "joint", "generative-replay"),
    "benchmark": ("permuted-mnist", "split-mnist", "nonlinear-mnist"),
    "select": ("random", "herding", "gradient", "influence", "herding:kernel=gaussian", "random:x=1"),
    "codec": ("uint8", "compressed", "affine8"),
    "device": ("cpu", "cuda", "cuda:99"),
}


def _as_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_as_toml(v)}" for k, v in value.items()) + "}"
    return str(value) if isinstance(value, float) else json.dumps("none" if value is None else value)


def write_spec(path: Path, trial: Trial) -> str:
    """Write a spec of a small run in which one to three fields are odd; gives those."""
    said = {name: value for name, value in TINY.as_dict().items() if value is not None}
    names = trial.random.sample(_KNOWN, trial.random.randint(1, 3))
    odd = {name: trial.random.choice((*_USUAL.get(name, ()), *ODD, 7, 1e-9, 1e6, 3.0)) for name in names}
    text = "".join(f"{name} = {_as_toml(value)}\n" for name, value in (said | odd).items())
    path.write_text(text, encoding="utf-8", errors="replace")
    return str(odd)[:200]


def train_a_little(path: Path, folder: Path) -> None:
    """Run what a spec asks for, until it has begun to train."""
    steps = iter(range(10**9))
    with suppress(StoppedError):
        run(read_sweep(path).experiments[0], folder, stop=lambda: next(steps) > 3)


@fault("Numbers", "specs with odd values are run, or refused before training", short=40, long=500)
def try_specs(trial: Trial) -> Iterator[Outcome]:
    """Ask for the plan of a spec's runs; what is accepted begins to train."""
    limit_memory(4_000_000_000)
    for number in range(trial.count):
        path, folder = trial.folder / f"{number}.toml", trial.folder / f"run-{number}"
        what = write_spec(path, trial)
        planned = judge(lambda path=path: call("run", path, "--dry-run", "--out", trial.folder / "out"), what=what)
        if planned.kind == TRACEBACK:
            yield planned
            continue
        yield judge(lambda path=path, folder=folder: train_a_little(path, folder), what=what)
