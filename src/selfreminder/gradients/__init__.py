"""Gradients of single samples, and what is computed from them: Fisher information, sensitivity, influence."""

from selfreminder.gradients.fisher import diagonal_fisher, output_sensitivity
from selfreminder.gradients.influence import estimate_influence
from selfreminder.gradients.per_sample import gradient_norms

__all__ = ["diagonal_fisher", "estimate_influence", "gradient_norms", "output_sensitivity"]
