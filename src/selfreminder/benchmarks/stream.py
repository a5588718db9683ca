"""Streams of tasks, and what benchmarks share to make them. A task's data is computed when it is first asked for."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks import SCENARIOS
from selfreminder.data import Images, load
from selfreminder.selection.base import choose, count_per_class

_DIGESTED = 100
"""items of a part, about, by which streams are told apart"""

Augment = Callable[[Tensor, torch.Generator], Tensor]
Pair = tuple[Any, Any] | Dataset[Any]
"""inputs and labels: tensors, arrays or lists; or a data set that gives one of each"""


@dataclass(frozen=True, eq=False)
class Split:
    """Labelled samples: x as the model takes it, y (n,) classes, and each item's head where they differ."""

    x: Tensor
    y: Tensor
    heads: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: Tensor) -> "Split":
        """Take the samples of an index."""
        return Split(self.x[index], self.y[index], None if self.heads is None else self.heads[index])

    def to(self, device: torch.device | str) -> "Split":
        """Move all samples to a device."""
        heads = None if self.heads is None else self.heads.to(device)
        return Split(self.x.to(device), self.y.to(device), heads)


@dataclass(frozen=True, eq=False)
class Parts:
    """The three parts of a data set before a task transforms them."""

    train: Split
    validation: Split
    test: Split

    def each(self, change: Callable[[Split], Split]) -> "Parts":
        """Apply a change to every part."""
        return Parts(change(self.train), change(self.validation), change(self.test))

    def flatten(self) -> "Parts":
        """Make every image a row of pixels."""
        return self.each(lambda split: Split(split.x.flatten(1), split.y))


@dataclass(frozen=True, eq=False)
class Task:
    """One of a stream's tasks."""

    index: int
    name: str
    classes: int
    """how many it has; of a single head that grows: how many come with it"""
    parts: Parts
    transform: Callable[[Tensor], Tensor] = lambda x: x
    head: int | None = None
    """its output head, where a model has several"""
    outputs: int | None = None
    """of a single head that grows: the classes so far, among which a prediction chooses; None: all"""
    augment: Augment | None = None
    """changes a batch of training inputs, drawing from a generator that is the step's own"""

    @cached_property
    def train(self) -> Split:
        return self._part(self.parts.train)

    @cached_property
    def validation(self) -> Split:
        return self._part(self.parts.validation)

    @cached_property
    def test(self) -> Split:
        return self._part(self.parts.test)

    def without_training_data(self) -> "Task":
        """Give the task as an evaluation needs it, its data computed."""
        parts = Parts(self.parts.train.take(torch.arange(0)), self.validation, self.test)
        return Task(self.index, self.name, self.classes, parts, head=self.head, outputs=self.outputs)

    def _part(self, part: Split) -> Split:
        return Split(self.transform(part.x), part.y)


