import gc
from collections import Counter, namedtuple
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, Subset, TensorDataset
from transformers import BatchEncoding

from selfreminder._base.errors import SelfReminderError
from selfreminder.samples import Limit, Samples, read_samples
from selfreminder.selection.base import count_per_class

N = 600
"""more than two batches"""
X = torch.arange(N * 6.0).reshape(N, 2, 3) / 7
IDS = torch.arange(N * 4).reshape(N, 4)
MASK = torch.arange(N * 4).reshape(N, 4) % 3
Y = torch.arange(N) % 5
WORDS = [f"word {i}" for i in range(N)]


class Items(Dataset[Any]):
    """A data set of whatever a function gives for an index."""

    def __init__(self, item: Callable[[int], Any], length: int = N) -> None:
        self.item, self.length = item, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.item(index)


class Stream(IterableDataset[Any]):
    def __init__(self, item: Callable[[int], Any], length: int = N) -> None:
        self.item, self.length = item, length

    def __iter__(self) -> Iterator[Any]:
        return map(self.item, range(self.length))


def limit(seed: int = 0, **size: Any) -> Limit:
    return Limit(generator=torch.Generator().manual_seed(seed), **size)


def same(samples: Samples, inputs: dict[str, Tensor], labels: Tensor | None) -> bool:
    assert samples.inputs.keys() == inputs.keys()
    assert torch.equal(samples.sources, torch.arange(len(samples)))
    assert (samples.labels is None) == (labels is None)
    right = [(samples.inputs[name], x) for name, x in inputs.items()]
    right += [] if labels is None or samples.labels is None else [(samples.labels, labels)]
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in right)


# Every kind gives the same tensors ------------------------------------------------------------------------

Pair = namedtuple("Pair", ["image", "target"])

ONE = {
    "tensor": (X, Y),
    "array": (X.numpy(), Y.numpy()),
    "labels in a list": (X, Y.tolist()),
    "labels of eight bits": (X, Y.to(torch.uint8)),
    "a tuple of one": ((X,), Y),
    "data set": (TensorDataset(X, Y), None),
    "inputs only": (TensorDataset(X), Y),
    "inputs without a tuple": (Items(lambda i: X[i]), Y),
    "arrays": (Items(lambda i: (X[i].numpy(), Y[i].numpy())), None),
    "numbers": (Items(lambda i: (X[i].tolist(), int(Y[i]))), None),
    "named tuples": (Items(lambda i: Pair(X[i], np.int64(Y[i]))), None),
    "subset": (Subset(TensorDataset(torch.cat([X, X]), torch.cat([Y, Y])), range(N)), None),
    "pairs": ([(X[i], int(Y[i])) for i in range(N)], None),
    "stream": (Stream(lambda i: (X[i], int(Y[i]))), None),
    "loader": (DataLoader(TensorDataset(X, Y), batch_size=7), None),
    "loader of inputs only": (DataLoader(Items(lambda i: X[i]), batch_size=100), Y),
    "loader of a tuple of inputs": (DataLoader(TensorDataset(X), batch_size=N), Y),
    "loader of a stream": (DataLoader(Stream(lambda i: X[i]), batch_size=9), Y),
    "loader without batches": (DataLoader(Items(lambda i: (X[i : i + 1], Y[i : i + 1])), batch_size=None), None),
}


@pytest.mark.parametrize("kind", ONE)
def test_one_input(kind: str) -> None:
    assert same(read_samples(*ONE[kind]), {"x": X}, Y)


BY_NAME = {"input_ids": IDS, "attention_mask": MASK}
FACE = datasets.Dataset.from_dict(
    {"input_ids": IDS.tolist(), "attention_mask": MASK.tolist(), "text": WORDS, "label": Y.tolist()}
)


def item(i: int) -> dict[str, Tensor]:
    return {"input_ids": IDS[i], "attention_mask": MASK[i]}


