"""Influence: points that lower the loss on validation data the most if they weigh more in training."""

import torch
from torch import Tensor

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder.gradients.influence import estimate_influence
from selfreminder.selection.base import Candidates

KEEP = ("helpful", "harmful")


def select(
    candidates: Candidates,
    *,
    keep: str = "helpful",
    damping: float = 0.01,
    solver: str = "cg",
    iterations: int | None = None,
    samples: int | None = 5000,
) -> Tensor:
    """All candidates, from the most negative influence on the validation loss on.

    Args:
        candidates: what there is to choose from, with validation data.
        keep: "helpful", or for contrast "harmful": the reverse.
        damping, solver, iterations: see `selfreminder.gradients.estimate_influence`.
        samples: so many candidates at most, drawn at random, give the Hessian.
    """
    if keep not in KEEP:
        raise unknown("kind of point to keep", str(keep), KEEP)
    if candidates.validation is None:
        raise SelfReminderError(
            "influence is on the loss on validation data, and there is none: pass validation=(inputs, labels), "
            "of points that the model was not trained on"
        )
    order = torch.argsort(
        estimate_influence(
            candidates.model,
            candidates.logits_of,
            candidates.inputs,
            candidates.labels,
            candidates.validation,
            damping=damping,
            solver=solver,
            iterations=iterations,
            samples=samples,
            generator=candidates.generator,
        ),
        stable=True,
    )
    return order if keep == "helpful" else order.flip(0)
