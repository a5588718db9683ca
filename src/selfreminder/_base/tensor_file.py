"""Named tensors and one JSON value in a safetensors file: hashed, written whole or not at all, never pickled.

A file is opened once and mapped; header, tensors and hash are all of that one mapping, so that a file which is replaced
meanwhile is the old one or the new one, never something of both.
"""

import errno
import hashlib
import json
import math
import mmap
import os
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from selfreminder._base.atomic import replace_file
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import show_bytes

HASH = "sha256"
"""the key of the hash in the JSON value"""
_MOST_HEADER = 2**25
"""bytes of a header: parsed, it takes up to thirty times as many"""
_MOST_DIMENSIONS = 64
_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
}


class NotATensorFileError(ValueError):
    """The file is damaged, or of another kind; the message says which."""


def canonical_json(value: Any) -> str:
    """The same text for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def parse_json(text: str | bytes) -> Any:
    """Read JSON that anybody may have written; whatever is wrong with it is a `ValueError`."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # half a character is no text, though JSON can write it
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    return value


def hash_content(tensors: dict[str, Tensor], about: dict[str, Any]) -> str:
    """The sha256 of all tensors, with their names, dtypes and shapes, and of `about` but for the hash in it."""
    facts = {key: value for key, value in about.items() if key != HASH}
    digest = hashlib.sha256(canonical_json(facts).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write(path: Path, tensors: dict[str, Tensor], key: str, about: dict[str, Any]) -> None:
    """Write tensors, and `about` with their hash under the metadata's only key: several have no fixed order."""
    about = json.loads(canonical_json(about))  # as it will be read: keys are texts
    write_plain(path, tensors, {key: canonical_json(about | {HASH: hash_content(tensors, about)})})


def write_plain(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write tensors with texts beside them, as others may want to read them: weights have {"format": "pt"}."""
    on_cpu, storages = {}, set[int]()
    for name, tensor in tensors.items():
        one = tensor.detach().cpu().contiguous()
        storage = one.untyped_storage()
        # The format refuses tensors that share storage, as tied weights do. Others stay where they are: a copy of all
        # of a large network and its optimizer may not fit.
        shared = storage.data_ptr() in storages or storage.nbytes() != one.nbytes
        storages.add(storage.data_ptr())
        on_cpu[name] = one.clone() if shared else one
    for name, tensor in on_cpu.items():
        if tensor.dtype not in _DTYPES.values():
            raise SelfReminderError(f"'{name}' is {tensor.dtype}, which {path} cannot hold: give it in another dtype")
    with replace_file(path) as temporary:
        try:
            save_file(on_cpu, temporary, metadata=metadata)
        except SafetensorError as error:
            # The system's own error, of which only the number is left: what to do about it depends on that.
            number = re.search(r"\(os error (\d+)\)", str(error))
            code = int(number[1]) if number else errno.EIO
            raise OSError(code, os.strerror(code) if number else str(error), str(path)) from None
        with temporary.open("rb") as file:
            if int.from_bytes(file.read(8), "little") > _MOST_HEADER:  # it could not be read again
                raise SelfReminderError(f"{path} would have a header of more than {show_bytes(_MOST_HEADER)}")


def read(path: Path, key: str, *, verify: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Mapped tensors and what was written beside them, with its hash where there is one: earlier versions wrote none.

    Raises `NotATensorFileError`, and nothing else, where the file is damaged or of another kind. `verify=False` leaves
    the tensors unread until they are used.
    """
    tensors, metadata = _open(path)
    if not isinstance(metadata, dict) or not isinstance(text := metadata.get(key), str):
        raise NotATensorFileError("it is a safetensors file of another kind")
    try:
        about = parse_json(text)
    except ValueError as error:
        raise NotATensorFileError(f"it was edited: {error}") from None
    if not isinstance(about, dict):
        raise NotATensorFileError("it was edited: it says nothing about its tensors")
    if verify and HASH in about and about[HASH] != hash_content(tensors, about):
        raise NotATensorFileError("it was changed after it was written: its content does not match its hash")
    return tensors, about


def read_plain(path: Path) -> dict[str, Tensor]:
    """Mapped tensors of a safetensors file, whoever wrote it."""
    return _open(path)[0]


def _open(path: Path) -> tuple[dict[str, Tensor], Any]:
    if path.exists() and not path.is_file():
        raise NotATensorFileError("it is no file")
    with path.open("rb") as file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except ValueError:
            raise NotATensorFileError("it is empty") from None
    return _parse(mapped)


def _parse(mapped: mmap.mmap) -> tuple[dict[str, Tensor], Any]:
    """The tensors of a safetensors file, and its metadata as they are."""
    start = 8 + int.from_bytes(mapped[:8], "little")
    if start > min(len(mapped), 8 + _MOST_HEADER):
        raise NotATensorFileError("it was cut short, or is of another kind: its header is not whole")
    try:
        header = parse_json(mapped[8:start])
        if not isinstance(header, dict):
            raise ValueError("its header names no tensors")
        metadata = header.pop("__metadata__", None)
        end, tensors = start, {}
        for name, about in sorted(header.items(), key=lambda named: tuple(named[1]["data_offsets"])):
            dtype, shape, (begins, ends) = (about[field] for field in ("dtype", "shape", "data_offsets"))
            if start + begins != end or not 0 <= ends - begins <= len(mapped) - end:
                raise ValueError(f"'{name}' is not where the tensor before it ends")
            tensors[name] = _map_tensor(mapped, end, ends - begins, _DTYPES[dtype], shape)
            end = start + ends
        if end != len(mapped):
            raise ValueError(f"its tensors end at byte {end}, it has {len(mapped)}")
    except (ArithmeticError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise NotATensorFileError(f"it was cut short or edited, or is of another kind: {error}") from None
    return tensors, metadata


def _map_tensor(mapped: mmap.mmap, start: int, nbytes: int, dtype: torch.dtype, shape: list[int]) -> Tensor:
    if len(shape) > _MOST_DIMENSIONS or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("a tensor's shape is none")
    if math.prod(shape) * dtype.itemsize != nbytes:
        raise ValueError(f"a tensor of shape {shape} does not have {nbytes} bytes")
    if not nbytes:
        return torch.zeros(shape, dtype=dtype)
    flat = torch.frombuffer(mapped, dtype=torch.uint8, offset=start, count=nbytes)
    aligned = flat if start % dtype.itemsize == 0 else flat.clone()  # other programs need not align what they write
    return aligned.view(dtype).reshape(shape)
