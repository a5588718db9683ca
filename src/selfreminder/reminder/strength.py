"""The penalties by name, and how strong one is when nobody says: λ from the spread of the remembered logits.

‖z − z_t‖² has the unit of a squared logit, and how large logits are differs from model to model by orders of
magnitude. Divided by their spread S = mean_j ‖z_j − mean_k z_jk‖² it is a share: 1 where logits moved by as much as
they differ from each other. So λ = c / S, with one c for all. A model that has hardly learned has logits near 0, and
c / S has no bound: beyond .1 the penalty is about as curved as cross entropy can be (2λ against ¼ a logit), and a
step size that suits the one does not suit the other. Distillation compares probabilities, whose unit is the loss's
own: its λ is a constant. docs/strength.md has the experiment that chose c and that.
"""

from collections.abc import Callable

from torch import Tensor

from selfreminder._base.errors import SelfReminderError
from selfreminder.memory.memory import Memory, MemoryBatch
from selfreminder.reminder import losses

ItemLoss = Callable[[Tensor, MemoryBatch], Tensor]
"""(logits now, remembered items) -> one penalty an item"""

SHARE = 2.0
"""c"""
MOST = 0.1
DISTILL = 3.0


def logit(logits: Tensor, kept: MemoryBatch) -> Tensor:
    return losses.logit_match(logits, kept.logits, kept.mask)


def distill(logits: Tensor, kept: MemoryBatch) -> Tensor:
    return losses.distill(logits, kept.logits, kept.mask)


def logit_and_label(logits: Tensor, kept: MemoryBatch) -> Tensor:
    return losses.logit_and_label(logits, kept.logits, kept.labels, kept.mask)


ITEM_LOSSES: dict[str, ItemLoss] = {"logit": logit, "distill": distill, "logit+label": logit_and_label}


def automatic(loss: ItemLoss, memory: Memory) -> float:
    """λ for a loss and a memory."""
    if loss is distill:
        return DISTILL
    if loss not in ITEM_LOSSES.values():
        raise SelfReminderError("a loss of your own needs a strength of your own: pass strength=…, a number")
    return min(SHARE / memory.spread, MOST) if memory.spread > 0 else MOST
