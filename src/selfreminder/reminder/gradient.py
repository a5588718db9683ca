"""The penalty's gradient, added to that of the new data where an optimiser is about to step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from selfreminder._base import distributed
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.layout import lay_out_as
from selfreminder.reminder.giving_way import Weigh

AddGradient = Callable[[nn.Module, Optimizer], Any]
"""`Reminder.add_gradient` of one reminder"""


def add_gradient(
    compute_penalty: Callable[[], Tensor],
    optimizer: Optimizer,
    loss_scale: Tensor | None,
    weigh_new: Weigh,
) -> Tensor:
    """Add a penalty's gradient to that of the optimizer's parameters; see `Reminder.add_gradient`.

    What is there already is multiplied by what `weigh_new` gives when the penalty has been computed.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    if not parameters:  # all of this optimiser's are frozen for now
        with torch.no_grad():
            return compute_penalty()
    with torch.enable_grad():
        penalty = compute_penalty()
        if (weight := weigh_new()) is not None:
            for gradient in (parameter.grad for parameter in parameters):
                if gradient is not None:
                    gradient.mul_(weight.to(gradient))
        if not penalty.requires_grad:  # nothing that it depends on is being trained
            return penalty
        # With a fused optimiser the GradScaler leaves the gradients scaled until the step itself.
        scale = getattr(optimizer, "grad_scale", None)
        whole = not any(hasattr(p, "full_tensor") for p in parameters)
        by = loss_scale if scale is None and whole else scale
        scaled = penalty if by is None else penalty * by
        if not whole:  # in shards: they are put together in a backward
            scaled.backward()
            return penalty.detach()
        found = torch.autograd.grad(scaled, parameters, allow_unused=True)
    reached = [(p, gradient) for p, gradient in zip(parameters, found) if gradient is not None]
    if scale is None and loss_scale is not None and reached:
        finite = torch.stack([gradient.isfinite().all() for _, gradient in reached]).all()
        reached = [(p, torch.where(finite, gradient / loss_scale, 0.0)) for p, gradient in reached]
    means = distributed.average([gradient for _, gradient in reached])
    for (parameter, _), gradient in zip(reached, means):
        there = parameter.grad is not None
        parameter.grad = parameter.grad.add_(gradient) if there else lay_out_as(parameter, gradient)
    return penalty.detach()


def call_before_step(add: AddGradient, model: nn.Module, optimizer: Optimizer) -> RemovableHandle:
    """Add a penalty's gradient before each step of an optimizer; see `Reminder.attach`."""
    optimizer = _find_inside(optimizer)
    for hook in getattr(optimizer, "_optimizer_step_pre_hooks", {}).values():
        if isinstance(hook, _BeforeStep) and hook.add == add and hook.model is model:
            raise SelfReminderError(
                "this reminder is attached to this model and optimizer already, and would count twice: "
                "keep the handle of the first attach, and remove() it before the next"
            )
    return optimizer.register_step_pre_hook(_BeforeStep(add, model))


def check_belongs(model: nn.Module, optimizer: Optimizer) -> None:
    """Refuse an optimizer of another model."""
    ours = set(model.parameters())
    if not any(parameter in ours for group in _find_inside(optimizer).param_groups for parameter in group["params"]):
        raise SelfReminderError(
            "none of the optimizer's parameters is one of the model's, whose penalty would change nothing: attach the "
            "optimizer that was made with this model's parameters()"
        )


def _find_inside(optimizer: Optimizer) -> Optimizer:
    """The optimizer inside Accelerate's, which has no hooks of its own."""
    inside = getattr(optimizer, "optimizer", None)
    return inside if isinstance(inside, Optimizer) else optimizer


@dataclass(frozen=True, eq=False)
class _BeforeStep:
    """What an optimizer calls before it steps; a closure is refused."""

    add: AddGradient
    model: nn.Module

    def __call__(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if kwargs.get("closure") is not None or any(callable(argument) for argument in args[1:]):
            raise SelfReminderError(
                "an attached reminder cannot serve optimizer.step(closure): "
                "add reminder.penalty(model) to the loss inside the closure"
            )
        self.add(self.model, optimizer)
