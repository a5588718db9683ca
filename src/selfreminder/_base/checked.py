"""JSON with a check of its own content: a flipped bit is noticed, and never read as another value.

The check is a CRC-32, which no flipped bit and no burst of up to 32 of them leaves as it was. What earlier versions
wrote has none, and is read as it is.
"""

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

CHECK = "check"
DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""what reading a value from damaged or hostile JSON can raise"""
_TAIL = re.compile(rb', "check": "([0-9a-f]{8})"\}$')


def format_line(event: Mapping[str, Any]) -> bytes:
    """Format an event as a line of JSON that ends with its check.

    >>> format_line({"event": "done"})
    b'{"event": "done", "check": "ab5cebe2"}\\n'
    """
    body = json.dumps(event, ensure_ascii=False).encode()[:-1]
    return body + b', "%b": "%b"}\n' % (CHECK.encode(), _crc(body))


def parse_line(line: bytes) -> tuple[dict[str, Any], bool]:
    """Parse a line of JSON: what it says, and whether it had a check.

    Raises ValueError or the like where the line is damaged.
    """
    tail = _TAIL.search(line)
    if tail is not None and _crc(line[: tail.start()]) != tail[1]:
        raise ValueError("a line is not what its check says")
    event = json.loads(line.decode())
    if not isinstance(event, dict):
        raise ValueError("a line is no JSON object")
    if (event.pop(CHECK, None) is None) != (tail is None):
        raise ValueError("a line has a check that is none")
    return event, tail is not None


def with_check(value: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a file is to hold, with its check."""
    return {**value, CHECK: _crc(_canonical(value)).decode()}


def without_check(value: Any) -> dict[str, Any]:
    """Give what a file holds without its check, if it has one; raises ValueError if it is damaged."""
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    rest = {name: each for name, each in value.items() if name != CHECK}
    if CHECK in value and value[CHECK] != _crc(_canonical(rest)).decode():
        raise ValueError("it is not what its check says")
    return rest


def fits(value: Any, wanted: Any) -> bool:
    """Tell whether a value, which may be from anybody's file, is of an annotated type, with all that it holds.

    >>> fits((1, 2), tuple[int, ...]), fits(True, int), fits(10**400, int), fits({"a": None}, dict[str, str | None])
    (True, False, False, True)
    """
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin in (UnionType, Union):
        return any(fits(value, each) for each in inner)
    if origin is Literal:
        return value in inner
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(each, inner[0]) for each in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, dict) and all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items())
    if is_dataclass(wanted):
        types = get_type_hints(wanted)
        return type(value) is wanted and all(fits(getattr(value, f.name), types[f.name]) for f in fields(wanted))
    if wanted is float:
        return type(value) in (int, float)
    if wanted is int:
        return type(value) is int and -(2**63) <= value < 2**63
    return wanted is Any or type(value) is (type(None) if wanted is None else wanted)


def _canonical(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _crc(content: bytes) -> bytes:
    return b"%08x" % zlib.crc32(content)
