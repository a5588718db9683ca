"""Few-Shot Self Reminder: update a PyTorch classifier with few reminders and little forgetting."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "Memory": "selfreminder.memory",
    "MemoryBatch": "selfreminder.memory",
    "Reminder": "selfreminder.reminder.reminder",
    "Report": "selfreminder.reminder.recall_report",
    "SelfReminderError": "selfreminder._base.errors",
    "Size": "selfreminder._base.sizes",
    "open_memory": "selfreminder.memory.file",
    "save_memory": "selfreminder.memory.file",
    "memory_hash": "selfreminder.memory.file",
    "Experiment": "selfreminder.experiment.spec",
    "run": "selfreminder.experiment.run",
    "records": "selfreminder.experiment.table",
}

__all__ = [
    "__version__",
    "Experiment",
    "Memory",
    "MemoryBatch",
    "Reminder",
    "Report",
    "SelfReminderError",
    "Size",
    "memory_hash",
    "open_memory",
    "records",
    "run",
    "save_memory",
]

if TYPE_CHECKING:
    from selfreminder._base.errors import SelfReminderError as SelfReminderError
    from selfreminder._base.sizes import Size as Size
    from selfreminder.experiment.run import run as run
    from selfreminder.experiment.spec import Experiment as Experiment
    from selfreminder.experiment.table import records as records
    from selfreminder.memory.file import memory_hash as memory_hash
    from selfreminder.memory.file import open_memory as open_memory
    from selfreminder.memory.file import save_memory as save_memory
    from selfreminder.memory.memory import Memory as Memory
    from selfreminder.memory.memory import MemoryBatch as MemoryBatch
    from selfreminder.reminder.recall_report import Report as Report
    from selfreminder.reminder.reminder import Reminder as Reminder


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that the command line starts without torch."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'selfreminder' has no attribute '{name}'")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
