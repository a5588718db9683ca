"""From data to a memory: a few items are chosen, and the model's logits on them recorded."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.seeds import seed_for
from selfreminder._base.sizes import Size
from selfreminder.gradients.per_sample import Inputs, rows
from selfreminder.memory import codec as codecs
from selfreminder.memory.fingerprint import Fingerprint
from selfreminder.memory.memory import Memory
from selfreminder.memory.reservoir import SELECTION as RESERVOIR
from selfreminder.memory.reservoir import entering, merged, shrunk, stream_of
from selfreminder.reminder import distributed
from selfreminder.reminder.model_call import device_of, named
from selfreminder.samples import Keep, Samples
from selfreminder.selection import find
from selfreminder.selection.base import Candidates, Selection, choose, count_per_class


def without_logit(label: int, task: int, width: int) -> SelfReminderError:
    """What is wrong with a label that a loss looks at."""
    return SelfReminderError(
        f"label {label} of task {task} has no logit, the model gives {width}, and "
        'loss "logit+label" needs one: number labels from 0 on within the task\'s outputs, or use loss="logit"'
    )


@dataclass(frozen=True, kw_only=True)
class Recording:
    """How a task's items are recorded: whatever is fed now will be fed again."""

    model: nn.Module
    task: int
    logits: Callable[[dict[str, Tensor]], Tensor]
    """(n, K) of inputs as they are read back, in eval mode"""
    codec: str
    logit_codec: str
    transform: Callable[[Any], Any] | None
    labels_count: bool = False
    """the penalty looks at labels: each must be the place of a logit"""
    time: int | None = None

    def classes(self, inputs: dict[str, Tensor]) -> Tensor:
        """(n,) the model's predictions, on the CPU."""
        return self.logits(inputs).argmax(1).cpu()

    def memory(self, inputs: dict[str, Tensor], labels: Tensor | None, sources: Tensor, selection: str) -> Memory:
        """A memory of these items, on the model's device."""
        if not all(bool(x.isfinite().all()) for x in inputs.values() if x.is_floating_point()):
            raise SelfReminderError("the inputs hold values that are not finite")
        kept = {name: codecs.read_back(self.codec, x) for name, x in inputs.items()}
        logits = self.logits(kept)
        self._check(logits, labels)
        return Memory.of(
            inputs,
            logits,
            task=self.task,
            labels=labels,
            sources=sources,
            codecs=self.codec,
            logit_codec=self.logit_codec,
            selection=selection,
            time=self.time,
            fingerprint=Fingerprint.of(self.model, inputs, logits.shape[1], self.transform),
        ).to(logits.device)

    def _check(self, logits: Tensor, labels: Tensor | None) -> None:
        """Refuse what no penalty could be had from."""
        if not bool(logits.isfinite().all()):
            raise SelfReminderError(
                f"the model gives logits of task {self.task} that are not finite: mask by a large finite number "
                "such as -1e4, or say by logits_of=… which outputs to remember"
            )
        if self.labels_count and labels is not None and len(labels) and labels.max() >= logits.shape[1]:
            raise without_logit(int(labels.max()), self.task, logits.shape[1])


