"""What gave a task's logits: the layers of the model, what the transform does, the shapes of the inputs.

Logits hold only for what gave them. A memory keeps a fingerprint with them, so that it can say so when it meets another
model, or the same one behind another transform.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from selfreminder.samples import restore_structure

if TYPE_CHECKING:
    from selfreminder.memory.memory import Memory

_WRAPPERS = ("module", "_orig_mod")
"""what DistributedDataParallel and torch.compile put before or into the names of parameters"""
_PROJECTIONS = 4
_ROUNDING, _HALF_ROUNDING = 1e-3, 1e-2
"""by how much the same transform's numbers may differ, relative to their size: devices and precisions round"""

Transform = Callable[[Any], Any]
Outputs = dict[str, list[float]]
"""a few numbers of each tensor that a transform gives, by its place, kind and shape"""


@dataclass(frozen=True)
class Fingerprint:
    """What gave a task's logits.

    >>> fingerprint = Fingerprint.of(nn.Linear(4, 2), {"x": torch.zeros(9, 4)}, classes=2)
    >>> fingerprint.inputs, fingerprint.transform_hash
    ({'x': ((4,), 'float32')}, None)
    """

    model: str
    """see `fingerprint_model`"""
    classes: int
    """logits an item"""
    transform: Outputs | None
    """what it makes of one item, see `digest_transform`; None without a transform"""
    inputs: dict[str, tuple[tuple[int, ...], str]]
    """shape and dtype of an item of each input, as it is kept, before it is encoded"""
    item: int | None = None
    """the id of the item that was transformed; None where nothing can be compared"""

    @classmethod
    def of(
        cls, model: nn.Module, inputs: Mapping[str, Tensor], classes: int, transform: Outputs | None = None
    ) -> "Fingerprint":
        """Of a model that gives `classes` logits on inputs (n, …), the first of which was transformed."""
        shapes = {name: (tuple(x.shape[1:]), _show_dtype(x)) for name, x in inputs.items()}
        return cls(fingerprint_model(model), classes, transform, shapes, 0 if transform else None)

    def with_item(self, item: int | None) -> "Fingerprint":
        """The same where the transformed item has another id, or (None) is not in the memory any more.

        Without it only that there was a transform is known, until items are added to the task.
        """
        if self.item is None:
            return self
        return replace(self, item=item, transform={} if item is None else self.transform)

    @property
    def transform_hash(self) -> str | None:
        """16 hex digits; "unknown" where nothing can be compared, None without a transform."""
        if self.transform is None:
            return None
        return _hash_json(self.transform) if self.transform else "unknown"

    @property
    def facts(self) -> dict[str, Any]:
        """As JSON can say it."""
        inputs = {name: [list(shape), dtype] for name, (shape, dtype) in self.inputs.items()}
        transform = "" if self.transform is None else self.transform
        facts = {"model": self.model, "classes": self.classes, "transform": transform, "inputs": inputs}
        return facts if self.item is None else facts | {"item": self.item}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "Fingerprint":
        """The inverse of `facts`; earlier files have a text for a transform, with which nothing can be compared."""
        inputs = {str(name): (tuple(map(int, shape)), str(dtype)) for name, (shape, dtype) in facts["inputs"].items()}
        transform = facts["transform"]
        if isinstance(transform, str):
            transform = {} if transform else None
        else:
            transform = {str(place): list(map(float, numbers)) for place, numbers in transform.items()}
        return cls(str(facts["model"]), int(facts["classes"]), transform, inputs, facts.get("item"))


