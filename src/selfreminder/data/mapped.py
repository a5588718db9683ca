"""Tensors whose rows are in a file, and are read when they are asked for: data may be larger than memory."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

Decode = Callable[[Tensor], Tensor]

_ROWS_AT_ONCE = 1000


def _keep(x: Tensor) -> Tensor:
    return x


class MappedRows(Tensor):
    """Some rows of an array, most often one in a file, that stand where a tensor of them does.

    Rows that are asked for (`x[rows]`, `x[:100]`, `x.index_select(0, rows)`) are read, and are a tensor like any other.
    Parts (`x.split(200)`), several one after the other (`torch.cat`) and `x.to(device)` are `MappedRows` again, and
    nothing is read. To compute with them reads them all, each time.

    Args:
        array: (n, …).
        at: which of its rows, in order; by default all.
        decode: what is made of rows that were read: it must do so row by row.
        device: where rows go that were read.

    >>> x = MappedRows(np.arange(8, dtype=np.uint8).reshape(4, 2), at=torch.tensor([3, 0]), decode=lambda x: x / 2)
    >>> x.shape, x[:1], x.sum()
    (torch.Size([2, 2]), tensor([[3.0000, 3.5000]]), tensor(7.))
    """

    array: np.ndarray
    at: Tensor
    decode: Decode

    @staticmethod
    def __new__(
        cls, array: np.ndarray, at: Tensor | None = None, decode: Decode = _keep, device: torch.device | str = "cpu"
    ) -> "MappedRows":
        at = torch.arange(len(array)) if at is None else at
        like = decode(torch.from_numpy(np.zeros((1, *array.shape[1:]), array.dtype)))
        made = Tensor._make_wrapper_subclass(  # pyright: ignore[reportAttributeAccessIssue]
            cls, (len(at), *like.shape[1:]), dtype=like.dtype, device=torch.device(device)
        )
        made.array, made.at, made.decode = array, at, decode
        return made

    def __repr__(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride] - torch's would read it all
        return f"MappedRows(shape={tuple(self.shape)}, dtype={self.dtype})"

    def rows(self, index: Tensor) -> "MappedRows":
        """Give the rows of an index, of which nothing is read."""
        return MappedRows(self.array, self.at[index.cpu()], self.decode, self.device)

    def decoded(self, decode: Decode) -> "MappedRows":
        """Give the same rows, decoded otherwise."""
        return MappedRows(self.array, self.at, decode, self.device)

    def read(self, at: Tensor | None = None) -> Tensor:
        """Read all rows, or those of an index."""
        at = self.at if at is None else self.at[at.cpu()]
        return self.decode(torch.from_numpy(np.take(self.array, at.numpy(), axis=0))).to(self.device)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        handle = _HANDLED.get(func)
        if handle is not None and (handled := handle(*args, **kwargs)) is not None:
            return handled
        if func._schema.is_mutable and isinstance(args[0], MappedRows):
            raise RuntimeError(f"{func}: rows of a file are read only; change a clone() of them")
        read = tree_map(lambda value: value.read() if isinstance(value, MappedRows) else value, (args, kwargs))
        return func(*read[0], **read[1])


def take_rows(x: Tensor, index: Tensor) -> Tensor:
    """Give the rows of an index; of rows in a file nothing is read."""
    return x.rows(index) if isinstance(x, MappedRows) else x[index]


def iterate_rows(x: Tensor, size: int = _ROWS_AT_ONCE) -> Iterator[Tensor]:
    """Give some rows after the other as tensors in memory."""
    for part in x.split(size):
        yield part.read() if isinstance(part, MappedRows) else part


def _select(x: MappedRows, dim: int, index: Tensor) -> Tensor | None:
    return x.read(index) if dim == 0 else None


def _index(x: MappedRows, indices: Sequence[Tensor | None]) -> Tensor | None:
    if len(indices) != 1 or indices[0] is None or not isinstance(x, MappedRows):
        return None
    return x.read(indices[0])


def _slice(x: MappedRows, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return x.read(torch.arange(len(x))[start:end:step]) if dim == 0 else None


def _pick(x: MappedRows, dim: int, index: int) -> Tensor | None:
    return x.read(torch.tensor([index]))[0] if dim == 0 else None


def _split(x: MappedRows, size: int, dim: int = 0) -> list[MappedRows] | None:
    if dim:
        return None
    return [x.rows(part) for part in torch.arange(len(x)).split(size)]


def _join(parts: Sequence[Tensor], dim: int = 0) -> MappedRows | None:
    first = parts[0]
    if dim or not isinstance(first, MappedRows):
        return None
    alike = [p for p in parts if isinstance(p, MappedRows) and p.array is first.array and p.decode is first.decode]
    if len(alike) < len(parts):
        return None
    return MappedRows(first.array, torch.cat([p.at for p in alike]), first.decode, first.device)


def _move(x: MappedRows, *, dtype: Any = None, device: Any = None, **others: Any) -> MappedRows | None:
    if dtype not in (None, x.dtype):
        return None
    return MappedRows(x.array, x.at, x.decode, x.device if device is None else device)


def _view(x: MappedRows, size: Sequence[int]) -> MappedRows | None:
    if not size or size[0] != len(x) or not len(x):
        return None
    shape = torch.empty(x.shape, device="meta").view(tuple(size)).shape[1:]
    return x.decoded(lambda rows: x.decode(rows).reshape(len(rows), *shape))


def _fill(function: Any) -> Callable[..., Tensor]:
    """What makes a tensor of the same kind, and looks at no row."""
    return lambda x, *args, **kwargs: function(x.read(torch.arange(0)), *args, **kwargs)


_ATEN = torch.ops.aten
_HANDLED: dict[Any, Callable[..., Any]] = {
    _ATEN.index_select.default: _select,
    _ATEN.index.Tensor: _index,
    _ATEN.slice.Tensor: _slice,
    _ATEN.select.int: _pick,
    _ATEN.split.Tensor: _split,
    _ATEN.view.default: _view,
    _ATEN.cat.default: _join,
    _ATEN._to_copy.default: _move,
    _ATEN.detach.default: lambda x: MappedRows(x.array, x.at, x.decode, x.device),
    _ATEN.alias.default: lambda x: MappedRows(x.array, x.at, x.decode, x.device),
} | {each: _fill(each) for each in (_ATEN.new_zeros.default, _ATEN.new_empty.default, _ATEN.new_full.default)}
"""what reads nothing, or some rows only; None: as for the others"""
