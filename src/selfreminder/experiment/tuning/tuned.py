"""What was chosen for each method, by benchmark and scale: `tuned.toml`, or another table laid over it.

Reading comes first, writing below. Nothing here needs torch.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from selfreminder import methods
from selfreminder._base.atomic import write_text
from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder._base.sizes import Size
from selfreminder.experiment.catalogue import benchmark, read_catalogue, uses
from selfreminder.experiment.spec import parse_value

TUNED = Path(__file__).with_name("tuned.toml")
CHOSEN = ("strength", "lr", "optimizer", "weight_decay", "batch_size", "memory_batch", "over_tasks", "plateau")
"""fields that are a method's own; what else an experiment has is that of a comparison"""
_SIZES = ("at_per_class", "at_per_task", "at_budget")
_ABOUT = ("fields", "validation", "unfinished", "adams_newest", "by", "seeds", "trials", "sampler", "study", "command")
_KNOWN = (*CHOSEN, *_ABOUT, "where", *_SIZES)

Table = dict[str, Any]
Keys = tuple[str, ...]


def tuned(
    benchmark_name: str, scale: str, method: str, size: Size | None = None, table: Path | None = None
) -> dict[str, Any]:
    """What was chosen for a method at a scale, or its defaults: strength, step size and the like.

    `size` is the memory's: where something was chosen for that, it is taken. `table` is a file whose sections go before
    those of the table that comes with selfreminder.
    """
    own, of_size = _entries(benchmark_name, scale, method, size, table)
    chosen = {name: value for name, value in (own | of_size).items() if name in CHOSEN}
    return {name: None if value == "none" else value for name, value in chosen.items()}


def not_tuned(
    benchmark_name: str, scale: str, method: str, size: Size | None = None, table: Path | None = None
) -> str | None:
    """What is taken where nothing was chosen for this benchmark, scale and memory: a method and words.

    None where it was, and of a method with nothing to choose.

    >>> not_tuned("permuted-mnist", "small", "fsr-logit", Size(77))
    'fsr-logit (77 per class): what was chosen for 50 per class'
    """
    own, of_size = _entries(benchmark_name, scale, method, size, table)
    at = benchmark(benchmark_name).scales[scale]
    if _was_chosen(of_size):
        return None
    if not own:
        return "sgd: the paper's step size" if method == "sgd" and at.lr is None else None
    if not _was_chosen(own):
        return f"{method}: defaults"
    usual = Size(per_class=at.per_class)
    if size not in (None, usual) and uses(method, "per_class"):
        return f"{method} ({size}): what was chosen for {usual}"
    if where := own.get("where"):
        return f"{method}: what was chosen with {', '.join(f'{value} {name}' for name, value in where.items())}"
    return None


def untuned_sentence(said: Sequence[str]) -> str:
    """What `not_tuned` found of several methods, for people."""
    return f"Not tuned for this: {'; '.join(said)}."


def section_of(benchmark_name: str, scale: str, method: str, size: Size | None = None) -> Keys:
    """Where in a table a choice is; `size` is the memory's where that is not the scale's own.

    >>> section_of("permuted-mnist", "small", "ewc"), section_of("permuted-mnist", "small", "icarl", Size(1))
    (('permuted-mnist', 'small', 'ewc'), ('permuted-mnist', 'small', 'icarl', 'at_per_class', '1'))
    """
    return (benchmark_name, scale, method, *(() if size is None else _place(size)))


def read_table(path: Path) -> Table:
    """A table whose names and types are right."""
    state = path.stat()
    return _read(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=8)
def _read(path: Path, *_: int) -> Table:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SelfReminderError(f"{path} is no TOML: {error}") from None
    for name, of_name in table.items():
        if name == "default":
            _check(path, (name,), of_name)
            continue
        if name not in (known := read_catalogue().benchmarks):
            raise SelfReminderError(f"{path}: {unknown('benchmark', name, (*known, 'default'))}")
        for scale, entries in _tables(path, (name,), of_name).items():
            if scale not in known[name].scales:
                raise SelfReminderError(f"{path}: [{name}]: {unknown('scale', scale, known[name].scales)}")
            _check(path, (name, scale), entries)
    return table


def _check(path: Path, keys: Keys, entries: Table) -> None:
    for method, entry in _tables(path, keys, entries).items():
        if method not in methods.names():
            raise SelfReminderError(f"{path}: [{'.'.join(keys)}]: {unknown('method', method, methods.names())}")
        of_sizes = [
            ((*keys, method, kind, amount), of_size)
            for kind in _SIZES
            for amount, of_size in _tables(path, (*keys, method, kind), entry.get(kind, {})).items()
        ]
        for place, said in [((*keys, method), entry), *of_sizes]:
            for field, value in said.items():
                try:
                    if field not in _KNOWN:
                        raise unknown("field", field, _KNOWN)
                    if field in CHOSEN:
                        parse_value(field, value)
                except SelfReminderError as error:
                    raise SelfReminderError(f"{path}: [{'.'.join(place)}]: {error}") from None


def _tables(path: Path, keys: Keys, value: Any) -> dict[str, Table]:
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        raise SelfReminderError(f"{path}: [{'.'.join(keys)}] must hold tables: see {TUNED.name} of selfreminder")
    return value


