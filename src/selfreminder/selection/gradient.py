"""Least gradient norm early in training: points that the model found easy from the start.

Norms are over all parameters that require a gradient, and the mean is over the first epochs; without a record of
those, the model's norms now are taken.
"""

import torch
from torch import Tensor

from selfreminder.gradients.per_sample import gradient_norms
from selfreminder.selection.base import Candidates


def select(candidates: Candidates) -> Tensor:
    """All candidates, from the least norm on."""
    norms = candidates.gradients
    if norms is None:
        norms = gradient_norms(candidates.model, candidates.logits_of, candidates.inputs, candidates.labels)
    return torch.argsort(norms.cpu(), stable=True)
