"""Items that several codecs keep, each item by one of them: joined as they were, so that nothing is rounded twice."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from selfreminder._base.errors import SelfReminderError

if TYPE_CHECKING:  # it joins its items by what is here
    from selfreminder.memory.encoded import Encoded

WHICH = ".codecs"
"""the ending of the column that says by which codec each item is kept"""


@dataclass(frozen=True, eq=False)
class Mixed:
    """Items of several codecs, as `Encoded` has those of one; made by `mix`."""

    which: Tensor
    """(n,) uint8: the place of each item's piece among all"""
    pieces: "tuple[Encoded, ...]"
    """two or more, in the order of their codecs' names; each has its items in their order, one at least"""

    def __len__(self) -> int:
        return len(self.which)

    @property
    def codec(self) -> str:
        """Their names, for people."""
        return " and ".join(piece.codec for piece in self.pieces)

    @property
    def parts(self) -> dict[str, Tensor]:
        """Every tensor that is kept, by the ending of its name."""
        parts = {f".{piece.codec}{ending}": part for piece in self.pieces for ending, part in piece.parts.items()}
        return {WHICH: self.which, **parts}

    @property
    def facts(self) -> dict[str, Any]:
        """What is not a tensor, as JSON can say it."""
        return {"codecs": [piece.facts for piece in self.pieces]}

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one item."""
        return self.pieces[0].shape

    @property
    def dtype(self) -> torch.dtype:
        """Of what is kept: the widest."""
        return max((piece.dtype for piece in self.pieces), key=lambda dtype: dtype.itemsize)

    @property
    def read_dtype(self) -> torch.dtype:
        """Of what is read back."""
        return self.pieces[0].read_dtype

    @property
    def device(self) -> torch.device:
        return self.which.device

    @property
    def is_deflated(self) -> bool:
        """Whether any item is."""
        return any(piece.is_deflated for piece in self.pieces)

    @property
    def nbytes(self) -> int:
        """All bytes that are kept."""
        return sum(part.nbytes for part in self.parts.values())

    @property
    def least_item_nbytes(self) -> int:
        """Bytes that no item can be kept in fewer than."""
        return min(piece.least_item_nbytes for piece in self.pieces)  # alone, it needs no place among pieces

    def item_nbytes(self) -> Tensor:
        """(n,) bytes of each item."""
        each, which = torch.full((len(self),), self.which.element_size(), dtype=torch.int64), self.which.cpu()
        for number, piece in enumerate(self.pieces):
            each[which == number] += piece.item_nbytes()
        return each

    def check(self, names: Sequence[str]) -> None:
        """Raise if this cannot be what some of these codecs kept."""
        for piece in self.pieces:
            piece.check(names)
        codecs = [piece.codec for piece in self.pieces]
        if (
            len(codecs) < 2
            or codecs != sorted(set(codecs))
            or len({(piece.shape, piece.read_dtype) for piece in self.pieces}) > 1
            or self.which.ndim != 1
            or self.which.dtype != torch.uint8
            or not all(map(len, self.pieces))
            or self.which.bincount(minlength=len(codecs)).tolist() != list(map(len, self.pieces))
        ):
            raise SelfReminderError(f"what the codecs {self.codec} kept is not whole")

    # New ones from old --------------------------------------------------------------------------------

    def take(self, index: Tensor) -> "Encoded | Mixed":
        """The items of these rows."""
        index = index.to(self.device)
        which, places = self.which[index], self._places[index]
        return mix(which, [piece.take(places[which == number]) for number, piece in enumerate(self.pieces)])

    def __add__(self, other: "Encoded | Mixed") -> "Encoded | Mixed":
        """Both, one after the other."""
        return join(self, other)

    def pad(self, width: int) -> "Mixed":
        """Items (n, k) with zeros behind them."""
        return replace(self, pieces=tuple(piece.pad(width) for piece in self.pieces))

    def recode(self, x: Tensor) -> "Mixed":
        """Other values (n, …), each kept as the item was whose place it takes."""
        which = self.which.to(x.device)
        return Mixed(which, tuple(piece.recode(x[which == number]) for number, piece in enumerate(self.pieces)))

    def to(self, device: torch.device | str) -> "Mixed":
        """On a device; deflated items stay on the CPU, where they can be read."""
        return Mixed(self.which.to(device), tuple(piece.to(device) for piece in self.pieces))

    # Reading back -------------------------------------------------------------------------------------

    def decode(self, index: Tensor | None = None) -> Tensor:
        """What is read back: all items, or those of these rows."""
        which, places = self.which, self._places
        if index is not None:
            rows = index.to(self.device)
            which, places = which.index_select(0, rows), places.index_select(0, rows)
        read = torch.zeros(len(which), *self.shape, dtype=self.read_dtype, device=self.device)
        for number, piece in enumerate(self.pieces):
            mine = which == number
            if self.device.type == "cpu" or piece.is_deflated:
                found = mine.nonzero().flatten()
                if len(found):
                    read.index_copy_(0, found, piece.decode(places.index_select(0, found)).to(self.device))
            else:  # how many there are, a device that is busy would say late: its first item stands for all others
                mine = mine.reshape(-1, *[1] * len(self.shape))
                read = torch.where(mine, piece.decode(places * mine.flatten()), read)
        return read if index is None else read.to(index.device)

    @cached_property
    def _places(self) -> Tensor:
        """(n,) each item's row in its piece."""
        places = torch.zeros_like(self.which, dtype=torch.int64)
        for number in range(len(self.pieces)):
            mine = self.which == number
            places = torch.where(mine, mine.cumsum(0) - 1, places)
        return places


def mix(which: Tensor, pieces: "Sequence[Encoded]") -> "Encoded | Mixed":
    """Items of several codecs: the same ones are always the same columns, and of one codec alone just that.

    Args:
        which: (n,) the place of each item's piece.
        pieces: of different codecs, in any order; empty ones are left out.
    """
    some = sorted((number for number, piece in enumerate(pieces) if len(piece)), key=lambda i: pieces[i].codec)
    if len(some) < 2:
        return pieces[some[0] if some else 0]
    order = torch.zeros(len(pieces), dtype=torch.uint8)
    order[some] = torch.arange(len(some), dtype=torch.uint8)
    return Mixed(order.to(which.device)[which.long()], tuple(pieces[number] for number in some))


def join(ours: "Encoded | Mixed", theirs: "Encoded | Mixed") -> "Encoded | Mixed":
    """All items, ours first, each kept as it was."""
    if (ours.shape, ours.read_dtype) != (theirs.shape, theirs.read_dtype):
        raise SelfReminderError(
            f"items of shape {ours.shape} and {ours.read_dtype} do not join those of {theirs.shape} and "
            f"{theirs.read_dtype}"
        )
    pieces = {piece.codec: piece for piece in ours.pieces}
    for piece in theirs.pieces:
        pieces[piece.codec] = pieces[piece.codec].append(piece) if piece.codec in pieces else piece
    numbers = {name: number for number, name in enumerate(pieces)}
    order = torch.tensor([numbers[piece.codec] for piece in theirs.pieces], dtype=torch.uint8)
    device = theirs.device if ours.device.type == "cpu" else ours.device  # what is deflated is on the CPU
    which = torch.cat([ours.which.to(device), order.to(device)[theirs.which.to(device).long()]])
    return mix(which, list(pieces.values()))
