"""Items as one codec keeps them: as numbers of a smaller kind, and deflated or not."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from selfreminder._base.codec_names import ZLIB
from selfreminder._base.errors import SelfReminderError
from selfreminder.memory.mixed import Mixed, join
from selfreminder.memory.number_formats import DECODE, ENCODE, KEPT_AS, MOST_TIMES, deflate, inflate_item

ENDINGS = ("", ".scale", ".sizes")
"""of the names of the tensors that one codec keeps"""
_MOST_DIMENSIONS = 64


@dataclass(frozen=True, eq=False)
class Encoded:
    """Items as one codec keeps them.

    >>> kept = Encoded.of("uint8", torch.rand(5, 3))
    >>> len(kept), kept.nbytes, kept.decode().shape
    (5, 15, torch.Size([5, 3]))
    """

    codec: str
    """neither `auto` nor `compressed`"""
    values: Tensor
    """(n, …); deflated, the bytes of all items one after the other"""
    scale: Tensor | None = None
    """(n, 2) each item's offset and step, or (n, 1) its step"""
    sizes: Tensor | None = None
    """(n,) bytes of each item, where they are deflated"""
    item: tuple[str, tuple[int, ...]] | None = None
    """dtype and shape of an item before it was deflated"""

    @classmethod
    def of(cls, name: str, x: Tensor) -> "Encoded":
        """Items (n, …) as codec `name` keeps them."""
        plain = name.removesuffix(ZLIB)
        values, scale = ENCODE[plain](x)
        if name == plain:
            return cls(name, values, scale)
        joined, sizes = deflate(values)
        item = (str(values.dtype).removeprefix("torch."), tuple(values.shape[1:]))
        return cls(name, joined, scale if scale is None else scale.cpu(), sizes, item)

    def __len__(self) -> int:
        return len(self.values if self.sizes is None else self.sizes)

    @property
    def pieces(self) -> "tuple[Encoded]":
        """All items by codec, as `Mixed` has them."""
        return (self,)

    @property
    def which(self) -> Tensor:
        """(n,) the place of each item's piece: it is the only one."""
        return torch.zeros(len(self), dtype=torch.uint8, device=self.device)

    @property
    def parts(self) -> dict[str, Tensor]:
        """Every tensor that is kept, by the ending of its name."""
        parts = zip(ENDINGS, (self.values, self.scale, self.sizes))
        return {ending: part for ending, part in parts if part is not None}

    @property
    def facts(self) -> dict[str, Any]:
        """What is not a tensor, as JSON can say it."""
        if self.item is None:
            return {"codec": self.codec}
        return {"codec": self.codec, "dtype": self.item[0], "shape": list(self.item[1])}

    @classmethod
    def from_parts(cls, parts: dict[str, Tensor], facts: dict[str, Any]) -> "Encoded":
        """The inverse of `parts` and `facts`; deflated items come to the CPU, where they can be read."""
        if ".sizes" in parts:
            parts = {ending: part.cpu() for ending, part in parts.items()}
        item = (facts["dtype"], tuple(facts["shape"])) if "dtype" in facts else None
        return cls(facts["codec"], parts[""], parts.get(".scale"), parts.get(".sizes"), item)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one item."""
        return tuple(self.values.shape[1:]) if self.item is None else self.item[1]

    @property
    def dtype(self) -> torch.dtype:
        """Of what is kept, before it was deflated."""
        if self.item is None:
            return self.values.dtype
        found = getattr(torch, self.item[0], None)
        if not isinstance(found, torch.dtype):
            raise SelfReminderError(f"unknown dtype '{self.item[0]}'")
        return found

    @property
    def read_dtype(self) -> torch.dtype:
        """Of what is read back."""
        return self.dtype if self.codec.removesuffix(ZLIB) == "raw" else torch.float32

    @property
    def device(self) -> torch.device:
        return self.values.device

    @property
    def is_deflated(self) -> bool:
        return self.sizes is not None

    @property
    def nbytes(self) -> int:
        """All bytes that are kept."""
        return sum(part.nbytes for part in self.parts.values())

    @property
    def least_item_nbytes(self) -> int:
        """Bytes that no item can be kept in fewer than, however well it deflates, or if bytes keep it exactly."""
        numbers = 0 if self.is_deflated else math.prod(self.shape)
        size = 1 if self.codec == "raw" and self.dtype == torch.float32 else self.dtype.itemsize
        return numbers * size + self._aside_nbytes

    def item_nbytes(self) -> Tensor:
        """(n,) bytes of each item."""
        if self.sizes is not None:
            return self.sizes.cpu().long() + self._aside_nbytes
        size = math.prod(self.shape) * self.dtype.itemsize + self._aside_nbytes
        return torch.full((len(self),), size, dtype=torch.int64)

    @property
    def _aside_nbytes(self) -> int:
        """Bytes of an item beside its values."""
        aside = [part for ending, part in self.parts.items() if ending]
        return sum(part.element_size() * math.prod(part.shape[1:]) for part in aside)

    def check(self, names: Sequence[str]) -> None:
        """Raise if this cannot be what one of these codecs kept."""
        plain = self.codec.removesuffix(ZLIB)
        scale = {"affine8": (len(self), 2), "int8": (len(self), 1)}.get(plain)
        good = (
            self.codec in names
            and plain not in ("auto", "compressed")
            and scale == (None if self.scale is None else self.scale.shape)
            and (self.scale is None or self.scale.dtype == torch.float32)
            and (self.sizes is not None) == (self.item is not None) == (self.codec != plain)
            and self.dtype == KEPT_AS.get(plain, self.dtype)
        )
        if good and self.sizes is not None:
            good = (
                self.values.ndim == self.sizes.ndim == 1
                and (self.values.dtype, self.sizes.dtype) == (torch.uint8, torch.int32)
                and bool((self.sizes > 0).all())
                and int(self.sizes.sum()) == len(self.values)
                and len(self.shape) <= _MOST_DIMENSIONS
                and all(type(size) is int and 0 <= size < 2**31 for size in self.shape)
                # Before anything is inflated: what such few bytes cannot hold, and what overflows.
                and math.prod(max(size, 1) for size in self.shape) * self.dtype.itemsize < 2**62
                and math.prod(self.shape) * self.dtype.itemsize
                <= MOST_TIMES * int(self.sizes.min() if len(self) else 2**31)
            )
        if not good:
            raise SelfReminderError(f"what codec '{self.codec}' kept is not whole")
        if self.sizes is not None and len(self):
            self._inflate(torch.zeros(1, dtype=torch.int64))  # a shape that is not the items' own is not the first's

    # New ones from old --------------------------------------------------------------------------------

    def take(self, index: Tensor) -> "Encoded":
        """The items of these rows."""
        index = index if self.sizes is None else index.to(self.sizes.device)
        scale = None if self.scale is None else self.scale[index]
        if self.sizes is None:
            return replace(self, values=self.values.index_select(0, index), scale=scale)  # [index] is slow for bytes
        sizes = self.sizes[index]
        starts = (self.sizes.cumsum(0) - self.sizes)[index]
        ends = sizes.cumsum(0)
        places = torch.arange(int(sizes.sum())) + (starts - ends + sizes).repeat_interleave(sizes)
        return replace(self, values=self.values[places], scale=scale, sizes=sizes)

    def __add__(self, other: "Kept") -> "Kept":
        """Both, one after the other; of different codecs, each item as it was."""
        alike = (self.codec, self.shape, self.read_dtype) == (other.codec, other.shape, other.read_dtype)
        return self.append(other) if alike and isinstance(other, Encoded) else join(self, other)

    def append(self, other: "Encoded") -> "Encoded":
        """Both, of the same codec."""
        theirs = other.parts
        joined = {ending: torch.cat([part, theirs[ending]]) for ending, part in self.parts.items()}
        return Encoded.from_parts(joined, self.facts)

    def pad(self, width: int) -> "Encoded":
        """Items (n, k) with zeros behind them, not deflated."""
        return replace(self, values=torch.nn.functional.pad(self.values, (0, width - self.shape[0])))

    def recode(self, x: Tensor) -> "Encoded":
        """Other values (n, …), kept in the same way."""
        return Encoded.of(self.codec, x)

    def to(self, device: torch.device | str) -> "Encoded":
        """On a device; deflated items stay on the CPU, where they can be read."""
        if self.sizes is not None:
            return self
        scale = None if self.scale is None else self.scale.to(device)
        return replace(self, values=self.values.to(device), scale=scale)

    # Reading back -------------------------------------------------------------------------------------

    def decode(self, index: Tensor | None = None) -> Tensor:
        """What is read back: all items, or those of these rows."""
        plain = self.codec.removesuffix(ZLIB)
        if self.sizes is None:
            values = self.values if index is None else self.values.index_select(0, index)
        else:
            values = self._inflate(index)
        scale = self.scale
        if scale is not None:
            scale = scale if index is None else scale.index_select(0, index.to(scale.device))
            scale = scale.reshape(*scale.shape, *[1] * (values.ndim - 1)).to(values.device)
        return DECODE[plain](values, scale)

    def _inflate(self, index: Tensor | None) -> Tensor:
        rows = range(len(self)) if index is None else index.tolist()
        values, ends = self.values.numpy().data, self._ends
        size = math.prod(self.shape) * self.dtype.itemsize
        inflated = bytearray(b"".join([inflate_item(values[ends[row] : ends[row + 1]], size) for row in rows]))
        read = torch.frombuffer(inflated, dtype=self.dtype) if inflated else torch.zeros(0, dtype=self.dtype)
        read = read.reshape(len(rows), *self.shape)
        return read if index is None else read.to(index.device)

    @cached_property
    def _ends(self) -> list[int]:
        assert self.sizes is not None
        return [0, *self.sizes.cumsum(0).tolist()]


Kept = Encoded | Mixed
"""what codecs keep"""
