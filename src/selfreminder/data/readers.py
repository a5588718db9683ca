"""Readers: from the contents of data files to arrays of images and labels.

MNIST's files are in the idx format. CIFAR's are in the binary layout, to which its other forms are converted: a row is
an image, its labels, a byte each, then 3 x 32 x 32 pixels, colour by colour. Made-up images have no files.
"""

import io
import json
import math
import pickle
import pickletools
import struct
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from selfreminder._base.errors import DataError, MissingExtraError

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""training images and their labels, test images and their labels, all unsigned bytes"""

CIFAR_LABELS = {"cifar10": ("labels",), "cifar100": ("coarse_labels", "fine_labels")}
"""the labels of an image in the order of the binary layout, by their names in the python layout"""

_PIXELS = 3 * 32 * 32
_MOST_OPCODES = 2_000_000
"""of a pickle; the largest batch of CIFAR has about 250,000"""
_MOST_ROWS = 100_000
"""of a PNG sheet; CIFAR's have 10,000"""


def read_mnist(files: Sequence[bytes]) -> Arrays:
    """Read the four files of a data set in MNIST's format: images (n, 28, 28) and labels (n,)."""
    train_x, train_y, test_x, test_y = map(read_idx, files)
    return train_x, train_y, test_x, test_y


def read_idx(content: bytes) -> np.ndarray:
    """Read the array of an idx file of unsigned bytes.

    >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
    array([7, 8, 9], dtype=uint8)
    """
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise DataError("no idx file of unsigned bytes")
    dimensions = content[3]
    head = 4 + 4 * dimensions
    if len(content) < head:
        raise DataError("idx file is cut short in its header")
    shape = struct.unpack(f">{dimensions}I", content[4:head])
    size = math.prod(shape)
    if len(content) - head != size:
        raise DataError(f"idx file should have {size} bytes of data, it has {len(content) - head}")
    try:
        return np.frombuffer(content, np.uint8, offset=head).reshape(shape)
    except ValueError:  # too many dimensions, or beside one of 0 others that are too large
        raise DataError(f"idx file has {dimensions} dimensions of sizes that no array has") from None


def write_idx(array: np.ndarray) -> bytes:
    """Write an array of unsigned bytes as an idx file: the inverse of `read_idx`."""
    if array.dtype != np.uint8:
        raise DataError(f"an idx file here holds unsigned bytes, not {array.dtype}")
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def read_cifar(files: Sequence[bytes], *, labels: int) -> Arrays:
    """Read binary files, of which the last is the test's: images (n, 3, 32, 32) and the finest labels (n,).

    Args:
        files: contents in the binary layout.
        labels: how many each image has.
    """
    train = [read_cifar_batch(file, labels=labels) for file in files[:-1]]
    images, classes = (np.concatenate(column) for column in zip(*train))
    return images, classes, *read_cifar_batch(files[-1], labels=labels)


