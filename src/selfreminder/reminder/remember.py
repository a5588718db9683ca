"""From data to a memory: a few items are chosen, and the model's logits on them recorded."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder._base import distributed
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.seeds import seed_for
from selfreminder._base.sizes import Size
from selfreminder.gradients.per_sample import Inputs
from selfreminder.memory import Memory
from selfreminder.memory import codec as codecs
from selfreminder.memory.codec import Kept
from selfreminder.memory.fingerprint import Fingerprint, digest_transform, fingerprint_model
from selfreminder.memory.reservoir import SELECTION as RESERVOIR
from selfreminder.memory.reservoir import find_entering, find_state, make_keys, merge_entered, shrink_memory
from selfreminder.reminder.drop import denies
from selfreminder.reminder.model_call import ModelCall, check_size, find_device
from selfreminder.samples import Limit, Samples, name_inputs, read_samples
from selfreminder.selection import find
from selfreminder.selection.base import Candidates, Selection, choose, count_per_class

_FIRST = 2
"""the rank, from 0, of a class's first witness"""
_MOVED = 0.05
"""of the spread of logits: by more, a model was trained on"""


@dataclass(frozen=True)
class Remembered:
    """What `Reminder.remember` kept of a task.

    >>> Remembered(task=0, items=30, witnesses=6, classes={0: 15, 1: 15}, nbytes=1234)
    Remembered(task=0, items=30, witnesses=6, classes={0: 15, 1: 15}, nbytes=1234)
    """

    task: int
    items: int
    witnesses: int
    """items among these that no penalty holds, by which `Reminder.report` judges"""
    classes: dict[int, int]
    """items of each class; −1 is none known"""
    nbytes: int
    """of the whole memory, all tasks together"""

    @classmethod
    def of(cls, memory: Memory, task: int) -> "Remembered":
        """What a memory has of a task."""
        ours = memory.tasks == task
        labels, counts = memory.labels[ours].unique(return_counts=True)
        classes = dict(zip(labels.tolist(), counts.tolist()))
        return cls(task, int(ours.sum()), int(memory.witnesses[ours].sum()), classes, memory.nbytes)


