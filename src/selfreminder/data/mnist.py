"""MNIST: the idx format."""

import struct

import numpy as np

from selfreminder._base.errors import DataError


def read_idx(content: bytes, name: str = "idx file") -> np.ndarray:
    """The array of an idx file of unsigned bytes.

    >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
    array([7, 8, 9], dtype=uint8)
    """
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise DataError(f"{name} is no idx file of unsigned bytes")
    dimensions = content[3]
    head = 4 + 4 * dimensions
    if len(content) < head:
        raise DataError(f"{name} is cut short in its header")
    shape = struct.unpack(f">{dimensions}I", content[4:head])
    size = int(np.prod(shape))
    if len(content) - head != size:
        raise DataError(f"{name} should have {size} bytes of data, it has {len(content) - head}")
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def write_idx(array: np.ndarray) -> bytes:
    """The idx file of an array of unsigned bytes: the inverse of `read_idx`."""
    if array.dtype != np.uint8:
        raise DataError(f"an idx file here holds unsigned bytes, not {array.dtype}")
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
