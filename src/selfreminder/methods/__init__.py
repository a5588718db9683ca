"""The methods of the comparisons, one file each. A file's name is its method's name; its docstring, its help.

A method's file has one class, a `selfreminder.methods.base.Method`. Nothing here imports torch before a class is asked
for: see `selfreminder.experiment.catalogue` for the facts about all methods without torch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_origin

from selfreminder._base.errors import SelfReminderError, unknown

if TYPE_CHECKING:
    from selfreminder.methods.base import Batch, MemoryMethod, Method, Step

__all__ = [
    "OPTIMIZERS",
    "TYPE_NAMES",
    "Batch",
    "MemoryMethod",
    "Method",
    "Step",
    "build",
    "check_options",
    "has_type",
    "method_class",
    "names",
]

OPTIMIZERS = {"adam": 1e-4, "sgd": 1e-3}
"""what methods are trained by, with the paper's step sizes"""

TYPE_NAMES = {float: "a number", int: "a whole number", bool: "true or false", str: "text", dict: "a table"}
"""what the types of settings and options are called"""


def __getattr__(name: str) -> Any:
    """Import a public name of `selfreminder.methods.base`, which needs torch, when it is first used."""
    if name not in ("Batch", "MemoryMethod", "Method", "Step"):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.base"), name)


@cache
def names() -> tuple[str, ...]:
    """Names of all methods.

    >>> "fsr-logit" in names()
    True
    """
    stems = (path.stem for path in sorted(Path(__file__).parent.glob("*.py")))
    return tuple(stem.replace("_", "-") for stem in stems if stem not in ("__init__", "base"))


def method_class(name: str) -> "type[Method]":
    """Load the class of a method: the one `Method` that its file defines.

    >>> method_class("fsr-logit").__name__
    'FsrLogit'
    """
    if name not in names():
        raise unknown("method", name, names())
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    base = import_module(f"{__name__}.base").Method
    classes = (value for value in vars(module).values() if isinstance(value, type) and issubclass(value, base))
    (found,) = (cls for cls in classes if cls.__module__ == module.__name__)
    return found


def check_options(name: str, options: Mapping[str, Any], settings: Iterable[str]) -> None:
    """Raise if a method does not have one of these options, or has it of another type.

    The experiment's own `settings` are no options.
    """
    known = {field.name: field.type for field in fields(method_class(name)) if field.name not in set(settings)}
    for option, value in options.items():
        if option not in known:
            if not known:
                raise SelfReminderError(f"{name} has no options: '{option}' is none")
            raise unknown(f"option of {name}", option, sorted(known))
        of = str if get_origin(known[option]) is Literal else known[option]
        if of in TYPE_NAMES and not has_type(value, of):
            raise SelfReminderError(f"{name}: {option} is {value!r}: it must be {TYPE_NAMES[of]}")


def has_type(value: object, of: Any) -> bool:
    """Tell whether a value has one of the types of `TYPE_NAMES`; a whole number is a number too."""
    if isinstance(value, bool):  # which is an int to Python
        return of is bool
    return isinstance(value, int | float if of is float else of)


def build(name: str, settings: dict[str, Any], options: dict[str, Any]) -> "Method":
    """Build a method with those settings of an experiment that it has, and options of its own, which it must have.

    >>> build("fsr-distill", {"strength": 3.0, "epochs": 5}, {"temperature": 4.0}).temperature
    4.0
    """
    check_options(name, options, settings)
    cls = method_class(name)
    used = {field.name: settings[field.name] for field in fields(cls) if field.name in settings}
    return cls(**(used | options))
