"""Averaged gradient episodic memory: a step that would raise the loss on a draw of the old is turned until it does not.

g ← g − min(0, g·r / r·r) r        g of CE(f(x), y), r of CE(f(x'), y') on a draw

(Chaudhry et al., Efficient lifelong learning with A-GEM, 2019.) The draw is from a uniform sample of the stream, so
that no boundaries are needed.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from selfreminder._base.layout import lay_out_as
from selfreminder.methods.base import Batch, Step
from selfreminder.methods.replay import ReplayMethod


@dataclass(kw_only=True)
class Agem(ReplayMethod):
    def after_backward(self, model: nn.Module, batch: Batch, step: Step) -> None:
        if not len(self.slots):
            return
        drawn = self.draw(step)
        parameters = [p for p in model.parameters() if p.requires_grad]
        loss = F.cross_entropy(self.replay(model, batch, drawn), drawn.y)
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        # A head that is not in both has no part in the product.
        used = [(p, r) for p, r in zip(parameters, found) if r is not None]
        both = [(p.grad, r) for p, r in used if p.grad is not None]
        product = sum(((g * r).sum() for g, r in both), torch.zeros((), device=batch.x.device))
        length = sum(((r * r).sum() for _, r in used), torch.zeros((), device=batch.x.device))
        # No look at the sign: that would wait for the device.
        share = product.clamp(max=0.0) / length.clamp(min=torch.finfo(length.dtype).tiny)
        for p, r in used:
            p.grad = lay_out_as(p, -share * r) if p.grad is None else p.grad.sub_(share * r)