class Stream(Sequence[Task]):
    """A sequence of tasks, each made anew when it is asked for: drop it, and its data is gone.

    Args:
        heads: the number of classes of each output head that a model needs.
        make: makes the task of an index.
        length: how many tasks; as many as heads, unless they share one or the stream ends before.

    >>> digits = Split(torch.rand(6, 4), torch.tensor([0, 1, 0, 1, 0, 1]))
    >>> parts = Parts(digits, digits, digits)
    >>> stream = Stream((2,), lambda index: Task(index, f"plus {index}", 2, parts, lambda x: x + index), length=3)
    >>> len(stream), stream[2].name, stream[2].train.x.shape
    (3, 'plus 2', torch.Size([6, 4]))
    """

    def __init__(self, heads: Sequence[int], make: Callable[[int], Task], *, length: int | None = None) -> None:
        self.heads, self._make = tuple(heads), make
        self._length = len(heads) if length is None else length
        if self._length < 1:
            raise SelfReminderError(f"a stream of {self._length} tasks: there must be one at least")

    def each(self, change: Callable[[Task], Task]) -> "Stream":
        """Give the same stream with every task changed."""
        return Stream(self.heads, lambda index: change(self[index]), length=self._length)

    @classmethod
    def of(
        cls,
        tasks: Sequence[Pair | tuple[Pair, Pair]],
        *,
        scenario: str = "domain",
        names: Sequence[str] | None = None,
        test: float = 0.2,
        validation: float = 0.1,
        seed: int = 0,
    ) -> "Stream":
        """Make a stream of tensors or arrays of your own.

        Args:
            tasks: of each, inputs as the model takes them and labels: (x, y), or ((x, y), (x, y)) with a test part. A
                data set of such pairs may be in the place of (x, y).
            scenario: that of the experiment. In a domain all tasks have the same classes; for class, they are numbered
                as they come.
            names: of the tasks.
            test: the share of a task without a test part that becomes one.
            validation: the share of the rest that is held out.
            seed: draws what is held out.

        >>> x, y = torch.rand(40, 4), torch.arange(40) % 2
        >>> stream = Stream.of([(x, y), (x + 1, y)])
        >>> len(stream), stream.heads, len(stream[1].train), len(stream[1].test)
        (2, (2,), 28, 8)
        """
        tasks = list(tasks)
        said = [f"task {index + 1}" for index in range(len(tasks))] if names is None else list(names)
        _check_names(said, len(tasks))
        made = [_parts_of(said[index], index, task, test, validation, seed) for index, task in enumerate(tasks)]
        _check_shapes(said, made)
        own = [torch.cat([part.y for part in vars(parts).values()]).unique() for parts in made]
        so_far = list(accumulate((1 + int(each.max()) for each in own), max))
        for name, present, before in zip(said, own, [0, *so_far]):
            _check_classes(name, present, before, so_far[-1], scenario)
        if scenario == "task":  # each head has its own classes from 0 on
            made = [parts.each(partial(_number_from_0, each)) for parts, each in zip(made, own)]

        def make(index: int) -> Task:
            alone, grows = scenario == "task", scenario == "class"
            count = len(own[index]) if alone else so_far[-1]
            if grows:
                count = so_far[index] - (so_far[index - 1] if index else 0)
            parts, head = made[index], index if alone else None
            return Task(index, said[index], count, parts, head=head, outputs=so_far[index] if grows else None)

        return cls(tuple(map(len, own)) if scenario == "task" else (so_far[-1],), make, length=len(made))

    def __len__(self) -> int:
        return self._length

    def digest(self) -> str:
        """Tell streams apart: by their tasks' names, sizes, labels, and some of their inputs."""
        found = hashlib.sha256(repr((self.heads, len(self))).encode())
        for task in self:
            for part in (task.parts.train, task.parts.test):
                found.update(repr((task.name, task.head, tuple(part.x.shape))).encode())
                some = task.transform(part.x[:: max(1, len(part) // _DIGESTED)])
                for tensor in (part.y, some):
                    found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return found.hexdigest()[:12]

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> list[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | list[Task]:
        if isinstance(index, slice):
            return [self._make(i) for i in range(self._length)[index]]
        return self._make(range(self._length)[index])


def _check_names(names: Sequence[str], tasks: int) -> None:
    if not tasks:
        raise SelfReminderError("a stream of no tasks: give one at least")
    if len(names) != tasks:
        raise SelfReminderError(f"there are {len(names)} names for {tasks} tasks: give each one")
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise SelfReminderError(f"two tasks have the name '{twice[0]}': give each one of its own")


def _check_shapes(names: Sequence[str], made: Sequence[Parts]) -> None:
    """Raise unless all inputs have one shape: there is one model for them."""
    first = tuple(made[0].train.x.shape[1:])
    for name, parts in zip(names, made):
        for part in (parts.train, parts.test):
            if (shape := tuple(part.x.shape[1:])) != first:
                raise SelfReminderError(
                    f"an input of {names[0]} has the shape {first}, one of {name} {shape}: give all the same shape"
                )


def _check_classes(name: str, present: Tensor, before: int, count: int, scenario: str) -> None:
    """Raise unless a task has the classes that a scenario asks for; `before` it were so many, of `count`."""
    if scenario not in SCENARIOS:
        raise unknown("scenario", scenario, SCENARIOS)
    if scenario != "task" and int(present.min()) < 0:
        raise SelfReminderError(f"{name} has the label {int(present.min())}: classes are numbered from 0 on")
    if scenario == "domain" and len(present) < count:
        lacking = min({*range(count)} - {*present.tolist()})
        raise SelfReminderError(
            f"{name} has no class {lacking}: tasks of a domain have the same classes; choose scenario='class'"
        )
    if scenario == "class" and {*range(before, int(present.max()) + 1)} - {*present.tolist()}:
        raise SelfReminderError(
            f"{name} has the classes {present.tolist()}: number classes as they come, here from {before} on"
        )


def _number_from_0(own: Tensor, part: Split) -> Split:
    return Split(part.x, torch.searchsorted(own, part.y))


def _read_pair(name: str, given: Any) -> Split:
    """Read (x, y) of tensors, arrays or lists, or a data set of such pairs."""
    if isinstance(given, Dataset):
        given = _collect(name, given)
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise SelfReminderError(
            f"{name} is a {type(given).__name__}: give (x, y), or ((x, y), (x, y)) with a test part, or a data set of "
            "such pairs"
        )
    x = _as_tensor(given[0], f"{name}: inputs are numbers (n, …), as a tensor or an array")
    wanted = f"{name}: labels are whole numbers (n,), one for each of the n inputs"
    y = _as_tensor(given[1], wanted)
    if not x.ndim or y.ndim != 1 or y.dtype.is_floating_point or len(x) != len(y) or not len(y):
        raise SelfReminderError(wanted)
    if x.is_floating_point():
        x = x.float()  # as weights are; arrays are mostly float64
        if not (fine := x.isfinite()[:, None].flatten(1).all(1)).all():
            place = int(fine.logical_not().nonzero()[0])
            raise SelfReminderError(f"{name}: input {place} is not finite (NaN or inf): leave it out, or fill it in")
    return Split(x, y.long())


def _collect(name: str, given: Any) -> Any:
    """Collect the items of a data set into inputs and labels."""
    try:
        return default_collate([given[place] for place in range(len(given))])
    except Exception as error:  # a data set of the user's can raise anything
        said = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise SelfReminderError(
            f"{name}: its data set gives no (x, y) tensors of one shape for 0 … len - 1: {said}"
        ) from error


def _as_tensor(given: Any, wanted: str) -> Tensor:
    try:
        return given if isinstance(given, Tensor) else torch.from_numpy(np.array(given))
    except (TypeError, ValueError, RuntimeError) as error:
        said = str(error).partition("\n")[0]
        raise SelfReminderError(f"{wanted} ({said})") from None


def _parts_of(name: str, index: int, task: Any, test: float, validation: float, seed: int) -> Parts:
    parts = task if isinstance(task, tuple | list) and len(task) <= 2 else ()
    several = len(parts) > 0 and all(isinstance(each, tuple | Dataset) for each in parts)
    whole, *apart = (_read_pair(name, each) for each in (parts if several else (task,)))
    if apart:
        rest, tested = whole, apart[0]
    else:
        kept, held = split_stratified(whole.y, test, torch.Generator().manual_seed(index))
        rest, tested = whole.take(kept), whole.take(held)
    generator = torch.Generator().manual_seed(seed_for(seed, "parts", index))
    kept, held = split_stratified(rest.y, validation, generator)
    if not len(held) or not len(tested):
        raise SelfReminderError(f"{name} has too few items: three of a class are the least")
    return Parts(rest.take(kept), rest.take(held), tested)


@dataclass(frozen=True, kw_only=True)
class StreamSpec:
    """What a benchmark makes a stream of. Equal specs give equal streams."""

    data: str
    """the data set, or several with + between them"""
    tasks: int
    """how many are learned"""
    seed: int = 0
    images: int | None = None
    """a class-balanced part of the training images; None: all"""
    reading: str = ""
    """JSON of how the user's own data is read"""
    split_into: int | None = None
    """where classes are split: into so many tasks, of which the first are learned; None: as many as are learned"""
    validation: float = 0.1
    """share of the training images held out"""
    scenario: str | None = None
    """see `selfreminder.benchmarks.SCENARIOS`; None: the benchmark's own"""
    test_after: bool = False
    """test parts are the last items of their tasks, where items have times"""
    hed: str = "today"
    """which HED, where there is a task of that: today's of scikit-image, or that of 2018"""
    data_dir: str | os.PathLike[str] | None = None
    """a folder with data files, looked at first"""

    def load_parts(self, name: str | None = None) -> tuple[Parts, int]:
        """Load the parts of a data set, by default the only one, and its number of classes."""
        images = load(name or self.data, self.data_dir)
        return image_parts(images, seed=self.seed, count=self.images, validation=self.validation), images.classes


def image_parts(images: Images, *, seed: int, count: int | None = None, validation: float = 0.1) -> Parts:
    """Make the parts of a data set: pixels divided by 255, and a stratified part of the training images held out.

    Args:
        images: the data set.
        seed: draws what is held out, and the subset.
        count: take a class-balanced subset of so many training images first.
        validation: the share of the training images that is held out.
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


def split_stratified(labels: Tensor, fraction: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw a `fraction` of every class: gives the indices of the rest, and of what is drawn.

    Of a class with two items or more, both have one at least.
    """
    ranked = torch.randperm(len(labels), generator=generator)
    rest, held = [], []
    for label in torch.unique(labels):
        members = ranked[labels[ranked] == label]
        cut = min(max(1, round(len(members) * fraction)), len(members) - 1)
        held.append(members[:cut])
        rest.append(members[cut:])
    return torch.cat(rest), torch.cat(held)


def split_last(count: int, fraction: float) -> tuple[Tensor, Tensor]:
    """Cut off the last `fraction` of so many items, one at least: gives the places of the rest, and of these.

    >>> split_last(6, 0.3)
    (tensor([0, 1, 2, 3]), tensor([4, 5]))
    """
    last = max(1, round(count * fraction))
    return torch.arange(count - last), torch.arange(count - last, count)


def make_split_stream(spec: StreamSpec) -> Stream:
    """Make the stream of a spec: classes of their own in each task."""
    parts, classes = spec.load_parts()
    into = spec.split_into or spec.tasks
    return split_classes(parts, tasks=into, seed=spec.seed, classes=classes, learned=spec.tasks)


def split_classes(parts: Parts, *, tasks: int, seed: int, classes: int, learned: int | None = None) -> Stream:
    """Make a stream in which each task has classes of its own, in a partition that the seed draws, and its own head.

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
