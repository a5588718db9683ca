"""Split MNIST in Avalanche: a reminder beside Avalanche's own ReplayPlugin and LwFPlugin.

Five experiences of two digits each, one network with ten outputs, no task labels: the class-incremental setting. Naive
training knows the last two digits alone. Replay and the reminder end up with 200 images each; replay trains on them
again, the reminder holds on to the logits that the network gave them. LwF keeps no images, and is not made for this.

    pip install '.[avalanche]'
    python examples/avalanche_split_mnist.py
"""

import json
import logging

import numpy as np
import torch
from avalanche.benchmarks import NCScenario, nc_benchmark
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.models import SimpleMLP
from avalanche.training import Naive
from avalanche.training.plugins import EvaluationPlugin, LwFPlugin, ReplayPlugin, SupervisedPlugin
from torch.utils.data import TensorDataset

from selfreminder import Reminder, data
from selfreminder.plugins.avalanche import ReminderPlugin  # [reminder]


def split_mnist() -> NCScenario:
    """Avalanche's SplitMNIST(5), of the 6,000 + 2,000 digits that come with selfreminder."""

    def images(pixels: np.ndarray, labels: np.ndarray) -> TensorDataset:
        dataset = TensorDataset(torch.tensor(pixels) / 255, torch.tensor(labels).long())
        dataset.targets = labels.tolist()  # pyright: ignore[reportAttributeAccessIssue]
        return dataset

    digits = data.load("embedded-mnist")
    train, test = images(digits.train_x, digits.train_y), images(digits.test_x, digits.test_y)
    return nc_benchmark(train, test, n_experiences=5, task_labels=False, fixed_class_order=list(range(10)))


def accuracies(benchmark: NCScenario, *plugins: SupervisedPlugin) -> tuple[float, list[float]]:
    """Of the first experience when it was learned, and of all when the last was."""
    torch.manual_seed(0)
    model = SimpleMLP(num_classes=10, hidden_size=200, drop_rate=0)
    strategy = Naive(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
        train_mb_size=64,
        train_epochs=6,
        eval_mb_size=500,
        plugins=list(plugins),
        evaluator=EvaluationPlugin(accuracy_metrics(experience=True), loggers=[]),
    )

    def evaluate() -> list[float]:
        found = strategy.eval(benchmark.test_stream)
        return [
            round(found[name], 4) for name in sorted(found) if name.startswith("Top1_Acc_Exp/eval_phase/test_stream")
        ]

    first, *others = benchmark.train_stream
    strategy.train(first)
    before = evaluate()[0]
    for experience in others:
        strategy.train(experience)
    return before, evaluate()


def main() -> dict[str, float]:
    benchmark = split_mnist()
    plugins = {
        "naive": [],
        "reminder": [ReminderPlugin(Reminder(), per_class=20)],  # [reminder] keeps 200 images in the end
        "replay": [ReplayPlugin(mem_size=200)],
        "lwf": [LwFPlugin(alpha=1, temperature=2)],
    }
    print(f"{'accuracy in the end':<20}{'0, 1':>8}{'2, 3':>8}{'4, 5':>8}{'6, 7':>8}{'8, 9':>8}{'all':>8}")
    before, after = 0.0, {}
    for name, chosen in plugins.items():
        before, after[name] = accuracies(benchmark, *chosen)
        row = [*after[name], sum(after[name]) / 5]
        print(f"{name:<20}" + "".join(f"{accuracy:>8.1%}" for accuracy in row), flush=True)

    def old(name: str) -> float:
        return round(sum(after[name][:4]) / 4, 4)

    return {
        "old_before": before,
        "old_without": old("naive"),
        "old_with": old("reminder"),
        "new_without": after["naive"][4],
        "new_with": after["reminder"][4],
        "replay": old("replay"),
        "lwf": old("lwf"),
    }


if __name__ == "__main__":
    logging.captureWarnings(True)  # Avalanche's own, of what it will rename
    torch.set_num_threads(1)
    print(json.dumps(main()))
