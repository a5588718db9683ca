"""What remembering costs beside EWC: the paper's memory arithmetic, counted from its networks.

EWC keeps a model of p parameters and its diagonal Fisher: 2p numbers of float32, whatever the number of tasks. A memory
keeps items, each an input and its logits. The paper counts them as float32 too; how many bytes they really take
depends on how they are kept, see `codec`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder._base.sizes import Size
from selfreminder.benchmarks import Benchmark
from selfreminder.benchmarks.color_cifar10 import SPACES, to_color_space
from selfreminder.benchmarks.models import build_model
from selfreminder.benchmarks.permuted_mnist import permutation
from selfreminder.data import DataSet, dataset, load, source
from selfreminder.data.readers import CIFAR_LABELS, read_cifar_batch
from selfreminder.experiment.catalogue import benchmark
from selfreminder.memory.memory import Memory

PAPERS = {"mnist-mlp": "permuted-mnist", "cifar10-vgg": "color-cifar10", "cifar100-alexnet": "split-cifar100"}
"""the benchmark for which the paper does the arithmetic of each model"""
CLASSES = 10
"""in each task of the paper's benchmarks"""
FLOAT32 = 4
DEFAULT = ("uint8", "float32")
"""how a memory keeps pixels and logits unless it is told otherwise"""
_WAYS = (("float32", "float32"), DEFAULT, ("uint8", "float16"), ("uint8", "int8"), ("affine8", "float16"))
"""codecs of inputs and logits whose bytes do not depend on the images"""
_MEASURED = ("compressed", "float16")
"""those whose bytes do"""
_PER_CLASS = (1, 10, 50)
_STATED = {"cifar100-alexnet": 6_800_000}
"""parameters in the paper's text, where those are not a count"""
_IMAGES = 500
_WIDEST = 100
_MOST = torch.iinfo(torch.int32).max
"""tasks and items are numbered by int32 in a memory"""


@dataclass(frozen=True)
class Count:
    """The parameters p of a network, counted in one way, and EWC's 2p numbers: the model and its diagonal Fisher."""

    what: str
    parameters: int
    ewc_numbers: int
    ewc_bytes: int
    items_per_task: float
    """for as many float32 numbers"""


@dataclass(frozen=True)
class Way:
    """Items kept in one way: with these codecs of inputs and of logits."""

    inputs: str
    logits: str
    images: str | None
    """which were measured; None where any image takes as many bytes"""
    sample: int | None
    """how many were"""
    item_bytes: float
    """as a memory counts them, provenance included; the mean"""
    items_per_task: float
    """for EWC's bytes"""
    total_bytes: int
    """of `per_task` items of each task"""
    share: float
    """of EWC's bytes"""


@dataclass(frozen=True)
class ClassShare:
    """So many images of each class of each task, kept as by default; shares are of EWC's bytes."""

    per_class: int
    items: int
    """of all tasks"""
    total_bytes: int
    share: float
    paper_bytes: int
    """as the paper counts: float32, no provenance"""
    paper_share: float


@dataclass(frozen=True)
class MemoryCost:
    """A memory's bytes against EWC's. EWC's are those of the first of `counts`, the paper's way to count."""

    model: str
    width: float
    tasks: int
    per_task: int
    input_numbers: int
    logits: int
    item_numbers: int
    """both"""
    provenance_bytes: int
    """what an item keeps beside them: where it comes from"""
    counts: tuple[Count, ...]
    """the last has all that is trained"""
    stated: Count | None
    """from the number of parameters in the paper's text, where that is not a count"""
    data: str
    """the data set on whose images the ways are measured that need it"""
    ways: tuple[Way, ...]
    unmeasured: tuple[tuple[str, str], ...]
    """codecs of inputs and logits of the ways that depend on images, where none were given"""
    per_class: tuple[ClassShare, ...]

    @property
    def ewc_bytes(self) -> int:
        return self.counts[0].ewc_bytes


