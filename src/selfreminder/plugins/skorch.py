"""A reminder inside skorch's nets. Needs the extra `skorch`.

skorch hands its optimiser a closure, so `Reminder.attach` cannot serve here. This callback adds the penalty's gradient
at the same place, when the closure has ended: once for each optimiser step, after all that `on_grad_computed` does
(`GradientNormClipping` clips the gradients of new data alone, wherever it is in the list), and whatever batches a
`train_step` of yours, or accelerate, has accumulated. `on_grad_computed` itself would not do: accelerate comes there
with every batch, and with scaled gradients; a `train_step` of yours perhaps never.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer
from torch.utils.hooks import RemovableHandle

from selfreminder._base.errors import MissingExtraError, SelfReminderError
from selfreminder.plugins import size_if_given
from selfreminder.reminder import Reminder

try:
    from skorch import NeuralNet, NeuralNetClassifier
    from skorch.callbacks import Callback
except ImportError:
    raise MissingExtraError("this callback needs skorch: pip install 'selfreminder[skorch]'") from None


class ReminderCallback(Callback):
    """Hold on to what `reminder` remembers while `net.partial_fit` learns something new.

    `NeuralNetClassifier(…, callbacks=[ReminderCallback(reminder)])` is all. Old items go through `net.module_`, which
    gives logits (`criterion=nn.CrossEntropyLoss`); the gradient goes to the parameters of `net.optimizer_`. A net is
    pickled with its reminder; `net.save_params` does not save callbacks, `reminder.save` does.

    Parameters
    ----------
    reminder : Reminder
      What is remembered. While that is nothing, training is as without it.

    per_class, per_task, budget : optional
      How much of the data to remember when `fit` or `partial_fit` ends, by one of them, as in `Reminder.remember`: of
      its training part, not of the part that `train_split` holds out. Without any nothing is; call
      `reminder.remember` when you like. Put the callback behind a `Checkpoint(load_best=True)`.

    select : str (default="random")
      Which items, as in `Reminder.remember`.
    """

    dataset_: Any = None
    handle_: RemovableHandle | None = None

    def __init__(
        self,
        reminder: Reminder,
        per_class: int | None = None,
        per_task: int | None = None,
        budget: str | int | None = None,
        select: str = "random",
    ) -> None:
        self.reminder = reminder
        self.per_class = per_class
        self.per_task = per_task
        self.budget = budget
        self.select = select

    def initialize(self) -> "ReminderCallback":
        self._detach()  # from a batch that ended in an error
        size_if_given(self.per_class, self.per_task, self.budget)  # refuses what it cannot be
        return self

    def on_train_begin(self, net: NeuralNet, X: Any = None, y: Any = None, **kwargs: Any) -> None:  # noqa: N803
        if isinstance(net.optimizer_, LBFGS):
            raise SelfReminderError(
                "LBFGS looks at the loss itself several times a step: leave the ReminderCallback out, and add "
                "reminder.penalty(self.module_) to the loss in the net's get_loss"
            )
        probable = isinstance(net, NeuralNetClassifier) and isinstance(net.criterion_, nn.NLLLoss)
        if probable and self.reminder.call.is_plain:
            raise SelfReminderError(
                "with NLLLoss the module gives probabilities, and a reminder is of logits: leave its softmax out and "
                "pass criterion=nn.CrossEntropyLoss, or pass Reminder(logits_of=log_probabilities)"
            )

    def on_epoch_begin(
        self, net: NeuralNet, dataset_train: Any = None, dataset_valid: Any = None, **kwargs: Any
    ) -> None:
        self.dataset_ = dataset_train

    def on_batch_begin(self, net: NeuralNet, batch: Any = None, training: bool | None = None, **kwargs: Any) -> None:
        self._detach()
        if training:  # batch by batch, because net.set_params may make another optimiser
            optimizer = getattr(net.optimizer_, "optimizer", net.optimizer_)  # accelerate wraps it
            self.handle_ = optimizer.register_step_pre_hook(partial(_before_step, self.reminder, net.module_))

    def on_train_end(self, net: NeuralNet, X: Any = None, y: Any = None, **kwargs: Any) -> None:  # noqa: N803
        self._detach()
        dataset, self.dataset_ = self.dataset_, None
        size = size_if_given(self.per_class, self.per_task, self.budget)
        if size is not None and dataset is not None:
            loader = net.get_iterator(dataset, training=False)
            self.reminder.remember(net.module_, loader, **vars(size), select=self.select)

    def _detach(self) -> None:
        if self.handle_ is not None:
            self.handle_.remove()
        self.handle_ = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "dataset_": None, "handle_": None}  # Checkpoint may pickle a net while it is trained


def log_probabilities(module: nn.Module, inputs: Any, task: Tensor | int) -> Tensor:
    """`Reminder(logits_of=log_probabilities)` is for a module that ends in a softmax, as skorch's NLLLoss wants it."""
    probabilities = module(**inputs) if isinstance(inputs, Mapping) else module(inputs)
    return torch.log(probabilities + torch.finfo(probabilities.dtype).eps)


def _before_step(
    reminder: Reminder, module: nn.Module, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Arguments of `optimizer.step` whose closure, if it has one, computes the penalty's gradient too."""
    closure: Callable[[], Tensor] | None = kwargs.get("closure", args[1] if len(args) > 1 else None)
    if closure is None:
        reminder.add_gradient(module, optimizer)
        return None

    def with_reminder() -> Tensor:
        loss = closure()
        reminder.add_gradient(module, optimizer)
        return loss

    return (optimizer, with_reminder), {name: value for name, value in kwargs.items() if name != "closure"}