NAMED = {
    "dict": (BY_NAME, Y),
    "dict with labels": (BY_NAME | {"labels": Y}, None),
    "dict with labels that others replace": (BY_NAME | {"labels": IDS}, Y),
    "dict with a name for labels": (BY_NAME | {"kind": Y}, "kind"),
    "dict of lists": ({"input_ids": list(IDS), "attention_mask": MASK.tolist(), "text": WORDS}, Y),
    "what a tokenizer gives": (BatchEncoding({"input_ids": IDS.tolist(), "attention_mask": MASK}), Y),
    "data set": (Items(lambda i: item(i) | {"label": Y[i]}), None),
    "data set with a name for labels": (Items(lambda i: item(i) | {"kind": Y[i]}), "kind"),
    "data set with text": (Items(lambda i: item(i) | {"labels": int(Y[i]), "text": WORDS[i], "words": ["a"]}), None),
    "pairs": ([(item(i), Y[i]) for i in range(N)], None),
    "items": ([item(i) | {"labels": Y[i]} for i in range(N)], None),
    "loader": (DataLoader(Items(lambda i: item(i) | {"labels": Y[i], "text": WORDS[i]}), batch_size=50), None),
    "loader of pairs": (DataLoader(Items(lambda i: (item(i), int(Y[i]))), batch_size=50), None),
    "hugging face": (FACE, None),
    "hugging face, torch": (FACE.with_format("torch"), None),
    "hugging face, numpy": (FACE.with_format("numpy"), None),
    "hugging face, some columns": (FACE.with_format(None, columns=["input_ids", "attention_mask", "label"]), None),
    "hugging face, a transform": (FACE.with_transform(lambda batch: {k: batch[k] for k in batch}), None),
    "hugging face, labels beside": (FACE.remove_columns("label"), FACE["label"]),
    "hugging face, a name for labels": (FACE.rename_column("label", "kind"), "kind"),
    "hugging face, streamed": (FACE.to_iterable_dataset(), None),
    "hugging face, in a loader": (DataLoader(FACE.with_format("torch"), batch_size=32), None),
}


@pytest.mark.parametrize("kind", NAMED)
def test_inputs_by_name(kind: str) -> None:
    assert same(read_samples(*NAMED[kind]), BY_NAME, Y)


IN_ORDER = {
    "tuple": ((IDS, MASK), Y),
    "list of arrays": ([IDS.numpy(), MASK.numpy()], Y),
    "data set": (TensorDataset(IDS, MASK, Y), None),
    "data set without labels": (TensorDataset(IDS, MASK), Y),
    "nested": (Items(lambda i: ((IDS[i], MASK[i]), Y[i])), None),
    "loader": (DataLoader(TensorDataset(IDS, MASK, Y), batch_size=32), None),
    "loader of nested": (DataLoader(Items(lambda i: ((IDS[i], MASK[i]), Y[i])), batch_size=32), None),
    "loader without labels": (DataLoader(TensorDataset(IDS, MASK), batch_size=32), Y),
}


@pytest.mark.parametrize("kind", IN_ORDER)
def test_inputs_in_order(kind: str) -> None:
    assert same(read_samples(*IN_ORDER[kind]), {"0": IDS, "1": MASK}, Y)


@pytest.mark.parametrize("data", [X, (X,), TensorDataset(X), DataLoader(TensorDataset(X)), [(x,) for x in X]])
def test_without_labels(data: Any) -> None:
    assert same(read_samples(data), {"x": X}, None)


def test_images_of_hugging_face() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 3), dtype=np.uint8)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    data = datasets.Dataset.from_dict({"image": list(pictures), "label": [0, 1, 1]}, features=features)
    expected = torch.from_numpy(pictures).permute(0, 3, 1, 2)
    assert same(read_samples(data), {"image": expected}, torch.tensor([0, 1, 1]))


def test_plain_tensors_are_not_copied() -> None:
    assert read_samples(X).inputs["x"] is X
    labels = read_samples({"a": X}, Y).labels
    assert labels is not None
    assert labels.data_ptr() == Y.data_ptr()
    array = X.numpy()
    assert read_samples(array).inputs["x"].data_ptr() == array.ctypes.data
    array = array.copy()
    array.flags.writeable = False  # as of a file that is mapped
    assert read_samples(array).inputs["x"].data_ptr() == array.ctypes.data


def test_other_devices_and_gradients_are_left_behind() -> None:
    weights = torch.ones(3, requires_grad=True)
    samples = read_samples(Items(lambda i: (X[i] * weights, Y[i])))
    assert not samples.inputs["x"].requires_grad
    meta = DataLoader(
        Items(lambda i: (X[i], Y[i]), 4), batch_size=2, collate_fn=lambda items: torch.ones(2, device="meta")
    )
    with pytest.raises(NotImplementedError, match="meta"):  # the one other device that is everywhere cannot be copied
        read_samples(meta)


