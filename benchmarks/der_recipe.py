"""CPU seconds of the DER paper's recipe, whole, with evaluation: ours and Avalanche's, each in a process of its own.

    python benchmarks/der_recipe.py ours 3
    PYTHONPATH=tests/apart:.venv/apart python benchmarks/der_recipe.py avalanche 3

DER++ on so many permutations of MNIST: an MLP of 2 × 100, one epoch, batches of 128, two draws of 128 out
of 500 items, SGD; all tasks so far are tested after each. One thread. From the start of the process: imports and data
are in it. MNIST is where `selfreminder data get mnist` puts it.
"""

import json
import resource
import sys
import tempfile
from pathlib import Path


def run_ours(tasks: int) -> float:
    """Our own: the experiment of results/verified/der-500.toml."""
    from selfreminder.experiment.run import run  # noqa: PLC0415
    from selfreminder.experiment.spec import Experiment  # noqa: PLC0415

    experiment = Experiment(
        benchmark="permuted-mnist",
        method="derpp",
        tasks=tasks,
        model="mlp:100x2",
        epochs=1,
        optimizer="sgd",
        lr=0.2,
        weight_decay=0.0,
        validation=1e-4,
        per_class=None,
        items=500,
        options={"label_weight": 0.5},
    )
    with tempfile.TemporaryDirectory() as folder:
        found = run(experiment, folder).tasks[-1]["test"]
    return sum(found) / tasks


def run_avalanche(tasks: int) -> float:
    """Avalanche's strategy, with its own benchmark and no loggers."""
    import torch  # noqa: PLC0415
    from avalanche.benchmarks.classic import PermutedMNIST  # noqa: PLC0415  # pyright: ignore[reportMissingImports]
    from avalanche.evaluation.metrics import accuracy_metrics  # noqa: PLC0415  # pyright: ignore[reportMissingImports]
    from avalanche.training.plugins import EvaluationPlugin  # noqa: PLC0415  # pyright: ignore[reportMissingImports]
    from avalanche.training.supervised import DER  # noqa: PLC0415  # pyright: ignore[reportMissingImports]
    from torch import nn  # noqa: PLC0415

    from selfreminder.data import dataset, source  # noqa: PLC0415

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "MNIST" / "raw"
        raw.mkdir(parents=True)
        for path in source.find(dataset("mnist"), None).values():
            (raw / path.name).symlink_to(path)
        stream = PermutedMNIST(tasks, seed=0, dataset_root=folder)
        layers = nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10)
        model = nn.Sequential(nn.Flatten(), *layers)
        strategy = DER(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.2),
            mem_size=500,
            batch_size_mem=128,
            alpha=1.0,
            beta=0.5,
            train_mb_size=128,
            eval_mb_size=1000,
            evaluator=EvaluationPlugin(accuracy_metrics(stream=True), loggers=[]),
        )
        found: dict[str, float] = {}
        for number, experience in enumerate(stream.train_stream):
            strategy.train(experience)
            found = strategy.eval(stream.test_stream[: number + 1])
    return next(iter(found.values()))


if __name__ == "__main__":
    who, tasks = sys.argv[1], int(sys.argv[2])
    import torch

    torch.set_num_threads(1)
    mean = {"ours": run_ours, "avalanche": run_avalanche}[who](tasks)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"who": who, "tasks": tasks, "mean": mean, "cpu_seconds": used.ru_utime + used.ru_stime}))
