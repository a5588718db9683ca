"""Herding: points whose mean stays nearest to the class's mean.

Greedy, without duplicates, each point of equal weight, in the feature space φ of a kernel (Chen, Welling and Smola
2010, "Super-samples from kernel herding"):

    x_k = argmin over x of ‖μ − (φ(x_1) + … + φ(x_{k−1}) + φ(x)) / k‖,   μ the mean of φ over the class

With all φ taken relative to μ this is the least of ‖φ(x)‖²/2 + Σ_i ⟨φ(x), φ(x_i)⟩: a number for each point, to which
every pick adds one column of the centred kernel.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder._base.eval_mode import eval_mode
from selfreminder.gradients.per_sample import Inputs, take_rows
from selfreminder.selection.base import Candidates

KERNELS = ("linear", "gaussian")
_TIE = 1e-12
"""scores that differ by less, relative to the largest terms in them, differ by rounding"""
_CHUNK = 1 << 22
"""the most numbers in one piece of a kernel matrix, unless one row is more"""
_MEDIAN_ROWS = 1000
_BATCH = 512


def select(
    candidates: Candidates, *, kernel: str = "linear", width: float = 1.0, on: str = "inputs", literal: bool = False
) -> Tensor:
    """The first `count` points of each class, in the order in which herding takes them.

    Args:
        candidates: what there is to choose from.
        kernel: "linear", or "gaussian".
        width: of the Gaussian kernel, as a factor of the median distance within the class.
        on: where distances are measured. "inputs" are the pixels as they are; token ids and other codes have no
            meaningful mean, so "features" suits those: what the last Linear layer that the model calls is given.
            Any other text is the name of a layer whose output is taken.
        literal: see `herd`.
    """
    points = _find_points(candidates, on)
    ranked = []
    for members in candidates.classes():
        x = points[members.to(points.device)]
        ranked.append(members[herd(x, candidates.count, kernel=kernel, width=width, literal=literal)])
    return torch.cat(ranked)


def herd(x: Tensor, count: int, *, kernel: str = "linear", width: float | None = None, literal: bool = False) -> Tensor:
    """The order in which herding takes `count` of the rows of x (n, d), or all if there are fewer.

    Computed on the CPU in float64, so that the answer is the same wherever x is; of equals the first is taken.

    Args:
        x: (n, d) one row a point.
        count: how many to take.
        kernel: "linear" ⟨x, y⟩, or "gaussian" exp(−‖x − y‖²/2σ²).
        width: σ of the Gaussian kernel as a factor of the median distance between rows that differ, 1 by default.
            Of more than 1,000 rows, 1,000 evenly spaced ones give the median.
        literal: argmax over x of ⟨φ(x), kμ − Σ_i φ(x_i)⟩ instead, as kernel herding is often written. It is the same
            where all ‖φ(x)‖ are equal, as with the Gaussian kernel; with the linear one it takes large points: its
            first digit is one of the most inked, not the one nearest to the mean.

    >>> herd(torch.tensor([[0.0], [1.0], [2.0], [9.0]]), 3)
    tensor([2, 1, 3])
    """
    width = 1.0 if width is None else width
    if kernel not in KERNELS:
        raise unknown("kernel", str(kernel), KERNELS)
    if not isinstance(width, int | float) or not 0 < width < math.inf:
        raise SelfReminderError(f"herding's width is {width!r}: it must be a number above 0, a factor of the median")
    if not isinstance(literal, bool):
        raise SelfReminderError(f"herding's literal is {literal!r}: it must be True or False")
    order = torch.empty(min(count, len(x)), dtype=torch.long)
    if not len(order):
        return order
    x = x.detach().to("cpu", torch.float64).reshape(len(x), -1)
    score, column, size = _linear(x, literal) if kernel == "linear" else _gaussian(x, width)
    if not score.isfinite().all():
        raise SelfReminderError(
            "herding needs finite numbers: the points hold values that are not finite, or too large"
        )
    for k in range(len(order)):
        pick = int((score <= score.min() + _TIE * size).byte().argmax())  # argmax gives the first of equals
        order[k] = pick
        score += column(pick)
        score[pick] = math.inf
    return order


# A kernel gives the first scores (n,), up to what is the same for all rows; what a pick adds to them (n,); and the
# size of the largest terms. -----------------------------------------------------------------------------------

_Kernel = tuple[Tensor, Callable[[int], Tensor], float]


def _linear(x: Tensor, literal: bool) -> _Kernel:
    mean = x.mean(0)
    x = x - mean
    squares = torch.linalg.vecdot(x, x)
    # Literally: kμ − Σ_i x_i is μ − Σ_i (x_i − μ), and its product with x changes over x as that with x − μ does.
    score = -(x @ mean) if literal else squares / 2
    largest = squares.max().sqrt()
    return score, lambda pick: x @ x[pick], float(largest * (largest + mean.norm()))


def _gaussian(x: Tensor, width: float) -> _Kernel:
    x = x - x.mean(0)  # distances stay, and lose less to rounding
    squares = torch.linalg.vecdot(x, x)
    factor = -0.5 / (width * _median_distance(x)) ** 2

    def kernel(some: slice, others: slice) -> Tensor:
        distances = torch.addmm(squares[others], x[some], x[others].T, alpha=-2).add_(squares[some, None])
        return distances.clamp_(min=0).mul_(factor).exp_()

    mean = torch.zeros(len(x), dtype=x.dtype)
    step = max(1, _CHUNK // len(x))
    for start in range(0, len(x), step):
        part = kernel(slice(start, start + step), slice(start, None))  # the kernel is symmetric
        mean[start : start + step] += part.sum(1)
        mean[start + step :] += part[:, step:].sum(0)
    mean /= len(x)
    # ‖φ(x) − μ‖² = 1 − 2 mean(x) + constant, and ⟨φ(x) − μ, φ(x_i) − μ⟩ = k(x, x_i) − mean(x) + constant.
    return -mean, lambda pick: kernel(slice(pick, pick + 1), slice(None))[0] - mean, 1.0


def _median_distance(x: Tensor) -> float:
    few = min(len(x), _MEDIAN_ROWS)
    distances = F.pdist(x[torch.arange(few) * len(x) // few])
    distances = distances[distances != 0]
    return float(distances.median()) if len(distances) else 1.0


# Where distances are measured -------------------------------------------------------------------------------


def _find_points(candidates: Candidates, on: str) -> Tensor:
    """(n, d) a row for each candidate."""
    if on == "inputs":
        return _flat(candidates.inputs)
    if isinstance(on, float):  # 1.10 and 1.1 are two layers, and one number
        raise SelfReminderError(f"herding on {on}: write the layer's name in quotes, on='{on}'")
    name = str(on)  # layers of a Sequential have numbers for names
    layers = {key: module for key, module in candidates.model.named_modules() if key}
    if name != "features" and name not in layers:
        raise unknown("layer", name, ("inputs", "features", *layers))
    parts: list[Tensor] = []
    with torch.no_grad(), eval_mode(candidates.model), _watch(layers, name) as seen:
        for start in range(0, len(candidates), _BATCH):
            batch = take_rows(candidates.inputs, slice(start, start + _BATCH))
            candidates.logits_of(candidates.model, batch)
            n = min(_BATCH, len(candidates) - start)
            parts.append(_check_features(seen.pop(name, None), n, name).reshape(n, -1))
    return torch.cat(parts)


def _flat(inputs: Inputs) -> Tensor:
    if isinstance(inputs, Tensor):
        return inputs.reshape(len(inputs), -1)
    return torch.cat([x.reshape(len(x), -1) for x in inputs.values()], 1)


@contextmanager
def _watch(layers: dict[str, nn.Module], name: str) -> Iterator[dict[str, object]]:
    """Note under `name` what that layer gives, or for "features" what a Linear is given: the last of a forward."""
    seen: dict[str, object] = {}

    def note(value: object) -> None:
        # A copy, because an activation after it may change it in place.
        seen[name] = value.clone() if isinstance(value, Tensor) else value

    if name == "features":
        handles = [
            layer.register_forward_pre_hook(
                lambda layer, args, kwargs: note((*args, *kwargs.values())[0]), with_kwargs=True
            )
            for layer in layers.values()
            if isinstance(layer, nn.Linear)
        ]
    else:
        handles = [layers[name].register_forward_hook(lambda layer, args, output: note(output))]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _check_features(value: object, n: int, name: str) -> Tensor:
    """What was noted, if it is a tensor with a row for each of n items."""
    where = "the input of the last Linear layer" if name == "features" else f"the output of layer '{name}'"
    if value is None:
        missing = "calls no Linear layer" if name == "features" else f"does not call layer '{name}'"
        raise SelfReminderError(f"the model {missing}: herd on another layer with on=…, or on the inputs")
    if not isinstance(value, Tensor):
        raise SelfReminderError(f"{where} is a {type(value).__name__}, no tensor: herd on another layer with on=…")
    if not value.ndim or len(value) != n:
        raise SelfReminderError(
            f"{where} has the shape {tuple(value.shape)} for {n} items: herd on a layer with a row for each, with on=…"
        )
    return value