@dataclass(frozen=True, kw_only=True)
class Choice:
    """How much to keep, and which."""

    size: Size
    select: str | Selection = "random"
    seed: int = 0
    logits_of: Callable[[nn.Module, Any], Tensor]
    """of a batch of candidates"""
    validation: tuple[Any, Tensor] | None = None
    gradients: Tensor | None = None

    def enough(self, recording: Recording, memory: Memory) -> Keep | None:
        """What need be held of a data set for this choice: all of it, unless it is random."""
        if self.select != "random":
            return None
        size = self.size
        generator = torch.Generator().manual_seed(seed_for(self.seed, "reservoir", recording.task, memory.next_id))
        if size.per_class is not None:
            return Keep(generator=generator, per_class=size.per_class)
        return Keep(generator=generator, total=size.per_task or (lambda inputs: self.most(inputs, recording)))

    def most(self, inputs: dict[str, Tensor], recording: Recording) -> int:
        """The most items that fit the budget."""
        assert self.size.budget_bytes is not None
        first = {name: x[:1] for name, x in inputs.items()}
        least = recording.memory(first, None, torch.zeros(1, dtype=torch.long), self.name).least_item_nbytes
        return max(1, self.size.budget_bytes // least)

    @property
    def name(self) -> str:
        return self.select if isinstance(self.select, str) else getattr(self.select, "__name__", "given")


def remembered(memory: Memory, samples: Samples, recording: Recording, choice: Choice) -> Memory:
    """The memory with a few of the samples in it."""
    size = choice.size
    strata = recording.classes(samples.inputs) if samples.labels is None else samples.labels.cpu()

    def these(index: Tensor) -> Memory:
        chosen = rows(samples.inputs, index)
        assert isinstance(chosen, dict)
        labels = None if samples.labels is None else strata[index]
        return recording.memory(chosen, labels, samples.sources[index], choice.name)

    if size.budget_bytes is None:
        wanted = count_per_class(strata, per_class=size.per_class, total=size.per_task)
    else:
        wanted = count_per_class(strata, total=min(len(samples), choice.most(samples.inputs, recording)))
    candidates = Candidates(
        inputs=_alone(samples.inputs),
        labels=strata,
        count=max(wanted.values(), default=0),
        generator=torch.Generator().manual_seed(seed_for(choice.seed, "selection", recording.task, memory.next_id)),
        model=recording.model,
        logits_of=choice.logits_of,
        validation=choice.validation and (_alone(named(choice.validation[0])), choice.validation[1]),
        gradients=choice.gradients,
    )
    ranked = (find(choice.select) if isinstance(choice.select, str) else choice.select)(candidates)
    new = these(choose(ranked.cpu(), strata, wanted))
    merged = memory.to(new.device) + new
    if size.budget_bytes is None:
        return merged
    if recording.task in memory.counts:
        merged = merged.interleave(recording.task, memory.counts[recording.task])
    return shrunk(merged, size.budget_bytes)


def _alone(inputs: dict[str, Tensor]) -> Inputs:
    """Inputs as selections have them: a tensor where there is one without a name, else by name."""
    return inputs["x"] if inputs.keys() == {"x"} else inputs


def observed(memory: Memory, samples: Samples, recording: Recording, size: Size, seed: int) -> Memory:
    """The memory after these samples of a stream; those of several processes follow each other."""
    rank, _ = distributed.ranks()
    memory = memory.to(device_of(recording.model))
    task, counts = recording.task, distributed.everyones(len(samples))
    stream = stream_of(memory, task, seed=seed)
    first = stream.seen + sum(counts[:rank])
    here = memory.with_reservoirs({**memory.reservoirs, task: replace(stream, seen=first)})
    index = entering(here, task, len(samples), size, samples.labels)
    new = Memory()
    if len(index):
        chosen = rows(samples.inputs, index)
        assert isinstance(chosen, dict)
        labels = None if samples.labels is None else samples.labels[index]
        new = recording.memory(chosen, labels, first + index, RESERVOIR)
    if len(counts) > 1:
        found = distributed.everyones((new.to("cpu").columns, new.facts))
        new = sum((Memory.from_columns(*each) for each in found), Memory())
    return merged(memory, new.to(memory.device), task, stream.seen + sum(counts), size, seed=seed)


# Several processes -------------------------------------------------------------------------------------


def gathered(samples: Samples, *, dealt: bool) -> list[Samples]:
    """The samples of each process; the same ones everywhere are taken once.

    `dealt` says that sources are positions in each process's own data, and not what somebody gave.
    """
    rank, world = distributed.ranks()
    if world == 1 or len(set(distributed.everyones(_digest(samples)))) == 1:
        return [samples]
    if dealt:  # as a DistributedSampler does
        samples = replace(samples, sources=samples.sources * world + rank)
    return distributed.everyones(samples)


def joined(parts: list[Samples]) -> Samples:
    """The samples of several processes in one."""
    first, *others = parts
    if not others:
        return first
    if any(part.inputs.keys() != first.inputs.keys() for part in others):
        raise SelfReminderError("the processes give inputs of different names")
    labels = [part.labels for part in parts if part.labels is not None]
    if len(labels) not in (0, len(parts)):
        raise SelfReminderError("some processes give labels, others do not")
    return Samples(
        inputs={name: torch.cat([part.inputs[name].cpu() for part in parts]) for name in first.inputs},
        labels=torch.cat([part.cpu() for part in labels]) if labels else None,
        sources=torch.cat([part.sources for part in parts]),
    )


def agreed(memory: Memory) -> Memory:
    """The first process's memory, in all: their models may differ in the running statistics of batch norm."""
    if distributed.ranks()[1] == 1:
        return memory
    here = memory.to("cpu")
    return Memory.from_columns(*distributed.from_first((here.columns, here.facts))).to(memory.device)


def _digest(samples: Samples) -> str:
    digest = hashlib.sha256()
    for name, x in samples.inputs.items():
        digest.update(f"{name} {tuple(x.shape)} {x.dtype}".encode())
        digest.update(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
