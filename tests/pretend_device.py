"""A device that is not there: its tensors are computed on the CPU, and refuse what those of a real one would.

Tensors of two devices do not mix, but for numbers alone and for indices; and none is read as numpy.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_map_only

_DEVICE = torch.device("lazy:0")
"""of a type that torch has, and that needs no driver"""

_aten = torch.ops.aten
_MIX = (_aten._to_copy.default, _aten.copy_.default, _aten.index.Tensor, _aten.index_put_.default)


class Elsewhere(Tensor):
    """A tensor on a device that is not there."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor, device: torch.device) -> "Elsewhere":
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        made = Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, device=device, **layout)
        made.held = held
        return made

    def tolist(self) -> Any:
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        given = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        away = [x for x in given if isinstance(x, Elsewhere)]
        if away and func not in _MIX and any(x.ndim and not isinstance(x, Elsewhere) for x in given):
            raise RuntimeError(f"{func}: expected all tensors to be on the same device")
        device = given[0].device if func is _aten.copy_.default else away[0].device if away else torch.device("cpu")
        if kwargs.get("device") is not None:
            device, kwargs["device"] = torch.device(kwargs["device"]), torch.device("cpu")
        args, kwargs = tree_map_only(Elsewhere, lambda x: x.held, (args, kwargs))

        def wrapped(x: Any) -> Any:
            if not isinstance(x, Tensor) or device.type == "cpu":
                return x
            return next((each for each in away if each.held is x), Elsewhere(x, device))

        return tree_map(wrapped, func(*args, **kwargs))


class _Pretending(TorchDispatchMode):
    def __init__(self, double: bool) -> None:
        super().__init__()
        self.double = double

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = Elsewhere.__torch_dispatch__(func, types, args, kwargs)
        if not self.double and isinstance(made, Elsewhere) and made.dtype == torch.float64:
            raise TypeError(f"{func}: the device has no float64")
        return made


class _Generator(torch.Generator):
    def __new__(cls, device: torch.device | str = "cpu") -> "_Generator":
        return super().__new__(cls)


@contextmanager
def pretending(*, double: bool = True) -> Iterator[torch.device]:
    """A device that tensors can be made on and moved to, with generators; with float64 or without."""
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(…, device=…) makes them here, then moves them
    try:
        with _Pretending(double), patch.object(torch, "Generator", _Generator):
            yield _DEVICE
    finally:
        torch._C._set_only_lift_cpu_tensors(False)