def test_torch_random_numbers_are_left_alone() -> None:
    before = torch.get_rng_state()
    read_samples(
        DataLoader(Items(lambda i: (X[i] + torch.rand(()), Y[i])), batch_size=8, shuffle=True), limit=limit(per_class=2)
    )
    assert torch.equal(torch.get_rng_state(), before)


# The reservoir --------------------------------------------------------------------------------------------

LABELS = st.lists(st.integers(-1, 5), min_size=1, max_size=60).map(torch.tensor)


def rows(y: Tensor) -> Dataset[Any]:
    return TensorDataset(torch.arange(len(y)).float(), y)


@given(LABELS, st.integers(1, 12), st.integers(1, 9), st.integers(0, 99))
def test_so_many_of_each_class(y: Tensor, per_class: int, batch: int, seed: int) -> None:
    samples = read_samples(rows(y), limit=limit(seed, per_class=per_class))
    assert samples.labels is not None
    assert Counter(samples.labels.tolist()) == {c: min(per_class, n) for c, n in Counter(y.tolist()).items()}
    assert torch.equal(samples.inputs["x"], samples.sources.float())
    assert torch.equal(samples.labels, y[samples.sources])
    assert bool((samples.sources.diff() > 0).all())
    again = read_samples(DataLoader(rows(y), batch_size=batch), limit=limit(seed, per_class=per_class))
    assert torch.equal(again.sources, samples.sources)  # whatever the batches are


@given(LABELS, st.integers(1, 80), st.integers(1, 9), st.integers(0, 99))
def test_enough_for_a_total(y: Tensor, total: int, batch: int, seed: int) -> None:
    """What is kept can be shared out as all could have been, and is hardly more."""
    samples = read_samples(rows(y), limit=limit(seed, total=total))
    assert samples.labels is not None
    assert torch.equal(samples.labels, y[samples.sources])
    fits = min(total, len(y))
    assert count_per_class(samples.labels, total=fits) == count_per_class(y, total=fits)
    assert len(samples) < total + len(y.unique())
    again = read_samples(DataLoader(rows(y), batch_size=batch), limit=limit(seed, total=total))
    assert torch.equal(again.sources, samples.sources)


def test_a_total_by_the_size_of_an_item() -> None:
    asked = []

    def total(inputs: dict[str, Tensor]) -> int:
        asked.append(inputs["x"].shape[1:])
        return 100 // inputs["x"][0].nbytes

    assert len(read_samples(TensorDataset(X, Y * 0), limit=limit(total=total))) == 4
    assert (
        len(read_samples(TensorDataset(X, Y * 0), limit=limit(total=lambda _: 0))) == 1
    )  # something, to tell what it needs
    assert asked == [X.shape[1:]]


CRITICAL = {5: 20.5, 9: 27.9, 14: 36.1}
"""χ² that a fair choice exceeds once in a thousand, by degrees of freedom"""


@pytest.mark.parametrize("size", [{"per_class": 2}, {"total": 5}])
def test_every_choice_has_the_same_chance(size: dict[str, int]) -> None:
    """Of 6 and of 5 items of two classes, each pair is kept as often as any other; the third class has one item."""
    y = torch.tensor([0, 1, 0, 0, 1, 2, 1, 1, 0, 0, 1, 0])
    loader, runs = DataLoader(rows(y), batch_size=5), 2000
    seen = Counter[tuple[int, tuple[int, ...]]]()
    for seed in range(runs):
        samples = read_samples(loader, limit=limit(seed, **size))
        for label in (0, 1):
            seen[label, tuple(samples.sources[samples.labels == label].tolist())] += 1
    for label in (0, 1):
        pairs = list(combinations((y == label).nonzero().flatten().tolist(), 2))
        expected = runs / len(pairs)
        assert sum(seen[label, pair] for pair in pairs) == runs
        assert sum((seen[label, pair] - expected) ** 2 / expected for pair in pairs) < CRITICAL[len(pairs) - 1]


