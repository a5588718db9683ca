"""Tables of what was chosen for each method: `tuned.toml`, which comes with selfreminder, and those of a user.

A table has a section for each benchmark, scale and method. Reading comes first, and needs neither torch nor an extra;
writing, which needs the extra `tune`, is below. The first line of a table that was written has the hash of the rest:
one that was cut short may still be TOML, and would leave a method with other strengths. One that somebody wrote by hand
has no such line.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from selfreminder import benchmarks, methods
from selfreminder._base.atomic import write_text
from selfreminder._base.errors import MissingExtraError, SelfReminderError, unknown
from selfreminder._base.lock import locked
from selfreminder._base.sizes import Size
from selfreminder.experiment.catalogue import benchmark, method_facts, uses
from selfreminder.experiment.spec import parse_value

TUNED = Path(__file__).with_name("tuned.toml")
METHOD_FIELDS = ("strength", "lr", "optimizer", "weight_decay", "batch_size", "memory_batch", "over_tasks", "plateau")
"""fields of an experiment that are chosen for each method; a comparison has the others in common"""
OPTIONS = "options"
"""where a table has what is chosen of a method's own options"""
_SIZES = ("at_per_class", "at_per_task", "at_budget", "at_items")
_ABOUT = ("fields", "validation", "unfinished", "adams_newest", "by", "seeds", "trials", "sampler", "study", "command")
_COUNTED = ("tasks", "epochs", "width")
_KNOWN = (*METHOD_FIELDS, OPTIONS, *_ABOUT, "where", *_SIZES)
_SEAL = "# sha256 of what follows: "
_HEADER = "# Chosen on validation data by `selfreminder tune`: each section says by which command, and of what.\n"

Table = dict[str, Any]
Keys = tuple[str, ...]


def find_tuned(
    benchmark_name: str, scale: str, method: str, size: Size | None = None, table: Path | None = None
) -> dict[str, Any]:
    """Look up what was chosen for a method at a scale, or its defaults: strength, step size and the like.

    Args:
        size: the memory's; where something was chosen for that, it is taken.
        table: a file whose sections go before those of the table that comes with selfreminder.

    >>> find_tuned("permuted-mnist", "small", "fsr-logit", Size(1))
    {'strength': 0.3, 'lr': 0.0008}
    """
    own, of_size = _entries(benchmark_name, scale, method, size, table)
    chosen = {name: value for name, value in (own | of_size).items() if name in (*METHOD_FIELDS, OPTIONS)}
    return {name: None if value == "none" else value for name, value in chosen.items()}


def describe_untuned(
    benchmark_name: str,
    scale: str,
    method: str,
    size: Size | None = None,
    table: Path | None = None,
    extent: Mapping[str, Any] | None = None,
) -> str | None:
    """Say which settings a method takes where none were chosen for this benchmark, scale, memory and `extent`.

    None where they were chosen, and for a method that has nothing to choose. `extent` has what is otherwise than the
    scale says.

    >>> describe_untuned("permuted-mnist", "small", "fsr-logit", Size(77))
    'fsr-logit (77 per class): what was chosen for 50 per class'
    """
    own, of_size = _entries(benchmark_name, scale, method, size, table)
    at = benchmark(benchmark_name).scales[scale]
    if _was_chosen(of_size):
        return None
    if not own and "strength" not in method_facts(method).settings:
        return "sgd: the paper's step size" if method == "sgd" and at.lr is None else None
    if not _was_chosen(own):
        return f"{method}: defaults"
    usual = Size(per_class=at.per_class)
    if size not in (None, usual) and uses(method, "per_class"):
        return f"{method} ({size}): what was chosen for {usual}"
    where, there = own.get("where", {}), extent or {}
    if any(there.get(name) != value for name, value in where.items()):
        said = (f"{value} {name}" if name in _COUNTED else f"{name} {value}" for name, value in where.items())
        return f"{method}: what was chosen with {', '.join(said)}"
    if table is not None and "validation" in own and (other := there.keys() - where.keys()):
        return f"{method}: what was chosen for other {', '.join(sorted(other))}"
    return None


def join_untuned(descriptions: Sequence[str]) -> str:
    """Make one sentence of what `describe_untuned` says of several methods."""
    return f"Not tuned for this: {'; '.join(descriptions)}."


def locate_section(benchmark_name: str, scale: str, method: str, size: Size | None = None) -> Keys:
    """Name the section of a table that has a method's choice; `size` is the memory's if it is not the scale's own.

    >>> locate_section("permuted-mnist", "small", "ewc"), locate_section("permuted-mnist", "small", "icarl", Size(1))
    (('permuted-mnist', 'small', 'ewc'), ('permuted-mnist', 'small', 'icarl', 'at_per_class', '1'))
    """
    return (benchmark_name, scale, method, *(() if size is None else _size_keys(size)))


