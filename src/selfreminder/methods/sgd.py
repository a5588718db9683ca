"""Fine-tuning by plain SGD: no penalty, nothing kept.

min  mean over the current task of L(f(x), y)
"""

from dataclasses import dataclass

from selfreminder.methods.base import Method


@dataclass(kw_only=True)
class Sgd(Method):
    optimizer = "sgd"
    is_fine_tuning = True
