"""Train mode and eval mode: which modules care, and how to change it for a moment."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeGuard

import torch
from torch import nn

_MODE_DEPENDENT = (nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd, nn.RReLU)
_RECURRENT = (nn.RNN.forward, nn.LSTM.forward, nn.GRU.forward)
"""of layers whose mode decides about nothing but their dropout; a subclass may do more"""


def is_eval(module: nn.Module) -> bool:
    """Whether a module does what it does in eval mode: it is in it, or recurrent without dropout."""
    return not module.training or (_is_recurrent(module) and not module.dropout)


def depends_on_mode(module: nn.Module) -> bool:
    """Whether a module, as it stands in train mode, would do something else in eval mode, as far as can be seen."""
    if is_eval(module):
        return False
    # Attention and recurrent layers carry a dropout of their own, as a number.
    if isinstance(module, _MODE_DEPENDENT) or isinstance(getattr(module, "dropout", None), float):
        return True
    code = getattr(type(module).forward, "__code__", None)
    return not type(module).__module__.startswith("torch.nn") and (code is None or "training" in code.co_names)


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode for every module, and after it each module's own mode again.

    Recurrent layers stay in train mode without their dropout, which is the same: cuDNN takes no gradients through
    them in eval mode. Attention has a fast path in eval mode without gradients, which gives other numbers at padded
    places: it is not taken, so that what is recorded is what a penalty sees.
    """
    training = [module for module in model.modules() if module.training]
    fast = torch.backends.mha.get_fastpath_enabled()
    recurrent = {module: module.dropout for module in training if _is_recurrent(module)}
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        for module in training:
            module.training = module in recurrent
        for module in recurrent:
            module.dropout = 0.0
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for module in training:
            module.training = True
        for module, dropout in recurrent.items():
            module.dropout = dropout


def _is_recurrent(module: nn.Module) -> TypeGuard[nn.RNNBase]:
    return isinstance(module, nn.RNNBase) and type(module).forward in _RECURRENT
