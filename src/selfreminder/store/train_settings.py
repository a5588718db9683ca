"""How a candidate is trained: the table `[train]`."""

import math
from dataclasses import dataclass, fields

from selfreminder._base.errors import SelfReminderError
from selfreminder.training import OPTIMIZERS, Training

_EPOCHS, _MOST_EPOCHS, _STEPS = 2, 20, 500
"""where nobody says how long to train"""


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How a candidate is trained: the table `[train]`.

    >>> TrainSettings(optimizer="sgd", lr=0.01, momentum=0.9).plan(items=3000).epochs
    6
    """

    optimizer: str = "adamw"
    """adamw, adam or sgd"""
    lr: float | None = None
    """step size; None: 1e-4 or 1e-3 (sgd: 1e-3 or 1e-2), by the loss on validation data after a few steps"""
    momentum: float = 0.0
    """of sgd"""
    weight_decay: float = 0.0
    """decoupled with adamw, else coupled L2"""
    epochs: int | None = None
    """None: two, or of few data as many as make 500 steps, up to 20"""
    batch_size: int = 32
    memory_batch: int | None = None
    """the most remembered items in a step; None: half the batch size"""
    strength: float | None = None
    """λ; None: the best of a few around the one that suits the memory; 0: no reminder"""
    max_drop: float | None = None
    """instead of a strength, how much accuracy on the old may be lost: λ moves while training"""
    trials: tuple[float, ...] = (0.3, 1.0, 3.0)
    """where no strength is given: the factors of the automatic one that are tried; (1,) tries nothing"""
    interpolations: tuple[float, ...] = (0.5, 0.7, 0.9)
    """the shares of the trained weights that are tried beside 1; () tries nothing"""
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("trials", "interpolations"):  # a file has lists
            object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        self.plan(1)  # says what is wrong with its settings
        if self.memory_batch is not None and self.memory_batch < 1:
            raise SelfReminderError(f"memory_batch is {self.memory_batch}: it must be at least 1")
        if self.strength is not None and self.max_drop is not None:
            raise SelfReminderError("strength and max_drop both say how strong the reminder is: give one of them")
        if self.strength is not None and not 0 <= self.strength < math.inf:
            raise SelfReminderError(f"strength is {self.strength}: it is a number from 0 on; leave it out for a choice")
        if self.max_drop is not None and not 0 < self.max_drop < 1:
            raise SelfReminderError(f"max_drop is {self.max_drop}: it is a share of accuracy, say 0.01")
        if not self.trials or not all(0 < factor < math.inf for factor in self.trials):
            raise SelfReminderError(f"trials are {list(self.trials)}: factors above 0, at least one, say [1]")
        if not all(0 < share < 1 for share in self.interpolations):
            raise SelfReminderError(f"interpolations are {list(self.interpolations)}: shares between 0 and 1")

    @property
    def rates(self) -> tuple[float, ...]:
        """The step sizes that are tried."""
        usual = OPTIMIZERS[self.optimizer]
        return (usual, 10 * usual) if self.lr is None else (self.lr,)

    def plan(self, items: int) -> Training:
        """As the training loop takes it, for so many items."""
        names = {field.name for field in fields(Training)} & {field.name for field in fields(self)} - {"epochs"}
        steps = -(-items // max(self.batch_size, 1))
        epochs = max(_EPOCHS, min(-(-_STEPS // steps), _MOST_EPOCHS)) if self.epochs is None else self.epochs
        return Training(epochs=epochs, **{name: getattr(self, name) for name in names})
