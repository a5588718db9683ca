"""A table's columns as one tensor, the way a reading says: numbers, categories, words or tokens."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from selfreminder._base.errors import MissingExtraError, SelfReminderError, printable
from selfreminder.data.own.cutting import name_tasks, order_tasks
from selfreminder.data.own.encoding import NEVER_INPUTS, Columns, TableEncoding, number_columns
from selfreminder.data.own.reading import Reading

_SHOWN = 8
"""columns that are named"""


def list_numbers(columns: Columns, how: Reading) -> list[str]:
    """List the columns that are inputs as numbers."""
    taken = {*how.categories, *how.text, how.by}
    return list(how.inputs) or [name for name in number_columns(columns) if name not in taken]


def list_wanted(columns: Columns, how: Reading) -> tuple[list[str], bool]:
    """List the columns that would be inputs if they were numbers, and tell whether they were named as such."""
    if how.tokenizer:
        return [], False
    taken = {*how.categories, *how.text, how.by, *NEVER_INPUTS}
    return list(how.inputs) or [name for name in columns if name not in taken], bool(how.inputs)


def describe_inputs(columns: Columns, used: Sequence[str], by: str | None, gaps: Mapping[str, int]) -> tuple[str, ...]:
    """Say in a line or two which columns are inputs, which are not, and in which how many gaps were filled."""
    kinds = {"M": "dates", "O": "text"}
    known = {by: "names tasks"} | dict.fromkeys(NEVER_INPUTS, "names items")
    others = {name: known.get(name) or kinds.get(column.dtype.kind) for name, column in columns.items()}
    for name in used:
        others.pop(name, None)
    left = [f"{printable(name)} ({kind})" if kind else printable(name) for name, kind in others.items()]
    said = f"inputs: {_list_some([printable(name) for name in used])}"
    filled = [f"{printable(name)} {count:,}" for name, count in gaps.items() if count]
    return (
        f"{said}; left out: {_list_some(left)}" if left else said,
        *([f"filled gaps: {_list_some(filled)}"] if filled else []),
    )


def count_gaps(columns: Columns, encoding: TableEncoding) -> Counter[str]:
    """Count the gaps in columns of numbers, which an encoding fills."""
    return Counter({name: int(np.isnan(columns[name].astype(np.float64)).sum()) for name in encoding.numbers})


def _list_some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")


def fit_encoding(columns: Columns, how: Reading, numbers: list[str]) -> TableEncoding:
    """Fit an encoding to the columns of the first task: later ones are not known yet when a model is deployed."""
    if how.tokenizer and not numbers and not how.categories:
        return TableEncoding.fit(columns, numbers=(), categories=how.text[:1], text=())  # tokens take its place
    words = () if how.tokenizer else how.text
    return TableEncoding.fit(columns, numbers=numbers, categories=how.categories, text=words, width=how.words)


def make_encoding(how: Reading) -> Callable[[Any], TableEncoding]:
    """Make the function that fits an encoding to a whole table."""

    def fit(columns: Columns) -> TableEncoding:
        numbers = list_numbers(columns, how)
        if how.by not in (None, "class"):
            names = name_tasks(columns, len(next(iter(columns.values()))), how.by, "the data")
            first = names == next(iter(order_tasks(names)))
            columns = {name: column[first] for name, column in columns.items()}
        return fit_encoding(columns, how, numbers)

    return fit


def join_inputs(inputs: dict[str, Tensor], encoding: TableEncoding | None) -> Tensor:
    """One tensor of all inputs: categories become a place for each of their values."""
    if encoding is None:
        check_single(inputs)
        return next(iter(inputs.values()))
    parts = []
    for name, x in inputs.items():
        are_codes = name == "categories" or (name == "x" and encoding.categories)
        parts.append(_one_hot(x, encoding) if are_codes else x.flatten(1).float())
    return torch.cat(parts, 1)


def check_single(names: Iterable[str]) -> None:
    """Raise if there are several inputs, by name, that are not columns of a table."""
    if len(names := list(names)) > 1:
        raise SelfReminderError(f"the inputs {', '.join(names)} are several: name one with --inputs")


def _one_hot(codes: Tensor, encoding: TableEncoding) -> Tensor:
    known = encoding.categories.values()
    return torch.cat([F.one_hot(codes[:, place], len(names) + 1) for place, names in enumerate(known)], 1).float()


def load_tokenizer(columns: Columns, how: Reading) -> Callable[[Columns], Tensor]:
    """Load a tokenizer: gives what makes token numbers (n, length) of the columns' text."""
    try:
        transformers: Any = import_module("transformers")
    except ModuleNotFoundError:
        raise MissingExtraError("a tokenizer needs transformers: pip install 'selfreminder[transformers]'") from None
    if len(how.text) != 1 or how.text[0] not in columns:
        raise SelfReminderError("a tokenizer reads one column of text: name it with --text")
    if how.tokenizer is None or not Path(how.tokenizer).expanduser().is_dir():
        raise SelfReminderError(
            f"tokenizer {how.tokenizer}: there is no such folder: give one that a tokenizer was saved in"
        )
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(Path(how.tokenizer).expanduser(), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise SelfReminderError(f"tokenizer {how.tokenizer}: {str(error).partition(chr(10))[0]}") from None

    def tokenize(columns: Columns) -> Tensor:
        texts = [str(text) for text in columns[how.text[0]]]
        coded = tokenizer(texts, truncation=True, padding="max_length", max_length=how.length, return_tensors="pt")
        return coded["input_ids"]

    return tokenize
