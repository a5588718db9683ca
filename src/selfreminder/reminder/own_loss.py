"""A loss of one's own, `Reminder(loss=…)`: what it gives is checked, and a mistake said in a sentence."""

from functools import partial

from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder.memory.memory import MemoryBatch
from selfreminder.reminder.losses import ITEM_LOSSES, ItemLoss
from selfreminder.samples.columns import show_kind

_CONTRACT = (
    "a loss of your own gets (logits now, MemoryBatch), of which .logits are those kept, and gives one number an item, "
    "(n,), such as lambda z, kept: (z - kept.logits).abs().sum(1)"
)


def check_loss(loss: ItemLoss) -> ItemLoss:
    """The same loss, which says what is wrong with it when it is called.

    >>> check_loss(nn.MSELoss())
    Traceback (most recent call last):
    selfreminder._base.errors.SelfReminderError: MSELoss compares tensors: a loss of your own gets (logits now, ...
    """
    if isinstance(loss, nn.modules.loss._Loss):
        raise SelfReminderError(f"{type(loss).__name__} compares tensors: {_CONTRACT}")
    return loss if loss in ITEM_LOSSES.values() else partial(_call, loss)


def _call(loss: ItemLoss, logits: Tensor, kept: MemoryBatch) -> Tensor:
    try:
        each = loss(logits, kept)
    except (AttributeError, TypeError) as error:
        raise SelfReminderError(f"the loss does not take what it is given ({error}): {_CONTRACT}") from error
    if not isinstance(each, Tensor) or each.shape != (len(kept),):
        raise SelfReminderError(f"the loss gives {show_kind(each)} for {len(kept)} items: {_CONTRACT}")
    return each
