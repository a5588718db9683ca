"""Functions of the user's own that are named in text: `package.module:function`, or `path/to/file.py:function`.

Packages may offer some under names of their own, by entry points in the groups `MODELS` and `DATA`.
"""

import hashlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from selfreminder._base.errors import SelfReminderError, unknown

MODELS, DATA = "selfreminder.models", "selfreminder.data"
"""groups of entry points, of functions that give a model, and of those that give data"""
NAME = r"(?:[^\W\d]\w*(?:\.[^\W\d]\w*)*|.+\.py):[^\W\d]\w*"
"""the form of a function's name, as a regular expression"""


@cache
def installed(group: str) -> dict[str, EntryPoint]:
    """Find what installed packages offer in a group, by name."""
    return {point.name: point for point in entry_points(group=group)}


def is_factory(text: str) -> bool:
    """Whether a text has the form of a function's name.

    >>> is_factory("shop.models:build"), is_factory("shop/models.py:build"), is_factory("shop/models.py")
    (True, True, False)
    """
    return re.fullmatch(NAME, text) is not None


def shorten_path(text: str) -> str:
    """Write the path in a function's name in its shortest form, so that the same file has one name.

    >>> shorten_path("./shop/models.py:build"), shorten_path("shop.models:build"), shorten_path("hf:./bert/")
    ('shop/models.py:build', 'shop.models:build', 'hf:bert')
    """
    if text.startswith("hf:"):
        return f"hf:{os.path.normpath(text[3:])}"
    place, colon, name = text.rpartition(":")
    return f"{os.path.normpath(place)}{colon}{name}" if place.endswith(".py") else text


def find_modules_in(folder: Path) -> None:
    """Let modules in a folder be found, after those that are installed, so that it hides nothing."""
    if (here := str(folder.resolve())) not in sys.path:
        sys.path.append(here)


def load_file(path: Path) -> ModuleType:
    """Import a file of the user's own, by its path; the same file once."""
    place = path.expanduser().resolve()
    if not place.is_file():
        raise SelfReminderError(f"{path}: there is no such file")
    name = f"selfreminder_file_{hashlib.sha256(str(place).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    find_modules_in(place.parent)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a file of the user's can raise anything
        del sys.modules[name]
        raise SelfReminderError(f"{path}: importing it raised {type(error).__name__}: {error}") from error
    return module


def load_factory(name: str, group: str = MODELS) -> Callable[..., Any]:
    """Import the function of a name; modules in the working folder are found too, and what packages offer in a group.

    >>> load_factory("math:sqrt")(9)
    3.0
    """
    if name in installed(group):
        try:
            return installed(group)[name].load()
        except Exception as error:  # a stranger's module can raise anything
            raise SelfReminderError(f"'{name}' cannot be loaded: {type(error).__name__}: {error}") from error
    if not is_factory(name):
        raise SelfReminderError(f"'{name}' names no function: write package.module:function")
    module_name, here = name.rpartition(":")[0], Path.cwd()
    if module_name.endswith(".py"):
        return _take_function(load_file(Path(module_name)), name)
    find_modules_in(here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a module of the user's can raise anything
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise SelfReminderError(
                f"{name}: there is no module '{error.name}', installed or in {here}: install it, or go to its folder"
            ) from None
        raise SelfReminderError(f"{name}: importing it raised {type(error).__name__}: {error}") from error
    return _take_function(module, name)


def _take_function(module: ModuleType, name: str) -> Callable[..., Any]:
    module_name, _, function_name = name.rpartition(":")
    found = getattr(module, function_name, None)
    if found is None:
        raise unknown(f"function of {module_name}", function_name, [key for key in vars(module) if key[0] != "_"])
    if not callable(found):
        raise SelfReminderError(f"{name} is a {type(found).__name__}, not a function")
    return found


def call_factory(name: str, *arguments: Any, group: str = MODELS) -> Any:
    """Call the function of a name; what it raises becomes a line that says whose it is."""
    function = load_factory(name, group)
    try:
        return function(*arguments)
    except SelfReminderError:
        raise
    except Exception as error:
        raise SelfReminderError(f"{name} raised {type(error).__name__}: {error}") from error
