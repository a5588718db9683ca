"""The paper's networks. `width` is a factor of the paper's width.

Inputs are pixels between 0 and 1. A network with a head per task takes the head beside its input: one number for
all items, or a tensor with one for each.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks.stream import Task

_MOST_UNITS = 10**8
"""of a layer: the number of its weights is still one"""
PADDING = -1e9
"""the logit of a class that a head does not have"""


class Normalise(nn.Module):
    """Subtract the mean and divide by the deviation of each colour (HAT's, over CIFAR's training images)."""

    mean: Tensor
    deviation: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name, of_255 in (("mean", [125.3, 123.0, 113.9]), ("deviation", [63.0, 62.1, 66.7])):
            self.register_buffer(name, torch.tensor(of_255).div(255).reshape(3, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.deviation


class Heads(nn.Module):
    """One linear layer, or one per task: `sizes` has the number of classes of each."""

    def __init__(self, features: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(features, size) for size in sizes)
        self.features = features
        self.outputs: int | None = None
        """of a single head that grows: how many of its outputs are in use; None: all"""

    def forward(self, features: Tensor, head: int | Tensor | None = None, among: Sequence[int] = ()) -> Tensor:
        """Logits at a head; or each item's at its own, out of the heads `among`, padded to the widest of those.

        Heads that are not named take no part: they get no gradient, not even one of zeros.
        """
        if not isinstance(head, Tensor):
            logits = self.layers[head or 0](features)
            return logits if self.outputs is None else logits[:, : self.outputs]
        widest = max(self.sizes[number] for number in among)
        logits = features.new_full((len(features), widest), PADDING)
        for number in among:
            missing = widest - self.sizes[number]
            ours = nn.functional.pad(self.layers[number](features), (0, missing), value=PADDING)
            logits = torch.where((head == number)[:, None], ours, logits)
        return logits

    @property
    def sizes(self) -> list[int]:
        return [layer.out_features for layer in self.layers if isinstance(layer, nn.Linear)]


def set_outputs(model: nn.Module, outputs: int | None) -> None:
    """Let so many outputs of a model's single head be in use, None: all. Those of classes to come give no logits."""
    for module in model.modules():
        if isinstance(module, Heads):
            module.outputs = outputs


def trained_rows(model: nn.Module, task: Task) -> dict[str, slice]:
    """Tell by name which of a model's numbers a task trains: all rows, but of heads its own, and what is in use of it.

    Running statistics, which training changes too, are among them.

    >>> from selfreminder.benchmarks.stream import Parts, Split
    >>> none = Split(torch.zeros(0, 784), torch.zeros(0, dtype=torch.long))
    >>> model = build_model("mnist-mlp", width=1 / 64, seed=0, heads=(2, 3))
    >>> [*trained_rows(model, Task(1, "second", 3, Parts(none, none, none), head=1))][-2:]
    ['heads.layers.1.weight', 'heads.layers.1.bias']
    """
    rows = {name: slice(None) for name, value in model.state_dict().items() if value.is_floating_point()}
    for prefix, module in model.named_modules():
        if isinstance(module, Heads):
            for number, layer in enumerate(module.layers):
                for name, _ in layer.named_parameters(f"{prefix}.layers.{number}"):
                    del rows[name]
                    if number == (task.head or 0):
                        rows[name] = slice(task.outputs)
    return rows


class Network(nn.Module):
    """A body that every task shares, and heads."""

    body: nn.Sequential
    heads: Heads

    def forward(self, x: Tensor, head: int | Tensor | None = None, among: Sequence[int] = ()) -> Tensor:
        return self.heads(self.body(x), head, among)


class Mlp(Network):
    """784-1024×4-10 with ReLU: the network of the MNIST experiments."""

    def __init__(self, width: float = 1.0, heads: Sequence[int] = (10,), *, inputs: int = 784) -> None:
        super().__init__()
        hidden = _units(1024, width)
        sizes = [inputs] + [hidden] * 4
        layers = (layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU()))
        self.body = nn.Sequential(nn.Flatten(), *layers)
        self.heads = Heads(hidden, heads)