def memory_cost(
    model: str, *, tasks: int, per_task: int, width: float = 1.0, images: Mapping[str, Tensor] | None = None
) -> MemoryCost:
    """What EWC and memories of `per_task` items of each task keep, for one of the paper's networks.

    Args:
        model: a name of `selfreminder.benchmarks.models.MODELS`.
        tasks: how many are learned.
        per_task: items that each leaves in the memory.
        width: of the network, as a factor of the paper's.
        images: inputs (n, …) by name, to measure how well they compress: see `images_at_hand`.

    >>> cost = memory_cost("mnist-mlp", tasks=20, per_task=500)
    >>> cost.counts[0].parameters, cost.item_numbers, round(cost.counts[0].items_per_task, 1)
    (3958784, 794, 498.6)
    """
    data = _real_data(model)
    if not 0 < width <= _WIDEST:
        raise SelfReminderError(f"width is {width:g}: it must be above 0, at most {_WIDEST}")
    if not 1 <= tasks <= _MOST:
        raise SelfReminderError(f"tasks is {tasks}: it must be at least 1, at most {_MOST:,}")
    _ = Size(per_task=per_task)  # raises if it is below 1
    if tasks * per_task > _MOST:
        raise SelfReminderError(f"{tasks * per_task:,} items: a memory holds at most {_MOST:,}")
    with _Weightless():
        network = build_model(model, width=width, seed=0, heads=(CLASSES,))
    inputs = torch.zeros(1, *data.shape)
    item_numbers = inputs.numel() + CLASSES
    stated = _STATED.get(model) if width == 1 else None

    def count(what: str, parameters: int) -> Count:
        numbers = 2 * parameters
        return Count(what, parameters, numbers, numbers * FLOAT32, numbers / item_numbers / tasks)

    if papers_benchmark(model).head_per_task:
        trunk = _numbers(network.body)
        parameters = {"trunk": trunk, "with a head per task": trunk + tasks * _numbers(network.heads)}
    else:
        parameters = _count_by_kind(network)
    counts = tuple(count(what, number) for what, number in parameters.items())
    ewc_bytes = counts[0].ewc_bytes

    def way(codecs: tuple[str, str], x: Tensor, name: str | None = None) -> Way:
        each = _item_bytes(x, *codecs)
        total = each * per_task * tasks
        sample = None if name is None else len(x)
        return Way(*codecs, name, sample, each, ewc_bytes / each / tasks, round(total), total / ewc_bytes)

    def class_share(per_class: int) -> ClassShare:
        items = per_class * CLASSES * tasks
        total, papers = round(items * _item_bytes(inputs, *DEFAULT)), items * item_numbers * FLOAT32
        return ClassShare(per_class, items, total, total / ewc_bytes, papers, papers / ewc_bytes)

    measured = tuple(way(_MEASURED, x, name) for name, x in (images or {}).items())
    return MemoryCost(
        model=model,
        width=width,
        tasks=tasks,
        per_task=per_task,
        input_numbers=inputs.numel(),
        logits=CLASSES,
        item_numbers=item_numbers,
        provenance_bytes=round(_item_bytes(inputs, "float32", "float32")) - item_numbers * FLOAT32,
        counts=counts,
        stated=None if stated is None else count(f"{stated / 1e6:g} M", stated),
        data=data.name,
        ways=(*(way(codecs, inputs) for codecs in _WAYS), *measured),
        unmeasured=() if measured else (_MEASURED,),
        per_class=tuple(map(class_share, _PER_CLASS)),
    )


def images_at_hand(model: str) -> dict[str, Tensor]:
    """Load real images as the model's tasks have them, by name; none if they would have to be fetched or unpacked.

    >>> {name: tuple(x.shape) for name, x in images_at_hand("mnist-mlp").items()}
    {'digits': (500, 784), 'permuted digits': (500, 784)}
    """
    data = _real_data(model)
    if data.embedded:
        pixels = load(data.name).test_x
    else:
        test = data.files[-1]  # one file is enough, and quick to check
        path = source.find(data).get(test.name)
        if path is None or source.is_archive(path):
            return {}
        pixels, _ = read_cifar_batch(source.read(test, path), labels=len(CIFAR_LABELS[data.name]))
    some = torch.from_numpy(pixels[:: max(1, len(pixels) // _IMAGES)].copy())
    return _view(model, some.to(torch.float32).div_(255))


def papers_benchmark(model: str) -> Benchmark:
    """Give the benchmark for which the paper does the arithmetic of a model."""
    if model not in PAPERS:
        raise unknown("model", model, PAPERS)
    return benchmark(PAPERS[model])


def _real_data(model: str) -> DataSet:
    """Give the smallest real data set of the model's benchmark."""
    data = (dataset(scale.data) for scale in papers_benchmark(model).scales.values())
    return next(each for each in data if not each.generated)


def _view(model: str, x: Tensor) -> dict[str, Tensor]:
    """Give images as the model's tasks have them, by name."""
    if model == "mnist-mlp":
        x = x.flatten(1)
        return {"digits": x, "permuted digits": x[:, permutation(x.shape[1], seed=0, index=0)]}
    rgb, *others = SPACES if model == "cifar10-vgg" else SPACES[:1]
    views = {rgb.upper(): x}
    if others:
        converted = [to_color_space(part, space) for part, space in zip(x.chunk(len(others)), others)]
        views[", ".join(others).upper()] = torch.cat(converted)
    return views


class _Weightless(TorchFunctionMode):
    """Networks get weights that have a shape and no values: one of any width costs nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Not torch.device("meta"), under which a network's own arithmetic would import half of torch.
        return func(*args, **(kwargs or {}) | ({"device": "meta"} if func is torch.empty else {}))


def _count_by_kind(network: nn.Module) -> dict[str, int]:
    norms = (module for module in network.modules() if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d))
    norm, every = sum(map(_numbers, norms)), _numbers(network)
    counts = {"weights": sum(p.numel() for p in network.parameters() if p.ndim > 1), "with biases": every - norm}
    return counts | {"with batch norm": every} if norm else counts


def _numbers(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _item_bytes(x: Tensor, inputs: str, logits: str) -> float:
    memory = Memory.of({"x": x}, torch.zeros(len(x), CLASSES), task=0, codecs=inputs, logit_codec=logits)
    return memory.nbytes / len(memory)
