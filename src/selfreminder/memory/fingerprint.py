"""What gave a task's logits: the layers of the model, what the transform does, the shapes of the inputs.

Logits hold only for what gave them. A memory keeps a fingerprint with them, so that it can say so when it meets another
model, or the same one behind another transform.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
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
_HALF = ("float16", "bfloat16")

Transform = Callable[[Any], Any]
Outputs = dict[str, tuple[str, tuple[int, ...], tuple[float, ...]]]
"""of each tensor in an output: dtype, shape, and its mean, its root mean square and a few random projections"""


@dataclass(frozen=True)
class TransformDigest:
    """What a transform makes of one item of a memory, in a few numbers that are compared within rounding.

    The item is the first of the task's when the digest was taken. If it leaves the memory, only that there was a
    transform is known, until items are added to the task: the first of those is then digested. A transform that is
    random (two calls differ), or fails on a single item, is not compared; nor are those of earlier files.
    """

    item: int | None = None
    """the item's id; None where nothing can be compared"""
    outputs: Outputs | None = None

    @classmethod
    def of(cls, transform: Transform, inputs: dict[str, Tensor], item: int) -> "TransformDigest":
        """Of one item's inputs (1, …), as they are read back from a memory."""
        on_gpu = {x.device for x in inputs.values() if x.is_cuda}
        with torch.random.fork_rng(devices=on_gpu), torch.no_grad():  # a random transform takes no number of yours
            try:
                given = [restore_structure({name: x.clone() for name, x in inputs.items()}) for _ in range(2)]
                once, twice = (dict(_digest_outputs(transform(each))) for each in given)
            except Exception:  # whatever it raises: where it matters, the user's own call raises it too
                return cls()
        return cls(item, once) if once == twice else cls()

    def differs(self, now: "TransformDigest") -> bool:
        """Whether both are of the same item, and not the same."""
        if self.outputs is None or now.outputs is None or self.item != now.item:
            return False
        return not _are_close(self.outputs, now.outputs)

    def __str__(self) -> str:
        """16 hex digits, to tell digests apart; "unknown" where nothing can be compared."""
        return "unknown" if self.outputs is None else _hash_text(json.dumps(self.facts, sort_keys=True))

    @property
    def facts(self) -> dict[str, Any]:
        """As JSON can say it."""
        return {} if self.outputs is None else {"item": self.item, "outputs": self.outputs}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any] | str) -> "TransformDigest | None":
        """The inverse of `facts`; "" is no transform, and other text is what earlier files knew of one."""
        if isinstance(facts, str) or not facts:
            return None if facts == "" else cls()
        outputs = {
            str(name): (str(dtype), tuple(map(int, shape)), tuple(map(float, numbers)))
            for name, (dtype, shape, numbers) in facts["outputs"].items()
        }
        return cls(int(facts["item"]), outputs)


@dataclass(frozen=True)
class Fingerprint:
    """What gave a task's logits.

    >>> x = torch.zeros(9, 4)
    >>> then, now = (Fingerprint.of(nn.Linear(4, classes), {"x": x}, classes) for classes in (2, 3))
    >>> then.find_differences(then), then.find_differences(now)[0]
    ([], 'it holds 2 logits an item, the model gives 3')
    """

    model: str
    """see `fingerprint_model`"""
    classes: int
    """logits an item"""
    transform: TransformDigest | None
    """None without one"""
    inputs: dict[str, tuple[tuple[int, ...], str]]
    """shape and dtype of an item of each input, as it is kept, before it is encoded"""

    @classmethod
    def of(
        cls, model: nn.Module, inputs: Mapping[str, Tensor], classes: int, transform: TransformDigest | None = None
    ) -> "Fingerprint":
        """Of a model that gives `classes` logits on inputs (n, …), which go through a transform first."""
        shapes = {name: (tuple(x.shape[1:]), _show_dtype(x)) for name, x in inputs.items()}
        return cls(fingerprint_model(model), classes, transform, shapes)

    def find_differences(self, now: "Fingerprint") -> list[str]:
        """One sentence for each thing that is another one now; none where logits can be compared."""
        found = []
        if self.classes != now.classes:
            found.append(f"it holds {self.classes} logits an item, the model gives {now.classes}")
        if self.model != now.model:
            found.append(
                "it was recorded by a model with other layers, shapes or dtypes "
                f"(fingerprint {self.model}, now {now.model})"
            )
        if (self.transform is None) != (now.transform is None):
            then, today = (
                "no transform" if each is None else "a transform" for each in (self.transform, now.transform)
            )
            found.append(f"it was recorded with {then}, now there is {today}")
        elif self.transform is not None and now.transform is not None and self.transform.differs(now.transform):
            found.append("it was recorded with a transform that made something else of the same item")
        for name in dict.fromkeys((*self.inputs, *now.inputs)):
            if name not in now.inputs:
                found.append(f"input '{name}' is there no more")
            elif name not in self.inputs:
                found.append(f"input '{name}' is new")
            else:
                (shape, dtype), (shape_now, dtype_now) = self.inputs[name], now.inputs[name]
                if shape != shape_now:
                    found.append(f"input '{name}' had the shape {shape}, now {shape_now}")
                if dtype != dtype_now:
                    found.append(f"input '{name}' was {dtype}, now {dtype_now}")
        return found

    @property
    def facts(self) -> dict[str, Any]:
        """As JSON can say it."""
        inputs = {name: [list(shape), dtype] for name, (shape, dtype) in self.inputs.items()}
        transform = "" if self.transform is None else self.transform.facts
        return {"model": self.model, "classes": self.classes, "transform": transform, "inputs": inputs}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "Fingerprint":
        """The inverse of `facts`."""
        inputs = {str(name): (tuple(map(int, shape)), str(dtype)) for name, (shape, dtype) in facts["inputs"].items()}
        return cls(str(facts["model"]), int(facts["classes"]), TransformDigest.from_facts(facts["transform"]), inputs)

    @property
    def item(self) -> int | None:
        """The id of the item that the transform's digest is of."""
        return None if self.transform is None else self.transform.item

    def with_item(self, item: int | None) -> "Fingerprint":
        """The same where the digested item has another id, or (None) is not in the memory any more."""
        if self.transform is None or self.transform.item is None:
            return self
        return replace(self, transform=TransformDigest() if item is None else replace(self.transform, item=item))


