"""The cost of the exact diagonal Fisher against a forward and backward of the same samples.

`python benchmarks/fisher.py`: the paper's MLP, 2,000 samples in batches of 256, one thread. Each round times both,
and EWC's work in a step against that of the step, one after the other in this process, in CPU seconds; what is
shown is the median over rounds of the ratios within a round.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder import methods
from selfreminder.benchmarks.models import build_model
from selfreminder.benchmarks.permuted_mnist import permute_pixels
from selfreminder.benchmarks.stream import Parts, Split
from selfreminder.gradients.fisher import diagonal_fisher
from selfreminder.methods.base import Batch, Method, Step

SAMPLES, BATCH, STEP_BATCH = 2000, 256, 128


def forward_backward(model: nn.Module, x: Tensor, y: Tensor, size: int) -> None:
    for start in range(0, len(x), size):
        model.zero_grad(set_to_none=True)
        F.cross_entropy(model(x[start : start + size]), y[start : start + size]).backward()


def steps(model: nn.Module, method: Method, optimizer: torch.optim.Optimizer, data: Split) -> None:
    where = Step(1, 0, 0.0, torch.default_generator)
    for index in torch.arange(len(data)).split(STEP_BATCH):
        batch = Batch(data.x[index], data.y[index], None, index)
        loss = method.loss(model, batch, where)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        method.after_backward(model, batch, where)
        optimizer.step()


def contenders() -> dict[str, Callable[[], object]]:
    """All that is timed, ready to run. Random images of MNIST's shape: they cost the same."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (SAMPLES, 784), generator=generator) / 255
    data = Split(x, torch.randint(0, 10, (SAMPLES,), generator=generator))
    task = permute_pixels(Parts(data, data, data), tasks=1, seed=0)[0]
    model = build_model("mnist-mlp", width=1, seed=0).eval()
    timed: dict[str, Callable[[], object]] = {
        "forward-backward": lambda: forward_backward(model, x, data.y, BATCH),
        "fisher": lambda: diagonal_fisher(model, x, batch_size=BATCH),
    }
    for name in ("adam", "ewc"):
        method, trained = methods.build(name, {}, {}), build_model("mnist-mlp", width=1, seed=0)
        method.after_task(trained, task)
        optimizer = torch.optim.Adam(trained.parameters(), lr=1e-4, weight_decay=1e-4, fused=True)
        timed[name] = lambda a=trained, b=method, c=optimizer: steps(a, b, c, data)
    return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    timed = contenders()
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for current in range(asked.rounds + 1):
        for name, work in timed.items():
            start = time.process_time()
            work()
            if current:  # the first round warms up
                seconds[name].append(time.process_time() - start)

    def ratio(a: str, b: str) -> float:
        return median(x / y for x, y in zip(seconds[a], seconds[b]))

    print(f"{SAMPLES} samples: {1000 * median(seconds['fisher']):.0f} ms")
    print(f"  fisher / forward-backward    {ratio('fisher', 'forward-backward'):.3f}   (goal ≤ 1.3)")
    print(f"  step of ewc / step of adam   {ratio('ewc', 'adam'):.3f}")


if __name__ == "__main__":
    main()
