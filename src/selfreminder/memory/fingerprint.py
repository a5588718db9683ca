"""What recorded a task's logits: the layers of the model, the transform, the shapes of the inputs.

Logits hold only for what gave them. A memory keeps a fingerprint with them, so that it can say so when it meets another
model, or the same one behind another transform.
"""

import dis
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
from torch import Tensor, nn

_WRAPPERS = ("module", "_orig_mod")
"""what DistributedDataParallel and torch.compile put before or into the names of parameters"""
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
_FILLS = {
    "add",
    "append",
    "appendleft",
    "clear",
    "extend",
    "insert",
    "pop",
    "popleft",
    "remove",
    "setdefault",
    "update",
}
"""methods by which a function changes a list, dict or set around it"""
_FEW = 64
"""numbers of an array up to which its values are looked at, such as the means of channels"""


@dataclass(frozen=True)
class Fingerprint:
    """What recorded a task's logits.

    >>> import torch
    >>> x = torch.zeros(9, 4)
    >>> then, now = (Fingerprint.of(nn.Linear(4, classes), {"x": x}, classes) for classes in (2, 3))
    >>> then.differences(then), then.differences(now)[0]
    ([], 'it holds 2 logits an item, the model gives 3')
    """

    model: str
    """see `model_fingerprint`"""
    classes: int
    """logits an item"""
    transform: str
    """see `transform_fingerprint`; "" without one"""
    inputs: dict[str, tuple[tuple[int, ...], str]]
    """shape and dtype of an item of each input, as it is kept, before it is encoded"""

    @classmethod
    def of(
        cls,
        model: nn.Module,
        inputs: Mapping[str, Tensor],
        classes: int,
        transform: Callable[..., Any] | None = None,
    ) -> "Fingerprint":
        """Of a model that gives `classes` logits on inputs (n, …), which go through the transform first."""
        shapes = {name: (tuple(x.shape[1:]), _dtype(x)) for name, x in inputs.items()}
        return cls(model_fingerprint(model), classes, transform_fingerprint(transform), shapes)

    def differences(self, now: "Fingerprint") -> list[str]:
        """One sentence for each thing that is another one now; none where logits can be compared."""
        found = []
        if self.classes != now.classes:
            found.append(f"it holds {self.classes} logits an item, the model gives {now.classes}")
        if self.model != now.model:
            found.append(
                "it was recorded by a model with other layers, shapes or dtypes "
                f"(fingerprint {self.model}, now {now.model})"
            )
        if self.transform != now.transform:
            then, today = (f"transform {each}" if each else "no transform" for each in (self.transform, now.transform))
            found.append(f"it was recorded with {then}, now there is {today}")
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
        return {"model": self.model, "classes": self.classes, "transform": self.transform, "inputs": inputs}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "Fingerprint":
        """The inverse of `facts`."""
        inputs = {str(name): (tuple(map(int, shape)), str(dtype)) for name, (shape, dtype) in facts["inputs"].items()}
        return cls(str(facts["model"]), int(facts["classes"]), str(facts["transform"]), inputs)


def staleness(
    fingerprints: Mapping[int, Fingerprint], model: nn.Module, transform: Callable[..., Any] | None, *, grown: bool
) -> str:
    """Which tasks' logits are another model's or another transform's, in words; "" where none are.

    A model that has `grown` has other layers by right.
    """
    of_model, of_transform = model_fingerprint(model), transform_fingerprint(transform)
    found: dict[str, list[int]] = {}
    for task, fingerprint in fingerprints.items():
        now = replace(fingerprint, model=fingerprint.model if grown else of_model, transform=of_transform)
        for difference in fingerprint.differences(now):
            found.setdefault(difference, []).append(task)
    return "; ".join(
        f"the memory of task {', '.join(map(str, tasks))} is stale: {difference}" for difference, tasks in found.items()
    )


