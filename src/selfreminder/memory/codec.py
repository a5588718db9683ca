"""How inputs and logits are kept: each codec is a way to write a tensor smaller and to read it back.

| inputs | keeps | read back |
|---|---|---|
| `auto` | each item: `uint8` where that is exact, else `raw` | exactly |
| `raw` | the tensor as it is: uint8 images, token ids, floats | exactly |
| `float32` | float32 | to float32's precision |
| `float16` | half the bytes | to float16's precision |
| `uint8` | a quarter: x·255 rounded, for x in [0, 1] | within 1/510; exactly for images divided by 255 |
| `affine8` | a quarter, any floats: 256 even steps from an item's least to its greatest value | within half a step |
| `compressed` | `auto`, then each item deflated (zlib) | exactly |
| `…+zlib` | any of the others, then each item deflated | as that one |

| logits | keeps | read back |
|---|---|---|
| `float32` | float32 | exactly |
| `float16` | half the bytes | to float16's precision |
| `int8` | a quarter: 127 even steps up to an item's largest magnitude | within half a step |

An item is deflated by itself, so that any of them can be read without the others. Items of different codecs that come
together stay as they are: see `mixed`.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from selfreminder._base.codec_names import LOGIT_NAMES as LOGIT_NAMES
from selfreminder._base.codec_names import NAMES, ZLIB
from selfreminder._base.errors import unknown
from selfreminder.memory.encoded import ENDINGS, Encoded, Kept
from selfreminder.memory.mixed import WHICH, Mixed, mix
from selfreminder.memory.number_formats import find_exact_bytes


def from_parts(parts: Mapping[str, Tensor], facts: dict[str, Any], name: str = "") -> Kept:
    """The inverse of `parts` and `facts`, where all parts' names begin with `name`."""

    def one(name: str, facts: dict[str, Any]) -> Encoded:
        found = {ending: parts[f"{name}{ending}"] for ending in ENDINGS if f"{name}{ending}" in parts}
        return Encoded.from_parts(found, facts)

    if "codecs" not in facts:
        return one(name, facts)
    return Mixed(parts[f"{name}{WHICH}"], tuple(one(f"{name}.{each['codec']}", each) for each in facts["codecs"]))


def resolve(name: str, x: Tensor) -> str:
    """The codec that `name` means for `x`: `auto` becomes `uint8` or `raw` if that is best for all, others stay.

    >>> resolve("auto", torch.tensor([0.0, 1.0])), resolve("compressed", torch.tensor([0.3, 0.7]))
    ('uint8', 'raw+zlib')
    """
    if name not in NAMES:
        raise unknown("codec", name, NAMES)
    name = f"auto{ZLIB}" if name == "compressed" else name
    if not name.startswith("auto"):
        return name
    if x.dtype != torch.float32:
        return name.replace("auto", "raw")
    exact = int(find_exact_bytes(x).sum())
    if exact == len(x):
        return name.replace("auto", "uint8")
    # Three of four bytes a number are saved, and one an item is spent on saying which codec it has.
    return name if 3 * exact * math.prod(x.shape[1:]) > len(x) else name.replace("auto", "raw")


def encode(name: str, x: Tensor) -> Kept:
    """Items (n, …) as codec `name`, or what it means for them, keeps them.

    >>> encode("auto", torch.tensor([[0.0, 1.0], [0.3, 0.7], [1.0, 1.0]])).item_nbytes()
    tensor([3, 9, 3])
    """
    name = name if name in LOGIT_NAMES else resolve(name, x)
    if not name.startswith("auto"):
        return Encoded.of(name, x)
    raw, bytewise = (name.replace("auto", each) for each in ("raw", "uint8"))
    exact = find_exact_bytes(x)
    return mix(exact, [Encoded.of(raw, x[~exact]), Encoded.of(bytewise, x[exact])])


def measure_error(name: str, x: Tensor) -> float:
    """Measure the largest difference that codec `name` makes to `x`.

    >>> measure_error("float16", torch.tensor([0.0, 0.1])) < 1e-4
    True
    """
    if x.numel() == 0:
        return 0.0
    read = encode(name, x).decode()
    return (read.to(torch.float64) - x.to(torch.float64)).abs().max().item()
