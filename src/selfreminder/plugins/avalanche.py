"""A reminder inside Avalanche's strategies. Needs the extra `avalanche`.

The plugin adds the penalty to `strategy.loss` in `before_backward`, as Avalanche's own EWC, LwF and MAS do: metrics and
loggers see the whole loss, one backward pass serves both terms, and whatever a plugin does to gradients afterwards
(clipping in `after_backward` or `before_update`) it does to their sum, wherever it is in the list.
"""

# pyright: reportMissingImports=false

from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader

from selfreminder._base.errors import MissingExtraError, SelfReminderError
from selfreminder.plugins import size_if_given
from selfreminder.reminder import Reminder

try:
    from avalanche.benchmarks import OnlineCLExperience
    from avalanche.models.dynamic_modules import DynamicModule
    from avalanche.models.utils import avalanche_forward, is_multi_task_module
    from avalanche.training.plugins import SupervisedPlugin
    from avalanche.training.templates import SupervisedTemplate
except ImportError:
    raise MissingExtraError("this plugin needs Avalanche: pip install 'selfreminder[avalanche]'") from None


class ReminderPlugin(SupervisedPlugin):
    """Hold on to what `reminder` remembers while a strategy learns new experiences.

    `Naive(…, plugins=[ReminderPlugin(reminder, per_class=20)])` is all. After each experience a few of its samples
    are remembered, as its eval transforms give them: each experience is a task of the memory, and an online stream of
    small ones is one task. For models that adapt to their experiences (an `IncrementalClassifier`, a head for each
    task label) pass `Reminder(grow=True, logits_of=task_logits)`; with heads, a task of the memory is a task label.
    """

    def __init__(
        self,
        reminder: Reminder,
        per_class: int | None = None,
        per_task: int | None = None,
        budget: str | int | None = None,
        select: str = "random",
    ) -> None:
        """
        :param reminder: what is remembered. While that is nothing, training is as without it.
        :param per_class, per_task, budget: how much of each experience to remember, by one of them, as in
            `Reminder.remember`. Without any nothing is; call `reminder.remember` when you like.
        :param select: which samples, as in `Reminder.remember`.
        """
        super().__init__()
        self.reminder = reminder
        self.size = size_if_given(per_class, per_task, budget)
        self.select = select

    def before_training_exp(self, strategy: SupervisedTemplate, *args: Any, **kwargs: Any) -> None:
        adapts = any(isinstance(module, DynamicModule) for module in strategy.model.modules())
        if adapts and (self.reminder.call.is_plain or not self.reminder.grow):
            raise SelfReminderError(
                "this model adapts to its experiences, by new outputs or heads: pass Reminder(grow=True, "
                "logits_of=task_logits), with task_logits from selfreminder.plugins.avalanche"
            )

    def before_backward(self, strategy: SupervisedTemplate, *args: Any, **kwargs: Any) -> None:
        strategy.loss += self.reminder.penalty(strategy.model)

    def after_training_exp(self, strategy: SupervisedTemplate, *args: Any, **kwargs: Any) -> None:
        if self.size is None:
            return
        experience: Any = strategy.experience
        dataset = experience.dataset.eval()
        loader = DataLoader(
            dataset,
            batch_size=strategy.eval_mb_size,
            collate_fn=lambda samples: dataset.collate_fn(samples)[:2],  # behind x and y there may be a task label
        )
        if isinstance(experience, OnlineCLExperience):
            of_stream = {name: value for name, value in vars(self.size).items() if name != "items"}
            self.reminder.observe(strategy.model, loader, **of_stream)
        else:
            task = experience.task_label if is_multi_task_module(strategy.model) else None
            self.reminder.remember(strategy.model, loader, task=task, **vars(self.size), select=self.select)


def task_logits(model: nn.Module, inputs: Tensor, task: Tensor | int) -> Tensor:
    """`Reminder(grow=True, logits_of=task_logits)` is for models whose outputs grow, or that have a head a task.

    Outputs without a class as yet, which Avalanche masks by a large negative number, count as 0.
    """
    logits = avalanche_forward(model, inputs, task)
    for module in model.modules():
        if getattr(module, "masking", False):
            logits = logits.masked_fill(logits == module.mask_value, 0.0)
    return logits
