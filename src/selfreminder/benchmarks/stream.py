"""Streams of tasks: the benchmarks. A task's data is computed when it is first asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import overload

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks.color_spaces import SPACES, to_color_space
from selfreminder.data import Images
from selfreminder.selection.base import choose, count_per_class


@dataclass(frozen=True, eq=False)
class Split:
    """Labelled samples: x as the model takes it, y (n,) classes, and each item's head where they differ."""

    x: Tensor
    y: Tensor
    heads: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: Tensor) -> "Split":
        return Split(self.x[index], self.y[index], None if self.heads is None else self.heads[index])

    def to(self, device: torch.device | str) -> "Split":
        heads = None if self.heads is None else self.heads.to(device)
        return Split(self.x.to(device), self.y.to(device), heads)


@dataclass(frozen=True, eq=False)
class Parts:
    """The three parts of a data set before a task transforms them."""

    train: Split
    validation: Split
    test: Split

    def each(self, change: Callable[[Split], Split]) -> "Parts":
        return Parts(change(self.train), change(self.validation), change(self.test))


@dataclass(frozen=True, eq=False)
class Task:
    """One of a stream's tasks. `head` is its output head, where a model has several."""

    index: int
    name: str
    classes: int
    parts: Parts
    transform: Callable[[Tensor], Tensor] = lambda x: x
    head: int | None = None

    @cached_property
    def train(self) -> Split:
        return self._part(self.parts.train)

    @cached_property
    def validation(self) -> Split:
        return self._part(self.parts.validation)

    @cached_property
    def test(self) -> Split:
        return self._part(self.parts.test)

    def _part(self, part: Split) -> Split:
        return Split(self.transform(part.x), part.y)


