"""Split MNIST in three scenarios as in Hsu et al. (2018): digits two by two, an MLP of 2 × 400, 4 epochs, Adam.

    python scripts/verify_scenarios.py results/verified/split-mnist.jsonl [SCENARIO/METHOD …]
    python scripts/verify_scenarios.py results/verified/split-mnist-search.jsonl --search

Replay and iCaRL are as in van de Ven et al. (2022) instead: pixels between 0 and 1, not padded, 2,000 steps a task
(about: 21 epochs), 100 images per class; replay's loss weighs every task alike, `fsr-logitlab` without its logits.

One line a run: settings, the test accuracy on each task at the end, their mean, and the CPU seconds of all of it. Runs
that the file has are not made again. Strengths are those of its authors' scripts; EWC's is doubled for the ½ in our
penalty. They say none for LwF: `--search` tries some on a tenth of the training images that another seed holds out, and
the best of each scenario is the one here (τ 2).
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from selfreminder import data, methods
from selfreminder._base.seeds import seed_for
from selfreminder._base.sizes import Size
from selfreminder.benchmarks.models import Heads, Network
from selfreminder.benchmarks.scenario import arrange
from selfreminder.benchmarks.stream import Split, Stream, Task, image_parts
from selfreminder.training import Training, accuracy, predicted_right, train

SEEDS = (0, 1, 2)
STRENGTHS = {
    "task/adam": None,
    "task/ewc": 200.0,
    "task/si": 300.0,
    "task/mas": 1.0,
    "task/lwf": 3.0,
    "domain/adam": None,
    "domain/ewc": 200.0,
    "domain/si": 3000.0,
    "domain/mas": 10_000.0,
    "domain/lwf": 3.0,
    "class/adam": None,
    "class/ewc": 1200.0,
    "class/si": 600.0,
    "class/mas": 1.0,
    "class/lwf": 1.0,
    "class/lwf+unseen_as_zero": 3.0,
    "task/replay": None,
    "domain/replay": None,
    "class/replay": None,
    "class/icarl": 1.0,
}
"""scenario, method and an option of it that is set: λ"""
LATER = {
    "replay": ("fsr-logitlab", {"strength": 0.0, "size": Size(per_class=100)}, {}),
    "icarl": (
        "icarl-nearest-mean",
        {"size": Size(per_class=100), "select": "herding:on=features"},
        {"temperature": 2.0},
    ),
}
"""those of van de Ven et al.: our method, its settings and options"""
SEARCH_SEED = 100
CANDIDATES = (0.3, 1.0, 3.0, 10.0, 30.0)
"""LwF's λ that are tried"""


def make_stream(scenario: str, seed: int, held_out: float, *, plain: bool) -> Stream:
    """0 and 1, 2 and 3, … in this order, padded and normalised or plain, but for a share that is held out."""
    parts = image_parts(data.load("mnist"), seed=seed, validation=held_out)
    if not plain:
        parts = parts.each(lambda part: Split((F.pad(part.x, (2, 2, 2, 2)) - 0.1).div_(0.2752), part.y))
    parts = parts.flatten()

    def make(index: int) -> Task:
        def own(part: Split) -> Split:
            rows = (part.y // 2 == index).nonzero().flatten()
            return Split(part.x[rows], part.y[rows] - 2 * index)

        return Task(index, f"{2 * index} and {2 * index + 1}", 2, parts.each(own), head=index)

    return arrange(Stream((2,) * 5, make), scenario)


def make_model(inputs: int, heads: Sequence[int], seed: int) -> Network:
    """Two layers of 400 with ReLU, and heads."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_for(seed, "initial weights"))
        model = Network()
        model.body = nn.Sequential(nn.Linear(inputs, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU())
        model.heads = Heads(400, heads)
    return model


def learn(name: str, seed: int, strength: float | None, *, search: bool = False) -> dict[str, object]:
    """Learn all tasks, test all of them, and say what came of it; in a search, on images that are held out."""
    began, (scenario, named) = time.process_time(), name.split("/")
    method_name, *options = named.split("+")
    settings, is_later = {} if strength is None else {"strength": strength}, named in LATER
    method_name, more, chosen = LATER.get(named, (method_name, settings, dict.fromkeys(options, True)))
    method = methods.build(method_name, {**more, "seed": seed}, chosen)
    stream = make_stream(scenario, seed, 0.1 if search else 1e-4, plain=is_later)
    model = method.prepare(make_model(784 if is_later else 1024, stream.heads, seed), stream)
    how = Training(epochs=21 if is_later else 4, batch_size=128, optimizer="adam", lr=1e-3, weight_decay=0.0, seed=seed)
    for task in stream:
        train(model, task, method, how)
        method.after_task(model, task)
    parts = [(task.validation if search else task.test, task.head) for task in stream]
    found = [accuracy(predicted_right(model, part, method, head, "cpu")) for part, head in parts]
    seconds, on = round(time.process_time() - began, 1), "validation" if search else "test"
    return {"run": name, "seed": seed, **settings, "mean": sum(found) / 5, on: found, "cpu_seconds": seconds}


def main(path: Path, names: Sequence[str]) -> None:
    """Make the runs that are missing."""
    torch.set_num_threads(1)
    search = "--search" in names
    wanted = (
        [(name, SEARCH_SEED, each) for name in STRENGTHS if "/lwf" in name for each in CANDIDATES]
        if search
        else [(name, seed, STRENGTHS[name]) for seed in SEEDS for name in names or STRENGTHS]
    )
    lines = path.read_text().splitlines() if path.exists() else []
    done = {(line["run"], line["seed"], line.get("strength")) for line in map(json.loads, lines)}
    for name, seed, strength in wanted:
        if (name, seed, strength) not in done:
            with path.open("a") as file:
                file.write(json.dumps(learn(name, seed, strength, search=search)) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
