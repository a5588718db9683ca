"""A memory's items as pictures, and as files that anybody reads: PNG pictures, a table, numpy arrays."""

import csv
import io
import os
import re
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from selfreminder._base.atomic import name_temporary, remove_stale
from selfreminder._base.errors import SelfReminderError
from selfreminder.memory.memory import Memory
from selfreminder.memory.query import describe_items
from selfreminder.report.export import as_cell

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
    """Make pictures of inputs, of bytes or floats, if their shape says that they are some; else None.

    Shapes are (784,), (h, h), (1, h, w), (3, h, w), (h, w, 3) or (h, w, 1).

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
    """Write a picture (h, w) or (h, w, 3) as a PNG file, made smaller where a side is longer than `largest`."""
    image = Image.fromarray(np.ascontiguousarray(pixels))
    if largest is not None and max(image.size) > largest:
        image.thumbnail((largest, largest))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _laid_out(x: Tensor) -> Tensor | None:
    """Lay inputs out as (n, h, w) or (n, h, w, 3)."""
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


TABLE = "items.csv"
ARRAYS = "inputs.npz"
_ABOUT = ("id", "task", "label", "source", "selection", "time", "hash")


@dataclass(frozen=True)
class Exported:
    """What was written."""

    items: int
    images: int
    arrays: tuple[str, ...]
    """inputs that are no images, or that 8 bits would round"""


def export(memory: Memory, folder: str | os.PathLike[str]) -> Exported:
    """Write a memory's items to a new folder, whole or not at all.

    `items.csv` has a row for each, with its logits z0, z1, …; images are in task-…/label-…/id-….png. Inputs that
    are no images, or that a PNG would round, are in `inputs.npz`, in the order of the table.
    """
    inputs = memory.read().inputs if len(memory) else {}
    shown = {name: found for name, x in inputs.items() if (found := pictures(x)) is not None and not found.stretched}
    rounded = {name: x for name, x in inputs.items() if name not in shown or not shown[name].exact}
    arrays = dict(zip(_name_arrays(rounded), rounded.values()))
    with _new_folder(Path(folder)) as temporary:
        written = _write_items(memory, shown, temporary)
        if arrays:
            _write_arrays(temporary / ARRAYS, arrays)
    return Exported(len(memory), written, tuple(arrays))


def _write_items(memory: Memory, shown: dict[str, Pictures], folder: Path) -> int:
    """Write the table and the pictures; give the number of pictures."""
    logits, widths = memory.logits.tolist(), memory.widths.tolist()
    widest, written = memory.logits.shape[1], 0
    # Names come from a file that anybody may have made: none of them leads elsewhere.
    endings = {name: f"-{i}-{re.sub('[^A-Za-z0-9_]', '_', name)}" for i, name in enumerate(shown)}
    with (folder / TABLE).open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow([*_ABOUT, "file", *(f"z{i}" for i in range(widest))])
        for row, (item, z, width) in enumerate(zip(describe_items(memory), logits, widths)):
            label = "none" if item["label"] is None else item["label"]
            stem = f"task-{item['task']}/label-{label}/id-{item['id']}"
            files = [f"{stem}{ending if len(shown) > 1 else ''}.png" for ending in endings.values()]
            for name, found in zip(files, shown.values()):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(png(found.pixels[row]))
            written += len(files)
            # Nine digits are what it takes to read the same float32 back.
            numbers = [f"{value:.9g}" for value in z[:width]] + [""] * (widest - width)
            table.writerow([*(as_cell(item[key]) for key in _ABOUT), ";".join(files), *numbers])
    return written


def _name_arrays(names: Iterable[str]) -> list[str]:
    """Names that lead out of no folder, each another one."""
    safe = [re.sub(r"[^\w.-]", "_", name).lstrip(".") or "_" for name in names]
    return [name if safe.count(name) == 1 else f"{name}-{i}" for i, name in enumerate(safe)]


def _write_arrays(path: Path, arrays: dict[str, Tensor]) -> None:
    # As numpy.savez does, which takes no array named "file".
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, x in arrays.items():
            plain = x.detach().cpu()
            plain = plain.to(torch.float32) if plain.dtype == torch.bfloat16 else plain
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, plain.numpy(), allow_pickle=False)


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Give a temporary folder beside `folder` that takes its place in one step when the block ends well."""
    path = folder.resolve()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise SelfReminderError(f"{folder} exists and is no empty folder: choose another one")
    temporary = name_temporary(path)
    try:
        remove_stale(path.parent, path.name)
        temporary.mkdir(parents=True)
        yield temporary
        with suppress(FileNotFoundError):
            path.rmdir()
        temporary.rename(path)
    except OSError as error:
        error.filename = str(folder)  # nobody knows the temporary folder
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