class Stream(Sequence[Task]):
    """A sequence of tasks, each made anew when it is asked for: drop it, and its data is gone."""

    def __init__(self, heads: Sequence[int], make: Callable[[int], Task], *, length: int | None = None) -> None:
        """
        Args:
            heads: the number of classes of each output head that a model needs.
            make: the task of an index.
            length: how many tasks; as many as heads, unless they share one or the stream ends before.
        """
        self.heads, self._make = tuple(heads), make
        self._length = len(heads) if length is None else length
        if self._length < 1:
            raise SelfReminderError(f"a stream of {self._length} tasks: there must be one at least")

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> list[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | list[Task]:
        if isinstance(index, slice):
            return [self._make(i) for i in range(self._length)[index]]
        return self._make(range(self._length)[index])


# Parts ----------------------------------------------------------------------------------------------------


def image_parts(images: Images, *, seed: int, count: int | None = None, validation: float = 0.1) -> Parts:
    """Pixels divided by 255; a stratified part of the training images is validation.

    `count` takes a class-balanced subset of so many training images first.
    """
    labels = torch.from_numpy(images.train_y.astype(np.int64))
    index = torch.arange(len(labels))
    generator = torch.Generator().manual_seed(seed_for(seed, "parts"))
    if count is not None:
        if not 0 < count <= len(labels):
            raise SelfReminderError(f"{count} training images were asked for, the data has {len(labels)}")
        shuffled = torch.randperm(len(labels), generator=generator)
        index = choose(shuffled, labels, count_per_class(labels, total=count))
    kept, held = split_stratified(labels[index], validation, generator)
    if not len(held):
        raise SelfReminderError(f"{len(index)} training images leave none for validation: two of a class are the least")

    def part(x: np.ndarray, y: np.ndarray) -> Split:
        return Split(torch.from_numpy(x.astype(np.float32)).div_(255), torch.from_numpy(y.astype(np.int64)))

    def training(index: Tensor) -> Split:
        return part(images.train_x[index.numpy()], images.train_y[index.numpy()])

    return Parts(training(index[kept]), training(index[held]), part(images.test_x, images.test_y))


def flat_parts(images: Images, *, seed: int, count: int | None = None, validation: float = 0.1) -> Parts:
    """As `image_parts`, each image a row of pixels."""
    parts = image_parts(images, seed=seed, count=count, validation=validation)
    return parts.each(lambda split: Split(split.x.flatten(1), split.y))


def split_stratified(labels: Tensor, fraction: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Indices of the rest and of a random `fraction` of every class, one item at least of both where there are two."""
    ranked = torch.randperm(len(labels), generator=generator)
    rest, held = [], []
    for label in torch.unique(labels):
        members = ranked[labels[ranked] == label]
        cut = min(max(1, round(len(members) * fraction)), len(members) - 1)
        held.append(members[:cut])
        rest.append(members[cut:])
    return torch.cat(rest), torch.cat(held)


# Benchmarks -----------------------------------------------------------------------------------------------


def permuted(parts: Parts, *, tasks: int, seed: int, classes: int = 10) -> Stream:
    """Each task shuffles the pixels of all images in one fixed random order."""

    def make(index: int) -> Task:
        generator = torch.Generator().manual_seed(seed_for(seed, "permutation", index))
        order = torch.randperm(parts.train.x.shape[1], generator=generator)
        return Task(index, f"permutation {index + 1}", classes, parts, lambda x: x[:, order])

    return Stream((classes,), make, length=tasks)


def nonlinear(parts: Parts, *, tasks: int, seed: int, classes: int = 10) -> Stream:
    """Each task sends all images through a random invertible network, then scales them to [0, 1].

    Four layers of orthogonal weights without bias, each followed by a leaky ReLU of slope 0.2. One minimum and one
    maximum over the task's training images scale all of its images, so that the transform stays invertible; test
    images may leave [0, 1] a little.
    """

    scales: dict[int, tuple[Tensor, Tensor]] = {}
    """by task: its images go through the network once for that, however often the task is made"""

    def make(index: int) -> Task:
        @cache
        def weights() -> list[Tensor]:
            generator = torch.Generator().manual_seed(seed_for(seed, "transformer", index))
            return orthogonal_weights(parts.train.x.shape[1], layers=4, generator=generator)

        def transform(x: Tensor) -> Tensor:
            if index not in scales:
                scales[index] = through(parts.train.x, weights()).aminmax()
            low, high = scales[index]
            return (through(x, weights()) - low) / (high - low)

        return Task(index, f"network {index + 1}", classes, parts, transform)

    return Stream((classes,), make, length=tasks)


SLOPE = 0.2


def orthogonal_weights(units: int, *, layers: int, generator: torch.Generator) -> list[Tensor]:
    """Random orthogonal matrices, uniform by Haar's measure."""
    weights = []
    for _ in range(layers):
        q, r = torch.linalg.qr(torch.randn(units, units, generator=generator, dtype=torch.float64))
        weights.append((q * r.diagonal().sign()).float())
    return weights


def through(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """x (n, units) through the layers of `nonlinear`."""
    for weight in weights:
        x = F.leaky_relu(x @ weight.T, SLOPE)
    return x


def recoloured(parts: Parts, *, tasks: int = len(SPACES), classes: int = 10) -> Stream:
    """Each task has the images in another colour space: RGB, YIQ, YUV, HSV, HED, in this order."""
    if tasks > len(SPACES):
        raise SelfReminderError(f"{tasks} tasks were asked for, there are {len(SPACES)} colour spaces")

    def make(index: int) -> Task:
        space = SPACES[index]
        return Task(index, space, classes, parts, lambda x: to_color_space(x, space))

    return Stream((classes,), make, length=tasks)


def split(parts: Parts, *, tasks: int, seed: int, classes: int, learned: int | None = None) -> Stream:
    """Each task has classes of its own, in a partition that the seed draws, and a head of its own.

    With `learned` the stream ends after so many of them.
    """
    if classes % tasks:
        raise SelfReminderError(f"{classes} classes do not divide into {tasks} tasks of the same size")
    if classes == tasks:
        raise SelfReminderError(f"{tasks} tasks of {classes} classes have one each, with nothing to tell it from")
    order = torch.randperm(classes, generator=torch.Generator().manual_seed(seed_for(seed, "partition")))
    groups = order.reshape(tasks, -1).sort(1).values
    for index, group in enumerate(groups):
        if not torch.isin(parts.validation.y, group).any():
            raise SelfReminderError(f"task {index + 1} has no validation images: take more images, or fewer tasks")

    def make(index: int) -> Task:
        group = groups[index]

        def own(part: Split) -> Split:
            rows = torch.isin(part.y, group).nonzero().flatten()
            return Split(part.x[rows], torch.searchsorted(group, part.y[rows]))

        name = "classes " + ", ".join(map(str, group.tolist()))
        return Task(index, name, len(group), parts.each(own), head=index)

    return Stream((len(groups[0]),) * tasks, make, length=learned)


def mixture(sets: Sequence[tuple[str, int, Parts]], *, seed: int) -> Stream:
    """Each task is a data set (name, classes, parts), in an order that the seed draws, with a head of its own.

    All images become 32×32 RGB: grey ones are padded by two pixels and repeated in each colour.
    """
    order = torch.randperm(len(sets), generator=torch.Generator().manual_seed(seed_for(seed, "order of sets")))
    ordered = [sets[i] for i in order.tolist()]

    def make(index: int) -> Task:
        name, classes, parts = ordered[index]
        return Task(index, name, classes, parts, _as_rgb, head=index)

    return Stream([classes for _, classes, _ in ordered], make)


def _as_rgb(x: Tensor) -> Tensor:
    return x if x.ndim == 4 else F.pad(x, (2, 2, 2, 2))[:, None].expand(-1, 3, -1, -1).contiguous()
