"""Which automatic strength serves best without tuning: `python benchmarks/strength.py [--loss distill]`.

λ = c / S, at most .1, with S the spread of the remembered logits (`selfreminder.reminder.losses`). Very different
settings (networks, optimisers, drifts, lengths of training, sizes of memory) are trained with every candidate c, on
the embedded digits.
What counts is how far each is below the best c of its setting, in points of validation accuracy over all tasks.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder import data
from selfreminder.benchmarks.stream import Split, image_parts
from selfreminder.reminder.losses import MOST
from selfreminder.reminder.reminder import Reminder

CANDIDATES = {"logit": (0.3, 1.0, 2.0, 3.0, 10.0, 30.0), "distill": (0.1, 0.3, 1.0, 3.0, 10.0)}


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def convolutions() -> nn.Module:
    """With batch norm and dropout."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        *(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.3), nn.Linear(800, 10)),
    )


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-3)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def permuted(x: Tensor, task: int) -> Tensor:
    order = torch.randperm(784, generator=torch.Generator().manual_seed(task))
    return x if task == 0 else x[:, order]


def rotated(x: Tensor, task: int) -> Tensor:
    return torch.rot90(x.reshape(-1, 28, 28), task, (1, 2)).reshape(-1, 784)


def inverted(x: Tensor, task: int) -> Tensor:
    return x if task % 2 == 0 else 1 - x


@dataclass(frozen=True)
class Setting:
    name: str
    network: Callable[[], nn.Module]
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    drift: Callable[[Tensor, int], Tensor]
    tasks: int = 2
    epochs: int = 3
    per_class: int = 10
    smoothing: float = 0.0


SETTINGS = (
    Setting("MLP, Adam, permuted", mlp, adam, permuted),
    Setting("MLP, Adam, permuted, 5 tasks", mlp, adam, permuted, tasks=5),
    Setting("MLP, Adam, permuted, 1 a class", mlp, adam, permuted, per_class=1),
    Setting("MLP, Adam, permuted, 50 a class", mlp, adam, permuted, per_class=50),
    Setting("MLP, Adam, permuted, 15 epochs", mlp, adam, permuted, epochs=15),
    Setting("MLP, SGD, rotated, 4 tasks", mlp, sgd, rotated, tasks=4),
    Setting("MLP, SGD, inverted, smooth labels", mlp, sgd, inverted, smoothing=0.1),
    Setting("CNN, Adam, rotated", convolutions, adam, rotated),
    Setting("CNN, SGD, inverted", convolutions, sgd, inverted),
    Setting("CNN, Adam, permuted, 3 tasks", convolutions, adam, permuted, tasks=3),
)


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    with torch.no_grad():
        right = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return right


def run(setting: Setting, train: Split, valid: Split, loss: str, strength: float | None, seed: int) -> list[float]:
    """Validation accuracy on every task at the end. `strength` is c, or λ of distillation; without it, no reminder."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = setting.network()
        reminder = Reminder(strength=0.0, loss=loss, seed=seed)
        for task in range(setting.tasks):
            x = setting.drift(train.x, task)
            optimizer = setting.optimizer(model)
            for _ in range(setting.epochs):
                for rows in torch.randperm(len(x)).split(128):
                    optimizer.zero_grad()
                    own = F.cross_entropy(model(x[rows]), train.y[rows], label_smoothing=setting.smoothing)
                    (own + reminder.penalty(model) if strength is not None else own).backward()
                    optimizer.step()
            if strength is not None:
                reminder.remember(model, x, train.y, per_class=setting.per_class)
                reminder.strength = min(strength / reminder.memory.spread, MOST) if loss == "logit" else strength
        return [accuracy(model, setting.drift(valid.x, task), valid.y) for task in range(setting.tasks)]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loss", choices=sorted(CANDIDATES), default="logit")
    parser.add_argument("--images", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    parts = image_parts(data.load("embedded-mnist"), seed=0, count=arguments.images).flatten()
    candidates = CANDIDATES[arguments.loss]
    print(f"| setting | none | {' | '.join(f'{c:g}' for c in candidates)} |")
    print("|---" * (len(candidates) + 2) + "|")
    behind: dict[float, list[float]] = {c: [] for c in candidates}
    for setting in SETTINGS:
        found = {
            c: mean(
                [
                    mean(run(setting, parts.train, parts.validation, arguments.loss, c, seed))
                    for seed in range(arguments.seeds)
                ]
            )
            for c in (None, *candidates)
        }
        best = max(found.values())
        for c in candidates:
            behind[c].append(best - found[c])
        print(f"| {setting.name} | {' | '.join(f'{value:.3f}' for value in found.values())} |", flush=True)
    for name, of in (("mean points below the best", mean), ("most points below the best", max)):
        print(f"| {name} | | {' | '.join(f'{100 * of(behind[c]):.1f}' for c in candidates)} |")


if __name__ == "__main__":
    main()
