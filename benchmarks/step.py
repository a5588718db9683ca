"""The cost of a training step against a hand-written loop: `python benchmarks/step.py`.

The paper's MLP, batch 128, memory batch 128, fused Adam, one thread. Each round times all loops one after the
other in this process, in CPU seconds; what is shown is the median over rounds of the ratios within a round.

`penalty` and `attach` are a `Reminder` in the hand-written loop, with a memory of 1,000 items of 2 tasks; then of more
items, up to 784 MB, and of more tasks; and with a tolerance, which looks at witnesses now and then.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder import methods
from selfreminder._base.sizes import Size
from selfreminder.benchmarks.models import build_model
from selfreminder.benchmarks.permuted_mnist import permute_pixels
from selfreminder.benchmarks.stream import Parts, Split, Stream
from selfreminder.memory.codec import Encoded, encode
from selfreminder.memory.memory import Memory
from selfreminder.reminder.reminder import Reminder
from selfreminder.training import Training, train

BATCH = 128
ITEMS, MANY_ITEMS = 1_000, 1_000_000
TASKS, MANY_TASKS = 2, 200


def synthetic_stream(steps: int) -> Stream:
    """Random images of MNIST's shape: a step costs the same on them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (steps * BATCH, 784), generator=generator) / 255
    split = Split(x, torch.randint(0, 10, (len(x),), generator=generator))
    return permute_pixels(Parts(split, split, split), tasks=2, seed=0)


def by_hand(model: nn.Module, data: Split, old_x: Tensor | None = None, old_z: Tensor | None = None) -> None:
    """One epoch as one would write it: tensors in memory, fused Adam, one concatenated forward."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, weight_decay=1e-4, fused=True)
    order = torch.randperm(len(data))
    for index in order.split(BATCH):
        x, y = data.x[index], data.y[index]
        if old_x is None or old_z is None:
            loss = F.cross_entropy(model(x), y)
        else:
            drawn = torch.randint(0, len(old_x), (BATCH,))
            logits = model(torch.cat([x, old_x[drawn]]))
            penalty = (logits[BATCH:] - old_z[drawn]).square().sum(1).mean()
            loss = F.cross_entropy(logits[:BATCH], y) + penalty
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


def own_loop(model: nn.Module, data: Split, reminder: Reminder, *, attach: bool = False) -> None:
    """The epoch of `by_hand`, with a reminder."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, weight_decay=1e-4, fused=True)
    if attach:
        reminder.attach(model, optimizer)
    order = torch.randperm(len(data))
    for index in order.split(BATCH):
        loss = F.cross_entropy(model(data.x[index]), data.y[index])
        if not attach:
            loss = loss + reminder.penalty(model)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


@cache
def random_memory(items: int, tasks: int) -> Memory:
    """Images of MNIST's shape, a byte a pixel, and logits, of tasks of one size."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (ITEMS, 784), dtype=torch.uint8, generator=generator).repeat(items // ITEMS, 1)
    numbers = torch.arange(items, dtype=torch.int32)
    return Memory(
        inputs={"x": Encoded("uint8", pixels)},
        kept_logits=encode("float32", torch.randn(items, 10, generator=generator)),
        labels=(numbers % 10).to(torch.int16),
        tasks=numbers // (items // tasks),
        ids=numbers,
        sources=numbers,
        selections=torch.zeros(items, dtype=torch.uint8),
        selection_names=("given",),
        next_id=items,
    )


def loops(width: float, steps: int) -> dict[str, Callable[[], None]]:
    """Every loop that is timed, ready to run; each has a model of its own."""
    stream = synthetic_stream(steps)
    new, how = stream[1], Training(epochs=1, batch_size=BATCH)
    _ = new.train
    settings = {"strength": 0.01, "size": Size(per_task=500), "memory_batch": BATCH}

    def model() -> nn.Module:
        return build_model("mnist-mlp", width=width, seed=0)

    adam, fsr = methods.build("adam", settings, {}), methods.build("fsr-logit", settings, {})
    teacher = model()
    fsr.after_task(teacher, stream[0])
    old = Reminder()
    old.remember(teacher, stream[0].train.x, stream[0].train.y, per_task=500)
    kept = old.memory.read()
    models = [model() for _ in range(4)]

    def own(items: int, tasks: int, *, attach: bool = False, max_drop: float | None = None) -> Callable[[], None]:
        memory = random_memory(items, tasks)
        if max_drop is not None:
            memory = replace(memory, witness=torch.arange(items) % 5 == 2)
        ours, reminder = model(), Reminder(memory, batch_size=BATCH, max_drop=max_drop)
        return lambda: own_loop(ours, new.train, reminder, attach=attach)

    return {
        "fine-tuning by hand": lambda: by_hand(models[0], new.train),
        "fine-tuning": lambda: void(train(models[1], new, adam, how)),
        "fsr-logit by hand": lambda: by_hand(models[2], new.train, kept.inputs["x"], kept.logits),
        "fsr-logit": lambda: void(train(models[3], new, fsr, how)),
        "penalty": own(ITEMS, TASKS),
        "attach": own(ITEMS, TASKS, attach=True),
        "max_drop": own(ITEMS, TASKS, max_drop=0.01),
        "penalty, many items": own(MANY_ITEMS, TASKS),
        "penalty, many tasks": own(ITEMS, MANY_TASKS),
    }


def void(_: object) -> None:
    pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=100, help="steps of each loop in a round")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for width in (1.0, 0.25):
        timed = loops(width, asked.steps)
        seconds: dict[str, list[float]] = {name: [] for name in timed}
        for current in range(asked.rounds + 1):
            for name, loop in timed.items():
                start = time.process_time()
                loop()
                if current:  # the first round warms up
                    seconds[name].append(time.process_time() - start)

        def ratio(a: str, b: str, seconds: dict[str, list[float]] = seconds) -> float:
            return median(x / y for x, y in zip(seconds[a], seconds[b]))

        rows = {
            "fine-tuning / by hand": (ratio("fine-tuning", "fine-tuning by hand"), 1.05),
            "fsr-logit / by hand": (ratio("fsr-logit", "fsr-logit by hand"), 1.05),
            "fsr-logit / fine-tuning": (ratio("fsr-logit", "fine-tuning"), 1.97),
            "penalty / fine-tuning by hand": (ratio("penalty", "fine-tuning by hand"), 2.3),
            "attach / fine-tuning by hand": (ratio("attach", "fine-tuning by hand"), 2.2),
            "penalty with max_drop / without": (ratio("max_drop", "penalty"), 1.02),
            f"penalty, {MANY_ITEMS:,} items / {ITEMS:,}": (ratio("penalty, many items", "penalty"), 1.05),
            f"penalty, {MANY_TASKS} tasks / {TASKS}": (ratio("penalty, many tasks", "penalty"), 1.05),
        }
        print(f"width {width:g}: {1000 * median(seconds['fine-tuning by hand']) / asked.steps:.1f} ms a step by hand")
        for name, (found, goal) in rows.items():
            print(f"  {name:<34}{found:.3f}" + (f"   (goal ≤ {goal})" if width == 1 else ""))


if __name__ == "__main__":
    main()
