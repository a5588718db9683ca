"""From data to a memory: a few items are chosen, and the model's logits on them recorded."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from selfreminder._base import distributed
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.seeds import seed_for
from selfreminder._base.sizes import Size
from selfreminder.gradients.per_sample import Inputs
from selfreminder.memory import Memory
from selfreminder.memory import codec as codecs
from selfreminder.memory.codec import Encoded
from selfreminder.memory.fingerprint import Fingerprint, digest_transform
from selfreminder.memory.reservoir import SELECTION as RESERVOIR
from selfreminder.memory.reservoir import find_entering, find_state, merge_entered, shrink_memory
from selfreminder.reminder.model_call import ModelCall, find_device
from selfreminder.samples import Limit, Samples, name_inputs, read_samples
from selfreminder.selection import find
from selfreminder.selection.base import Candidates, Selection, choose, count_per_class


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

    def remember(
        self,
        data: Any,
        labels: Any,
        sources: Tensor | Sequence[int] | None,
        *,
        select: str | Selection,
        validation: tuple[Any, Tensor] | None,
        gradients: Tensor | None,
    ) -> Memory:
        """Choose a few samples of the data and add them to the memory; see `Reminder.remember`."""
        budget, limit = self.size.budget_bytes, None
        if select == "random":  # other choices look at all samples
            total = self.size.per_task if budget is None else partial(self._count_fitting, budget)
            limit = Limit(generator=self._generator("reservoir"), per_class=self.size.per_class, total=total)
        samples = read_samples(data, labels, sources=sources, limit=limit, predict=self._predict, gather=True)
        strata = self._predict(samples.inputs) if samples.labels is None else samples.labels
        total = self.size.per_task if budget is None else min(len(samples), self._count_fitting(budget, samples.inputs))
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
        new = self._build(samples, choose(ranked.cpu(), strata, wanted), name)
        merged = self.memory.to(new.device) + new
        if budget is not None:
            if self.task in self.memory.counts:
                merged = merged.interleave(self.task, self.memory.counts[self.task])
            merged = shrink_memory(merged, budget)
        return broadcast_memory(merged)

    def observe(self, samples: Samples) -> Memory:
        """Add samples of a stream to the memory's reservoir; those of several processes follow each other."""
        rank, _ = distributed.get_ranks()
        memory, task = self.memory.to(find_device(self.model)), self.task
        counts, state = distributed.all_gather(len(samples)), find_state(memory, task, seed=self.seed)
        first = state.seen + sum(counts[:rank])
        here = memory.with_reservoirs({**memory.reservoirs, task: replace(state, seen=first)})
        index = find_entering(here, task, len(samples), self.size, samples.labels)
        new = Memory()
        if len(index):
            placed = replace(samples, sources=torch.arange(first, first + len(samples)))
            new = self._build(placed, index, RESERVOIR, known=memory.fingerprints.get(task))
        if len(counts) > 1:
            found = distributed.all_gather((new.to("cpu").columns, new.facts))
            new = sum((Memory.from_columns(*each) for each in found), Memory())
        return merge_entered(memory, new.to(memory.device), task, state.seen + sum(counts), self.size, seed=self.seed)

    def _generator(self, purpose: str) -> torch.Generator:
        return torch.Generator().manual_seed(seed_for(self.seed, purpose, self.task, self.memory.next_id))

    def _predict(self, inputs: dict[str, Tensor]) -> Tensor:
        return self.call.predict(self.model, inputs, self.task)

    def _build(self, samples: Samples, index: Tensor, selection: str, *, known: Fingerprint | None = None) -> Memory:
        """A memory of the samples at these indices, on the model's device.

        `known` is what the task's logits are known to be from: it is found out anew only where that does not suffice.
        """
        inputs = {name: x[index.to(x.device)] for name, x in samples.inputs.items()}
        labels = None if samples.labels is None else samples.labels[index]
        encoded, logits = self._record(inputs)
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
            fingerprint=known,
        )

    def _count_fitting(self, budget: int, inputs: dict[str, Tensor]) -> int:
        """The most items that fit a budget in bytes, if they all deflate as well as can be; one at least."""
        encoded, logits = self._record({name: x[:1] for name, x in inputs.items()})
        one = Memory.of(encoded, logits, task=self.task, logit_codec=self.logit_codec, time=self.time)
        return max(1, budget // one.least_item_nbytes)

    def _record(self, inputs: dict[str, Tensor]) -> tuple[dict[str, Encoded], Tensor]:
        """The inputs as they are kept, and the logits of what is read back of them."""
        if not all(bool(x.isfinite().all()) for x in inputs.values() if x.is_floating_point()):
            raise SelfReminderError("the inputs hold values that are not finite")
        encoded = {name: codecs.encode(codecs.resolve(self.codec, x), x.detach()) for name, x in inputs.items()}
        read_back = {name: x.decode() for name, x in encoded.items()}
        logits = self.call.compute_logits(self.model, read_back, self.task)
        if not bool(logits.isfinite().all()):
            raise SelfReminderError(
                f"the model gives logits of task {self.task} that are not finite: mask by a large finite number "
                "such as -1e4, or say by logits_of=… which outputs to remember"
            )
        return encoded, logits

    def _take_fingerprint(self, inputs: dict[str, Tensor], encoded: dict[str, Encoded], classes: int) -> Fingerprint:
        digest = None
        if self.call.transform is not None:
            first, device = torch.zeros(1, dtype=torch.long), find_device(self.model)
            item = {name: x.decode(first.to(x.device)).to(device) for name, x in encoded.items()}
            digest = digest_transform(self.call.transform, item)
        return Fingerprint.of(self.model, inputs, classes, digest)


def missing_logit(label: int, task: int, width: int) -> SelfReminderError:
    """The error for a label that a loss looks at, and that has no logit."""
    return SelfReminderError(
        f"label {label} of task {task} has no logit, the model gives {width}, and "
        'loss "logit+label" needs one: number labels from 0 on within the task\'s outputs, or use loss="logit"'
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
