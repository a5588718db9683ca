"""The settings of a reminder: which can be, and which travel with a memory's file."""

import os
import warnings
from collections.abc import Mapping
from typing import Any

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder.memory import Memory
from selfreminder.memory import codec as codecs
from selfreminder.reminder.losses import ITEM_LOSSES

_CHOICES: dict[str, Any] = {
    "loss": ITEM_LOSSES,
    "over_tasks": ("sum", "mean"),
    "mode": ("joint", "eval", "train"),
    "draws": ("shared", "separate"),
    "tasks": ("keep", "merge"),
    "stale": ("error", "warn"),
    "codec": codecs.NAMES,
    "logit_codec": codecs.LOGIT_NAMES,
}
_EITHER = ("strength", "max_drop")
_TRAVEL = ("loss", "over_tasks", "label_weight", *_EITHER)


def check_settings(given: Mapping[str, Any]) -> None:
    """Raise if these cannot be the settings of a `Reminder`."""
    for name, known in _CHOICES.items():
        if not callable(given[name]) and given[name] not in known:
            raise unknown(name.replace("logit_codec", "logit codec"), str(given[name]), known)
    memory, strength, drop = given["memory"], given["strength"], given["max_drop"]
    if memory is not None and not isinstance(memory, Memory):
        raise SelfReminderError(f"memory is a {type(memory).__name__}: open a file with Reminder.load(path)")
    if not isinstance(given["batch_size"], int) or given["batch_size"] < 1:
        raise SelfReminderError(f"batch_size is {given['batch_size']}: a penalty looks at one item at least")
    if strength != "auto" and not (_is_number(strength) and 0 <= strength < float("inf")):
        raise SelfReminderError(f'strength is {strength!r}: it is a number from 0 on, or "auto"')
    weight = given["label_weight"]
    if weight is not None and not (_is_number(weight) and 0 <= weight < float("inf")):
        raise SelfReminderError(f"label_weight is {weight!r}: it is a number from 0 on")
    if given["loss"] != "logit+label" and (weight is not None or given["draws"] == "separate"):
        name = "label_weight=" if weight is not None else 'draws="separate"'
        raise SelfReminderError(f'{name} is for a loss of two terms: pass loss="logit+label"')
    if drop is not None and not (_is_number(drop) and 0 < drop < 1):
        raise SelfReminderError(f"max_drop is {drop!r}: it is a share of accuracy, say .01")
    if drop is not None and strength != "auto":
        raise SelfReminderError("strength= and max_drop= both say how strong the penalty is: pass one of them")
    if not (_is_number(given["witnesses"]) and 0 <= given["witnesses"] <= 0.5):
        raise SelfReminderError(f"witnesses is {given['witnesses']!r}: it is a share from 0 to .5, say .2")
    if given["head"] is not None and given["logits_of"] is not None:
        raise SelfReminderError("head= and logits_of= both say where the logits are: pass one of them")
    if given["tasks"] == "merge" and isinstance(given["head"], Mapping):
        raise SelfReminderError('tasks="merge" makes one task of two, and each has a head of its own: use tasks="keep"')


def choose_settings(path: str | os.PathLike[str], memory: Memory, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a reminder from a file: the file's, and those given; where these differ, a warning says so."""
    kept = {name: value for name, value in memory.settings.items() if name in _TRAVEL and value is not None}
    if odd := [name for name, value in kept.items() if not isinstance(value, str) and not _is_number(value)]:
        raise SelfReminderError(f"{path} says {odd[0]} = {kept[odd[0]]!r}, which no reminder writes: pass {odd[0]}=…")
    if given.keys() & set(_EITHER):  # each stands for the other
        kept = {name: value for name, value in kept.items() if name in given or name not in _EITHER}
    said = [
        f"{name} is {given[name]!r}, the file has {kept[name]!r}"
        for name in sorted(kept.keys() & given.keys())
        if given[name] != kept[name]
    ]
    if said:
        warnings.warn(f"{path} was made with other settings: {'; '.join(said)}", stacklevel=3)
    return {**kept, **given}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
