"""Memory: a few old items with the logits that the model gave them. A value: ``memory = memory + remembered``."""

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder._base.sizes import as_index, show_bytes
from selfreminder.memory import codec
from selfreminder.memory.columns import ReservoirState, find_rows_within, interleave_classes
from selfreminder.memory.encoded import Kept
from selfreminder.memory.fingerprint import Fingerprint
from selfreminder.memory.sampling import MemoryBatch as MemoryBatch
from selfreminder.memory.sampling import ReadableColumns
from selfreminder.samples import UNKNOWN

_MOST = 2**31 - 1


class Memory(ReadableColumns):
    """Equal-length columns, one row an item, ordered by task and within a task by priority.

    >>> memory = Memory.of({"x": torch.rand(6, 4)}, torch.zeros(6, 3), task=0)
    >>> memory = memory + Memory.of({"x": torch.rand(2, 4)}, torch.zeros(2, 3), task=1)
    >>> len(memory), memory.counts, memory.nbytes
    (8, {0: 6, 1: 2}, 344)
    """

    @classmethod
    def of(
        cls,
        inputs: Mapping[str, Tensor | Kept],
        logits: Tensor,
        *,
        task: int,
        labels: Tensor | None = None,
        sources: Tensor | None = None,
        codecs: Mapping[str, str] | str = "auto",
        logit_codec: str = "float32",
        selection: str = "given",
        time: int | None = None,
        witness: Tensor | None = None,
        fingerprint: Fingerprint | None = None,
    ) -> "Memory":
        """Make a memory of one task.

        Args:
            inputs: (n, …) by name, best items first; or as they are encoded already.
            logits: (n, K) that the model gave them.
            task: its number.
            labels: (n,) classes; unknown without them.
            sources: (n,) where each item came from; unknown without them.
            codecs: how inputs are kept, one name for all or one for each.
            logit_codec: how logits are kept.
            selection: by what the items were chosen.
            time: when, in seconds since 1970.
            witness: (n,) which items are never drawn, only looked at; none without it.
            fingerprint: what gave the logits.
        """
        if logits.ndim != 2:
            raise SelfReminderError(f"logits have the shape (items, classes), not {tuple(logits.shape)}")
        if not 0 <= as_index("task", task) <= _MOST:
            raise SelfReminderError(f"task is {task}: it is a number from 0 on")
        if time is not None and as_index("time", time) < 0:
            raise SelfReminderError(f"time is {time}: it is in seconds since 1970")
        n, width = logits.shape
        for name, values in (("labels", labels), ("sources", sources)):
            if values is not None and values.shape != (n,):
                raise SelfReminderError(f"{name} have the shape {tuple(values.shape)}, there are {n} items")
        most_classes = torch.iinfo(torch.int16).max
        if labels is not None and n and not (labels.min() >= UNKNOWN and labels.max() <= most_classes):
            raise SelfReminderError(f"labels are classes from 0 to {most_classes:,}, or {UNKNOWN} where unknown")
        if width > most_classes:
            raise SelfReminderError(f"a memory holds at most {most_classes:,} logits an item, the model gives {width}")
        for name, x in inputs.items():
            if len(x) != n:
                raise SelfReminderError(f"input '{name}' has {len(x)} items, the logits {n}")
        if logit_codec not in codec.LOGIT_NAMES:
            raise unknown("logit codec", logit_codec, codec.LOGIT_NAMES)
        wanted = dict.fromkeys(inputs, codecs) if isinstance(codecs, str) else codecs
        device = logits.device

        def column(values: Tensor | int, dtype: torch.dtype) -> Tensor:
            if isinstance(values, int):
                return torch.full((n,), values, dtype=dtype, device=device)
            return values.detach().to(device, dtype)

        small = sources is None or not n or bool((sources.abs() <= _MOST).all())
        encoded = {
            name: codec.encode(wanted[name], x.detach()) if isinstance(x, Tensor) else x for name, x in inputs.items()
        }
        return cls(
            inputs={name: x.to(device) for name, x in encoded.items()},
            kept_logits=codec.encode(logit_codec, logits.detach().to(torch.float32)),
            labels=column(UNKNOWN if labels is None else labels, torch.int16),
            tasks=column(task, torch.int32),
            ids=torch.arange(n, dtype=torch.int32, device=device),
            sources=column(UNKNOWN if sources is None else sources, torch.int32 if small else torch.int64),
            selections=column(0, torch.uint8),
            times=None if time is None else column(time, torch.int64),
            witness=column(witness, torch.bool) if witness is not None and bool(witness.any()) else None,
            selection_names=(selection,),
            next_id=n,
            fingerprints={task: fingerprint} if n and fingerprint is not None else {},
        )

    def __repr__(self) -> str:
        tasks = f"{len(self.counts)} task{'' if len(self.counts) == 1 else 's'}"
        return f"Memory({len(self)} items of {tasks}, {show_bytes(self.nbytes)})"

    # New memories from old ----------------------------------------------------------------------------

    def __add__(self, other: "Memory") -> "Memory":
        """Both memories' items; those of `other` come after ours of the same task and get new ids."""
        reservoirs = dict(self.reservoirs)
        for task, state in other.reservoirs.items():  # of each task, the stream that has had more
            if task not in reservoirs or state.seen > reservoirs[task].seen:
                reservoirs[task] = state
        if not len(other):
            return self.with_reservoirs(reservoirs)
        if not len(self):
            return dataclasses.replace(
                other,
                ids=other.ids + self.next_id,
                next_id=self.next_id + other.next_id,
                fingerprints=_merge_fingerprints(self, other),
                reservoirs=reservoirs,
            )
        if self.inputs.keys() != other.inputs.keys():
            raise SelfReminderError(
                f"this memory holds the inputs {sorted(self.inputs)}, the other {sorted(other.inputs)}"
            )
        for name, ours in self.inputs.items():
            held, theirs = f"this memory holds inputs '{name}'", other.inputs[name]
            if ours.shape != theirs.shape:
                raise SelfReminderError(f"{held} of shape {ours.shape}, the new ones have {theirs.shape}")
            if ours.read_dtype != theirs.read_dtype:
                raise SelfReminderError(
                    f"{held} as {ours.read_dtype}, the new ones are {theirs.read_dtype}: "
                    "give all in one dtype and scale"
                )
        names = tuple(dict.fromkeys((*self.selection_names, *other.selection_names)))
        recoded = torch.tensor([names.index(name) for name in other.selection_names], dtype=torch.uint8)
        widest = max(self.kept_logits.shape[0], other.kept_logits.shape[0])
        uneven = bool((self.widths != widest).any() or (other.widths != widest).any())
        merged = Memory(
            inputs={name: ours + other.inputs[name] for name, ours in self.inputs.items()},
            kept_logits=self.kept_logits.pad(widest) + other.kept_logits.pad(widest),
            width=torch.cat([self.widths, other.widths]) if uneven else None,
            ids=torch.cat([self.ids, other.ids + self.next_id]),
            **{name: torch.cat([getattr(self, name), getattr(other, name)]) for name in ("labels", "tasks", "sources")},
            selections=torch.cat([self.selections, recoded.to(other.ids.device)[other.selections.long()]]),
            times=None if self.times is None and other.times is None else torch.cat([_times(self), _times(other)]),
            witness=None
            if self.witness is None and other.witness is None
            else torch.cat([self.witnesses, other.witnesses]),
            selection_names=names,
            next_id=self.next_id + other.next_id,
            fingerprints=_merge_fingerprints(self, other),
            reservoirs=reservoirs,
            settings={**other.settings, **self.settings},
        )
        in_order = bool((merged.tasks[1:] >= merged.tasks[:-1]).all())
        return merged if in_order else merged.take(torch.arange(len(merged), device=merged.tasks.device))

    def take(self, index: Tensor) -> "Memory":
        """The items of these rows (indices or a mask), in this order within a task."""
        rows = index.nonzero().flatten() if index.dtype == torch.bool else index
        rows = rows[torch.argsort(self.tasks[rows], stable=True)]
        left = self.tasks[rows].unique().tolist() if self.fingerprints or self.reservoirs else []
        ids = set(self.ids[rows].tolist()) if any(each.item is not None for each in self.fingerprints.values()) else ()
        return dataclasses.replace(
            self,
            inputs={name: x.take(rows) for name, x in self.inputs.items()},
            kept_logits=self.kept_logits.take(rows),
            fingerprints={
                task: each.with_item(each.item if each.item in ids else None)
                for task, each in self.fingerprints.items()
                if task in left
            },
            # A reservoir of which nothing is left begins anew, at its place in the stream.
            reservoirs={
                task: stream if task in left else ReservoirState(stream.seen, stream.seed)
                for task, stream in self.reservoirs.items()
            },
            **{name: column[rows] for name, column in self.plain_columns.items()},
        )

    def with_logits(self, logits: Tensor, width: Tensor | None = None) -> "Memory":
        """The same items with other logits (n, K); `width` (n,) says how many of each count, where that is new."""
        kept = self.kept_logits.recode(logits)
        if width is None:
            return dataclasses.replace(self, kept_logits=kept)
        uneven = bool((width != logits.shape[1]).any())
        return dataclasses.replace(self, kept_logits=kept, width=width if uneven else None)

    def with_reservoirs(self, reservoirs: Mapping[int, ReservoirState]) -> "Memory":
        """The same items, and other reservoirs; nothing is read anew."""
        if reservoirs == self.reservoirs:
            return self
        other = dataclasses.replace(self, reservoirs=reservoirs)
        for name, value in vars(self).items():
            vars(other).setdefault(name, value)  # what has been read back
        return other

    def interleave(self, task: int, older: int) -> "Memory":
        """Let the items of a task that joined it later, all but its `older` first ones, rank among those.

        The first of every class come first, older before newer, then the second of every class.
        """
        rows = (self.tasks == task).nonzero().flatten()
        index = torch.arange(len(self), device=rows.device)
        index[rows] = rows[interleave_classes(self.labels[rows], older).to(rows.device)]
        return self.take(index)

    def shrink(self, budget: int, *, to_items: bool = False) -> "Memory":
        """At most `budget` bytes, or items: every task gives up its last ones until all tasks are even within one."""
        if not len(self):
            return self
        before = torch.arange(len(self) + 1) if to_items else self.nbytes_before()
        rows = find_rows_within(budget, before, list(self.counts.values()))
        items = sum(end - start for start, end in rows)
        if to_items and items < len(self.counts):
            raise SelfReminderError(
                f"a memory of {budget} items has fewer than one for each of the {len(self.counts)} tasks: raise items"
            )
        if items < len(self.counts):
            raise SelfReminderError(
                f"a budget of {show_bytes(budget)} holds {items} items of {self.item_nbytes} bytes, "
                f"fewer than one for each of the {len(self.counts)} tasks: raise the budget"
            )
        if items == len(self):
            return self
        return self.take(torch.cat([torch.arange(*each) for each in rows]).to(self.device))

    def to(self, device: torch.device | str) -> "Memory":
        """The same memory with its columns on a device."""
        if self.device == torch.device(device):
            return self
        return dataclasses.replace(
            self,
            inputs={name: x.to(device) for name, x in self.inputs.items()},
            kept_logits=self.kept_logits.to(device),
            **{name: column.to(device) for name, column in self.plain_columns.items()},
        )


def _merge_fingerprints(ours: Memory, theirs: Memory) -> dict[int, Fingerprint]:
    """Of each task ours, unless nothing can be compared with its transform any more; their items get new ids."""
    both = dict(ours.fingerprints)
    for task, fingerprint in theirs.fingerprints.items():
        moved = fingerprint if fingerprint.item is None else fingerprint.with_item(fingerprint.item + ours.next_id)
        if task not in both:
            both[task] = moved
        elif both[task].transform is not None and both[task].item is None:
            both[task] = dataclasses.replace(both[task], transform=moved.transform, item=moved.item)
    return both


def _times(memory: Memory) -> Tensor:
    return torch.full_like(memory.sources, UNKNOWN) if memory.times is None else memory.times
