"""Which examples to keep, one file each. A file's name is its selection's name; its docstring, its help.

A selection is written as its name, with options after a colon where it has any: ``herding:kernel=gaussian,width=2``.
Packages may add their own by an entry point in the group ``selfreminder.selections`` that names a function of
`Candidates`. Nothing here imports torch.
"""

import ast
from collections.abc import Iterable
from functools import cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfreminder._base.errors import SelfReminderError, unknown

if TYPE_CHECKING:
    from selfreminder.selection.base import Candidates, Selection

__all__ = ["ALIASES", "GROUP", "Candidates", "Selection", "find", "names", "parse", "summary"]

GROUP = "selfreminder.selections"
ALIASES = {"influence+": ("influence", {"keep": "harmful"})}
"""other names: a selection with options"""
_FOLDER = Path(__file__).parent


def __getattr__(name: str) -> Any:
    """Import a public name of `selfreminder.selection.base`, which needs torch, when it is first used."""
    if name not in ("Candidates", "Selection"):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.base"), name)


@cache
def _own() -> tuple[str, ...]:
    stems = (path.stem for path in sorted(_FOLDER.glob("*.py")))
    return tuple(stem for stem in stems if stem not in ("__init__", "base"))


@cache
def _others() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def names() -> tuple[str, ...]:
    """All selections, by name.

    >>> "random" in names()
    True
    """
    return tuple(dict.fromkeys((*_own(), *ALIASES, *sorted(_others()))))


def summary(name: str) -> str:
    """One line about a selection."""
    if name in ALIASES:
        target, options = ALIASES[name]
        return f"{target}:{','.join(f'{k}={v}' for k, v in options.items())}, the contrast"
    if name not in _own():
        return f"from {_others()[name].value}"
    text = ast.get_docstring(ast.parse((_FOLDER / f"{name}.py").read_text(encoding="utf-8")))
    return (text or "").partition("\n")[0]


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """A selection's name and options from text; raises for a name, or an option of our own, that nobody knows.

    >>> parse("herding:kernel=gaussian,width=2")
    ('herding', {'kernel': 'gaussian', 'width': 2})
    """
    name, _, rest = text.partition(":")
    if name not in names():
        raise unknown("selection", name, names())
    options: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key.strip().isidentifier():
            raise SelfReminderError(f"'{part}' in selection '{text}' is no option: write for example {name}:key=value")
        options[key.strip()] = _value(value.strip())
    target, given = ALIASES.get(name, (name, {}))
    if target in _own():
        _check(target, options, _own_options(target))
    return target, given | options


@cache
def _own_options(name: str) -> tuple[str, ...]:
    """Read from its file, as its help is: without torch."""
    tree = ast.parse((_FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    (select,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "select")
    return tuple(argument.arg for argument in select.args.kwonlyargs)


def _check(name: str, options: Iterable[str], known: Iterable[str]) -> None:
    for option in options:
        if option not in known:
            raise unknown(f"option of {name}", option, sorted(known))


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def find(text: str) -> "Selection":
    """The function of a selection, with its options."""
    name, options = parse(text)
    if name in _own():
        function = import_module(f"{__name__}.{name}").select
    else:
        try:
            function = _others()[name].load()
        except Exception as error:  # whatever a stranger's module raises
            raise SelfReminderError(f"selection '{name}' cannot be loaded: {type(error).__name__}: {error}") from None
        _check(name, options, _options(function))
    return partial(function, **options) if options else function


def _options(function: Any) -> list[str]:
    import inspect  # noqa: PLC0415 - slow to import, and only needed here

    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
