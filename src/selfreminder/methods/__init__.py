"""The methods of the comparisons, one file each. A file's name is its method's name; its docstring, its help.

A method's file has one class, a `selfreminder.methods.base.Method`. Packages may add their own by an entry point in the
group ``selfreminder.methods`` that names a class; and a method may be named by where it is, ``my_method.py`` or
``package.module:MyMethod``. Nothing here imports torch before a class is asked for: see
`selfreminder.experiment.catalogue` for the facts about all methods without torch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_origin

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder._base.factories import installed, is_factory, load_factory, load_file

if TYPE_CHECKING:
    from selfreminder.methods.base import Batch, MemoryMethod, Method, Step

__all__ = [
    "LARGEST",
    "OPTIMIZERS",
    "SCHEDULES",
    "TYPE_NAMES",
    "Batch",
    "MemoryMethod",
    "Method",
    "Step",
    "build",
    "check_options",
    "has_type",
    "is_place",
    "method_class",
    "names",
    "own_names",
    "show_number",
]

GROUP = "selfreminder.methods"
"""of entry points"""

OPTIMIZERS = {"adam": 1e-4, "adamw": 1e-4, "sgd": 1e-3}
"""what methods are trained by, with the paper's step sizes; the paper has no adamw"""

SCHEDULES = {
    "constant": "the step size stays as it is",
    "cosine": "it falls to 0 by a cosine",
    "warmup-cosine": "it rises over the first tenth, then falls to 0 by a cosine",
    "linear": "it falls to 0 in a line",
}
"""of the step size within a task"""

TYPE_NAMES = {float: "a number", int: "a whole number", bool: "true or false", str: "text", dict: "a table"}
"""what the types of settings and options are called"""

_SHARED = ("__init__", "base", "replay")
"""files that are no method's"""

LARGEST = {int: 2**31 - 1, float: 1e30}
"""the largest numbers that settings and options can be: those of networks end at 3e38"""


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
    return tuple(dict.fromkeys((*own_names(), *sorted(installed(GROUP)))))


@cache
def own_names() -> tuple[str, ...]:
    """Names of the methods that have a file here."""
    stems = (path.stem for path in sorted(Path(__file__).parent.glob("*.py")))
    return tuple(stem.replace("_", "-") for stem in stems if stem not in _SHARED)


def is_place(name: str) -> bool:
    """Tell whether a method is named by where it is.

    >>> is_place("my_method.py"), is_place("lab.methods:Mine"), is_place("ewc")
    (True, True, False)
    """
    return name.endswith(".py") or is_factory(name)


@cache
def method_class(name: str) -> "type[Method]":
    """Load the class of a method: the one `Method` that its file defines, or that an entry point or a place names.

    >>> method_class("fsr-logit").__name__
    'FsrLogit'
    """
    if name in own_names():
        return _only_method(import_module(f"{__name__}.{name.replace('-', '_')}"), name)
    if name in installed(GROUP):
        try:
            found = installed(GROUP)[name].load()
        except Exception as error:  # whatever a stranger's module raises
            raise SelfReminderError(f"method '{name}' cannot be loaded: {type(error).__name__}: {error}") from None
    elif name.endswith(".py"):
        return _only_method(load_file(Path(name)), name)
    elif is_factory(name):
        found = load_factory(name)
    else:
        raise unknown("method", name, [*names(), "my_method.py", "module:MyMethod"])
    if not (isinstance(found, type) and issubclass(found, _base())):
        raise SelfReminderError(
            f"{name} is no method: it should be a class that derives from selfreminder.methods.Method"
        )
    return found


def _only_method(module: ModuleType, name: str) -> "type[Method]":
    classes = (value for value in vars(module).values() if isinstance(value, type) and issubclass(value, _base()))
    found = [cls for cls in classes if cls.__module__ == module.__name__]
    if len(found) != 1:
        raise SelfReminderError(f"{name} defines {len(found)} classes that derive from Method: it should define one")
    return found[0]


def _base() -> "type[Method]":
    return import_module(f"{__name__}.base").Method


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
        if of in LARGEST and not abs(value) <= LARGEST[of]:
            raise SelfReminderError(f"{name}: {option} is {show_number(value)}: it must be at most {LARGEST[of]:g}")


def show_number(value: float) -> str:
    """Write a number for a message, however many digits it has.

    >>> show_number(3), show_number(0.5), show_number(10**400)
    ('3', '0.5', 'a number of 401 digits or so')
    """
    if isinstance(value, int) and abs(value) >= 10**20:
        return f"a number of {round(value.bit_length() * 0.30103) + 1} digits or so"
    return repr(value)


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
