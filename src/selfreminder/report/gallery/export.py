"""A memory as files that anybody reads: PNG pictures, a table, and numpy arrays of what is no picture."""

import csv
import os
import re
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from selfreminder._base.errors import SelfReminderError
from selfreminder.memory.memory import Memory
from selfreminder.memory.query import describe_items
from selfreminder.report.gallery.pictures import Pictures, pictures, png

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
    inputs = memory.draw(len(memory)).inputs if len(memory) else {}
    shown = {name: found for name, x in inputs.items() if (found := pictures(x)) is not None and not found.stretched}
    arrays = {name: x for name, x in inputs.items() if name not in shown or not shown[name].exact}
    with _new_folder(Path(folder)) as temporary:
        written = _write_items(memory, shown, temporary)
        if arrays:
            _write_arrays(temporary / ARRAYS, arrays)
    return Exported(len(memory), written, tuple(arrays))


def _write_items(memory: Memory, shown: dict[str, Pictures], folder: Path) -> int:
    """The table and the pictures; gives the number of pictures."""
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
            table.writerow([*(item[key] for key in _ABOUT), ";".join(files), *numbers])
    return written


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
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
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
