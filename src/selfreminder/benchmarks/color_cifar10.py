"""CIFAR10 in RGB, YIQ, YUV, HSV and HED.

Each task has all images in another colour space, with the numbers that scikit-image gives. Its HED is another one since
version 0.18 (2020), which clips; `hed` = "2018" asks for the one of the paper's time. To add a space, write a function
that converts a batch and name it in `_CONVERT`.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder.benchmarks import ONE_HEAD_METHODS, Benchmark, Scale
from selfreminder.benchmarks.stream import Parts, Stream, StreamSpec, Task

BENCHMARK = Benchmark(
    model="cifar10-vgg",
    methods=ONE_HEAD_METHODS,
    scales={
        "demo": Scale(data="generated-10", tasks=5, epochs=2, width=1 / 16, seeds=1, per_class=5),
        # Batches of 128 are 180 steps a task, too few for plain SGD to learn it; four times as many cost the same.
        "small": Scale(
            data="cifar10", images=5_000, tasks=5, epochs=5, width=1 / 8, seeds=3, per_class=30, batch_size=32
        ),
        "medium": Scale(data="cifar10", images=20_000, tasks=5, epochs=10, width=1 / 4, seeds=3, per_class=120),
        "paper": Scale(data="cifar10", tasks=5, epochs=40, width=1.0, seeds=5, per_class=300),
    },
)

YIQ_FROM_RGB = (
    (0.299, 0.587, 0.114),
    (0.59590059, -0.27455667, -0.32134392),
    (0.21153661, -0.52273617, 0.31119955),
)
YUV_FROM_RGB = (
    (0.299, 0.587, 0.114),
    (-0.14714119, -0.28886916, 0.43601035),
    (0.61497538, -0.51496512, -0.10001026),
)
RGB_FROM_HED = ((0.65, 0.70, 0.29), (0.07, 0.99, 0.11), (0.27, 0.57, 0.78))
"""How much red, green and blue a unit of haematoxylin, eosin and DAB absorbs (Ruifrok & Johnston 2001)."""

CHUNK = 1 << 18
"""Pixels converted at a time: the intermediate tensors stay a few megabytes however many images there are."""


def make_stream(spec: StreamSpec) -> Stream:
    """Make the stream of a spec: images in another colour space in each task."""
    parts, classes = spec.load_parts()
    return recolour_images(parts, tasks=spec.tasks, classes=classes, hed=spec.hed)


def recolour_images(parts: Parts, *, tasks: int | None = None, classes: int = 10, hed: str = "today") -> Stream:
    """Make a stream in which each task has all images in another of `SPACES`, in their order; by default in all."""
    tasks = len(SPACES) if tasks is None else tasks
    if tasks > len(SPACES):
        raise SelfReminderError(f"{tasks} tasks were asked for, there are {len(SPACES)} colour spaces")

    def make(index: int) -> Task:
        space = _HED[hed] if SPACES[index] == "hed" else SPACES[index]
        return Task(index, space, classes, parts, lambda x: to_color_space(x, space))

    return Stream((classes,), make, length=tasks)


def to_color_space(images: Tensor, space: str) -> Tensor:
    """Convert images (n, 3, h, w) from RGB to one of `SPACES`, as float32 like them; "rgb" gives the same tensor.

    Equal to scikit-image's rgb2yiq, rgb2yuv, rgb2hsv and rgb2hed: I, Q, U and V can be negative, and nothing
    is scaled or cut to [0, 1]. "hed-2018" is rgb2hed as it was before version 0.18.

    >>> red = torch.tensor([1.0, 0.0, 0.0]).reshape(1, 3, 1, 1)
    >>> to_color_space(red, "hsv").flatten().tolist()
    [0.0, 1.0, 1.0]
    """
    if space not in _CONVERT:
        raise unknown("color space", space, _CONVERT)
    _check(images)
    convert = _CONVERT[space]
    if convert is None:
        return images
    converted = torch.empty_like(images)
    at_a_time = max(1, CHUNK // max(1, images.shape[2] * images.shape[3]))
    for some, out in zip(images.split(at_a_time), converted.split(at_a_time)):
        convert(some, out)
    return converted


def _check(images: Tensor) -> None:
    if images.dtype != torch.float32 or images.ndim != 4 or images.shape[1] != 3:
        raise SelfReminderError(
            f"images are {images.dtype} of shape {tuple(images.shape)}: give float32 of shape (n, 3, h, w)"
        )
    if images.numel():
        low, high = (bound.item() for bound in images.aminmax())
        if not (low >= 0 and high <= 1):
            raise SelfReminderError(f"images have values from {low:g} to {high:g}: scale them to [0, 1]")


def _multiply(rgb: Tensor, out: Tensor, matrix: Sequence[Sequence[float]]) -> None:
    # Not a matmul: its rounding may depend on the batch, so an image would depend on its neighbours.
    red, green, blue = rgb.unbind(1)
    for channel, (r, g, b) in zip(out.unbind(1), matrix):
        torch.mul(red, r, out=channel).add_(green, alpha=g).add_(blue, alpha=b)


def _to_hsv(rgb: Tensor, out: Tensor) -> None:
    red, green, blue = rgb.unbind(1)
    hue, saturation, value = out.unbind(1)
    torch.amax(rgb, 1, out=value)
    delta = value - rgb.amin(1)
    # In sixths of the colour circle, from the strongest channel: red at 0, green at 2, blue at 4.
    sixths = torch.where(green == value, 2 + (blue - red) / delta, (green - blue) / delta)
    sixths = torch.where(blue == value, 4 + (red - green) / delta, sixths)
    torch.remainder(sixths / 6, 1, out=hue)
    torch.div(delta, value, out=saturation)
    grey = delta == 0
    hue.masked_fill_(grey, 0)
    saturation.masked_fill_(grey, 0)


def _to_hed(rgb: Tensor, out: Tensor) -> None:
    # Beer-Lambert: what is absorbed is logarithmic in what is left, here from 0 (white) to 1 (black, 1e-6).
    absorbed = rgb.clamp(min=1e-6).log_().div_(math.log(1e-6))
    _multiply(absorbed, out, _HED_FROM_RGB)
    out.clamp_(min=0)


def _to_hed_of_2018(rgb: Tensor, out: Tensor) -> None:
    # −log(rgb + 2) is almost a straight line from −log 2 to −log 3, and nothing is clipped.
    _multiply(rgb.add(2).log_().neg_(), out, _HED_FROM_RGB)


_HED_FROM_RGB = torch.linalg.inv(torch.tensor(RGB_FROM_HED, dtype=torch.float64)).T.tolist()

_CONVERT: dict[str, Callable[[Tensor, Tensor], None] | None] = {
    "rgb": None,
    "yiq": partial(_multiply, matrix=YIQ_FROM_RGB),
    "yuv": partial(_multiply, matrix=YUV_FROM_RGB),
    "hsv": _to_hsv,
    "hed": _to_hed,
    "hed-2018": _to_hed_of_2018,
}
SPACES = ("rgb", "yiq", "yuv", "hsv", "hed")
"""In the order of the paper's tasks."""
_HED = {"today": "hed", "2018": "hed-2018"}
