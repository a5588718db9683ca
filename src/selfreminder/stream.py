"""Streams of tasks: the benchmarks. A task's data is computed when it is first asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
import torch
from torch import Tensor

from selfreminder.data import Images
from selfreminder.errors import SelfReminderError
from selfreminder.seeds import seed_for
from selfreminder.selection import choose, random


@dataclass(frozen=True, eq=False)
class Split:
    """Labelled samples: x as the model takes it, y (n,) classes."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: Tensor) -> "Split":
        return Split(self.x[index], self.y[index])

    def to(self, device: torch.device | str) -> "Split":
        return Split(self.x.to(device), self.y.to(device))


@dataclass(frozen=True, eq=False)
class Parts:
    """The three parts of a data set before a task transforms them."""

    train: Split
    validation: Split
    test: Split


@dataclass(frozen=True, eq=False)
class Task:
    """One of a stream's tasks. `head` is its output head, where a model has several."""

    index: int
    name: str
    classes: int
    parts: Parts
    transform: Callable[[Tensor], Tensor]
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

    def __init__(self, length: int, make: Callable[[int], Task]) -> None:
        if length < 1:
            raise SelfReminderError(f"a stream of {length} tasks: there must be one at least")
        self._length, self._make = length, make

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


def flat_parts(images: Images, *, seed: int, count: int | None = None, validation: float = 0.1) -> Parts:
    """Images as rows of pixels divided by 255; a stratified part of the training images is validation.

    `count` takes a class-balanced subset of so many training images first.
    """
    train = Split(_pixels(images.train_x), torch.from_numpy(images.train_y.astype(np.int64)))
    test = Split(_pixels(images.test_x), torch.from_numpy(images.test_y.astype(np.int64)))
    generator = torch.Generator().manual_seed(seed_for(seed, "parts"))
    if count is not None:
        if not 0 < count <= len(train):
            raise SelfReminderError(f"{count} training images were asked for, the data has {len(train)}")
        train = train.take(choose(random(train.y, generator), train.y, total=count))
    kept, held = split_stratified(train.y, validation, generator)
    return Parts(train.take(kept), train.take(held), test)


def split_stratified(labels: Tensor, fraction: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Indices of the rest and of a random `fraction` of every class."""
    ranked = random(labels, generator)
    rest, held = [], []
    for label in torch.unique(labels):
        members = ranked[labels[ranked] == label]
        cut = round(len(members) * fraction)
        held.append(members[:cut])
        rest.append(members[cut:])
    return torch.cat(rest), torch.cat(held)


def permuted(parts: Parts, *, tasks: int, seed: int, classes: int = 10) -> Stream:
    """Permuted MNIST: each task shuffles the pixels of all images in one fixed random order."""

    def make(index: int) -> Task:
        generator = torch.Generator().manual_seed(seed_for(seed, "permutation", index))
        order = torch.randperm(parts.train.x.shape[1], generator=generator)
        return Task(index, f"permutation {index + 1}", classes, parts, lambda x: x[:, order])

    return Stream(tasks, make)


def _pixels(images: np.ndarray) -> Tensor:
    return torch.from_numpy(images.reshape(len(images), -1).astype(np.float32)).div_(255)
