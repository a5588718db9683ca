"""Which examples to keep, one file each. A file's name is its selection's name; its docstring, its help.

A selection is written as its name, with options after a colon where it has any: ``herding:kernel=gaussian,width=2``.
Packages may add their own by an entry point in the group ``selfreminder.selections`` that names a function of
`Candidates`. Nothing here imports torch before a selection is loaded: see `selfreminder.experiment.catalogue` for the
summaries and options of our own without torch.
"""

import inspect
from ast import literal_eval
from collections.abc import Collection, Mapping
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder._base.factories import installed

if TYPE_CHECKING:
    from selfreminder.selection.base import Candidates, Selection

__all__ = [
    "ALIASES",
    "GROUP",
    "Candidates",
    "Selection",
    "check_options",
    "find",
    "load",
    "names",
    "own_names",
    "parse",
    "summary",
]

GROUP = "selfreminder.selections"
ALIASES = {"influence+": ("influence", {"keep": "harmful"})}
"""other names: a selection with options"""


def __getattr__(name: str) -> Any:
    """Import a public name of `selfreminder.selection.base`, which needs torch, when it is first used."""
    if name not in ("Candidates", "Selection"):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.base"), name)


@cache
def own_names() -> tuple[str, ...]:
    """Those that have a file here."""
    stems = (path.stem for path in sorted(Path(__file__).parent.glob("*.py")))
    return tuple(stem for stem in stems if stem not in ("__init__", "base"))


def names() -> tuple[str, ...]:
    """All selections, by name.

    >>> "random" in names()
    True
    """
    return tuple(dict.fromkeys((*own_names(), *ALIASES, *sorted(installed(GROUP)))))


def summary(name: str) -> str:
    """One line about a selection."""
    if name in ALIASES:
        target, options = ALIASES[name]
        return f"{target}:{','.join(f'{k}={v}' for k, v in options.items())}, the contrast"
    if name not in own_names():
        return f"from {installed(GROUP)[name].value}"
    return (import_module(f"{__name__}.{name}").__doc__ or "").partition("\n")[0]


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """A selection's name and options from text; raises for a name that nobody knows.

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
        try:
            options[key.strip()] = literal_eval(value.strip())
        except (ValueError, SyntaxError):
            options[key.strip()] = value.strip()
    target, given = ALIASES.get(name, (name, {}))
    return target, given | options


def check_options(name: str, options: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise if a selection does not know one of these options."""
    for option in options:
        if option not in known:
            raise unknown(f"option of {name}", option, sorted(known))


def find(text: str) -> "Selection":
    """The function of a selection, with its options."""
    name, options = parse(text)
    function, known = load(name)
    check_options(name, options, known)
    return partial(function, **options) if options else function


def load(name: str) -> tuple[Any, tuple[str, ...]]:
    """The function of a selection, and the names of its options."""
    if name in own_names():
        function = import_module(f"{__name__}.{name}").select
    else:
        try:
            function = installed(GROUP)[name].load()
        except Exception as error:  # whatever a stranger's module raises
            raise SelfReminderError(f"selection '{name}' cannot be loaded: {type(error).__name__}: {error}") from None
    parameters = inspect.signature(function).parameters.values()
    return function, tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