def read_table(path: Path) -> Table:
    """Read a table, and check that it is whole, and its names and types."""
    state = path.stat()
    return _read(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=8)
def _read(path: Path, *_version: int) -> Table:
    try:
        table = tomllib.loads(_read_text(path))
        if not table:
            raise SelfReminderError("it has no sections: it was emptied or cut short")
        for name, section in table.items():
            if name == "default":
                scales = {}
            elif name.endswith(".py"):  # somebody's file, which need not be there
                scales = {"scale": benchmarks.SCALES}
            elif name in benchmarks.names():
                scales = {"scale": benchmark(name).scales}
            else:
                raise unknown("benchmark", name, (*benchmarks.names(), "default"))
            _check_tables((name,), section, {**scales, "method": methods.names()})
    except SelfReminderError as error:
        raise SelfReminderError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise SelfReminderError(f"{path} is no TOML: {error}") from None
    return table


def _read_text(path: Path) -> str:
    """Read the text of a table without its first line, if that is the hash of the rest; raises if it is another's."""
    text = path.read_text(encoding="utf-8")
    first, _, rest = text.partition("\n")
    if _SEAL.strip("# ") not in first and path != TUNED:
        return text
    if first != _seal(rest):
        on_purpose = "`make format` writes its first line anew" if path == TUNED else "take out its first line"
        raise SelfReminderError(
            f"it was cut short or edited since it was written: restore it, or, if that was on purpose, {on_purpose}"
        )
    return rest


def _seal(text: str) -> str:
    return _SEAL + hashlib.sha256(text.encode()).hexdigest()


def seal_table(path: Path) -> None:
    """Write the first line of a table anew, after somebody has edited it on purpose."""
    text = path.read_text(encoding="utf-8")
    first, _, rest = text.partition("\n")
    body = rest if first.startswith(_SEAL) else text
    write_text(path, f"{_seal(body)}\n{body}")


def _check_tables(keys: Keys, section: Any, known: Mapping[str, Iterable[str]]) -> None:
    """Check that a section holds tables of known names; `known` has those of scales, and of methods below them."""
    if not isinstance(section, dict) or not all(isinstance(each, dict) for each in section.values()):
        raise SelfReminderError(f"[{'.'.join(keys)}] must hold tables: see {TUNED.name} of selfreminder")
    kind, *below = known
    for name, each in section.items():
        if name not in known[kind] and not (kind == "method" and methods.is_place(name)):
            raise SelfReminderError(f"[{'.'.join(keys)}]: {unknown(kind, name, known[kind])}")
        if below:
            _check_tables((*keys, name), each, {level: known[level] for level in below})
        else:
            _check_fields((*keys, name), each)


def _check_fields(keys: Keys, entry: Table) -> None:
    for field, value in entry.items():
        if field in _SIZES:
            _check_tables((*keys, field), value, {"size": value})
            continue
        try:
            if field not in _KNOWN:
                raise unknown("field", field, _KNOWN)
            if field in (*METHOD_FIELDS, OPTIONS):
                parse_value(field, value)
        except SelfReminderError as error:
            raise SelfReminderError(f"[{'.'.join(keys)}]: {error}") from None


def _entries(
    benchmark_name: str, scale: str, method: str, size: Size | None, table: Path | None
) -> tuple[Table, Table]:
    """Look up the section of a method, or its defaults, and that of the method with a memory of this size."""
    default, own, of_size = Table(), Table(), Table()
    for read in [read_table(path) for path in (TUNED, table) if path is not None]:
        default = read.get("default", {}).get(method, default)
        section = read.get(benchmark_name, {}).get(scale, {}).get(method, {})
        own = {field: value for field, value in section.items() if field not in _SIZES} or own
        if size is not None:
            kind, amount = _size_keys(size)
            of_size = section.get(kind, {}).get(amount, of_size)
    return own or default, of_size


def _was_chosen(entry: Table) -> bool:
    return "validation" in entry or "by" in entry


def _size_keys(size: Size) -> tuple[str, str]:
    kind, amount = next((kind, amount) for kind, amount in vars(size).items() if amount is not None)
    return f"at_{kind}", str(size.budget_bytes or amount)


