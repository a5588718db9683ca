"""EWC as GMvandeVen/continual-learning had it in 2019 (`continual_learner.py`, f0b1461): Fisher of predicted labels.

F_i = mean over x of (∂ log p(ŷ|x) / ∂θ_i)²        ŷ = argmax_y p(y|x)

Labels that are drawn from the model, as in ours and in that code since 2022, are wrong now and then, and weigh most.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from selfreminder._base.eval_mode import eval_mode
from selfreminder.benchmarks.stream import Split, Task
from selfreminder.gradients.fisher import diagonal_fisher
from selfreminder.methods.ewc import Ewc


@dataclass(kw_only=True)
class EwcPredicted(Ewc):
    def importance(self, model: nn.Module, task: Task, split: Split) -> dict[str, Tensor]:
        with eval_mode(model), torch.no_grad():
            labels = torch.cat([self.predict(model, x, task.head).argmax(1) for x in split.x.split(1000)])
        with eval_mode(model):
            return diagonal_fisher(model, split.x, labels, head=task.head)
