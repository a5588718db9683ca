"""What reading a memory costs against a training step: `python benchmarks/codec.py`.

The paper's MLP, batch 128 and 128 remembered digits, one thread. For every codec: bytes of an item, its largest
error, and the time of a draw as a share of the step's, both where the memory is inflated once and where it is too
large for that and each draw inflates its own items.
"""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from unittest.mock import patch

import torch
import torch.nn.functional as F

from selfreminder import data
from selfreminder.benchmarks.models import build_model
from selfreminder.benchmarks.stream import image_parts
from selfreminder.memory.file import save_memory
from selfreminder.memory.memory import Memory, codec

BATCH, ITEMS, ROUNDS = 128, 5000, 30


def seconds(act: Callable[[], object]) -> float:
    """The median over rounds."""
    taken = []
    for _ in range(ROUNDS):
        start = time.process_time()
        act()
        taken.append(time.process_time() - start)
    return median(taken)


def main() -> None:
    torch.set_num_threads(1)
    x = image_parts(data.load("embedded-mnist"), seed=0, validation=0.01).flatten().train.x[:ITEMS]
    model = build_model("mnist-mlp", width=1.0, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    batch, labels = x[: 2 * BATCH], torch.zeros(2 * BATCH, dtype=torch.long)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(batch), labels).backward()
        optimizer.step()

    of_step = seconds(step)
    logits = torch.randn(len(x), 10, generator=torch.Generator().manual_seed(0)) * 5
    generator = torch.Generator().manual_seed(0)
    print(f"a step of {2 * BATCH} digits: {1000 * of_step:.1f} ms; {len(x):,} digits kept\n")
    print(f"{'inputs':14}{'logits':10}{'bytes':>7}{'in file':>9}{'error':>11}{'draw/step':>12}{'too large':>12}")
    for inputs, kept_logits in (
        *((name, "float32") for name in ("float32", "float16", "uint8", "affine8", "compressed")),
        *(("uint8", name) for name in ("float16", "int8")),
        ("compressed", "float16"),
    ):
        shares = []
        for fits in (2**40, 0):
            with patch("selfreminder.memory.sampling._FITS", fits), TemporaryDirectory() as folder:
                memory = Memory.of({"x": x}, logits, task=0, codecs=inputs, logit_codec=kept_logits)
                memory.draw(BATCH, generator)  # what is read once is read now
                save_memory(memory, path := Path(folder) / "memory")
                in_file = path.stat().st_size / len(memory)
                shares.append(seconds(lambda memory=memory: memory.draw(BATCH, generator)) / of_step)
        worst = max(codec.measure_error(inputs, x), codec.measure_error(kept_logits, logits))
        once, each = (f"{100 * share:.2f} %" for share in shares)
        print(f"{inputs:14}{kept_logits:10}{memory.item_nbytes:7}{in_file:9.1f}{worst:11.2g}{once:>12}{each:>12}")


if __name__ == "__main__":
    main()