def write_sections(path: Path, sections: Mapping[Keys, Mapping[str, Any]]) -> None:
    """Write sections into a table's file, in the place of those of the same names; all else stays as it is.

    Others may be writing to the same file: one after the other.
    """
    file = path.resolve()
    with locked(file.parent, lock=f".{file.name}.lock"):
        try:
            text = (_read_text(path) if path.exists() else "") or _HEADER
        except SelfReminderError as error:
            raise SelfReminderError(f"{path}: {error}") from None
        for keys, entry in sections.items():
            text = with_section(text, keys, entry, str(path))
        write_text(path, f"{_seal(text)}\n{text}")


def with_section(text: str, keys: Keys, entry: Mapping[str, Any], name: str = "the table") -> str:
    """Return a table's text with one section in the place of that of the same name, or after the one most like it."""
    lines = _format_lines(entry)
    try:
        wanted = section = tomllib.loads(text)
    except ValueError as error:
        raise SelfReminderError(f"{name} is no TOML: {error}") from None
    for key in keys:
        section = section.setdefault(key, {})
    sizes = {kind: section[kind] for kind in _SIZES if kind in section}
    section.clear()
    section.update(tomllib.loads(lines) | sizes)
    edited = _edit(text, keys, lines)
    with suppress(ValueError):
        if tomllib.loads(edited) == wanted:
            return edited
    place = ".".join(keys)
    raise SelfReminderError(f"{name} has [{place}] in a form of its own: take it out by hand, then try again")


def _edit(text: str, keys: Keys, lines: str) -> str:
    """Put a section into a text, without checking that the text has no form in which this goes wrong."""
    try:
        import tomlkit.items  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("writing a table needs tomlkit: pip install 'selfreminder[tune]'") from None
    document, new = tomlkit.parse(text), tomlkit.table()
    for key, item in tomlkit.parse(lines).body:
        new.append(key, item)
    # The section is there in two places if those of its sizes come before it: the one of its own goes first.
    bodies: list[list[Any]] = [document.body]
    for key in keys[:-1]:
        bodies = [item.value.body for body in bodies for name, item in body if name == key and item.is_table()]
    places = [
        (body, i) for body in bodies for i, (name, item) in enumerate(body) if name == keys[-1] and item.is_table()
    ]
    if places:
        body, index = min(places, key=lambda place: place[0][place[1]][1].is_super_table())
        own_key, old = body[index]
        values = [i for i, (key, item) in enumerate(old.value.body) if key and not item.is_table()]
        for kept in old.value.body[values[-1] + 1 if values else 0 :]:  # sections of sizes, comments on what comes next
            new.append(*kept)
        body[index] = (own_key, new)
        return tomlkit.dumps(document)
    parent: Any = document
    for depth, key in enumerate(keys[:-1], 1):
        parent = parent.setdefault(key, tomlkit.table(is_super_table=True))
        if isinstance(parent, tomlkit.items.InlineTable):  # it gets a section of its own first
            return _edit(_edit(text, keys[:depth], _format_lines(parent.unwrap())), keys, lines)
    parent.pop(keys[-1], None)
    parent[keys[-1]] = new
    new.trivia.indent = ""
    return _set_off(*tomlkit.dumps(document).partition(f"[{'.'.join(keys)}]\n{lines}"))


def _set_off(before: str, section: str, after: str) -> str:
    """Join a new section to what is around it, with empty lines; comments before the next section stay there."""
    head, notes = before.splitlines(keepends=True), []
    while after and head and re.fullmatch(r"(#.*)?", head[-1].strip()):
        notes.insert(0, head.pop())
    above = ["\n"] if head and head[-1].strip() else []
    below = notes or (["\n"] if after else [])
    return "".join([*head, *above, section, *below, after])


def _format_lines(entry: Mapping[str, Any]) -> str:
    return "".join(f"{field} = {_format_toml(value)}\n" for field, value in entry.items())


def _format_toml(value: Any) -> str:
    """Format a value as TOML: a list of trials has a line for each.

    >>> print(_format_toml({"0.3": 0.5, "by": None, "seeds": [100, 101]}))
    { "0.3" = 0.5, by = "none", seeds = [100, 101] }
    """
    if isinstance(value, Mapping):
        keys = (key if re.fullmatch(r"[A-Za-z_-]+", key) else json.dumps(key) for key in value)
        pairs = ", ".join(f"{key} = {_format_toml(each)}" for key, each in zip(keys, value.values()))
        return f"{{ {pairs} }}" if value else "{}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        if value and isinstance(value[0], Mapping):
            return "[\n" + "".join(f"  {_format_toml(each)},\n" for each in value) + "]"
        return "[" + ", ".join(map(_format_toml, value)) + "]"
    return json.dumps("none" if value is None else value, ensure_ascii=False)
