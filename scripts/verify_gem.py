"""Permuted MNIST as in the GEM paper (2017): 20 tasks of 1,000 images each, one pass, batches of 10, 256 items a task.

    python scripts/verify_gem.py results/verified/permuted-mnist-gem.jsonl

An MLP of 2 × 100, SGD with step size .1, γ = .5, as in its authors' scripts; each task has 1,000 images of its own, and
is tested on all 10,000. One line a run; runs that the file has are not made again. Beside it fine-tuning, the same way.
"""

import json
import sys
import time
from pathlib import Path

import torch

from selfreminder import data, methods
from selfreminder._base.seeds import seed_for
from selfreminder._base.sizes import Size
from selfreminder.benchmarks.networks import build_network
from selfreminder.benchmarks.permuted_mnist import permutation
from selfreminder.benchmarks.stream import Parts, Stream, Task, image_parts
from selfreminder.training import Training, accuracy, predicted_right, train

SEEDS, TASKS, IMAGES, ITEMS = (0, 1, 2), 20, 1000, 256
SETTINGS = {"gem": {"size": Size(items=ITEMS * TASKS)}, "sgd": {}}
"""method: its settings"""


def make_stream(seed: int) -> Stream:
    """Permutations of pixels, each of 1,000 images that are drawn anew."""
    parts = image_parts(data.load("mnist"), seed=seed, validation=1e-4).flatten()

    def make(index: int) -> Task:
        order = permutation(784, seed=seed, index=index)
        generator = torch.Generator().manual_seed(seed_for(seed, "images", index))
        rows = torch.randperm(len(parts.train), generator=generator)[:IMAGES]
        own = Parts(parts.train.take(rows), parts.validation, parts.test)
        return Task(index, f"permutation {index + 1}", 10, own, lambda x: x.index_select(1, order))

    return Stream((10,), make, length=TASKS)


def learn(name: str, seed: int) -> dict[str, object]:
    """Learn all tasks, test all of them, and say what came of it."""
    began, stream = time.process_time(), make_stream(seed)
    method = methods.build(name, {**SETTINGS[name], "seed": seed}, {})
    model = method.prepare(build_network("mlp:100x2", width=1.0, seed=seed, heads=(10,), inputs=(784,)), stream)
    how = Training(epochs=1, batch_size=10, optimizer="sgd", lr=0.1, weight_decay=0.0, seed=seed)
    for task in stream:
        train(model, task, method, how)
        method.after_task(model, task)
    found = [accuracy(predicted_right(model, task.test, method, task.head, "cpu")) for task in stream]
    seconds = round(time.process_time() - began, 1)
    return {"run": name, "seed": seed, "mean": sum(found) / TASKS, "test": found, "cpu_seconds": seconds}


def main(path: Path) -> None:
    """Make the runs that are missing."""
    torch.set_num_threads(1)
    lines = path.read_text().splitlines() if path.exists() else []
    done = {(line["run"], line["seed"]) for line in map(json.loads, lines)}
    for seed in SEEDS:
        for name in SETTINGS:
            if (name, seed) not in done:
                with path.open("a") as file:
                    file.write(json.dumps(learn(name, seed)) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
