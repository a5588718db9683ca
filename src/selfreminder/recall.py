"""How well a model still does what it did on the items that it remembers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TaskReport:
    """How well one task is remembered."""

    task: int
    items: int
    agreement: float
    """share of items whose prediction is what it was"""
    drift: float
    """mean |Δz| of a logit"""
    penalty: float
    """mean of the loss an item, without λ"""
    accuracy: float | None
    """share of items predicted right, where labels are known"""


@dataclass(frozen=True)
class Report:
    """What `Reminder.report` says."""

    tasks: tuple[TaskReport, ...]
    strength: float
    over_tasks: str

    @property
    def penalty(self) -> float:
        """λ · Σ_t mean_j, over all that is remembered: compare it with your loss."""
        total = self.strength * sum(row.penalty for row in self.tasks)
        return total / len(self.tasks) if self.over_tasks == "mean" and self.tasks else total

    def __str__(self) -> str:
        lines = ["task  items  agreement  accuracy  mean |Δz|  penalty"]
        for row in self.tasks:
            accuracy = "-" if row.accuracy is None else f"{row.accuracy:.3f}"
            lines.append(
                f"{row.task:>4}  {row.items:>5}  {row.agreement:>9.3f}  {accuracy:>8}  "
                f"{row.drift:>9.4f}  {row.penalty:>7.4g}"
            )
        return "\n".join([*lines, f"penalty with strength {self.strength:g}: {self.penalty:.4g}"])
