"""How inputs and logits are kept: each codec is a way to write a tensor smaller and to read it back.

| inputs | keeps | read back |
|---|---|---|
| `auto` | `uint8` where that is exact, else `raw` | exactly |
| `raw` | the tensor as it is: uint8 images, token ids, floats | exactly |
| `float32` | float32 | to float32's precision |
| `float16` | half the bytes | to float16's precision |
| `uint8` | a quarter: x·255 rounded, for x in [0, 1] | within 1/510; exactly for images divided by 255 |
| `affine8` | a quarter, any floats: 256 even steps from an item's least to its greatest value | within half a step |
| `compressed` | `auto`, then each item deflated (zlib) | exactly |
| `…+zlib` | any of the others, then each item deflated | as that one |

| logits | keeps | read back |
|---|---|---|
| `float32` | float32 | exactly |
| `float16` | half the bytes | to float16's precision |
| `int8` | a quarter: 127 even steps up to an item's largest magnitude | within half a step |

An item is deflated by itself, so that any of them can be read without the others.
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from selfreminder._base.codec_names import LOGIT_NAMES as LOGIT_NAMES
from selfreminder._base.codec_names import NAMES, ZLIB
from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder.memory.number_formats import DECODE, ENCODE, KEPT_AS, flatten_items, from_bytes


@dataclass(frozen=True, eq=False)
class Encoded:
    """Items as a codec keeps them.

    >>> kept = encode("uint8", torch.rand(5, 3))
    >>> len(kept), kept.nbytes, kept.decode().shape
    (5, 15, torch.Size([5, 3]))
    """

    codec: str
    """not `auto`"""
    values: Tensor
    """(n, …); deflated, the bytes of all items one after the other"""
    scale: Tensor | None = None
    """(n, 2) each item's offset and step, or (n, 1) its step"""
    sizes: Tensor | None = None
    """(n,) bytes of each item, where they are deflated"""
    item: tuple[str, tuple[int, ...]] | None = None
    """dtype and shape of an item before it was deflated"""

    def __len__(self) -> int:
        return len(self.values if self.sizes is None else self.sizes)

    @property
    def parts(self) -> dict[str, Tensor]:
        """Every tensor that is kept, by the ending of its name."""
        parts = {"": self.values, ".scale": self.scale, ".sizes": self.sizes}
        return {ending: part for ending, part in parts.items() if part is not None}

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
    def nbytes(self) -> int:
        """All bytes that are kept."""
        return sum(part.nbytes for part in self.parts.values())

    def item_nbytes(self) -> Tensor:
        """(n,) bytes of each item."""
        aligned = [part for ending, part in self.parts.items() if ending or self.sizes is None]
        fixed = sum(part[0].nbytes for part in aligned) if len(self) else 0
        each = torch.full((len(self),), fixed, dtype=torch.int64)
        return each if self.sizes is None else each + self.sizes.cpu()

    def check(self, names: Sequence[str]) -> None:
        """Raise if this cannot be what one of these codecs kept."""
        plain = self.codec.removesuffix(ZLIB)
        scale = {"affine8": (len(self), 2), "int8": (len(self), 1)}.get(plain)
        good = (
            self.codec in names
            and plain not in ("auto", "compressed")
            and scale == (None if self.scale is None else self.scale.shape)
            and (self.sizes is not None) == (self.item is not None) == (self.codec != plain)
            and self.dtype == KEPT_AS.get(plain, self.dtype)
        )
        if good and self.sizes is not None:
            bytewise = self.values.ndim == 1 and self.values.dtype == torch.uint8
            good = bytewise and bool((self.sizes > 0).all()) and int(self.sizes.sum()) == len(self.values)
        if not good:
            raise SelfReminderError(f"what codec '{self.codec}' kept is not whole")

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

    def __add__(self, other: "Encoded") -> "Encoded":
        """Both, one after the other; of different codecs, what both read back, so that nothing is rounded twice."""
        if self.facts != other.facts or self.values.dtype != other.values.dtype:
            device = self.device if self.sizes is None else other.device  # what is deflated is on the CPU
            both = torch.cat([self.decode().to(device), other.decode().to(device)])
            name = "float32" if both.dtype == torch.float32 else "raw"
            deflated = self.codec.endswith(ZLIB) and other.codec.endswith(ZLIB)
            return encode(f"{name}{ZLIB}" if deflated else name, both)
        theirs = other.parts
        joined = {ending: torch.cat([part, theirs[ending]]) for ending, part in self.parts.items()}
        return Encoded.from_parts(joined, self.facts)

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


