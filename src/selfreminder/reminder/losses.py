"""The paper's penalties as pure functions of logits.

Each takes the logits ``z`` of the model now and the remembered ones ``z_t``, both of shape (n, K), and
gives the n penalties of the n items. `mask` (n, K) says which logits count, where items have fewer than K.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


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
    matched = logit_match(logits, remembered, mask)
    if mask is not None:
        logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min / 8)
    labelled = F.cross_entropy(logits, labels, ignore_index=-1, reduction="none")
    return logit_weight * matched + label_weight * labelled
