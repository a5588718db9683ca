"""A reminder inside Lightning's Trainer. Needs the extra `lightning`.

Lightning hands its optimisers a closure, so `Reminder.attach` cannot serve here. This callback adds the penalty's
gradient in `on_before_optimizer_step`: once for each optimiser step, however many batches it accumulates, to unscaled
gradients and before `gradient_clip_val`, which so clips the whole.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.optim import LBFGS

from selfreminder._base.errors import MissingExtraError, SelfReminderError
from selfreminder.plugins import RemembersAtEnd, load_unless_empty

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    try:
        from pytorch_lightning import Callback, LightningModule, Trainer
    except ImportError:
        raise MissingExtraError("this callback needs Lightning: pip install 'selfreminder[lightning]'") from None

_SHARDED = ("FSDPStrategy", "DeepSpeedStrategy", "ModelParallelStrategy")


class ReminderCallback(RemembersAtEnd, Callback):  # pyright: ignore[reportGeneralTypeIssues]
    """Hold on to what `reminder` remembers while `trainer.fit` learns something new.

    `Trainer(callbacks=[ReminderCallback(reminder)])` is all. Old items go through `pl_module(x)`, its `forward`, in
    the trainer's precision. Of several optimisers (manual optimisation) each one that steps gets the gradient of its
    own parameters. The penalty is logged as `reminder_penalty`, and the reminder is part of the trainer's checkpoints.
    `data` is a Dataset or DataLoader of (inputs, labels) without training's augmentation.
    """

    _stage: str | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._stage = stage

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._stage = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if any(kind.__name__ in _SHARDED for kind in type(trainer.strategy).__mro__):
            raise SelfReminderError(
                f"{type(trainer.strategy).__name__} keeps gradients in shards, where a ReminderCallback cannot add to "
                "them: use strategy='ddp'"
            )
        if any(isinstance(optimizer, LBFGS) for optimizer in trainer.optimizers):
            raise SelfReminderError(
                "LBFGS looks at the loss itself several times a step: leave the ReminderCallback out, and add "
                "reminder.penalty(self) to the loss in training_step"
            )

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        scale = None if scaler is None else scaler.scale(torch.ones((), device=pl_module.device))
        if scale is not None and getattr(optimizer, "_step_supports_amp_scaling", False):
            # A fused optimiser unscales in its step. Until then torch, too, says here by how much.
            optimizer.grad_scale = scale
        with _autocast(trainer):
            penalty = self.reminder.add_gradient(pl_module, optimizer, loss_scale=scale)
        vars(optimizer).pop("grad_scale", None)
        if len(self.reminder.memory):
            pl_module.log("reminder_penalty", penalty)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        with _autocast(trainer):
            self.remember(pl_module, self.data)

    def state_dict(self) -> dict[str, Any]:
        return self.reminder.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        # Testing with a checkpoint loads its callbacks too; it was saved before `fit` remembered at its end.
        if self._stage in (None, "fit"):
            load_unless_empty(self.reminder, state_dict)


def _autocast(trainer: Trainer) -> AbstractContextManager[Any]:
    """The trainer's own, where it computes in mixed precision."""
    return getattr(trainer.precision_plugin, "autocast_context_manager", nullcontext)()
