"""Where inputs go while they are read: into memory, or into a file if they are larger than a limit."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selfreminder._base.errors import DataError
from selfreminder._base.sizes import show_bytes
from selfreminder.data.limit import IN_MEMORY
from selfreminder.data.mapped import MappedRows

_SPARE = 100_000_000
"""bytes of a disk that are left alone"""


class TooLargeError(DataError):
    """Data would take more memory than it may."""


def check_size(what: str, nbytes: int, limit: int) -> None:
    """Raise before more memory is taken than the limit says."""
    if nbytes > limit:
        raise TooLargeError(
            f"{what} would take {show_bytes(nbytes)}, more than the limit of {show_bytes(limit)}: "
            "take fewer or smaller items, or a larger limit"
        )


class Room:
    """Makes room for inputs: in memory up to a limit, above it in a folder, if there is one.

    Args:
        limit: bytes in memory.
        folder: for files; None: what is larger than the limit is refused. It is made when it is needed.
    """

    def __init__(self, limit: int, folder: Path | None = None) -> None:
        self.limit, self.folder = limit, folder

    def make(self, what: str, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """Make an array to be filled; `what` is it for?"""
        nbytes = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
        if nbytes <= self.limit:
            return np.empty(shape, dtype)
        if self.folder is None:
            check_size(what, nbytes, self.limit)
        path = self.make_file(what, nbytes)
        with path.open("xb") as file:
            if hasattr(os, "posix_fallocate"):  # a disk that is full when a page is written would end the process
                os.posix_fallocate(file.fileno(), 0, nbytes)
            else:
                file.truncate(nbytes)
        return np.memmap(path, dtype, "r+", shape=tuple(shape))

    def make_file(self, what: str, nbytes: int = 0) -> Path:
        """Name a file of its own in the folder, on a disk that has so many bytes left."""
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.folder).free - _SPARE
        if nbytes > free:
            raise DataError(
                f"{what} takes {show_bytes(nbytes)}, {self.folder.parent} has {show_bytes(max(0, free))} left: make "
                f"room there, choose another disk with SELFREMINDER_CACHE, or a larger {IN_MEMORY}"
            )
        return self.folder / f"{len(list(self.folder.iterdir()))}.bin"


def to_rows(array: np.ndarray) -> Tensor:
    """Give an array that room was made for as a tensor."""
    return MappedRows(array) if isinstance(array, np.memmap) else torch.from_numpy(array)