def resolve(name: str, x: Tensor) -> str:
    """The codec that `name` means for `x`: `auto` becomes `uint8` or `raw`, others stay.

    >>> resolve("auto", torch.tensor([0.0, 1.0])), resolve("compressed", torch.tensor([0.0, 0.3]))
    ('uint8', 'raw+zlib')
    """
    if name not in NAMES:
        raise unknown("codec", name, NAMES)
    name = f"auto{ZLIB}" if name == "compressed" else name
    if not name.startswith("auto"):
        return name
    exact = x.dtype == torch.float32 and bool(((x >= 0) & (x <= 1)).all())
    exact = exact and torch.equal(from_bytes((x * 255).round().to(torch.uint8)), x)
    return name.replace("auto", "uint8" if exact else "raw")


def encode(name: str, x: Tensor) -> Encoded:
    """Items (n, …) as codec `name` (not `auto`: see `resolve`) keeps them."""
    plain = name.removesuffix(ZLIB)
    values, scale = ENCODE[plain](x)
    if name == plain:
        return Encoded(name, values, scale)
    joined, sizes = deflate(values)
    item = (str(values.dtype).removeprefix("torch."), tuple(values.shape[1:]))
    return Encoded(name, joined, scale if scale is None else scale.cpu(), sizes, item)


def measure_error(name: str, x: Tensor) -> float:
    """Measure the largest difference that codec `name` makes to `x`.

    >>> measure_error("float16", torch.tensor([0.0, 0.1])) < 1e-4
    True
    """
    if x.numel() == 0:
        return 0.0
    read = encode(name if name == "int8" else resolve(name, x), x).decode()
    return (read.to(torch.float64) - x.to(torch.float64)).abs().max().item()


# Items deflated, each by itself -------------------------------------------------------------------------------


def deflate(values: Tensor) -> tuple[Tensor, Tensor]:
    """The bytes of all items (n, …), one after the other; and (n,) how many each has."""
    deflated = [_deflate_item(item) for item in split_bytes(values)]
    joined = bytearray().join(deflated)
    return (
        torch.frombuffer(joined, dtype=torch.uint8) if joined else torch.zeros(0, dtype=torch.uint8),
        torch.tensor([len(each) for each in deflated], dtype=torch.int32),
    )


def split_bytes(values: Tensor) -> list[memoryview]:
    """The bytes of each item of (n, …)."""
    flat = flatten_items(values.detach().cpu().contiguous())
    rows = flat.view(torch.uint8).numpy() if flat.numel() else [b""] * len(values)
    return [memoryview(row) for row in rows]


def _deflate_item(item: memoryview) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)  # bare: a header and a checksum an item would be waste
    return compressor.compress(item) + compressor.flush()


def inflate_item(deflated: memoryview, size: int) -> bytes:
    """An item of `size` bytes."""
    inflater = zlib.decompressobj(-15)
    try:
        inflated = inflater.decompress(deflated, size + 1)  # never more, whatever a file says
    except zlib.error as error:
        raise SelfReminderError(f"a deflated item is damaged: {error}") from None
    if len(inflated) != size or not inflater.eof:
        raise SelfReminderError(f"a deflated item is damaged: it does not have {size} bytes")
    return inflated