def read_cifar_batch(file: bytes, *, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Read one binary file: images (n, 3, 32, 32) and, of their labels, the last and finest (n,)."""
    if len(file) % (labels + _PIXELS):
        raise DataError(f"{len(file)} bytes are no whole number of CIFAR's images")
    rows = np.frombuffer(file, np.uint8).reshape(-1, labels + _PIXELS)
    return rows[:, labels:].reshape(-1, 3, 32, 32), rows[:, labels - 1]


def convert_python_batch(batch: bytes, labels: Sequence[str]) -> bytes:
    """Convert a batch in the python layout, a pickle, to the binary layout; only plain values and bytes are read."""
    try:
        _check_sizes(batch)
        content = _Unpickler(io.BytesIO(batch), encoding="bytes").load()
        content = {_to_text(key): value for key, value in content.items()}
        _, shape, dtype, by_column, pixels = content["data"].state
        kind = _to_text(dtype.arguments[0])
        if kind not in ("u1", "uint8"):
            raise DataError(f"the images are {kind}, not unsigned bytes")
        images = np.frombuffer(pixels, np.uint8).reshape(shape, order="F" if by_column else "C")
        return _to_binary([content[name] for name in labels], images)
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(f"no batch of CIFAR in the python layout ({type(error).__name__}: {error})") from None


def convert_png_sheet(png: bytes, labels: bytes, batch: int) -> bytes:
    """Convert a PNG sheet, a row an image, and the `batch`-th part of a JSON list of labels to the binary layout."""
    try:
        from PIL import Image  # noqa: PLC0415 - of the extra `cli`
    except ImportError:
        raise MissingExtraError("the PNG sheets of CIFAR-10 need pillow: pip install 'selfreminder[cli]'") from None
    too_large = (Image.DecompressionBombError, Image.DecompressionBombWarning)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
                if image.mode != "RGB" or image.width != _PIXELS // 3 or image.height > _MOST_ROWS:
                    raise ValueError(f"it has {image.width} x {image.height} pixels, {image.mode}")
                sheet = np.asarray(image)
        count = len(sheet)
        pixels = sheet.reshape(count, _PIXELS // 3, 3).transpose(0, 2, 1).reshape(count, _PIXELS)
        return _to_binary([json.loads(labels)[batch * count : (batch + 1) * count]], pixels)
    except (
        OSError,
        SyntaxError,
        ValueError,
        LookupError,
        TypeError,
        OverflowError,
        RecursionError,
        *too_large,
    ) as error:
        raise DataError(f"no PNG sheet of CIFAR-10 with its labels ({error})") from None


def _check_sizes(batch: bytes) -> None:
    """Raise unless a pickle has all the bytes that it says it has, and numbers what it keeps as it comes.

    Else ten bytes are enough to be given gigabytes: for a text that is not there, or for the place of a value among
    four billion others.
    """
    for count, (opcode, argument, _) in enumerate(pickletools.genops(batch)):
        if count > _MOST_OPCODES:
            raise DataError(f"refused, for its pickle has more than {_MOST_OPCODES} parts")
        if "PUT" in opcode.name and not (isinstance(argument, int) and 0 <= argument <= count):
            raise DataError(f"refused, for its pickle has a value at place {argument}")


def _to_binary(labels: list[list[int]], pixels: np.ndarray) -> bytes:
    if not all(isinstance(column, list) and all(type(label) is int for label in column) for column in labels):
        raise ValueError("its labels are no lists of numbers")
    return np.column_stack([*(np.array(column, np.uint8) for column in labels), pixels]).tobytes()


def _to_text(value: str | bytes) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else value


class _Numpy:
    """Stands for all of numpy that makes an array, so that a pickle reaches nothing of it."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise DataError(f"the pickle has bytes as {encoding}")
    return text.encode("latin1")


_KNOWN = {
    ("numpy.core.multiarray", "_reconstruct"): _Numpy,
    ("numpy._core.multiarray", "_reconstruct"): _Numpy,
    ("numpy", "ndarray"): _Numpy,
    ("numpy", "dtype"): _Numpy,
    ("_codecs", "encode"): _encode,  # Python 3's way to write bytes for Python 2
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) not in _KNOWN:
            raise DataError(f"refused, for its pickle asks for {module_name}.{global_name}")
        return _KNOWN[module_name, global_name]


def generate_images(classes: int) -> Arrays:
    """Make up images (n, 3, 32, 32), a smooth pattern for each class under noise: to try commands, not methods."""
    random = np.random.default_rng(classes)
    coarse = random.uniform(0, 255, (classes, 3, 4, 4))
    patterns = coarse.repeat(8, axis=2).repeat(8, axis=3)

    def part(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % classes
        noisy = patterns[labels] + random.normal(0, 40, (count, 3, 32, 32))
        return noisy.clip(0, 255).astype(np.uint8), labels.astype(np.uint8)

    return *part(500), *part(200)