class Vgg(Network):
    """Four blocks of two convolutions with batch norm and a pooling, then 4096-1024-10: for colour CIFAR10."""

    def __init__(self, width: float = 1.0, heads: Sequence[int] = (10,)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for channels, kernel in ((128, 5), (256, 5), (512, 3), (1024, 3)):
            channels = _units(channels, width)
            for inputs in (before, channels):
                convolution = nn.Conv2d(inputs, channels, kernel, padding=kernel // 2)
                layers += [convolution, nn.BatchNorm2d(channels), nn.ReLU()]
            layers.append(nn.MaxPool2d(2))
            before = channels
        hidden = _units(1024, width)
        layers += [nn.Flatten(), nn.Linear(4 * before, hidden), nn.BatchNorm1d(hidden), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.heads = Heads(hidden, heads)


class Dropout(nn.Dropout):
    """PyTorch's dropout, several times as fast on a CPU, where drawing one number per unit takes most of its time.

    Four units share a word of 64 random bits, so `p` is exact to 16 bits.
    """

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.p == 1 or input.device.type != "cpu":
            return super().forward(input)
        words = torch.empty(-(-input.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        drawn = words.view(torch.int16)[: input.numel()]
        keep = drawn.ge_(round(self.p * 2**16) - 2**15)
        scale = keep.to(input.dtype).div_(1 - self.p)
        # The order in memory does not matter to what is random, but to the speed of the product.
        dense = input.is_contiguous() or input.is_contiguous(memory_format=torch.channels_last)
        return input * (scale.as_strided(input.shape, input.stride()) if dense else scale.reshape(input.shape))


class AlexNet(Network):
    """HAT's AlexNet for 32×32 images: three convolutions, two layers of 2048, dropout, a head per task."""

    def __init__(self, width: float = 1.0, heads: Sequence[int] = (10,) * 10) -> None:
        super().__init__()
        a, b, c, hidden = (_units(units, width) for units in (64, 128, 256, 2048))
        self.body = nn.Sequential(
            Normalise(),
            *(nn.Conv2d(3, a, 4), nn.ReLU(), Dropout(0.2), nn.MaxPool2d(2)),
            *(nn.Conv2d(a, b, 3), nn.ReLU(), Dropout(0.2), nn.MaxPool2d(2)),
            *(nn.Conv2d(b, c, 2), nn.ReLU(), Dropout(0.5), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(4 * c, hidden), nn.ReLU(), Dropout(0.5)),
            *(nn.Linear(hidden, hidden), nn.ReLU(), Dropout(0.5)),
        )
        self.heads = Heads(hidden, heads)


MODELS: dict[str, Callable[[float, Sequence[int]], Network]] = {
    "mnist-mlp": Mlp,
    "cifar10-vgg": Vgg,
    "cifar100-alexnet": AlexNet,
}


def build_model(name: str, *, width: float, seed: int, heads: Sequence[int] = (10,)) -> Network:
    """Build a model with the initial weights of a seed; the global random numbers stay as they are.

    Args:
        name: of a network, see `MODELS`.
        width: a factor of the paper's width.
        seed: draws the initial weights.
        heads: the number of classes of each output head.

    >>> build_model("mnist-mlp", width=1 / 16, seed=0, heads=(2, 3))(torch.zeros(1, 784), 1).shape
    torch.Size([1, 3])
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_for(seed, "initial weights"))  # and not that of every device
        model = MODELS[name](width, heads)
    # A step with convolutions takes .8 of the time.
    return model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


def count_parameters(name: str, *, width: float, heads: Sequence[int]) -> int:
    """Count the parameters of a model without making them.

    >>> count_parameters("mnist-mlp", width=1.0, heads=(10,))
    3962890
    """
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in MODELS[name](width, heads).parameters())


def _units(units: int, width: float) -> int:
    if not units * width < _MOST_UNITS:
        raise SelfReminderError(f"width {width:g} makes {units * width:g} units of {units}: no memory holds that")
    scaled = round(units * width)
    if scaled < 1:
        raise SelfReminderError(f"width {width:g} leaves no unit of {units}: it is a factor of the paper's width")
    return scaled