def _entries(
    benchmark_name: str, scale: str, method: str, size: Size | None, table: Path | None
) -> tuple[Table, Table]:
    """What is said of a method, and what of it with a memory of that size."""
    default: Table = {}
    entry: Table = {}
    of_size: Table = {}
    for path in (TUNED, *([] if table is None else [table])):
        read = read_table(path)
        default = read.get("default", {}).get(method, default)
        said = read.get(benchmark_name, {}).get(scale, {}).get(method, {})
        entry = {name: value for name, value in said.items() if name not in _SIZES} or entry
        if size is not None:
            kind, amount = _place(size)
            of_size = said.get(kind, {}).get(amount, of_size)
    return entry or default, of_size


def _was_chosen(entry: Table) -> bool:
    return "validation" in entry or "by" in entry


def _place(size: Size) -> tuple[str, str]:
    if size.budget is not None:
        return "at_budget", str(size.budget_bytes)
    kind = "per_class" if size.per_class is not None else "per_task"
    return f"at_{kind}", str(getattr(size, kind))


def write_sections(path: Path, sections: Mapping[Keys, Mapping[str, Any]], header: str = "") -> None:
    """Put sections into a table's file in the place of those of the same names; all else stays as it is.

    `header` is what a file begins with that is new.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else header
    for keys, entry in sections.items():
        text = with_section(text, keys, entry, str(path))
    write_text(path, text)


def with_section(text: str, keys: Keys, entry: Mapping[str, Any], name: str = "the table") -> str:
    """A table's text with one section in the place of that of the same name, or after the one most like it."""
    try:
        wanted = tomllib.loads(text)
    except ValueError as error:
        raise SelfReminderError(f"{name} is no TOML: {error}") from None
    lines = [f"{field} = {_toml(value)}\n" for field, value in entry.items()]
    parent = wanted
    for key in keys[:-1]:
        parent = parent.setdefault(key, {})
    sizes = {kind: value for kind, value in parent.get(keys[-1], {}).items() if kind in _SIZES}
    parent[keys[-1]] = tomllib.loads("".join(lines)) | sizes

    blocks, new = _with_own_sections(_blocks(text), keys[:3]), [f"[{'.'.join(keys)}]\n", *lines]
    for block in blocks:
        if block.keys == keys:
            block.lines = new
            break
    else:
        most = max((block.shared(keys) for block in blocks), default=0)
        alike = [i for i, block in enumerate(blocks) if most and block.shared(keys) == most] or [len(blocks)]
        blocks.insert(alike[-1] + 1, _Block(keys, ["\n"] if blocks else [], new))
    found = "".join(line for block in blocks for line in (*block.before, *block.lines))
    if _parsed(found) != wanted:
        section = ".".join(keys)
        raise SelfReminderError(f"{name} has [{section}] in a form of its own: take it out by hand, then try again")
    return found


class _Block:
    """A section's lines with the comments and empty lines before it."""

    def __init__(self, keys: Keys | None, before: list[str], lines: list[str]) -> None:
        self.keys, self.before, self.lines = keys, before, lines

    def shared(self, keys: Keys) -> int:
        """How many names it has in common with a section, from the first on."""
        count = 0
        for own, other in zip(self.keys or (), keys):
            if own != other:
                break
            count += 1
        return count


def _blocks(text: str) -> list[_Block]:
    blocks = [_Block(None, [], [])]
    for line in text.splitlines(keepends=True):
        if re.fullmatch(r"\[[^\[\]]+\]\s*(#.*)?", line.strip()):
            before: list[str] = []
            while blocks[-1].lines and re.fullmatch(r"(#.*)?", blocks[-1].lines[-1].strip()):
                before.insert(0, blocks[-1].lines.pop())
            blocks.append(_Block(_header(line), before, []))
        blocks[-1].lines.append(line)
    if blocks[-1].lines and not blocks[-1].lines[-1].endswith("\n"):
        blocks[-1].lines[-1] += "\n"
    return [block for block in blocks if block.before or block.lines]


def _header(line: str) -> Keys | None:
    try:
        inner, keys = tomllib.loads(line), []
    except ValueError:  # within a value of several lines
        return None
    while inner:
        ((key, inner),) = inner.items()
        keys.append(key)
    return tuple(keys)


def _with_own_sections(blocks: list[_Block], keys: Keys) -> list[_Block]:
    """A method that has one line in its scale's section gets a section of its own."""
    found: list[_Block] = []
    for block in blocks:
        found.append(block)
        if block.keys != keys[:-1]:
            continue
        for line in list(block.lines):
            if re.match(rf'\s*"?{re.escape(keys[-1])}"?\s*=', line) and (said := _parsed(line)):
                block.lines.remove(line)
                lines = [f"{field} = {_toml(value)}\n" for field, value in said[keys[-1]].items()]
                found.append(_Block(keys, ["\n"], [f"[{'.'.join(keys)}]\n", *lines]))
    return found


def _parsed(text: str) -> Table | None:
    try:
        return tomllib.loads(text)
    except ValueError:
        return None


def _toml(value: Any) -> str:
    """A value as TOML writes it.

    >>> print(_toml({"0.3": 0.5, "by": None, "seeds": [100, 101]}))
    { "0.3" = 0.5, by = "none", seeds = [100, 101] }
    """
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_toml(each)}" for key, each in value.items()) + " }" if value else "{}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        if value and isinstance(value[0], Mapping):
            return "[\n" + "".join(f"  {_toml(each)},\n" for each in value) + "]"
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps("none" if value is None else value, ensure_ascii=False)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z_-]+", key) else json.dumps(key)
