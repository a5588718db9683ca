"""Few-Shot Self Reminder: update a PyTorch classifier with few reminders and little forgetting."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "Memory": "selfreminder.memory",
    "MemoryBatch": "selfreminder.memory",
    "Reminder": "selfreminder.reminder",
    "Report": "selfreminder.recall",
    "SelfReminderError": "selfreminder.errors",
    "Size": "selfreminder.sizes",
    "open_memory": "selfreminder.memory_file",
    "save_memory": "selfreminder.memory_file",
    "memory_hash": "selfreminder.memory_file",
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
    from selfreminder.errors import SelfReminderError as SelfReminderError
    from selfreminder.experiment.run import run as run
    from selfreminder.experiment.spec import Experiment as Experiment
    from selfreminder.experiment.table import records as records
    from selfreminder.memory import Memory as Memory
    from selfreminder.memory import MemoryBatch as MemoryBatch
    from selfreminder.memory_file import memory_hash as memory_hash
    from selfreminder.memory_file import open_memory as open_memory
    from selfreminder.memory_file import save_memory as save_memory
    from selfreminder.recall import Report as Report
    from selfreminder.reminder import Reminder as Reminder
    from selfreminder.sizes import Size as Size


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that the command line starts without torch."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'selfreminder' has no attribute '{name}'")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
