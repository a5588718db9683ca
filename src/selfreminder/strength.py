"""How strong a reminder is when nobody says: λ from the spread of the logits that are remembered.

‖z − z_t‖² has the unit of a squared logit, and how large logits are differs from model to model by orders of
magnitude. Divided by their spread S = mean_j ‖z_j − mean_k z_jk‖² it is a share: 1 where logits moved by as much as
they differ from each other. So λ = c / S, with one c for all. Distillation compares probabilities, whose unit is the
loss's own: its λ is a constant. docs/strength.md has the experiment that chose both.
"""

from selfreminder.errors import SelfReminderError
from selfreminder.memory import Memory

SHARE = 3.0
"""c"""
DISTILL = 1.0


def automatic(loss: object, memory: Memory) -> float:
    """λ for a loss, by name, and a memory."""
    if loss == "distill":
        return DISTILL
    if loss not in ("logit", "logit+label"):
        raise SelfReminderError("a loss of your own needs a strength of your own: pass strength=…, a number")
    # A memory of equal logits says nothing of their unit.
    return SHARE / memory.spread if memory.spread > 0 else 1.0
