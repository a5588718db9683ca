"""Labels as people have them: classes in several forms, names, several an item, and numbers."""

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from selfreminder._base.errors import SelfReminderError
from selfreminder.reminder.reminder import Reminder
from selfreminder.samples import Limit, read_samples

N = 600
"""more than two batches"""
X, Y = torch.arange(N * 6.0).reshape(N, 6) / 3600, torch.arange(N) % 3
NAMES = ["cat", "dog", "eel"]
WORDS = [NAMES[y] for y in Y.tolist()]


class Items(Dataset[Any]):
    def __init__(self, labels: Any) -> None:
        self.labels = labels

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        return X[index], self.labels[index]


def limit(seed: int = 0, **size: Any) -> Limit:
    return Limit(generator=torch.Generator().manual_seed(seed), **size)


# Classes --------------------------------------------------------------------------------------------------

CLASSES = {
    "a column": Y[:, None],
    "a column of bytes": Y[:, None].to(torch.uint8),
    "rows of one": torch.eye(3, dtype=torch.long)[Y],
    "rows of one float": torch.eye(3)[Y],
    "rows of one bool": torch.eye(3, dtype=torch.bool)[Y],
    "rows of one numpy": np.eye(3)[Y.numpy()],
    "rows of one in lists": torch.eye(3)[Y].tolist(),
    "pandas": pd.Series(Y.numpy()),
    "a table of one column": pd.DataFrame({"label": Y.numpy()}),
    "objects": np.array(Y.tolist(), dtype=object),
}


@pytest.mark.parametrize("kind", CLASSES)
def test_classes(kind: str) -> None:
    labels = CLASSES[kind]
    given = [(X, labels), (TensorDataset(X), labels)]
    if isinstance(labels, Tensor | np.ndarray | list):
        given += [(Items(labels), None), (DataLoader(Items(labels), 7), None)] if kind != "rows of one in lists" else []
    for data, beside in given:
        for kept in (None, limit(per_class=4)):
            samples = read_samples(data, beside, limit=kept)
            assert samples.labels is not None and samples.strata is None
            assert samples.labels.dtype == torch.long
            assert torch.equal(samples.labels, Y[samples.sources])
    assert torch.equal(read_samples(Items(list(np.eye(3)[Y.numpy()].tolist()))).labels, Y)


NAMED = {
    "list": WORDS,
    "numpy": np.array(WORDS),
    "numpy bytes": np.array(WORDS, dtype="S"),
    "numpy objects": np.array(WORDS, dtype=object),
    "pandas": pd.Series(WORDS),
    "a category": pd.Series(WORDS, dtype="category"),
}


@pytest.mark.parametrize("kind", NAMED)
def test_names(kind: str) -> None:
    words = NAMED[kind]
    for data, beside in ((X, words), (TensorDataset(X), words), (Items(list(words)), None)):
        assert torch.equal(read_samples(data, beside, classes=NAMES).labels, Y)
        with pytest.raises(SelfReminderError, match=r"the labels are text: number the classes.*classes=\[…\]"):
            read_samples(data, beside)
        with pytest.raises(SelfReminderError, match=r"unknown class 'eel': did you mean 'eels'\? Known: cat"):
            read_samples(data, beside, classes=["cat", "dog", "eels"])


def test_names_that_do_not_suit() -> None:
    with pytest.raises(SelfReminderError, match=r"classes=… is for labels that are names, these are int64"):
        read_samples(X, Y, classes=NAMES)
    with pytest.raises(SelfReminderError, match="names labels, but the data has none"):
        read_samples(X, classes=NAMES)
    with pytest.raises(SelfReminderError, match="a name twice"):
        read_samples(X, WORDS, classes=["cat", "cat"])
    for classes in ("cat", [0, 1, 2]):
        with pytest.raises(SelfReminderError, match="classes are a list of names"):
            read_samples(X, WORDS, classes=classes)  # pyright: ignore[reportArgumentType]


# Strata ---------------------------------------------------------------------------------------------------


