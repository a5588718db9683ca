"""Train mode and eval mode: which modules care, and how to change it for a moment."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

_MODE_DEPENDENT = (nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd, nn.RReLU)


def depends_on_mode(module: nn.Module) -> bool:
    """Whether a module, as it stands in train mode, would do something else in eval mode, as far as can be seen."""
    if not module.training:
        return False
    # Attention and recurrent layers carry a dropout of their own, as a number.
    if isinstance(module, _MODE_DEPENDENT) or isinstance(getattr(module, "dropout", None), float):
        return True
    code = getattr(type(module).forward, "__code__", None)
    return not type(module).__module__.startswith("torch.nn") and (code is None or "training" in code.co_names)


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode for every module, and after it each module's own mode again."""
    training = [module for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True
