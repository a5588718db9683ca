"""The values that an experiment's fields take, as a file or a command line says them."""

import json
import re
import tomllib
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import parse_bytes
from selfreminder.experiment.spec import Experiment

_HINTS = get_type_hints(Experiment) | {"seeds": int, "scale": str}
_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", dict: "a table"}
_NONE = "none"


def kind(name: str) -> tuple[type, bool]:
    """A field's type, and whether it may have no value.

    >>> kind("epochs"), kind("strength")
    ((<class 'int'>, False), (<class 'float'>, True))
    """
    hint = _HINTS[name]
    (of,) = [part for part in get_args(hint) if part is not NoneType] if NoneType in get_args(hint) else [hint]
    return get_origin(of) or of, NoneType in get_args(hint)


def typed(name: str, value: Any) -> Any:
    """A field's value from TOML, in the one form in which equal values are equal; raises if it is of another type.

    >>> typed("strength", 3), typed("budget", "64KB"), typed("images", "none")
    (3.0, '64000', None)
    """
    of, optional = kind(name)
    if optional and (value is None or value == _NONE):
        return None
    if name == "budget" and isinstance(value, str | int) and not isinstance(value, bool):
        return str(parse_bytes(value))
    if of is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, of) or (of is int and isinstance(value, bool)):
        raise _wrong(name, value)
    if of is dict:
        try:
            json.dumps(value)
        except TypeError:
            raise SelfReminderError(f"{name} has a date or a time: write it as text") from None
    return value


def from_text(name: str, text: str) -> Any:
    """A field's value from the command line.

    >>> from_text("epochs", "3"), from_text("lr", "1e-3"), from_text("plateau", "true"), from_text("images", "none")
    (3, 0.001, True, None)
    """
    of, _ = kind(name)
    if text == _NONE or of is str:
        return typed(name, text)
    if of is int and re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    if of is float:
        try:
            return float(text)
        except ValueError:
            raise _wrong(name, text) from None
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        value = text
    return typed(name, value)


def _wrong(name: str, value: object) -> SelfReminderError:
    of, optional = kind(name)
    said, must = json.dumps(value, default=str), _WORDS[of] + (f', or "{_NONE}"' if optional else "")
    return SelfReminderError(f"{name} is {said}: it must be {must}")
