"""The paper's penalties as pure functions of logits, and how strong one is when nobody says.

Each takes the logits ``z`` of the model now and the remembered ones ``z_t``, both of shape (n, K), and
gives the n penalties of the n items. `mask` (n, K) says which logits count, where items have fewer than K.

‖z − z_t‖² has the unit of a squared logit, and how large logits are differs from model to model by orders of
magnitude. Divided by their spread S = mean_j ‖z_j − mean_k z_jk‖² it is a share: 1 where logits moved by as much as
they differ from each other. So λ = c / S, with one c for all. A model that has hardly learned has logits near 0, and
c / S has no bound: beyond .1 the penalty is about as curved as cross entropy can be (2λ against ¼ a logit), and a
step size that suits the one does not suit the other. Distillation compares probabilities, whose unit is the loss's
own: its λ is a constant. docs/strength.md has the experiment that chose c and that.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from selfreminder._base.errors import SelfReminderError
from selfreminder.memory.memory import Memory, MemoryBatch

ItemLoss = Callable[[Tensor, MemoryBatch], Tensor]
"""(logits now, remembered items) -> one penalty an item"""

SHARE = 4.0
"""c"""
MOST = 1.0
DISTILL = 3.0
MANY = 4
"""tasks from which on the sum over them weighs no more"""


def logit_match(logits: Tensor, remembered: Tensor, mask: Tensor | None = None) -> Tensor:
    """Squared distance of logits, ‖z − z_t‖² (Eq. 1).

    >>> logit_match(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 4.0]]))
    tensor([5.])
    """
    difference = logits - remembered
    if mask is not None:
        difference = difference.masked_fill(~mask, 0.0)
    return difference.square().sum(1)


def distill(logits: Tensor, remembered: Tensor, mask: Tensor | None = None, *, temperature: float = 2.0) -> Tensor:
    """KL(softmax(z_t/τ) ‖ softmax(z/τ)), without a factor τ² (Eq. 2).

    >>> distill(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))  # the same but for a shift
    tensor([0.])
    """
    if mask is not None:
        # A finite floor: with -inf, 0 · (−inf + inf) would be NaN.
        floor = torch.finfo(logits.dtype).min / 8
        logits, remembered = logits.masked_fill(~mask, floor), remembered.masked_fill(~mask, floor)
    now = F.log_softmax(logits / temperature, dim=1)
    then = F.log_softmax(remembered / temperature, dim=1)
    return (then.exp() * (then - now)).sum(1)


def binary_match(logits: Tensor, remembered: Tensor, mask: Tensor | None = None) -> Tensor:
    """Σ_k CE(σ(z_k of before), σ(z_k)): every class a yes or no of its own, as in iCaRL.

    >>> binary_match(torch.zeros(1, 2), torch.zeros(1, 2))  # 2 log 2
    tensor([1.3863])
    """
    each = F.binary_cross_entropy_with_logits(logits, remembered.sigmoid(), reduction="none")
    return (each if mask is None else each.masked_fill(~mask, 0.0)).sum(1)


def logit_and_label(
    logits: Tensor,
    remembered: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    logit_weight: float = 1.0,
    label_weight: float = 1.0,
) -> Tensor:
    """v ‖z − z_t‖² + w CE(z, y): logit matching and the true label; items of label −1 have the first only.

    >>> logit_and_label(torch.zeros(1, 2), torch.zeros(1, 2), torch.tensor([0]))
    tensor([0.6931])
    """
    return logit_weight * logit_match(logits, remembered, mask) + label_weight * label_match(logits, labels, mask)


def label_match(logits: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """CE(z, y), and 0 for items of label −1.

    >>> label_match(torch.zeros(2, 2), torch.tensor([0, -1]))
    tensor([0.6931, 0.0000])
    """
    if mask is not None:
        logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min / 8)
    return F.cross_entropy(logits, labels, ignore_index=-1, reduction="none")


# The same of remembered items, by name ----------------------------------------------------------------------


def match_items(logits: Tensor, kept: MemoryBatch) -> Tensor:
    return logit_match(logits, kept.logits, kept.mask)


def distill_items(logits: Tensor, kept: MemoryBatch) -> Tensor:
    return distill(logits, kept.logits, kept.mask)


def match_items_and_labels(
    logits: Tensor, kept: MemoryBatch, *, logit_weight: float = 1.0, label_weight: float = 1.0
) -> Tensor:
    matched = logit_weight * logit_match(logits, kept.logits, kept.mask)
    labelled = label_weight * label_match(logits, kept.labels, kept.mask)
    return matched + labelled if kept.for_labels is None else torch.where(kept.for_labels, labelled, matched)


ITEM_LOSSES: dict[str, ItemLoss] = {
    "logit": match_items,
    "distill": distill_items,
    "logit+label": match_items_and_labels,
}


def choose_strength(loss: ItemLoss, memory: Memory, *, over_tasks: str = "sum") -> float:
    """λ for a loss and a memory; summed over many tasks, it is as stiff as of a few."""
    few = min(1.0, MANY / memory.tasks_held) if over_tasks == "sum" and memory.tasks_held else 1.0
    if loss is distill_items:
        return DISTILL * few
    if loss not in ITEM_LOSSES.values():
        raise SelfReminderError("a loss of your own needs a strength of your own: pass strength=…, a number")
    return few * (min(SHARE / memory.spread, MOST) if memory.spread > 0 else MOST)