def find_staleness(memory: "Memory", model: nn.Module, transform: Transform | None, *, grown: bool) -> str:
    """Say which tasks' logits are another model's or another transform's, in words; "" where none are.

    A model that has `grown` has other layers by right.
    """
    present, found = fingerprint_model(model), dict[str, list[int]]()
    device = next((p.device for p in model.parameters()), memory.device)
    for task, then in memory.fingerprints.items():
        digest = None if transform is None else TransformDigest()
        if transform is not None and then.item is not None and (inputs := memory.read_item(then.item)) is not None:
            digest = TransformDigest.of(transform, {name: x.to(device) for name, x in inputs.items()}, then.item)
        now = replace(then, model=then.model if grown else present, transform=digest)
        for difference in then.find_differences(now):
            found.setdefault(difference, []).append(task)
    return "; ".join(
        f"the memory of task {', '.join(map(str, tasks))} is stale: {difference}" for difference, tasks in found.items()
    )


def fingerprint_model(model: nn.Module) -> str:
    """16 hex digits of the names, shapes and dtypes of a model's parameters and buffers, whatever wraps it.

    >>> fingerprint_model(nn.Linear(2, 3)) == fingerprint_model(nn.DataParallel(nn.Linear(2, 3)))
    True
    """
    tensors = model.state_dict(keep_vars=True)  # the parameters themselves, no copies
    rows = [
        [".".join(part for part in name.split(".") if part not in _WRAPPERS), list(tensor.shape), _show_dtype(tensor)]
        for name, tensor in tensors.items()
        if isinstance(tensor, Tensor)
    ]
    return _hash_text(json.dumps(sorted(rows)))


def _digest_outputs(given: Any, name: str = "") -> Iterator[tuple[str, tuple[str, tuple[int, ...], tuple[float, ...]]]]:
    """Each tensor in what a transform gives, by its place in tuples and dicts; of anything else the type."""
    if isinstance(given, Tensor):
        values = torch.view_as_real(given) if given.is_complex() else given
        x = values.detach().cpu().to(torch.float64).numpy().reshape(-1)
        numbers = [x.mean(), np.sqrt(np.square(x).mean()), *(_directions(len(x)) @ x)] if len(x) else []
        yield name, (_show_dtype(given), tuple(given.shape), tuple(float(f"{number:.9g}") for number in numbers))
    elif isinstance(given, Mapping | list | tuple):
        for key, part in given.items() if isinstance(given, Mapping) else enumerate(given):
            yield from _digest_outputs(part, f"{name}/{key}")
    else:
        yield name, (type(given).__name__, (), ())


@lru_cache(maxsize=1)
def _directions(n: int) -> np.ndarray:
    """(projections, n): the same numbers in every process and version, as NumPy promises of this generator."""
    return np.random.RandomState(0).standard_normal((_PROJECTIONS, n)) / math.sqrt(n)


def _are_close(one: Outputs, other: Outputs) -> bool:
    """Whether two outputs are the same but for rounding; floats of another precision are."""
    if one.keys() != other.keys():
        return False
    for name, (dtype, shape, numbers) in one.items():
        other_dtype, other_shape, other_numbers = other[name]
        floating = "float" in dtype and "float" in other_dtype
        if shape != other_shape or not (floating or dtype == other_dtype):
            return False
        rounding = _HALF_ROUNDING if dtype in _HALF or other_dtype in _HALF else _ROUNDING
        size = max((abs(number) for number in (*numbers[1:2], *other_numbers[1:2])), default=0.0)
        if not all(abs(a - b) <= rounding * size for a, b in zip(numbers, other_numbers)):
            return False
    return True


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _show_dtype(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")
