"""Arrays: an `.npz` file, and what a function of the user's own gives: arrays, a dict, a pair, a Dataset, a frame."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from selfreminder._base.errors import DataError
from selfreminder.data.mapped import iterate_rows
from selfreminder.data.own.own_data import Found, Progress, check_bad, check_names, find_label
from selfreminder.data.own.room import Room, check_size, to_rows
from selfreminder.data.own.tables import to_column

_INPUTS = ("x", "inputs")
_CLASSES = ("classes", "class_names")
_TOLD = 100
_BYTES_AT_ONCE = 1 << 24
_NPY = ".npy"
_MOST_HEADER = 10_000
"""bytes, as numpy has it: but it reads all of a header before it looks"""
_DTYPES: dict[str, type[np.generic]] = {"uint16": np.int32, "uint32": np.int64, "uint64": np.int64}
"""what torch computes with instead"""


def read_npz(
    path: Path, *, label: str | None, inputs: Sequence[str] | None, room: Room, progress: Progress | None = None
) -> Found:
    """Read the arrays of an `.npz` file; nothing in it is unpickled, and its size is judged before it is read."""
    arrays: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(path) as archive, np.load(path, allow_pickle=False) as file:
            names = [name for name in archive.namelist() if name.endswith(_NPY)]
            declared = {name: _declared_bytes(archive, name) for name in names}
            if room.folder is None:
                check_size(str(path), sum(declared.values()), room.limit)
            for name in names:
                short = name.removesuffix(_NPY)
                is_large = declared[name] > room.limit and short in (_INPUTS if inputs is None else inputs)
                if not is_large:
                    check_size(f"{name} of {path}", declared[name], room.limit)
                arrays[short] = _read_large(archive, name, room, progress) if is_large else file[name]
    except (DataError, OSError):
        raise
    except Exception as error:  # what is damaged can raise anything
        pickled = "allow_pickle" in str(error) or "Object arrays" in str(error)
        reason = "it has objects that would be unpickled: save arrays of numbers and text" if pickled else error
        raise DataError(f"{path} cannot be read as .npz: {reason}") from None
    return read_arrays(arrays, str(path), label=label, inputs=inputs)


def _declared_bytes(archive: zipfile.ZipFile, name: str) -> int:
    with archive.open(name) as member:
        head = member.read(12)
        if int.from_bytes(head[8 : 10 if head[6:7] == b"\x01" else 12], "little") > _MOST_HEADER:
            raise DataError(f"{archive.filename}: the header of {name} is longer than any")
    with archive.open(name) as member:
        shape, _, dtype = _read_header(member)
    return int(np.prod(shape, dtype=object)) * dtype.itemsize


def _read_header(member: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(member)
    return (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(member)


def _read_large(archive: zipfile.ZipFile, name: str, room: Room, progress: Progress | None) -> Tensor:
    """Read an array into a file, some rows after the other."""
    with archive.open(name) as member:
        shape, by_columns, dtype = _read_header(member)
        if by_columns:
            raise DataError(f"{archive.filename}: {name} is stored column by column: save np.ascontiguousarray of it")
        if dtype.kind not in "biuf":
            raise DataError(f"{archive.filename}: input {name} holds {dtype}, not numbers")
        made = room.make(f"{name} of {archive.filename}", shape, _DTYPES.get(dtype.name, dtype.newbyteorder("=")))
        of_row = dtype.itemsize * int(np.prod(shape[1:]))
        at_once = max(1, _BYTES_AT_ONCE // max(1, of_row))
        for start in range(0, shape[0], at_once):
            end = min(start + at_once, shape[0])
            rows = np.frombuffer(member.read(of_row * (end - start)), dtype)
            made[start:end] = rows.reshape(end - start, *shape[1:])
            if progress:
                progress("items read", end, shape[0])
    return to_rows(made)


def read_arrays(arrays: Mapping[str, Any], where: str, *, label: str | None, inputs: Sequence[str] | None) -> Found:
    """Read arrays by name: the inputs, the labels, and one value an item of others.

    The inputs are those that are named, or "x" or "inputs"; the labels "label", "labels" or "y"; "classes" names the
    classes in order. Arrays of another length are left out.
    """
    names = list(map(str, arrays))
    if inputs is None:
        chosen = [name for name in _INPUTS if name in arrays][:1]
        if not chosen:
            raise DataError(
                f"{where} has no {' or '.join(_INPUTS)} among {', '.join(names) or 'nothing'}: say which are the "
                "inputs (inputs=…) and the labels (label=…)"
            )
    else:
        check_names(f"input of {where}", inputs, names)
        chosen = list(inputs)
    tensors = {name: to_tensor(name, arrays[name]) for name in chosen}
    n = len(next(iter(tensors.values())))
    label = find_label(label, [name for name in names if name not in chosen])
    raw = None if label is None else to_labels(label, arrays[label])
    if raw is not None and len(raw) != n:
        raise DataError(f"{where}: {n} inputs in '{chosen[0]}', but {len(raw)} labels in '{label}'")
    class_names = next((name for name in _CLASSES if name in arrays and name not in (*chosen, label)), None)
    columns = {}
    for name in names:
        if name in chosen or name in (label, class_names):
            continue
        value = to_numpy(arrays[name])
        if value.ndim == 1 and len(value) == n:
            columns[name] = to_column(name, value)
        elif value.ndim > 1 and len(value) == n and inputs is None:
            raise DataError(f"{where}: '{name}' has the shape {value.shape}: if it is an input, say inputs=… of all")
    classes = None if class_names is None else tuple(map(str, to_numpy(arrays[class_names]).tolist()))
    if len(tensors) == 1:
        tensors = {"x": tensors.popitem()[1]}
    return Found(tensors, raw, columns, f"'{label}' of {where}" if label else "the labels", classes)


def read_value(
    value: Any, where: str, *, label: str | None, inputs: Sequence[str] | None, progress: Progress | None
) -> Found:
    """Read what a function gives: an array, (x, y), arrays by name, or a Dataset of (x, y), x or dicts."""
    if isinstance(value, Tensor | np.ndarray):
        return read_arrays({"x": value}, where, label=label, inputs=inputs)
    if isinstance(value, tuple) and len(value) == 2:
        return read_arrays({"x": value[0], "y": value[1]}, where, label=label, inputs=inputs)
    if isinstance(value, Mapping):
        return read_arrays(value, where, label=label, inputs=inputs)
    if hasattr(value, "__getitem__") and hasattr(value, "__len__") and not isinstance(value, str | bytes):
        with torch.random.fork_rng(devices=[]):  # a Dataset may draw from torch's own generator
            return _read_dataset(value, where, label=label, inputs=inputs, progress=progress)
    raise DataError(
        f"{where} is a {type(value).__name__}: give an array, (x, y), arrays by name, a Dataset with a length, a "
        "frame, or a Hugging Face data set"
    )


def _read_dataset(
    data: Any, where: str, *, label: str | None, inputs: Sequence[str] | None, progress: Progress | None
) -> Found:
    total = len(data)
    if not total:
        raise DataError(f"{where} is empty")
    rows: dict[str, list[Any]] = {}
    for i in range(total):
        item = data[i]
        if isinstance(item, tuple | list) and len(item) == 2:
            item = {"x": item[0], "y": item[1]}
        elif not isinstance(item, Mapping):
            item = {"x": item}
        if i and item.keys() != rows.keys():
            raise DataError(f"{where}: item {i} has {', '.join(map(str, item))}, those before {', '.join(rows)}")
        for name, part in item.items():
            rows.setdefault(name, []).append(part)
        if progress and ((i + 1) % _TOLD == 0 or i + 1 == total):
            progress("items read", i + 1, total)
    arrays = {name: _stack(name, parts, where) for name, parts in rows.items()}
    return read_arrays(arrays, where, label=label, inputs=inputs)


def _stack(name: str, parts: list[Any], where: str) -> np.ndarray:
    arrays = [to_numpy(part) for part in parts]
    shapes = list(dict.fromkeys(array.shape for array in arrays))
    if len(shapes) > 1:
        other = next(i for i, array in enumerate(arrays) if array.shape == shapes[1])
        raise DataError(
            f"{where}: '{name}' has different shapes, such as {shapes[0]} (item 0) and {shapes[1]} (item {other}): "
            "resize or pad to one"
        )
    return np.stack(arrays)


def to_numpy(value: Any) -> np.ndarray:
    """Anything that is like an array as one."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return value.float().numpy() if value.dtype == torch.bfloat16 else value.numpy()
    try:
        return np.asarray(value)
    except ValueError:  # lists of different lengths
        raise DataError(f"a {type(value).__name__} is no array: its parts have different lengths") from None


