"""Few-Shot Self Reminder: update a PyTorch classifier with few reminders and little forgetting."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "Memory": "selfreminder.memory",
    "MemoryBatch": "selfreminder.memory",
    "Reminder": "selfreminder.reminder",
    "Report": "selfreminder.reminder",
    "SelfReminderError": "selfreminder._base.errors",
    "Size": "selfreminder._base.sizes",
    "open_memory": "selfreminder.memory",
    "save_memory": "selfreminder.memory",
    "memory_hash": "selfreminder.memory",
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
    from selfreminder._base.errors import SelfReminderError
    from selfreminder._base.sizes import Size
    from selfreminder.experiment.run import run
    from selfreminder.experiment.spec import Experiment
    from selfreminder.experiment.table import records
    from selfreminder.memory import Memory, MemoryBatch, memory_hash, open_memory, save_memory
    from selfreminder.reminder import Reminder, Report


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that the command line starts without torch."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'selfreminder' has no attribute '{name}'")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
