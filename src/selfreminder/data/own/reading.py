"""How a user's own data is read: settings that are part of an experiment."""

from dataclasses import dataclass, fields
from typing import Any

from selfreminder._base.errors import SelfReminderError, unknown


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How data of one's own is read and cut into tasks."""

    by: str | None = None
    """folder (each with folders of classes), class, a column, a date column and a unit (date:month, or month alone),
    or parts:5 for five parts in the order of the data"""
    label: str | None = None
    """the column or key of the labels"""
    size: int | None = None
    """of a side that images are made to have"""
    channels: int | None = None
    """1 or 3; None: as the images are"""
    inputs: tuple[str, ...] = ()
    """columns of numbers that are inputs; none: all"""
    categories: tuple[str, ...] = ()
    """columns of which each value is a category"""
    text: tuple[str, ...] = ()
    """columns of which the words count"""
    words: int = 2048
    """places that the words of text share"""
    tokenizer: str | None = None
    """a folder with a tokenizer of transformers: text becomes token numbers, for a model hf:FOLDER"""
    length: int = 128
    """tokens of a text"""
    test: float = 0.2
    """share of each task's items that is its test part"""
    skip_bad: bool = False
    """leave out what cannot be read"""
    sha256: str | None = None
    """of the data as it was when it was first read: other data is refused"""

    @classmethod
    def of(cls, given: dict[str, Any]) -> "Reading":
        """Check a table of settings."""
        known = {each.name: each for each in fields(cls)}
        for name, value in given.items():
            if name not in known:
                raise unknown("setting of reading", name, known)
            kind = type(known[name].default)
            if name in ("inputs", "categories", "text"):
                good = isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
            elif name in ("by", "label", "tokenizer", "sha256"):
                good = isinstance(value, str)
            elif name in ("size", "channels"):
                good = isinstance(value, int) and not isinstance(value, bool) and value > 0
            else:
                good = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
            if not good:
                raise SelfReminderError(f"reading: {name} cannot be {value!r}")
        settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
        found = cls(**settings)
        if not 0 < found.test < 1:
            raise SelfReminderError(f"reading: test is {found.test}: it is a share between 0 and 1")
        if found.channels not in (None, 1, 3):
            raise SelfReminderError(f"reading: channels is {found.channels}: it is 1 or 3")
        return found