def to_tensor(name: str, value: Any) -> Tensor:
    """An input as a tensor with one row an item, on the CPU."""
    if isinstance(value, Tensor):
        tensor = value.detach().cpu()
    else:
        array = to_numpy(value)
        if array.dtype.kind not in "biuf":
            raise DataError(f"input '{name}' holds {array.dtype}, not numbers")
        dtype = _DTYPES.get(array.dtype.name, array.dtype.newbyteorder("="))
        tensor = torch.from_numpy(np.array(array, dtype, order="C"))  # a copy: the user's own may change
    if not tensor.ndim or not len(tensor):
        raise DataError(f"input '{name}' has no items, its shape is {tuple(tensor.shape)}")
    return tensor


def to_labels(name: str, value: Any) -> np.ndarray:
    """Labels of an array as they are: (n,), or (n, 1)."""
    array = to_numpy(value)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        hint = ": give argmax(1) of rows with a one" if array.ndim == 2 else ""
        raise DataError(f"labels '{name}' have the shape {array.shape}, one an item is expected{hint}")
    return to_column(name, array)


def drop_infinite(found: Found, skip_bad: bool) -> Found:
    """Leave out the items whose inputs hold a number that is not finite, or raise."""
    bad = torch.zeros(len(next(iter(found.inputs.values()))), dtype=torch.bool)
    for x in found.inputs.values():
        if x.is_floating_point():
            bad |= torch.cat([~torch.isfinite(rows).reshape(len(rows), -1).all(1) for rows in iterate_rows(x)])
    if not bool(bad.any()):
        return found
    shown = [found.place(row) for row in bad.nonzero().flatten().tolist()]
    check_bad(shown, len(bad), "items have inputs that are not finite", skip_bad)
    return found.keep(~bad.numpy(), [f"{place} (not finite)" for place in shown])