def find_staleness(memory: "Memory", model: nn.Module, transform: Transform | None, *, grown: bool) -> str:
    """Say which tasks' logits are another model's or another transform's, in words; "" where none are.

    A model that has `grown` has other layers by right.
    """
    present, found = fingerprint_model(model), defaultdict[str, list[int]](list)
    device = next((p.device for p in model.parameters()), memory.device)
    for task, then in memory.fingerprints.items():
        if not grown and then.model != present:
            layers = f"(fingerprint {then.model}, now {present})"
            found[f"it was recorded by a model with other layers, shapes or dtypes {layers}"].append(task)
        if then.transform is None or transform is None:
            if transform is not then.transform:
                before, today = ("no" if each is None else "a" for each in (then.transform, transform))
                found[f"it was recorded with {before} transform, now there is {today} transform"].append(task)
        elif then.item is not None and (inputs := memory.read_item(then.item)) is not None:
            now = digest_transform(transform, {name: x.to(device) for name, x in inputs.items()})
            if now and not are_close(then.transform, now):
                found["it was recorded with a transform that made something else of the same item"].append(task)
    return "; ".join(
        f"the memory of task {', '.join(map(str, tasks))} is stale: {difference}" for difference, tasks in found.items()
    )


def fingerprint_model(model: nn.Module) -> str:
    """16 hex digits of the names, shapes and dtypes of a model's parameters and buffers, whatever wraps it.

    >>> fingerprint_model(nn.Linear(2, 3)) == fingerprint_model(nn.DataParallel(nn.Linear(2, 3)))
    True
    """
    tensors = model.state_dict(keep_vars=True)  # the parameters themselves, no copies
    return _hash_json(
        sorted(
            [".".join(part for part in name.split(".") if part not in _WRAPPERS), list(x.shape), _show_dtype(x)]
            for name, x in tensors.items()
            if isinstance(x, Tensor)
        )
    )


def digest_transform(transform: Transform, inputs: dict[str, Tensor]) -> Outputs:
    """What a transform makes of one item's inputs (1, …), as they are read back from a memory.

    Nothing, if it is random (two calls differ) or fails on a single item: then it is not compared.
    """
    on_gpu = {x.device for x in inputs.values() if x.is_cuda}
    with torch.random.fork_rng(devices=on_gpu), torch.no_grad():  # a random transform takes no number of yours
        try:
            given = [restore_structure({name: x.clone() for name, x in inputs.items()}) for _ in range(2)]
            once, twice = (dict(_digest_outputs(transform(each))) for each in given)
        except Exception:  # whatever it raises: where it matters, the user's own call raises it too
            return {}
    return once if once == twice else {}


def are_close(one: Outputs, other: Outputs) -> bool:
    """Whether two outputs are the same but for rounding."""
    return one.keys() == other.keys() and all(
        np.allclose(numbers[1:], other[place][1:], rtol=0, atol=max(numbers[0], other[place][0]))
        for place, numbers in one.items()
    )


def _digest_outputs(given: Any, place: str = "") -> Iterator[tuple[str, list[float]]]:
    if isinstance(given, Tensor):
        kind = "float" if given.is_floating_point() else _show_dtype(given)
        yield f"{place} {kind} {tuple(given.shape)}", _digest_tensor(given) if given.numel() else [0.0]
    elif isinstance(given, Mapping | list | tuple):
        for key, part in given.items() if isinstance(given, Mapping) else enumerate(given):
            yield from _digest_outputs(part, f"{place}/{key}")
    else:
        yield f"{place} {type(given).__name__}", [0.0]


def _digest_tensor(given: Tensor) -> list[float]:
    """By how much rounding may change the others; the mean, the root mean square and a few random projections."""
    values = torch.view_as_real(given) if given.is_complex() else given
    x = values.detach().cpu().to(torch.float64).numpy().reshape(-1)
    # The same directions in every process and version, as NumPy promises of this generator.
    directions = np.random.RandomState(0).standard_normal((_PROJECTIONS, len(x)))
    size = np.sqrt(np.square(x).mean())
    rounding = _HALF_ROUNDING if given.dtype in (torch.float16, torch.bfloat16) else _ROUNDING
    numbers = (rounding * size, x.mean(), size, *(directions @ x / np.sqrt(len(x))))
    return [float(f"{number:.9g}") for number in numbers]


def _hash_json(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _show_dtype(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")
