"""The model: built by the code that the user's own file names, with weights that fit it or are refused.

Nothing is unpickled: weights are safetensors, or a `.pt` of tensors alone (`weights_only=True`).
"""

import difflib
import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from selfreminder._base.errors import MissingExtraError, StoreError
from selfreminder._base.factories import call_factory, find_modules_in
from selfreminder._base.tensor_file import NotATensorFileError, read_plain
from selfreminder.samples.columns import show_kind
from selfreminder.store.config import Config

_SHOWN = 4
"""names in a message"""
_NESTED = ("state_dict", "model_state_dict", "model", "ema_state_dict")
"""where a `.pt` has the weights, if not at its top"""


def build_model(
    config: Config, weights: Mapping[str, Tensor] | None = None, *, outputs: int | None = None
) -> nn.Module:
    """Build the model that a config names, in eval mode, with weights.

    Args:
        config: its table [model] says how.
        weights: tensors by name; without any, those that the model is built with.
        outputs: where the weights are of a model that has grown to so many: its head is widened first.
    """
    kind = "factory" if config.model.factory else "timm" if config.model.timm else "hf"
    named = getattr(config.model, kind)
    # Initial weights are drawn from torch's own generator: put it back.
    with torch.random.fork_rng(devices=[]):
        if kind == "factory":
            find_modules_in(config.folder)
            model = call_factory(named)
        elif kind == "timm":
            model = _build_timm(named, config, weights)
        else:
            model = _build_hf(config.locate(named))
    if not isinstance(model, nn.Module):
        raise StoreError(f"factory {named} gives {show_kind(model)}: it should give a torch.nn.Module")
    if weights is not None:
        if outputs is not None:
            _match_head(model, weights, outputs)
        load_weights(model, weights, f"{kind} {named}")
    return model.eval()


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read weights by name from safetensors, or from a `.pt` that holds tensors alone."""
    if path.is_dir():
        path = path / "model.safetensors"
    if not path.is_file():
        raise StoreError(f"weights {path} are not there")
    try:
        if path.suffix in (".pt", ".pth", ".bin", ".ckpt"):
            given = torch.load(path, map_location="cpu", weights_only=True)
        else:
            return read_plain(path)
    except NotATensorFileError as error:
        raise StoreError(f"weights {path}: {error}") from None
    except OSError:
        raise
    except Exception:  # what is damaged can raise anything; torch would advise to run what is in there
        raise StoreError(
            f"weights {path} hold more than tensors, or are damaged, and nothing else is unpickled: save the state "
            "dict alone, torch.save(model.state_dict(), path), or as safetensors"
        ) from None
    for name in _NESTED:
        if isinstance(given, Mapping) and isinstance(given.get(name), Mapping):
            given = given[name]
    if not isinstance(given, Mapping) or not given or not all(isinstance(each, Tensor) for each in given.values()):
        raise StoreError(f"weights {path} hold {show_kind(given)}, no tensors by name: save model.state_dict()")
    if all(name.startswith("module.") for name in given):  # as DataParallel saves them
        given = {name.removeprefix("module."): each for name, each in given.items()}
    return dict(given)


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], what: str) -> None:
    """Put weights into a model, all of them and nothing else; where they do not fit, say which."""
    own = model.state_dict()
    missing = [name for name in own if name not in weights]
    extra = [name for name in weights if name not in own]
    other = [
        f"{name} {tuple(weights[name].shape)} instead of {tuple(each.shape)}"
        for name, each in own.items()
        if name in weights and weights[name].shape != each.shape
    ]
    problems = (("lack", missing), ("have beyond it", extra), ("have other shapes for", other))
    if said := [f"{verb} {_shorten(names)}" for verb, names in problems if names]:
        raise StoreError(f"the weights do not fit {what}: they {'; they '.join(said)}. Give weights of this very model")
    model.load_state_dict(dict(weights))


def copy_weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's tensors by name, as they are now."""
    return {name: each.detach().cpu().clone() for name, each in model.state_dict().items()}


# Growing --------------------------------------------------------------------------------------------------