def model_fingerprint(model: nn.Module) -> str:
    """16 hex digits of the names, shapes and dtypes of a model's parameters and buffers, whatever wraps it.

    >>> model_fingerprint(nn.Linear(2, 3)) == model_fingerprint(nn.DataParallel(nn.Linear(2, 3)))
    True
    """
    tensors = model.state_dict(keep_vars=True)  # the parameters themselves, no copies
    rows = [
        [".".join(part for part in name.split(".") if part not in _WRAPPERS), list(tensor.shape), _dtype(tensor)]
        for name, tensor in tensors.items()
        if isinstance(tensor, Tensor)
    ]
    return _digest(json.dumps(sorted(rows)))


def transform_fingerprint(transform: Callable[..., Any] | None) -> str:
    """16 hex digits of what a transform is called and which names and constants it uses; "" for none.

    The same in every process, and under every version of Python as far as that can be had: the bytecode is left out.

    >>> first, same, other = lambda x: x / 255, lambda x: x / 255, lambda x: x / 127
    >>> transform_fingerprint(first) == transform_fingerprint(same) != transform_fingerprint(other)
    True
    """
    return "" if transform is None else _digest(_told(transform))


def _told(value: Any, inside: tuple[int, ...] = ()) -> str:
    """A value in words that are the same in every process. `inside` has what it is a part of."""
    if id(value) in inside:
        return "itself"

    def told(part: Any) -> str:
        return _told(part, (*inside, id(value)))

    match value:
        case partial():
            return f"partial({told(value.func)}, {told(value.args)}, {told(value.keywords)})"
        case MethodType():
            return f"method({told(value.__func__)}, {told(value.__self__)})"
        case FunctionType():
            names = {name for code in _codes(value.__code__) for name in code.co_names}
            constants = dict.fromkeys(map(told, _constants(value.__code__)))
            bound = (value.__defaults__, value.__kwdefaults__, _enclosed(value, names))
            # Neither module nor qualified name: a function moves from a script into a module.
            return f"{value.__name__}({sorted(names)}, {list(constants)}, {told(bound)})"
        case nn.Module():
            return _ADDRESS.sub("", repr(value))
        case Tensor() | np.ndarray():
            few = value.tolist() if np.prod(value.shape) <= _FEW else "…"
            return f"{_dtype(value)}{tuple(value.shape)}{few}"
        case dict():
            return f"{{{', '.join(sorted(f'{told(key)}: {told(part)}' for key, part in value.items()))}}}"
        case set() | frozenset():
            return f"{{{', '.join(sorted(map(told, value)))}}}"
        case tuple() | list():
            return f"[{', '.join(map(told, value))}]"
        case type():
            return value.__qualname__
    if isinstance(getattr(value, "__qualname__", None), str):  # a function that is not Python's
        return f"{getattr(value, '__module__', None)}.{value.__qualname__}"
    own = type(value).__repr__ is not object.__repr__
    return _ADDRESS.sub("", repr(value)) if own else type(value).__qualname__


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of functions inside it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _codes(part)


def _constants(code: CodeType) -> Iterator[Any]:
    """The constants that code uses, with those of functions inside it, which newer Pythons may have inlined."""
    for step in dis.get_instructions(code):
        # Not all of `co_consts`: it has the docstring, and from Python 3.14 on it lacks small integers.
        if step.arg is not None and (step.opcode in dis.hasconst or step.opname == "LOAD_SMALL_INT"):
            value = code.co_consts[step.arg] if step.opcode in dis.hasconst else step.arg
            if isinstance(value, CodeType):
                yield from _constants(value)
            else:
                parts = (value.start, value.stop, value.step) if isinstance(value, slice) else (value,)
                yield from (part for part in parts if part is not None)


def _enclosed(function: FunctionType, names: set[str]) -> dict[str, Any]:
    """The variables around a function that it uses, but for what it changes itself, such as a count of its calls."""
    steps = [step for code in _codes(function.__code__) for step in dis.get_instructions(code)]
    rebound = {step.argval for step in steps if step.opname == "STORE_DEREF"}
    fills = not _FILLS.isdisjoint(names) or any(step.opname == "STORE_SUBSCR" for step in steps)
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            value = cell.cell_contents
        except ValueError:  # of a name that is bound later
            continue
        if name not in rebound:
            found[name] = type(value) if fills and isinstance(value, list | dict | set) else value
    return found


def _dtype(x: Tensor | np.ndarray) -> str:
    return str(x.dtype).removeprefix("torch.")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
