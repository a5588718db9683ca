"""What replay methods share: a uniform sample of the stream so far, from which every step draws.

How many items that is: `items` as it says; `per_class` and `per_task` as many as the whole stream would leave with
those, but from the start; a budget, as many as have room in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.eval_mode import eval_mode
from selfreminder._base.sizes import Size
from selfreminder.benchmarks.stream import Stream, Task
from selfreminder.memory.slots import Drawn, Slots, choose_codec, count_bytes
from selfreminder.methods.base import Batch, Method, Step

_LOOK = 100
"""items of each task by which a codec is chosen"""


@dataclass(kw_only=True)
class ReplayMethod(Method):
    """Methods that replay a uniform sample of the stream: each batch enters after its step."""

    acts_within_tasks = True
    holds_old_outputs = True
    keeps_logits: ClassVar[bool] = False
    """the logits of the pass in which an item was new are kept with it"""

    size: Size = field(default_factory=lambda: Size(per_class=50))
    """how much is kept"""
    codec: str = "auto"
    """how samples are kept"""
    logit_codec: str = "float32"
    """how logits are kept"""
    memory_batch: int = 128
    """the most remembered items in a draw"""
    seed: int = 0

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        samples = [task.transform(task.parts.train.x[:_LOOK]) for task in stream]
        codec = choose_codec(self.codec, samples)
        self.slots = Slots(
            self.count_items(stream, samples[0], codec), seed=self.seed, codec=codec, logit_codec=self.logit_codec
        )
        self._logits: Tensor | None = None
        # With batch norm, what an item gives depends on those beside it: old and new pass apart.
        self._joins = not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())
        return model

    def count_items(self, stream: Sequence[Task], sample: Tensor, codec: str) -> int:
        """Count the items that the size is, over the whole stream."""
        size, tasks = self.size, list(stream)
        if size.items is not None:
            return size.items
        if size.budget_bytes is None:
            labels = [len(task.parts.train.y.unique()) for task in tasks]
            return sum((size.per_class or 0) * count + (size.per_task or 0) for count in labels)
        outputs = max(stream.heads if isinstance(stream, Stream) else (task.outputs or task.classes for task in tasks))
        one = count_bytes(sample[:1], codec, outputs if self.keeps_logits else 0, self.logit_codec)
        if size.budget_bytes < one:
            raise SelfReminderError(f"a budget of {size.budget} holds no item of {one} bytes: raise the budget")
        return size.budget_bytes // one

    def draw(self, step: Step) -> Drawn:
        """Draw items for a step: a new draw at every call."""
        return self.slots.draw(self.memory_batch, step.generator)

    def compute_logits(self, model: nn.Module, batch: Batch, *drawn: Drawn) -> list[Tensor]:
        """Compute the logits of a batch and of what was drawn, in one pass where that is the same; keep the batch's."""
        if batch.head is None and drawn and self._joins:
            parts = [batch.x, *(each.x for each in drawn)]
            logits = list(model(torch.cat(parts)).split([len(part) for part in parts]))
        else:
            logits = [self.predict(model, batch.x, batch.head), *(self.replay(model, batch, each) for each in drawn)]
        self._logits = logits[0].detach() if self.keeps_logits else None
        return logits

    def replay(self, model: nn.Module, batch: Batch, drawn: Drawn) -> Tensor:
        """Compute the logits of what was drawn, each item's at its own head."""
        if batch.head is None:
            return model(drawn.x)
        assert isinstance(batch.head, int)
        return model(drawn.x, drawn.heads, range(batch.head + 1))  # heads of tasks to come take no part

    def start_task(self, model: nn.Module, task: Task) -> None:
        """Where the output grows, record what the wider model says of old items: nothing else would hold that."""
        if self.keeps_logits and task.outputs is not None and len(self.slots):
            drawn = self.slots.read()
            assert drawn.logits is not None
            if (had := drawn.logits.shape[1]) < task.outputs:
                with torch.no_grad(), eval_mode(model):
                    self.slots.record(torch.cat([drawn.logits, model(drawn.x)[:, had:]], 1))

    def after_step(self, model: nn.Module, batch: Batch, step: Step) -> None:
        assert not isinstance(batch.head, Tensor)
        self.slots.observe(batch.x, batch.y, self._logits, batch.head)

    def state_dict(self) -> dict[str, Tensor]:
        return self.slots.state_dict()

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.slots.load_state_dict(state)


def match_recorded(logits: Tensor, drawn: Drawn) -> Tensor:
    """mean_j mean_k (z_jk − z_jk as recorded)², over the logits that an item has."""
    assert drawn.logits is not None and drawn.widths is not None
    had = drawn.logits.shape[1]
    beyond = torch.arange(had, device=logits.device) >= drawn.widths[:, None]
    squares = (logits[:, :had] - drawn.logits).masked_fill(beyond, 0.0).square()
    return (squares.sum(1) / drawn.widths).mean()