def widen_head(model: nn.Module, outputs: int, wanted: int) -> str:
    """Give the last linear layer of a model more outputs, and return its name.

    Every new output begins as the mean of the old ones, which is never the largest: no answer changes by that. Models
    whose logits come from an `nn.Linear` with as many outputs as the model can grow; others are refused.
    """
    found = [name for name, layer in model.named_modules() if _is_head(layer, outputs)]
    if not found:
        raise StoreError(
            f"the model has no nn.Linear with {outputs} outputs, so it cannot grow by itself: widen it in your own "
            "code, and `selfreminder init` a new store with it"
        )
    old = model.get_submodule(found[-1])
    assert isinstance(old, nn.Linear)
    new = _replace_head(model, found[-1], wanted)
    with torch.no_grad():
        for name, part in new.named_parameters():
            was = getattr(old, name)
            part[:outputs] = was
            part[outputs:] = was.mean(0, keepdim=True)
    return found[-1]


def _match_head(model: nn.Module, weights: Mapping[str, Tensor], outputs: int) -> None:
    """Widen the layer of a fresh model that weights have with more outputs."""
    for name, layer in model.named_modules():
        kept = weights.get(f"{name}.weight")
        wider = isinstance(layer, nn.Linear) and layer.out_features < outputs
        if wider and kept is not None and kept.shape == (outputs, layer.in_features):
            _replace_head(model, name, outputs)
            return


def _replace_head(model: nn.Module, name: str, outputs: int) -> nn.Linear:
    old = model.get_submodule(name)
    assert isinstance(old, nn.Linear)
    place = {"device": old.weight.device, "dtype": old.weight.dtype}
    with torch.random.fork_rng(devices=[]):
        new = nn.Linear(old.in_features, outputs, bias=old.bias is not None, **place)
    parent, _, attribute = name.rpartition(".")
    owner = model.get_submodule(parent)
    if isinstance(owner, nn.Sequential | nn.ModuleList):
        owner[int(attribute)] = new
    else:
        setattr(owner, attribute, new)
    for whose, what in ((getattr(model, "config", None), "num_labels"), (model, "num_labels"), (model, "num_classes")):
        if getattr(whose, what, None) == old.out_features:  # of transformers and timm
            setattr(whose, what, outputs)
    return new


def _is_head(layer: nn.Module, outputs: int) -> bool:
    return type(layer) is nn.Linear and layer.out_features == outputs


# Libraries ------------------------------------------------------------------------------------------------


def _build_timm(name: str, config: Config, weights: Mapping[str, Tensor] | None) -> nn.Module:
    timm = _import_extra("timm", "timm")
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=5)
        raise StoreError(f"timm has no model '{name}': {', '.join(near) or 'timm.list_models() has them all'}")
    classifier = timm.get_pretrained_cfg(name).classifier if weights is not None else None
    kept = None if weights is None else weights.get(f"{classifier}.weight")
    classes = len(config.model.labels) if config.model.labels else None
    outputs = classes or (None if kept is None else len(kept))
    return timm.create_model(name, pretrained=False, **({} if outputs is None else {"num_classes": outputs}))


def _build_hf(folder: Path) -> nn.Module:
    transformers = _import_extra("transformers", "transformers")
    about = _read_hf_config(folder)
    names = [name for name in about.architectures or () if name.endswith("Classification")]
    if not names or not hasattr(transformers, names[0]):
        raise StoreError(f"{folder} holds {about.architectures}: a store is for classifiers, For…Classification")
    return getattr(transformers, names[0])(about)


def read_hf_labels(folder: Path) -> tuple[str, ...] | None:
    """The names of the classes that a folder of transformers has; None where it only has numbers."""
    about = _read_hf_config(folder)
    names = tuple(about.id2label[place] for place in range(about.num_labels))
    return None if all(name == f"LABEL_{place}" for place, name in enumerate(names)) else names


def _read_hf_config(folder: Path) -> Any:
    transformers = _import_extra("transformers", "transformers")
    if not (folder / "config.json").is_file():
        raise StoreError(f"{folder} has no config.json: name a folder that save_pretrained wrote")
    try:
        return transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise StoreError(f"{folder}: {str(error).splitlines()[0]}") from None


def _import_extra(package: str, extra: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        raise MissingExtraError(f"the model needs {package}: pip install {extra}") from None


def _shorten(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
