"""Inputs as pictures, where their shape says that they are some."""

import io
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

_LEAST_SIDE = 8
"""a square table of numbers with fewer rows is no picture"""


@dataclass(frozen=True, eq=False)
class Pictures:
    """Inputs (n, …) as 8-bit pictures."""

    pixels: np.ndarray
    """(n, h, w) grey or (n, h, w, 3) red, green, blue; uint8"""
    low: float
    """the value that is shown as 0"""
    high: float
    """the value that is shown as 255"""
    exact: bool
    """whether the pixels say all of the inputs: nothing was rounded or stretched"""

    @property
    def stretched(self) -> bool:
        return (self.low, self.high) not in ((0, 1), (0, 255))


def pictures(x: Tensor) -> Pictures | None:
    """Inputs of shape (784,), (h, h), (1, h, w), (3, h, w), (h, w, 3) or (h, w, 1), of bytes or floats; else None.

    Floats from 0 to 1 are shown as they are; others are stretched from the least to the greatest of them all.

    >>> shown = pictures(torch.linspace(-1, 1, 2 * 784).reshape(2, 784))
    >>> shown.pixels.shape, shown.low, shown.high, shown.exact
    ((2, 28, 28), -1.0, 1.0, False)
    """
    x = x.detach().cpu()
    if not x.numel() or (laid := _laid_out(x)) is None:
        return None
    if x.dtype == torch.uint8:
        return Pictures(laid.numpy(), 0, 255, True)
    if not x.is_floating_point() or not bool(x.isfinite().all()):
        return None
    values = laid.to(torch.float64)
    low, high = values.min().item(), values.max().item()
    if low >= 0 and high <= 1:
        low, high = 0, 1
    pixels = ((values - low) / ((high - low) or 1) * 255).round().to(torch.uint8)
    exact = (low, high) == (0, 1) and torch.equal(pixels.to(torch.float32).div_(255), laid.to(torch.float32))
    return Pictures(pixels.numpy(), low, high, exact)


def png(pixels: np.ndarray, largest: int | None = None) -> bytes:
    """A picture (h, w) or (h, w, 3) as a PNG file, made smaller where a side is longer than `largest`."""
    image = Image.fromarray(np.ascontiguousarray(pixels))
    if largest is not None and max(image.size) > largest:
        image.thumbnail((largest, largest))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _laid_out(x: Tensor) -> Tensor | None:
    """(n, h, w) or (n, h, w, 3)."""
    match tuple(x.shape[1:]):
        case (784,):
            return x.reshape(-1, 28, 28)
        case (height, width) if height == width >= _LEAST_SIDE:
            return x
        case (1, _, _):
            return x[:, 0]
        case (3, _, _):
            return x.movedim(1, 3)
        case (_, _, 3):
            return x
        case (_, _, 1):
            return x[..., 0]
    return None
