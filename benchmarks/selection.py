"""What it costs to choose: influence, gradient norms and herding.

`python benchmarks/selection.py`: one thread, CPU seconds, the median over rounds. Influence and gradient norms of
5,000 embedded digits on a quarter-width MLP that has learned them for some epochs; the norms also as a ratio to a
forward and backward of the same samples, in the same round. Herding takes 50 of 6,000 points of MNIST's size.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder import data, methods
from selfreminder.benchmarks.models import build_model
from selfreminder.benchmarks.permuted_mnist import permute_pixels
from selfreminder.benchmarks.stream import image_parts
from selfreminder.gradients.per_sample import Inputs, gradient_norms
from selfreminder.selection import find
from selfreminder.selection.base import Candidates
from selfreminder.training import Training, train

POINTS, BATCH, HERD, KEPT = 5000, 256, 6000, 50


def call(model: nn.Module, x: Inputs) -> Tensor:
    return model(x)


def forward_backward(model: nn.Module, x: Tensor, y: Tensor) -> None:
    for start in range(0, len(x), BATCH):
        model.zero_grad(set_to_none=True)
        F.cross_entropy(model(x[start : start + BATCH]), y[start : start + BATCH]).backward()


def contenders(epochs: int) -> dict[str, Callable[[], object]]:
    """All that is timed, ready to run."""
    generator = torch.Generator().manual_seed(0)
    task = permute_pixels(image_parts(data.load("embedded-mnist"), seed=0).flatten(), tasks=1, seed=0)[0]
    model = build_model("mnist-mlp", width=0.25, seed=0)
    train(model, task, methods.build("adam", {}, {}), Training(epochs=epochs, lr=1e-3))
    model.eval()
    x, y = task.train.x[:POINTS], task.train.y[:POINTS]
    learned = Candidates(
        inputs=x,
        labels=y,
        count=KEPT,
        generator=generator,
        model=model,
        logits_of=call,
        validation=(task.validation.x, task.validation.y),
    )
    one_class = Candidates(
        inputs=torch.rand(HERD, 784, generator=generator),
        labels=torch.zeros(HERD, dtype=torch.long),
        count=KEPT,
        generator=generator,
        model=model,
        logits_of=call,
    )
    return {
        "influence": lambda: find("influence")(learned),
        "gradient norms": lambda: gradient_norms(model, call, x, y, batch_size=BATCH),
        "forward-backward": lambda: forward_backward(model, x, y),
        "herding": lambda: find("herding")(one_class),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5, help="of training before influence is taken")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    timed = contenders(asked.epochs)
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for current in range(asked.rounds + 1):
        for name, work in timed.items():
            if not current and name == "influence":  # the first round warms up; this is long enough without
                continue
            start = time.process_time()
            work()
            if current:
                seconds[name].append(time.process_time() - start)
    ratio = median(a / b for a, b in zip(seconds["gradient norms"], seconds["forward-backward"]))
    print(f"influence of {POINTS} points          {median(seconds['influence']):6.2f} s   (goal ≤ 60)")
    print(f"gradient norms of {POINTS} points     {median(seconds['gradient norms']):6.2f} s")
    print(f"  / forward-backward            {ratio:6.2f}")
    print(f"herding {KEPT} of {HERD}             {median(seconds['herding']):6.2f} s   (goal ≤ 1)")


if __name__ == "__main__":
    main()