@dataclass(frozen=True, kw_only=True)
class MemoryBuilder:
    """Adds items of one task to a memory, with the model's logits on them: whatever is fed now will be fed again."""

    memory: Memory
    model: nn.Module
    call: ModelCall
    task: int
    size: Size
    seed: int
    codec: str
    logit_codec: str
    needs_labels: bool = False
    """the penalty looks at labels: each must be the place of a logit"""
    time: int | None = None
    witnesses: float = 0.0
    """the share of items that are set aside, see `choose_witnesses`"""
    merge: bool = False
    """tasks may be merged where a budget has not room for an item of each"""

    def remember(
        self,
        data: Any,
        labels: Any,
        sources: Tensor | Sequence[int] | None,
        *,
        classes: Sequence[str] | None = None,
        select: str | Selection,
        validation: tuple[Any, Tensor] | None,
        gradients: Tensor | None,
    ) -> Memory:
        """Choose a few samples of the data and add them to the memory; see `Reminder.remember`."""
        budget, items, limit = self.size.budget_bytes, self.size.items, None
        if select == "random":  # other choices look at all samples
            total = self.size.per_task or items if budget is None else partial(self._count_fitting, budget)
            limit = Limit(generator=self._generator("reservoir"), per_class=self.size.per_class, total=total)
        samples = read_samples(
            data, labels, classes=classes, sources=sources, limit=limit, predict=self._predict, gather=True
        )
        self._check_labels(samples, select)
        strata = samples.strata if samples.labels is None else samples.labels
        strata = self._predict(samples.inputs) if strata is None else strata
        total = self.size.per_task
        if budget is not None or items is not None:
            total = min(len(samples), items or self._count_fitting(budget or 0, samples.inputs))
        wanted = count_per_class(strata, per_class=self.size.per_class, total=total)
        candidates = Candidates(
            inputs=_drop_name(samples.inputs),
            labels=strata,
            count=max(wanted.values(), default=0),
            generator=self._generator("selection"),
            model=self.model,
            logits_of=partial(self.call.call_on_copies, task=self.task),
            validation=validation and (_drop_name(name_inputs(validation[0])), validation[1]),
            gradients=gradients,
        )
        ranked = (find(select) if isinstance(select, str) else select)(candidates)
        name = select if isinstance(select, str) else getattr(select, "__name__", "given")
        index = choose(ranked.cpu(), strata, wanted)
        new = self._build(samples, index, name, choose_witnesses(strata[index], self.witnesses))
        merged = self.memory.to(new.device) + new
        if budget is not None or items is not None:
            if self.task in self.memory.counts:
                merged = merged.interleave(self.task, self.memory.counts[self.task])
            if self.merge and budget is not None:
                merged = merge_tasks(merged, budget)
            merged = shrink_memory(merged, self.size)
        self._warn(new, strata[index], wanted if samples.strata is None else {})
        return broadcast_memory(merged)

    def _check_labels(self, samples: Samples, select: str | Selection) -> None:
        """Refuse labels that are no classes where classes are needed."""
        needs = 'loss "logit+label"' if self.needs_labels else None
        if isinstance(select, str) and select.startswith(("gradient", "influence")):
            needs = needs or f'select="{select}"'
        if samples.strata is not None and needs is not None:
            raise SelfReminderError(
                f"{needs} needs one class an item, and these labels are none, but several an item or fractions: they "
                'serve to spread the choice with loss="logit" or "distill" and select="random" or "herding"'
            )

    def _warn(self, new: Memory, strata: Tensor, wanted: dict[int, int]) -> None:
        """Warn of classes that the data could not fill, and of labels that deny what the model is sure of."""
        per_class, chances = self.size.per_class, new.logits.softmax(1)
        if short := {label: count for label, count in wanted.items() if per_class and count < per_class}:
            said = ", ".join(f"class {label} has {count}" for label, count in list(short.items())[:5])
            warnings.warn(f"fewer than {per_class} to keep: {said}{' …' if len(short) > 5 else ''}", stacklevel=5)
        labelled = new.labels >= 0
        if bool(labelled.any()):
            right = (new.logits.argmax(1) == new.labels)[labelled].float().mean().item()
            sure = chances.amax(1)[labelled].mean().item()
            if denies(right, sure, int(labelled.sum())):
                warnings.warn(
                    f"the model is sure of these samples ({sure:.2f} on average) and right on {right:.0%} of them: "
                    "remember before you train on the new, and with the labels that the outputs stand for",
                    stacklevel=5,
                )

    def observe(self, samples: Samples, logits: Tensor | None = None) -> Memory:
        """Add samples of a stream to the memory's reservoir; those of several processes follow each other.

        `logits` (n, K) are what is recorded of them, if not the model's own.
        """
        self._check_labels(samples, RESERVOIR)
        if logits is not None and (logits.ndim != 2 or len(logits) != len(samples)):
            raise SelfReminderError(
                f"logits have the shape {tuple(logits.shape)}, there are {len(samples)} items: (items, classes)"
            )
        rank, _ = distributed.get_ranks()
        memory, task = self.memory.to(find_device(self.model)), self.task
        counts, state = distributed.all_gather(len(samples)), find_state(memory, task, seed=self.seed)
        first = state.seen + sum(counts[:rank])
        here = memory.with_reservoirs({**memory.reservoirs, task: replace(state, seen=first)})
        index = find_entering(here, task, len(samples), self.size, samples.labels)
        new = Memory()
        if len(index):
            placed = replace(samples, sources=torch.arange(first, first + len(samples)))
            keys = make_keys(placed.sources[index], state.seed)
            witness = keys % round(1 / self.witnesses) == _FIRST if self.witnesses else None
            given = None if logits is None else logits.detach()[index.to(logits.device)].float()
            known = memory.fingerprints.get(task)
            new = self._build(placed, index, RESERVOIR, witness, known=known, logits=given)
        if len(counts) > 1:
            found = distributed.all_gather((new.to("cpu").columns, new.facts))
            new = sum((Memory.from_columns(*each) for each in found), Memory())
        return merge_entered(memory, new.to(memory.device), task, state.seen + sum(counts), self.size, seed=self.seed)

    def _generator(self, purpose: str) -> torch.Generator:
        return torch.Generator().manual_seed(seed_for(self.seed, purpose, self.task, self.memory.next_id))

    def _predict(self, inputs: dict[str, Tensor]) -> Tensor:
        return self.call.predict(self.model, inputs, self.task)

    def _build(
        self,
        samples: Samples,
        index: Tensor,
        selection: str,
        witness: Tensor | None = None,
        *,
        known: Fingerprint | None = None,
        logits: Tensor | None = None,
    ) -> Memory:
        """A memory of the samples at these indices, on the model's device.

        `known` is what the task's logits are known to be from: it is found out anew only where that does not suffice.
        """
        inputs = {name: x[index.to(x.device)] for name, x in samples.inputs.items()}
        labels = None if samples.labels is None else samples.labels[index]
        encoded, logits = self._record(inputs, logits, witness)
        if self.needs_labels and labels is not None and len(labels) and labels.max() >= logits.shape[1]:
            raise missing_logit(int(labels.max()), self.task, logits.shape[1])
        if known is None or (known.transform is not None and known.item is None):
            known = self._take_fingerprint(inputs, encoded, logits.shape[1])
        return Memory.of(
            encoded,
            logits,
            task=self.task,
            labels=labels,
            sources=samples.sources[index],
            logit_codec=self.logit_codec,
            selection=selection,
            time=self.time,
            witness=witness,
            fingerprint=known,
        )

    def _count_fitting(self, budget: int, inputs: dict[str, Tensor]) -> int:
        """The most items that fit a budget in bytes, if they all deflate as well as can be; one at least."""
        encoded, logits = self._record({name: x[:1] for name, x in inputs.items()})
        one = Memory.of(encoded, logits, task=self.task, logit_codec=self.logit_codec, time=self.time)
        return max(1, budget // one.least_item_nbytes)

    def _record(
        self, inputs: dict[str, Tensor], logits: Tensor | None = None, witness: Tensor | None = None
    ) -> tuple[dict[str, Kept], Tensor]:
        """The inputs as they are kept, and the logits of what is read back of them, if none are given."""
        if not all(bool(x.isfinite().all()) for x in inputs.values() if x.is_floating_point()):
            raise SelfReminderError("the inputs hold values that are not finite")
        encoded = {name: codecs.encode(codecs.resolve(self.codec, x), x.detach()) for name, x in inputs.items()}
        if logits is None:
            read_back = {name: x.decode() for name, x in encoded.items()}
            logits = self.call.compute_logits(self.model, read_back, self.task, apart=witness)
        if bool(logits.isnan().any()):
            raise SelfReminderError(
                f"the model gives NaN for task {self.task}: it has diverged, and there is nothing to remember. Go "
                "back to a model that was well, and lower the step size"
            )
        if not bool(logits.isfinite().all()):
            raise SelfReminderError(
                f"the model gives logits of task {self.task} that are not finite: mask by a large finite number "
                "such as -1e4, or say by logits_of=… which outputs to remember"
            )
        check_size(logits, self.task)
        return encoded, logits

    def _take_fingerprint(self, inputs: dict[str, Tensor], encoded: dict[str, Kept], classes: int) -> Fingerprint:
        digest = None
        if self.call.transform is not None:
            first, device = torch.zeros(1, dtype=torch.long), find_device(self.model)
            item = {name: x.decode(first.to(x.device)).to(device) for name, x in encoded.items()}
            digest = digest_transform(self.call.transform, item)
        return Fingerprint.of(self.model, inputs, classes, digest)


def choose_witnesses(strata: Tensor, share: float) -> Tensor | None:
    """Which of chosen items, best first, are set aside: of each class the third, and then one in 1 / `share`.

    So a class with fewer than three has none, and what a budget leaves of a class has its share.

    >>> choose_witnesses(torch.tensor([0, 0, 0, 0, 0, 1, 1]), share=0.2).tolist()
    [False, False, True, False, False, False, False]
    """
    if not share:
        return None
    seen, ranks = Counter[int](), []
    for label in strata.tolist():
        ranks.append(seen[label])
        seen[label] += 1
    every = round(1 / share)
    return torch.tensor(ranks, dtype=torch.long) % every == min(_FIRST, every - 1)


def merge_tasks(memory: Memory, budget: int) -> Memory:
    """Merge the two oldest tasks, again and again, while a budget has not room for an item of each task."""
    while len(memory.counts) > 1 and budget // max(memory.item_nbytes, 1) < len(memory.counts):
        first, second, *_ = memory.counts
        older = memory.counts[first]
        tasks = memory.tasks.masked_fill(memory.tasks == first, second)
        known = {task: each for task, each in memory.fingerprints.items() if task != first}
        streams = {task: each for task, each in memory.reservoirs.items() if task != first}
        memory = replace(memory, tasks=tasks, fingerprints=known, reservoirs=streams).interleave(second, older)
    return memory


def record_anew(memory: Memory, call: ModelCall, model: nn.Module) -> Memory:
    """The same items with the logits that a model gives them now."""
    if not len(memory):
        return memory
    memory = memory.to(find_device(model))
    logits, width = _logits_now(memory, call, model)
    print_of = fingerprint_model(model)
    prints = {
        task: replace(each, model=print_of, classes=int(width[memory.tasks == task][0]))
        for task, each in memory.fingerprints.items()
    }
    return broadcast_memory(replace(memory.with_logits(logits, width), fingerprints=prints))


@torch.no_grad()
def widen_logits(memory: Memory, call: ModelCall, model: nn.Module, *, trusted: bool = False) -> Memory:
    """The same items with logits for all classes that a wider model has: those they had, and its own for the others.

    Nothing else would hold the new classes' logits on old items, and these would be taken for new ones. A model that
    does not say the same of its old classes any more is one that has been trained on: its word is not taken, unless it
    is `trusted` to have met none of the new.
    """
    memory = memory.to(find_device(model))
    logits, width = _logits_now(memory, call, model)
    if not bool((width > memory.widths).any()):
        return memory
    then = F.pad(memory.logits, (0, logits.shape[1] - memory.logits.shape[1]))
    had = torch.arange(logits.shape[1], device=logits.device) < memory.widths[:, None]
    moved = ((logits - then) * had).square().sum(1).median().item()
    if not trusted and moved > _MOVED * memory.spread:
        warnings.warn(
            "the model has more classes than the memory and has changed on the old ones since: old items keep the "
            "logits that they have, and nothing holds the new classes on them. Meet the wider model before training it",
            stacklevel=6,
        )
        return memory
    prints = {
        task: replace(each, classes=int(width[memory.tasks == task][0])) for task, each in memory.fingerprints.items()
    }
    return replace(memory.with_logits(torch.where(had, then, logits), width), fingerprints=prints)


def _logits_now(memory: Memory, call: ModelCall, model: nn.Module) -> tuple[Tensor, Tensor]:
    """(n, K) what a model gives to all items, padded to the widest; and (n,) how many logits each has."""
    found = []
    for task in memory.counts:
        ours = memory.take(memory.tasks == task)
        found.append(call.compute_logits(model, ours.read().inputs, task, apart=ours.witness))
    widest = max(logits.shape[1] for logits in found)
    width = torch.cat([torch.full((len(each),), each.shape[1], dtype=torch.int16) for each in found])
    return torch.cat([F.pad(each, (0, widest - each.shape[1])) for each in found]), width.to(memory.device)


def missing_logit(label: int, task: int, width: int) -> SelfReminderError:
    """The error for a label that a loss looks at, and that has no logit."""
    return SelfReminderError(
        f"label {label} of task {task} has no logit, the model gives {width}, and "
        'loss "logit+label" needs one: for a new class, widen the model before you remember; else number labels from '
        '0 on within the task\'s outputs, or use loss="logit"'
    )


def broadcast_memory(memory: Memory) -> Memory:
    """Broadcast rank 0's memory to all processes: their models may differ in the running statistics of batch norm."""
    if distributed.get_ranks()[1] == 1:
        return memory
    here = memory.to("cpu")
    return Memory.from_columns(*distributed.broadcast((here.columns, here.facts))).to(memory.device)


def _drop_name(inputs: dict[str, Tensor]) -> Inputs:
    """Inputs as selections have them: a tensor where there is one without a name, else by name."""
    return inputs["x"] if inputs.keys() == {"x"} else inputs
