"""How far what a codec reads back may be from what it was given: what each promises."""

import torch
from torch import Tensor

from selfreminder.memory.codec import resolve


def tolerance(name: str, x: Tensor) -> Tensor:
    """The most that codec `name` may change each value of `x`.

    >>> tolerance("uint8", torch.zeros(2))
    tensor([0.0020, 0.0020])
    """
    plain = resolve(name, x).removesuffix("+zlib") if name != "int8" else name
    if plain in ("auto", "raw", "float32"):
        single = x.to(torch.float32).to(x.dtype) if plain == "float32" else x
        return (single.to(torch.float64) - x.to(torch.float64)).abs()
    magnitude = x.abs().to(torch.float32)
    if plain == "float16":
        return magnitude * 2**-11 + 2**-25  # half of the last place, also of numbers too small to be normal
    if plain == "uint8":
        return torch.full_like(x, 1 / 510 + 1e-7)
    flat = x.to(torch.float32).flatten(1)
    largest = flat.abs().amax(1)
    step = (flat.amax(1) - flat.amin(1)) / 255 if plain == "affine8" else largest / 127
    # Half a step, and what float32 itself rounds on the way.
    bound = step / 2 + 4 * torch.finfo(torch.float32).eps * (largest + 255 * step)
    return bound.reshape(len(x), *[1] * (x.ndim - 1))
