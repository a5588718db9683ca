"""The numbers that each codec keeps, and how they are read back; and bytes, deflated and inflated."""

import math
import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from selfreminder._base.errors import SelfReminderError


def _to_uint8(x: Tensor) -> tuple[Tensor, None]:
    if x.numel() and not (x.min() >= 0 and x.max() <= 1):
        low, high = x.min().item(), x.max().item()
        raise SelfReminderError(
            f"codec 'uint8' keeps values from 0 to 1, these run from {low:g} to {high:g}: "
            "use codec 'auto', or 'affine8' for a quarter of the bytes"
        )
    return (x * 255).round().to(torch.uint8), None


def _to_float16(x: Tensor) -> tuple[Tensor, None]:
    if x.numel() and x.abs().max() > torch.finfo(torch.float16).max:
        raise SelfReminderError(
            f"float16 keeps magnitudes up to 65504, here is one of {x.abs().max().item():g}: use float32"
        )
    return x.to(torch.float16), None


def _to_affine8(x: Tensor) -> tuple[Tensor, Tensor]:
    flat = flatten_items(x.to(torch.float32))
    low, high = flat.aminmax(dim=1, keepdim=True) if flat.numel() else (flat.new_zeros(len(x), 1),) * 2
    step = (high - low) / 255
    codes = ((flat - low) / step.where(step > 0, 1)).round_().clamp_(0, 255)
    return codes.to(torch.uint8).reshape(x.shape), torch.cat([low, step], 1)


def _to_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    flat = flatten_items(x.to(torch.float32))
    largest = flat.abs().amax(dim=1, keepdim=True) if flat.numel() else flat.new_zeros(len(x), 1)
    step = largest / 127
    return (flat / step.where(step > 0, 1)).round_().clamp_(-127, 127).to(torch.int8).reshape(x.shape), step


KEPT_AS = {
    "float32": torch.float32,
    "float16": torch.float16,
    "uint8": torch.uint8,
    "affine8": torch.uint8,
    "int8": torch.int8,
}
"""the dtype of what is kept, where the codec says it"""

ENCODE: dict[str, Callable[[Tensor], tuple[Tensor, Tensor | None]]] = {
    "raw": lambda x: (x, None),
    "float32": lambda x: (x.to(torch.float32), None),
    "float16": _to_float16,
    "uint8": _to_uint8,
    "affine8": _to_affine8,
    "int8": _to_int8,
}
"""(n, …) values to what is kept, and each item's scale or None"""


def from_bytes(kept: Tensor) -> Tensor:
    """Bytes as numbers from 0 to 1, the same on every device: by a plain number, CUDA multiplies with 1/255 instead."""
    return kept.to(torch.float32).div_(torch.full((), 255.0, device=kept.device))


def find_exact_bytes(x: Tensor) -> Tensor:
    """(n,) bool: the float32 items (n, …) that `uint8` reads back as they are.

    >>> find_exact_bytes(torch.tensor([[0.0, 1.0], [0.3, 1.0], [-1.0, 2.0]])).tolist()
    [True, False, False]
    """
    return flatten_items(from_bytes((x * 255).round().to(torch.uint8)) == x).all(1)


DECODE: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "raw": lambda kept, _: kept,
    "float32": lambda kept, _: kept,
    "float16": lambda kept, _: kept.to(torch.float32),
    "uint8": lambda kept, _: from_bytes(kept),
    "affine8": lambda kept, scale: torch.addcmul(scale[:, 0], kept.to(torch.float32), scale[:, 1]),
    "int8": lambda kept, scale: kept.to(torch.float32).mul_(scale[:, 0]),
}
"""and back"""


def flatten_items(x: Tensor) -> Tensor:
    """(n, …) as (n, numbers of an item)."""
    return x.reshape(len(x), math.prod(x.shape[1:]))


# Items deflated, each by itself -------------------------------------------------------------------------------


MOST_TIMES = 1040
"""no bytes become more than so many by inflating; the format allows for 1032"""


def deflate(values: Tensor) -> tuple[Tensor, Tensor]:
    """The bytes of all items (n, …), one after the other; and (n,) how many each has."""
    deflated = [_deflate_item(item) for item in split_bytes(values)]
    joined = bytearray().join(deflated)
    return (
        torch.frombuffer(joined, dtype=torch.uint8) if joined else torch.zeros(0, dtype=torch.uint8),
        torch.tensor([len(each) for each in deflated], dtype=torch.int32),
    )


def split_bytes(values: Tensor) -> list[memoryview]:
    """The bytes of each item of (n, …)."""
    flat = flatten_items(values.detach().cpu().contiguous())
    rows = flat.view(torch.uint8).numpy() if flat.numel() else [b""] * len(values)
    return [memoryview(row) for row in rows]


def _deflate_item(item: memoryview) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)  # bare: a header and a checksum an item would be waste
    return compressor.compress(item) + compressor.flush()


def inflate_item(deflated: memoryview, size: int) -> bytes:
    """An item of `size` bytes."""
    if size < 0:  # to zlib, no limit at all
        raise SelfReminderError(f"a deflated item is damaged: nothing has {size} bytes")
    inflater = zlib.decompressobj(-15)
    try:
        inflated = inflater.decompress(deflated, size + 1)  # never more, whatever a file says
    except (zlib.error, OverflowError) as error:
        raise SelfReminderError(f"a deflated item is damaged: {error}") from None
    if len(inflated) != size or not inflater.eof or inflater.unused_data:
        raise SelfReminderError(f"a deflated item is damaged: it does not have {size} bytes")
    return inflated
