"""Few-Shot Self Reminder: update a PyTorch classifier with few reminders and little forgetting."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "_base.errors": ("SelfReminderError",),
    "_base.sizes": ("Size",),
    "experiment.run": ("run",),
    "experiment.spec": ("Experiment",),
    "experiment.table": ("records",),
    "memory": ("Memory", "MemoryBatch", "change_memory", "memory_hash", "open_memory", "save_memory"),
    "reminder": ("Reminder", "Report"),
    "store": ("Store",),
}
"""names by the module that has them"""

__all__ = [
    "__version__",
    "Experiment",
    "Memory",
    "MemoryBatch",
    "Reminder",
    "Report",
    "SelfReminderError",
    "Size",
    "change_memory",
    "Store",
    "memory_hash",
    "open_memory",
    "records",
    "run",
    "save_memory",
]

if TYPE_CHECKING:
    from selfreminder._base.errors import SelfReminderError
    from selfreminder._base.sizes import Size
    from selfreminder.experiment.run import run
    from selfreminder.experiment.spec import Experiment
    from selfreminder.experiment.table import records
    from selfreminder.memory import Memory, MemoryBatch, change_memory, memory_hash, open_memory, save_memory
    from selfreminder.reminder import Reminder, Report
    from selfreminder.store import Store


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that the command line starts without torch."""
    for module, names in _PUBLIC.items():
        if name in names:
            globals()[name] = getattr(import_module(f"selfreminder.{module}"), name)
            return globals()[name]
    raise AttributeError(f"module 'selfreminder' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
