"""Slots: a reservoir that changes in place, for replay at every step of a long stream.

Item number p of the stream, counted from 0, goes to slot p while there are free ones, and then to slot h(p) mod (p + 1)
if there is such a slot, where it replaces what was there (Vitter's algorithm R). h(p) is a pseudo-random number that
depends on the seed and p alone. So every item so far is held with the same chance; how the stream is cut into batches
does not matter, the last of two items for one slot has it; nothing but a count is needed to go on later; and which
items enter is known on the CPU, without a look at the device.

`Memory` is a value, for a file; this is for a training loop: to enter costs the bytes of the items that enter.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from selfreminder._base.codec_names import ZLIB
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.seeds import seed_for
from selfreminder.memory import codec as codecs
from selfreminder.memory.number_formats import DECODE, ENCODE
from selfreminder.memory.reservoir import make_keys

_CHUNK = 4096
"""positions whose slots are drawn at once"""


class Drawn(NamedTuple):
    """Items read back from slots."""

    x: Tensor
    y: Tensor
    heads: Tensor | None
    """(n,) of each item, where a model has several"""
    logits: Tensor | None
    """(n, K) as recorded, 0 beyond `widths`; None where none are kept"""
    widths: Tensor | None
    """(n,) how many logits of each count"""


class Slots:
    """A uniform sample, of at most `size` items, of all that it observes.

    >>> slots = Slots(3, seed=0)
    >>> for x in torch.arange(8.0).split(2):
    ...     slots.observe(x[:, None], x.long())
    >>> len(slots), slots.seen, slots.draw(2, torch.Generator()).x.shape
    (3, 8, torch.Size([2, 1]))
    """

    def __init__(self, size: int, *, seed: int, codec: str = "raw", logit_codec: str = "float32") -> None:
        self.size, self.codec, self.logit_codec = size, codec, logit_codec
        self.seen = 0
        self._seed = seed_for(seed, "slots")
        self._columns: dict[str, Tensor] = {}
        """(size, …) by name; `….scale` is what a codec keeps beside the values"""
        self._drawn = (0, np.zeros(0, dtype=np.int64))
        """the first position of a chunk, and the slots of its positions"""

    def __len__(self) -> int:
        return min(self.seen, self.size)

    @torch.no_grad()
    def observe(self, x: Tensor, y: Tensor, logits: Tensor | None = None, head: int | Tensor | None = None) -> None:
        """Take in the next items of the stream: (n, …) inputs, (n,) labels, and their logits (n, K) if they are kept.

        `head` is that of all items, or (n,) one for each.
        """
        rows, slots = self._place(len(x))
        self.seen += len(x)
        if not len(rows):
            return
        rows, slots = torch.from_numpy(rows).to(x.device), torch.from_numpy(slots).to(x.device)
        self._write("x", self.codec, slots, x.index_select(0, rows))
        self._write("y", "raw", slots, y.index_select(0, rows).to(torch.int16))
        if head is not None:
            heads = head.index_select(0, rows) if isinstance(head, Tensor) else torch.full_like(slots, head)
            self._write("head", "raw", slots, heads.to(torch.int16))
        if logits is not None:
            self._widen(logits.shape[1])
            missing = self._columns["logits"].shape[1] - logits.shape[1] if "logits" in self._columns else 0
            kept = F.pad(logits.detach().index_select(0, rows), (0, missing))
            self._write("logits", self.logit_codec, slots, kept)
            self._write("width", "raw", slots, torch.full_like(slots, logits.shape[1], dtype=torch.int16))

    def draw(self, n: int, generator: torch.Generator) -> Drawn:
        """Draw n different items, each as likely as any other; all of them if there are not more."""
        if n >= len(self):
            return self.read()
        return self.read(torch.randperm(len(self), generator=generator, device=self._columns["x"].device)[:n])

    def read(self, rows: Tensor | None = None) -> Drawn:
        """Read back the items of these slots; None: all."""
        y, heads, widths = (self._read(name, "raw", rows) for name in ("y", "head", "width"))
        x, logits = self._read("x", self.codec, rows), self._read("logits", self.logit_codec, rows)
        assert x is not None and y is not None
        return Drawn(x, y.long(), None if heads is None else heads.long(), logits, widths)

    @torch.no_grad()
    def record(self, logits: Tensor) -> None:
        """Keep other logits (n, K) of all items."""
        self._columns.pop("logits")
        self._columns.pop("logits.scale", None)
        every = torch.arange(len(self), device=logits.device)
        self._write("logits", self.logit_codec, every, logits)
        self._columns["width"][: len(self)] = logits.shape[1]

    def state_dict(self) -> dict[str, Tensor]:
        """All that is needed to go on: the items, and how many the stream has had."""
        return {"seen.facts": torch.tensor(self.seen), **{k: each[: len(self)] for k, each in self._columns.items()}}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from a `state_dict`."""
        self.seen, self._columns = int(state["seen.facts"]), {}
        for name, held in state.items():
            if name != "seen.facts":
                self._allocate(name, held)[: len(held)] = held

    def _place(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Which of the next n items enter, and their slots; of several for one slot the last."""
        first, drawn = self._drawn
        if self.seen < first or self.seen + n > first + len(drawn):
            first = self.seen
            positions = torch.arange(first, first + max(n, _CHUNK))
            keys = make_keys(positions, self._seed)
            self._drawn = first, torch.where(positions < self.size, positions, keys % (positions + 1)).numpy()
        slots = self._drawn[1][self.seen - first : self.seen - first + n]
        rows = np.flatnonzero(slots < self.size)
        if len(rows) > 1:
            order = slots[rows].argsort(kind="stable")
            ordered = slots[rows[order]]
            rows = rows[order[np.append(ordered[1:] != ordered[:-1], True)]]
        return rows, slots[rows]

    def _write(self, name: str, codec: str, slots: Tensor, values: Tensor) -> None:
        for ending, part in zip(("", ".scale"), _encode(codec, values)):
            if part is not None:
                column = self._columns.get(f"{name}{ending}")
                column = self._allocate(f"{name}{ending}", part) if column is None else column
                column.index_copy_(0, slots, part)

    def _read(self, name: str, codec: str, rows: Tensor | None) -> Tensor | None:
        def pick(column: Tensor) -> Tensor:
            return column[: len(self)] if rows is None else column.index_select(0, rows)

        if name not in self._columns:
            return None
        values, scale = pick(self._columns[name]), self._columns.get(f"{name}.scale")
        if scale is not None:
            scale = pick(scale)
            scale = scale.reshape(*scale.shape, *[1] * (values.ndim - 1))
        return DECODE[codec](values, scale)

    def _allocate(self, name: str, like: Tensor) -> Tensor:
        self._columns[name] = like.new_zeros(self.size, *like.shape[1:])
        return self._columns[name]

    def _widen(self, width: int) -> None:
        """Make room for logits of more classes than any item has."""
        if "logits" in self._columns and (more := width - self._columns["logits"].shape[1]) > 0:
            self._columns["logits"] = F.pad(self._columns["logits"], (0, more))


def choose_codec(name: str, samples: list[Tensor]) -> str:
    """The codec that `name` means for a stream of which these are samples, each (n, …) of a task.

    >>> choose_codec("auto", [torch.tensor([[0.0, 1.0]])]), choose_codec("auto", [torch.tensor([[0.3]])])
    ('uint8', 'raw')
    """
    found = {codecs.resolve(name, x) for x in samples}
    (chosen,) = found if len(found) == 1 else ("raw",)
    if chosen.endswith(ZLIB):
        raise SelfReminderError(f"codec '{name}' deflates items, which replay reads at every step: use auto")
    chosen = chosen if chosen in ENCODE else "raw"
    if chosen == "uint8":
        for x in samples:
            ENCODE[chosen](x)  # raises for values that bytes cannot be
    return chosen


def count_bytes(x: Tensor, codec: str, logits: int = 0, logit_codec: str = "float32") -> int:
    """Bytes of one item like `x` (1, …), with so many logits.

    >>> count_bytes(torch.zeros(1, 784), "uint8", logits=10)
    828
    """
    parts = [*_encode(codec, x), *(_encode(logit_codec, torch.zeros(1, logits)) if logits else ())]
    return sum(part.nbytes for part in parts if part is not None) + (4 if logits else 2)


def _encode(codec: str, values: Tensor) -> tuple[Tensor, Tensor | None]:
    if codec == "uint8":  # without the look at their range, for which a device would have to be waited for
        return values.mul(255).round_().to(torch.uint8), None
    return ENCODE[codec](values)
