"""The memory: a few old items with the logits that the model gave them, and the file that keeps it."""

from selfreminder.memory.file import change_memory, memory_hash, open_memory, save_memory
from selfreminder.memory.memory import Memory
from selfreminder.memory.sampling import MemoryBatch
from selfreminder.samples import UNKNOWN

__all__ = [
    "UNKNOWN",
    "Memory",
    "MemoryBatch",
    "change_memory",
    "memory_hash",
    "open_memory",
    "save_memory",
]
