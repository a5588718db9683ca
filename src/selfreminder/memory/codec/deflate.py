"""Items deflated (zlib), each by itself, and read back."""

import zlib

import numpy as np
import torch
from torch import Tensor

from selfreminder._base.errors import SelfReminderError
from selfreminder.memory.codec.numbers import as_rows


def deflate(values: Tensor) -> tuple[Tensor, Tensor]:
    """The bytes of all items (n, …), one after the other; and (n,) how many each has."""
    deflated = [_deflate(row) for row in _bytes(values)]
    joined = b"".join(deflated)
    return (
        torch.frombuffer(bytearray(joined), dtype=torch.uint8) if joined else torch.zeros(0, dtype=torch.uint8),
        torch.tensor([len(each) for each in deflated], dtype=torch.int32),
    )


def _bytes(values: Tensor) -> np.ndarray:
    """(n, bytes of an item)."""
    flat = as_rows(values.detach().cpu().contiguous())
    return flat.view(torch.uint8).numpy() if flat.numel() else np.zeros((len(values), 0), np.uint8)


def _deflate(row: np.ndarray) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)  # bare: a header and a checksum an item would be waste
    return compressor.compress(row.data) + compressor.flush()


def inflate(deflated: memoryview, size: int) -> bytes:
    """An item of `size` bytes."""
    inflater = zlib.decompressobj(-15)
    try:
        inflated = inflater.decompress(deflated, size + 1)  # never more, whatever a file says
    except zlib.error as error:
        raise SelfReminderError(f"a deflated item is damaged: {error}") from None
    if len(inflated) != size or not inflater.eof:
        raise SelfReminderError(f"a deflated item is damaged: it does not have {size} bytes")
    return inflated
