"""The methods of the comparisons, one file each. A file's name is its method's name; its docstring, its help.

Nothing here imports torch: names and summaries are read from the files.
"""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_origin

from selfreminder._base.errors import SelfReminderError, unknown

if TYPE_CHECKING:
    from selfreminder.methods.base import Method

_FOLDER = Path(__file__).parent
_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    float: ((int, float), "a number"),
    int: ((int,), "a whole number"),
    bool: ((bool,), "true or false"),
    str: ((str,), "text"),
}
"""by an option's type: what a file may give, and what that is called"""


@cache
def names() -> tuple[str, ...]:
    """All methods, by name.

    >>> "fsr-logit" in names()
    True
    """
    stems = (path.stem for path in sorted(_FOLDER.glob("*.py")))
    return tuple(stem.replace("_", "-") for stem in stems if stem not in ("__init__", "base"))


def _module(name: str) -> str:
    if name not in names():
        raise unknown("method", name, names())
    return name.replace("-", "_")


def summary(name: str) -> str:
    """The first line of a method's docstring."""
    text = ast.get_docstring(ast.parse((_FOLDER / f"{_module(name)}.py").read_text(encoding="utf-8")))
    return (text or "").partition("\n")[0]


def method_class(name: str) -> "type[Method]":
    """The class of a method: the one `Method` that its file defines."""
    module = import_module(f"{__name__}.{_module(name)}")
    base = import_module(f"{__name__}.base").Method
    classes = (value for value in vars(module).values() if isinstance(value, type) and issubclass(value, base))
    (found,) = (cls for cls in classes if cls.__module__ == module.__name__)
    return found


def check_options(name: str, options: Mapping[str, Any], settings: Iterable[str]) -> None:
    """Raise if a method does not have all of its `options`; `settings` are an experiment's own, and no options."""
    known = {field.name: field.type for field in fields(method_class(name)) if field.name not in set(settings)}
    for option, value in options.items():
        if option not in known:
            if not known:
                raise SelfReminderError(f"{name} has no options: '{option}' is none")
            raise unknown(f"option of {name}", option, sorted(known))
        of = str if get_origin(known[option]) is Literal else known[option]
        kinds, words = _KINDS.get(of, ((object,), ""))
        if not isinstance(value, kinds) or (isinstance(value, bool) and of in (int, float)):
            raise SelfReminderError(f"{name}: {option} is {value!r}: it must be {words}")


def build(name: str, settings: dict[str, Any], options: dict[str, Any]) -> "Method":
    """A method with those `settings` of the experiment that it has a use for, and all of its `options`."""
    cls = method_class(name)
    check_options(name, options, settings)
    known = {field.name for field in fields(cls)}
    used = {key: value for key, value in settings.items() if key in known}
    try:
        return cls(**(used | options))
    except TypeError as error:
        raise SelfReminderError(f"{name}: {error}") from None