def test_classes_are_predicted_where_there_are_no_labels() -> None:
    batches = []

    def predict(inputs: dict[str, Tensor]) -> Tensor:
        batches.append(len(inputs["x"]))
        return inputs["x"][:, 0, 0].mul(7).long() // 6 % 3

    samples = read_samples(TensorDataset(X), limit=limit(per_class=4), predict=predict)
    assert samples.labels is None
    assert (samples.sources % 3).bincount().tolist() == [4, 4, 4]
    assert torch.equal(samples.inputs["x"], X[samples.sources])
    assert batches == [256, 256, 88]
    assert len(read_samples(TensorDataset(X), limit=limit(per_class=4))) == 4  # one class


WIDTH = 61
"""of an item, and of no other tensor"""


def rows_alive() -> int:
    alive = (t for t in gc.get_objects() if issubclass(type(t), Tensor) and t.ndim and t.shape[-1] == WIDTH)
    storages = {s.data_ptr(): s.nbytes() for s in (t.untyped_storage() for t in alive)}
    return sum(storages.values()) // (4 * WIDTH)


@pytest.fixture
def only_new_objects() -> Iterator[None]:
    """What is there already is not looked through."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("only_new_objects")
@pytest.mark.parametrize("size", [{"per_class": 20}, {"total": 100}])
@pytest.mark.parametrize("loader", [False, True])
def test_memory_does_not_grow_with_the_data(size: dict[str, int], loader: bool) -> None:
    def counted(length: int) -> int:
        alive = [0]

        def item(i: int) -> tuple[Tensor, int]:
            if i % 250 == 249:
                alive.append(rows_alive())
            return torch.full((WIDTH,), float(i)), i % 5

        data = Items(item, length)
        samples = read_samples(DataLoader(data, batch_size=128) if loader else data, limit=limit(**size))
        assert len(samples) == 100
        return max(alive)

    most = [counted(length) for length in (2000, 8000)]
    batches = 2 * 2 * 256  # this one and the last, each as items and as a batch
    assert 100 <= most[0] <= most[1] <= 100 + batches
    assert rows_alive() == 0


# Errors ---------------------------------------------------------------------------------------------------

ONE_LABEL = "a reminder works for classifiers with one label an item"
RAGGED = datasets.Dataset.from_dict({"input_ids": [[1, 2], [3, 4, 5]], "label": [0, 1]})


def widths(i: int) -> tuple[Tensor, int]:
    return torch.zeros(3, 4 if i < 400 else 5), 0


ERRORS = {
    "a tensor of none": (X[:0], None, "there is nothing to remember: the data is empty"),
    "a list of none": ([], None, "there is nothing to remember"),
    "a dict of none": ({}, None, "there is nothing to remember"),
    "a dict of empty lists": ({"input_ids": []}, None, "there is nothing to remember"),
    "a data set of none": (Items(widths, 0), None, "there is nothing to remember"),
    "a stream of none": (Stream(widths, 0), None, "there is nothing to remember"),
    "a loader of none": (DataLoader(Items(widths, 0)), None, "there is nothing to remember"),
    "hugging face with none": (
        datasets.Dataset.from_dict({"x": [], "label": []}),
        None,
        "there is nothing to remember",
    ),
    "a number": (5, None, "or a Hugging Face dataset, not a int"),
    "text": ("train.csv", None, "not a str"),
    "a list of lists": ([[1.0, 2.0], [3.0, 4.0]], None, "not a list of list"),
    "a generator": (((x, 0) for x in X), None, "not a generator"),
    "a data set without a length": (Dataset(), None, "a Dataset with a length.*not a Dataset"),
    "splits": (datasets.DatasetDict(train=FACE), None, "'train' is a Dataset, not a tensor"),
    "one number": (torch.tensor(1.0), None, "'x': a single number"),
    "lengths": ((X, IDS[:9]), None, "not of one length: '0' 600, '1' 9"),
    "words": (np.array(WORDS), None, "only text, in 'x': tokenise it"),
    "words of hugging face": (FACE.select_columns(["text", "label"]), None, "only text, in 'text': tokenise it"),
    "objects": (np.array([None, 1]), None, "'x' is a numpy array that torch does not take"),
    "pictures": (Items(lambda i: (Image.new("RGB", (2, 2)), 0)), None, "'x' is a Image, not a tensor"),
    "nothing in an item": (Items(lambda i: (None, 0)), None, "'x' is a NoneType, not a tensor"),
    "a list of tensors in an item": (Items(lambda i: {"x": [X[i], X[i]]}), None, "'x' is a list, not a tensor"),
    "structures": (datasets.Dataset.from_dict({"box": [{"w": 1}]}), None, "'box' is a dict, not a tensor"),
    "lists in a loader": (DataLoader(FACE), None, r"'input_ids' is a list, not a tensor: .*set_format\('torch'\)"),
    "ragged": (RAGGED, None, r"'input_ids' have different shapes, such as \(2,\) and \(3,\): pad"),
    "ragged, torch": (RAGGED.with_format("torch"), None, "'input_ids' have different shapes"),
    "ragged lists": ({"input_ids": [[1, 2], [3]]}, None, "'input_ids' have different shapes"),
    "sizes": (Items(widths), None, r"'x' have different shapes, such as \(3, 4\) and \(3, 5\): .* resize"),
    "sizes of arrays": ([(np.zeros(2), 0), (np.zeros(3), 0)], None, r"such as \(2,\) and \(3,\)"),
    "sizes of batches": (DataLoader(Items(widths), batch_size=100), None, r"such as \(3, 4\) and \(3, 5\)"),
    "names": ([{"a": X[0]}, {"b": X[0]}], None, "the same parts: some have 'a', some 'b'"),
    "names of batches": (
        Stream(lambda i: {"a" if i < 256 else "b": 1}),
        None,
        "the same parts: some have 'a', some 'b'",
    ),
    "labels for some": ([(X[0], 1), (X[0],)], None, "some have 'x', 'labels', some 'x'"),
    "float labels": (X, Y.float(), f"float32 of shape \\(600,\\): {ONE_LABEL}"),
    "scores as labels": (X, torch.eye(5)[Y] / 2, f"float32 of shape \\(600, 5\\): {ONE_LABEL}.*argmax\\(1\\)"),
    "labels of tokens": (BY_NAME | {"labels": IDS}, None, ONE_LABEL),
    "labels of tokens in items": (Items(lambda i: item(i) | {"labels": IDS[i]}), None, ONE_LABEL),
    "labels of some tokens": (Items(lambda i: item(i) | {"labels": IDS[i, : 1 + i % 3]}), None, ONE_LABEL),
    "labels in lists": (Items(lambda i: (X[i], [0, 2])), None, ONE_LABEL),
    "one float": (Items(lambda i: (X[i], 1.0)), None, ONE_LABEL),
    "a label for all": (X, 5, ONE_LABEL),
    "labels of hugging face": (RAGGED.rename_columns({"input_ids": "labels", "label": "x"}), None, ONE_LABEL),
    "labels in words": (Items(lambda i: (X[i], "cat")), None, "the labels are text: number the classes"),
    "an array of words": (X, np.array(WORDS), "the labels are text"),
    "labels in words of hugging face": (FACE.remove_columns("label"), FACE["text"], "class_encode_column"),
    "too few labels": (X, Y[:9], "600 inputs, but 9 labels"),
    "no labels": (X, [], "600 inputs, but 0 labels"),
    "too few labels for a data set": (TensorDataset(X), Y[:300], "more inputs than the 300 labels"),
    "too many labels for a data set": (TensorDataset(X), torch.cat([Y, Y]), "600 inputs, but 1200 labels"),
    "labels of a batch": (DataLoader([0], collate_fn=lambda _: (X, Y[:3])), None, "600 inputs, but 3 labels"),
    "labels of another order": (DataLoader(TensorDataset(X), shuffle=True), Y, "changes the order: give its dataset"),
    "labels of an order within": (
        DataLoader(TensorDataset(X), batch_sampler=BatchSampler(RandomSampler(X), 9, False)),
        Y,
        "changes the order",
    ),
    "a name that nobody has": (BY_NAME | {"kind": Y}, "kinds", "unknown key of labels 'kinds': did you mean 'kind'"),
    "a name for a tensor": (X, "kind", "labels='kind' is the name of a key, but the data has no keys"),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_errors(kind: str) -> None:
    data, labels, message = ERRORS[kind]
    for kept in (None, limit(per_class=2)):
        with pytest.raises(SelfReminderError, match=message):
            read_samples(data, labels, limit=kept)
