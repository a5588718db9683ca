"""Remembered items by their numbers: what metadata each of them came with, beside the memory itself."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from selfreminder._base.atomic import write_text
from selfreminder._base.checked import DAMAGE
from selfreminder._base.errors import StoreError
from selfreminder.memory import Memory
from selfreminder.memory.query import parse_age
from selfreminder.store.heldout import HeldOut

ITEMS = "items.json"
Metadata = dict[int, dict[str, str]]
"""texts by column, by item number"""


def write_items(path: Path, memory: Memory, known: Metadata) -> None:
    """Write the metadata of the items that a memory has; its sources are their numbers."""
    there = {number: known[number] for number in sorted(set(memory.sources.tolist())) if known.get(number)}
    write_text(path, json.dumps({"schema": 1, "items": there}, indent=0, ensure_ascii=False) + "\n")


def read_items(path: Path) -> Metadata:
    """The inverse of `write_items`."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["items"].items()
        if not all(type(text) is str for _, each in found for pair in each.items() for text in pair):
            raise TypeError("metadata are texts")
        return {int(number): each for number, each in found}
    except DAMAGE as error:
        raise StoreError(f"{path} is damaged: {error}") from None


def name_items(columns: Mapping[str, Sequence[str | None]], numbers: Sequence[int]) -> Metadata:
    """The metadata of items by their numbers, from columns."""
    return {
        number: {name: value for name, column in columns.items() if (value := column[row]) is not None}
        for row, number in enumerate(numbers)
    }


def find_recent(memory: Memory, heldout: HeldOut, max_age: str | None, now: float) -> tuple[Tensor, Tensor]:
    """(n,) and (m,) bool: which remembered and which held-out items are no older than an age."""
    if max_age is None:
        return torch.ones(len(memory), dtype=torch.bool), torch.ones(len(heldout), dtype=torch.bool)
    since = now - parse_age(max_age)
    times = torch.full((len(memory),), int(now)) if memory.times is None else memory.times.cpu()
    return times >= since, heldout.times >= since


def clock() -> int:
    """Seconds since 1970."""
    return int(time.time())
