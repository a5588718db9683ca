"""How inputs are kept: each codec is a way to write a tensor smaller and to read it back.

| name | keeps | read back |
|---|---|---|
| `auto` | `uint8` where that is exact, else `raw` | exactly |
| `raw` | the tensor as it is: uint8 images, token ids, floats | exactly |
| `float32` | float32 | to float32's precision |
| `float16` | half the bytes | to float16's precision |
| `uint8` | a quarter: x·255 rounded, for x in [0, 1] | within 1/510; exactly for images divided by 255 |
"""

from collections.abc import Callable

import torch
from torch import Tensor

from selfreminder.errors import SelfReminderError, unknown

NAMES = ("auto", "raw", "float32", "float16", "uint8")


def _to_bytes(x: Tensor) -> Tensor:
    if x.numel() and not (x.min() >= 0 and x.max() <= 1):
        low, high = x.min().item(), x.max().item()
        raise SelfReminderError(
            f"codec 'uint8' keeps values from 0 to 1, these run from {low:g} to {high:g}: "
            "use codec 'auto', or 'float16' for half of the bytes"
        )
    return (x * 255).round().to(torch.uint8)


_ENCODE: dict[str, Callable[[Tensor], Tensor]] = {
    "raw": lambda x: x,
    "float32": lambda x: x.to(torch.float32),
    "float16": lambda x: x.to(torch.float16),
    "uint8": _to_bytes,
}
_DECODE: dict[str, Callable[[Tensor], Tensor]] = {
    "raw": lambda kept: kept,
    "float32": lambda kept: kept,
    "float16": lambda kept: kept.to(torch.float32),
    "uint8": lambda kept: kept.to(torch.float32).div_(255),
}


def resolve(name: str, x: Tensor) -> str:
    """The codec that `name` means for `x`: `auto` becomes `uint8` or `raw`, others stay.

    >>> resolve("auto", torch.tensor([0.0, 1.0])), resolve("auto", torch.tensor([0.0, 0.3]))
    ('uint8', 'raw')
    """
    if name not in NAMES:
        raise unknown("codec", name, NAMES)
    if name != "auto":
        return name
    exact = x.dtype == torch.float32 and bool(((x >= 0) & (x <= 1)).all())
    return "uint8" if exact and torch.equal(decode("uint8", encode("uint8", x)), x) else "raw"


def encode(name: str, x: Tensor) -> Tensor:
    """`x` as codec `name` (not `auto`: see `resolve`) keeps it."""
    return _ENCODE[name](x)


def decode(name: str, kept: Tensor) -> Tensor:
    """What codec `name` reads back from what it kept."""
    return _DECODE[name](kept)


def error(name: str, x: Tensor) -> float:
    """The largest difference that codec `name` makes to `x`.

    >>> error("float16", torch.tensor([0.0, 0.1])) < 1e-4
    True
    """
    name = resolve(name, x)
    if x.numel() == 0:
        return 0.0
    return (decode(name, encode(name, x)).to(torch.float64) - x.to(torch.float64)).abs().max().item()
