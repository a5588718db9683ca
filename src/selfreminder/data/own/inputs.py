"""A table's columns as one tensor, the way a reading says: numbers, categories, words or tokens."""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from selfreminder._base.errors import MissingExtraError, SelfReminderError
from selfreminder.data.own.cutting import name_tasks, order_tasks
from selfreminder.data.own.encoding import Columns, TableEncoding, number_columns
from selfreminder.data.own.reading import Reading


def list_numbers(columns: Columns, how: Reading) -> list[str]:
    """List the columns that are inputs as numbers."""
    taken = {*how.categories, *how.text, how.by}
    return list(how.inputs) or [name for name in number_columns(columns) if name not in taken]


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
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(how.tokenizer, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise SelfReminderError(f"tokenizer {how.tokenizer}: {str(error).partition(chr(10))[0]}") from None

    def tokenize(columns: Columns) -> Tensor:
        texts = [str(text) for text in columns[how.text[0]]]
        coded = tokenizer(texts, truncation=True, padding="max_length", max_length=how.length, return_tensors="pt")
        return coded["input_ids"]

    return tokenize
