"""Memory aware synapses: weights to which the outputs of old tasks were sensitive are held where they were.

min  mean L(f(x), y)  +  λ Σ_i Ω_i (θ_i − θ_{T−1,i})²,  Ω_i = Σ_{t<T} mean over x of |∂ ‖f_t(x)‖² / ∂θ_i|

Each mean is taken at its task's end over all of the task's training items, each with its own gradient; no label is
looked at. Aljundi et al., Memory Aware Synapses: Learning what (not) to forget, 2018.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from selfreminder._base.eval_mode import eval_mode
from selfreminder.benchmarks.stream import Split, Task
from selfreminder.gradients.fisher import output_sensitivity
from selfreminder.methods.shared.anchored import AnchoredMethod


@dataclass(kw_only=True)
class Mas(AnchoredMethod):
    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        # A model that mixes samples should not come to light after hours.
        self.importance(model, stream[0], stream[0].train.take(torch.arange(1)))
        return model

    def importance(self, model: nn.Module, task: Task, split: Split) -> dict[str, Tensor]:
        with eval_mode(model):
            return output_sensitivity(model, split.x, head=task.head)