def several(pattern: Tensor) -> Tensor:
    """Rows of two zeros or ones and a one: four patterns."""
    return torch.stack([pattern % 2, pattern // 2, torch.ones_like(pattern)], 1)


PATTERN = torch.arange(N) * 7 % 4


@pytest.mark.parametrize("dtype", [torch.long, torch.float32, torch.bool])
@pytest.mark.parametrize("single_first", [False, True])
def test_several_labels_an_item_stratify_by_their_pattern(dtype: torch.dtype, single_first: bool) -> None:
    """Also where the first batches have one each, and look like classes."""
    pattern = PATTERN.sort().values if single_first else PATTERN
    labels = several(pattern).to(dtype)
    for data, beside in ((X, labels), (TensorDataset(X, labels), None), (DataLoader(Items(labels), 7), None)):
        for kept in (None, limit(per_class=5)):
            samples = read_samples(data, beside, limit=kept)
            assert samples.labels is None and samples.strata is not None
            ours = pattern[samples.sources]
            pairs = {(a, b) for a, b in zip(ours.tolist(), samples.strata.tolist())}
            assert len(pairs) == len(samples.strata.unique()) == len(ours.unique()) == 4
            if kept is not None and data is not X:
                assert Counter(ours.tolist()) == dict.fromkeys(range(4), 5)


@pytest.mark.parametrize("shape", [(N,), (N, 1)])
def test_numbers_stratify_by_fifths(shape: tuple[int, ...]) -> None:
    numbers = (torch.randperm(N, generator=torch.Generator().manual_seed(0)) / 7).reshape(shape)
    samples = read_samples(X, numbers)
    assert samples.labels is None and samples.strata is not None
    assert samples.strata.bincount().tolist() == [N // 5] * 5
    assert torch.equal(samples.strata, (numbers.flatten() * 7).round().long() * 5 // N)
    few = read_samples(DataLoader(Items(numbers), 200), limit=limit(per_class=6))
    assert few.labels is None and few.strata is not None
    assert few.strata.bincount().tolist() == [6] * 5  # of ranges that the first batch says
    order = numbers.flatten()[few.sources].argsort()
    assert bool((few.strata[order].diff() >= 0).all())


REFUSED = {
    "whole numbers as floats": (Y.float(), r"float32 of shape \(\d+,\).*pass labels\.long\(\), if these are classes"),
    "a column of them": (Y.float()[:, None], r"pass labels\.squeeze\(1\)\.long\(\)"),
    "scores": (torch.rand(N, 3), r"float32 of shape \(\d+, 3\).*pass labels\.argmax\(1\), if these are scores"),
    "classes of tokens": (
        torch.arange(N * 3).reshape(N, 3),
        r"one label an item.*: without labels, the",
    ),
    "pictures": (torch.zeros(N, 2, 2), r"float32 of shape \(\d+, 2, 2\)"),
    "not finite": (torch.tensor([0.5, float("nan")]).repeat(N // 2), "labels hold values that are not finite"),
    "complex": (torch.zeros(N, dtype=torch.complex64), "complex64 of shape"),
    "names and numbers": (["cat", *range(N - 1)], "the labels are text"),
    "lists of names": ([["cat"]] * N, "the labels are a list"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refused(kind: str) -> None:
    labels, message = REFUSED[kind]
    for data, beside in ((X, labels), (Items(labels), None)):
        with pytest.raises(SelfReminderError, match=message):
            read_samples(data, beside)


def test_forms_that_change() -> None:
    mixed: list[Any] = [0] * 300 + [0.5] * 300
    with pytest.raises(SelfReminderError, match="one form: some are whole numbers, some numbers"):
        read_samples(Items(mixed))
    mixed = [torch.eye(3)[0]] * 256 + [torch.eye(4)[0]] * 344
    with pytest.raises(SelfReminderError, match="one form: some are rows of 3, some rows of 4"):
        read_samples(Items(mixed))
    fractions: list[Any] = [i + 0.5 for i in range(256)] + list(range(344))  # whole ones among them are no others
    assert read_samples(Items(fractions)).labels is None


# In a reminder ---------------------------------------------------------------------------------------------


def test_remembered() -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    for labels, classes, kept in (
        (WORDS, NAMES, {0: 4, 1: 4, 2: 4}),
        (torch.eye(3)[Y], None, {0: 4, 1: 4, 2: 4}),
        (several(PATTERN), None, {-1: 16}),
        (torch.rand(N), None, {-1: 20}),
    ):
        reminder = Reminder()
        reminder.remember(model, TensorDataset(X), labels, classes=classes, per_class=4)
        assert Counter(reminder.memory.labels.tolist()) == kept
    reminder = Reminder()
    reminder.remember(model, X, several(PATTERN), per_class=4, select="herding")
    held = PATTERN[reminder.memory.sources.long()]
    assert held.bincount().tolist() == [4] * 4
    assert reminder.report(model).tasks[0].accuracy is None  # nothing takes them for classes


@pytest.mark.parametrize("labels", [several(PATTERN), torch.rand(N)])
def test_no_classes_where_classes_are_needed(labels: Tensor) -> None:
    model = nn.Linear(6, 3)
    strict = Reminder(loss="logit+label", strength=1.0)
    for keep in (strict.remember, strict.observe):
        with pytest.raises(SelfReminderError, match='loss "logit\\+label" needs one class an item, and these'):
            keep(model, X, labels, per_task=5)
    with pytest.raises(SelfReminderError, match='select="gradient" needs one class an item'):
        Reminder().remember(model, X, labels, per_task=5, select="gradient")
    reminder = Reminder()
    reminder.remember(model, X, Y, per_class=4)
    with pytest.raises(SelfReminderError, match="new has no labels"):
        reminder.report(model, new=(X, labels))
