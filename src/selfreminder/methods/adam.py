"""Fine-tuning by Adam: no penalty, nothing kept. What the memory methods are measured against.

min  mean over the current task of L(f(x), y)
"""

from dataclasses import dataclass

from selfreminder.methods.base import Method


@dataclass(kw_only=True)
class Adam(Method):
    is_fine_tuning = True
