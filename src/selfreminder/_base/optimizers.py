"""torch's optimizers without what hides them from torch.compile: to hide, it imports the compiler, a second or two.

What they compute, their hooks and their states are the same.
"""

from inspect import unwrap

import torch
from torch.optim import Optimizer


class _NotCompiled(Optimizer):
    add_param_group = unwrap(Optimizer.add_param_group)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)
    zero_grad = unwrap(Optimizer.zero_grad)


class SGD(_NotCompiled, torch.optim.SGD):
    """Stochastic gradient descent."""

    step = torch.no_grad()(unwrap(torch.optim.SGD.step))


class Adam(_NotCompiled, torch.optim.Adam):
    """Adam."""

    step = torch.no_grad()(unwrap(torch.optim.Adam.step))


class AdamW(_NotCompiled, torch.optim.AdamW):
    """Adam with decoupled weight decay."""

    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))
