"""A reservoir: a uniform sample of a stream without task boundaries, in constant memory.

Item number p of the stream has the pseudo-random key h(p), and the reservoir holds the items with the smallest keys. So
nothing but a count is needed to go on later; which items enter depends on their positions alone, and not on how the
stream is cut into batches; and the order by key is one of priority: its first few are a uniform sample too. A
reservoir whose size is raised fills as the stream goes on, no faster, so that no part of the stream is favoured.

An item's position is its source, its selection is "reservoir". Items of the task that were chosen in another way stay
as they are, before those of the reservoir.
"""

from dataclasses import replace

import torch
from torch import Tensor

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.seeds import seed_for
from selfreminder._base.sizes import Size, share_evenly
from selfreminder.memory.memory import Memory, ReservoirState

SELECTION = "reservoir"


def make_keys(positions: Tensor, seed: int) -> Tensor:
    """(n,) int64 from 0 on: `seeds.step_seed` of each position.

    >>> make_keys(torch.arange(3), seed=0) / 2**63
    tensor([0.8833, 0.4315, 0.0264])
    """
    z = (positions.long() + 1) * _signed(0x9E3779B97F4A7C15) + _signed(seed)  # int64 wraps around
    z = (z ^ _shift(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shift(z, 27)) * _signed(0x94D049BB133111EB)
    return _shift(z ^ _shift(z, 31), 1)


def find_state(memory: Memory, task: int, *, seed: int = 0) -> ReservoirState:
    """Find how far the reservoir of a task has come along its stream; `seed` is for one that begins."""
    return memory.reservoirs.get(task) or ReservoirState(seen=0, seed=seed_for(seed, SELECTION, task))


def find_entering(
    memory: Memory, task: int, n: int, size: Size, labels: Tensor | None = None, *, seed: int = 0
) -> Tensor:
    """Find which of the next n items of the stream enter: indices into them, in order, on the CPU.

    Args:
        memory: that holds the reservoir.
        task: that the reservoir fills.
        size: `per_task` items in all, `per_class` items of each class, or a budget. What an item takes of that is
            known once it is encoded: where items differ, some enter that `merge_entered` then finds no room for.
        labels: (n,) classes, for `per_class`.
        seed: of a stream that begins.
    """
    if size.per_class is not None and (labels is None or labels.shape != (n,)):
        raise SelfReminderError(f"per_class needs the labels of all {n} items: pass them, or use per_task or budget")
    return _admit(memory, find_state(memory, task, seed=seed), task, n, size, labels)[0]


def merge_entered(memory: Memory, new: Memory, task: int, seen: int, size: Size, *, seed: int = 0) -> Memory:
    """Merge the items that entered into the memory, without those that lost their place, ordered by key.

    Args:
        new: what `find_entering` named, with positions as sources and "reservoir" as selection; `Memory()` if nothing.
        seen: items that the stream has had by now, all that `find_entering` was asked about included.
        size: as `find_entering` had it; under a budget other tasks make room too, see `Memory.shrink`.
    """
    state = find_state(memory, task, seed=seed)
    if seen < state.seen:
        raise SelfReminderError(f"the stream of task {task} has had {state.seen} items, it cannot go back to {seen}")
    below = state.below if size.per_class else _admit(memory, state, task, seen - state.seen, size)[1]
    memory = memory + new
    memory = memory.with_reservoirs({**memory.reservoirs, task: ReservoirState(seen, state.seed, below)})
    if not len(new) and _fits(memory, task, size):
        return memory
    kept = _cut(memory, state, task, size)
    # What one class has no room for says nothing about another.
    return kept if size.per_class is not None else _refuse_larger_keys(memory, kept)


def shrink_memory(memory: Memory, size: Size) -> Memory:
    """Shrink a memory (see `Memory.shrink`) so that its reservoirs still are uniform samples of streams that go on."""
    most = size.items or size.budget_bytes
    assert most is not None
    return _refuse_larger_keys(memory, memory.shrink(most, to_items=size.items is not None))


def _refuse_larger_keys(before: Memory, kept: Memory) -> Memory:
    """Let no reservoir of `kept`, a part of `before`, take a key again that is not below all that it gave up."""
    if kept is before:
        return kept
    reservoirs = {}
    for task, state in kept.reservoirs.items():
        rows = _rows(before, task)
        gone = rows[~torch.isin(before.ids[rows], kept.ids)]
        lost = make_keys(before.sources[gone].cpu(), state.seed).tolist()
        reservoirs[task] = replace(state, below=min([state.below, *lost]))
    return kept.with_reservoirs(reservoirs)


def _admit(
    memory: Memory, state: ReservoirState, task: int, n: int, size: Size, labels: Tensor | None = None
) -> tuple[Tensor, int]:
    """Which of n items enter, and the smallest key of all that ever found no room."""
    key = make_keys(torch.arange(state.seen, state.seen + n), state.seed)
    index = (key < state.below).nonzero().flatten()
    if not len(index):  # without a look at what is held: it may be on another device, still busy
        return index, state.below
    rows = _rows(memory, task)
    held = make_keys(memory.sources[rows].cpu(), state.seed)
    classes = None
    if labels is not None and size.per_class is not None:
        classes = torch.cat([memory.labels[rows].cpu().long(), labels.cpu().long()[index]])
    most = size.per_class or size.per_task or _room(memory, task, len(index), size)
    admitted = _smallest(torch.cat([held, key[index]]), classes, most)[len(held) :]
    return index[admitted], min([state.below, *key[index[~admitted]].tolist()])


def _room(memory: Memory, task: int, candidates: int, size: Size) -> int:
    """The most items of a task that a budget may have room for, if they all were as small as can be."""
    if not len(memory) or size.budget_bytes is None:
        return candidates
    counts = dict(sorted({**memory.counts, task: memory.counts.get(task, 0) + candidates}.items()))
    shares = share_evenly(size.budget_bytes // memory.least_item_nbytes, list(counts.values()))
    return dict(zip(counts, shares))[task]


def _fits(memory: Memory, task: int, size: Size) -> bool:
    """Whether the memory keeps to the size, which may be less than it was."""
    if size.budget_bytes is not None:
        return memory.nbytes <= size.budget_bytes
    if size.per_task is not None:
        return memory.counts.get(task, 0) <= size.per_task
    _, counts = memory.labels[_rows(memory, task)].unique(return_counts=True)
    return bool((counts <= size.per_class).all())


def _cut(memory: Memory, state: ReservoirState, task: int, size: Size) -> Memory:
    """The memory with its reservoir in order and within the size."""
    rows = _rows(memory, task)
    key = make_keys(memory.sources[rows].cpu(), state.seed)
    classes = memory.labels[rows].cpu() if size.per_class is not None else None
    order = key.argsort(stable=True)
    order = order[_smallest(key, classes, size.per_class or size.per_task or len(key))[order]]
    others = torch.ones(len(memory), dtype=torch.bool, device=memory.device)
    others[rows] = False
    kept = memory.take(torch.cat([others.nonzero().flatten(), rows[order.to(rows.device)]]))
    return kept if size.budget_bytes is None else kept.shrink(size.budget_bytes)


def _rows(memory: Memory, task: int) -> Tensor:
    """The reservoir's items of a task."""
    if SELECTION not in memory.selection_names:
        return torch.zeros(0, dtype=torch.int64, device=memory.device)
    chosen = memory.selections == memory.selection_names.index(SELECTION)
    return ((memory.tasks == task) & chosen).nonzero().flatten()


def _smallest(key: Tensor, classes: Tensor | None, most: int) -> Tensor:
    """(n,) bool: the `most` smallest keys, of each class where there are classes; of equal ones the first."""
    order = key.argsort(stable=True)
    place = torch.arange(len(key))
    if classes is not None:
        order = order[classes[order].argsort(stable=True)]
        _, counts = classes[order].unique_consecutive(return_counts=True)
        place -= (counts.cumsum(0) - counts).repeat_interleave(counts)
    smallest = torch.zeros(len(key), dtype=torch.bool)
    smallest[order[place < most]] = True
    return smallest


def _signed(value: int) -> int:
    """The int64 of the same 64 bits."""
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def _shift(z: Tensor, bits: int) -> Tensor:
    """To the right, as if int64 had no sign."""
    return (z >> bits) & (2 ** (64 - bits) - 1)
