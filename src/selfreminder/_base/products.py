"""Products of matrices by oneDNN instead of MKL, which on processors of AMD computes at half of their speed."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from selfreminder._base.errors import SelfReminderError

PRODUCTS = "SELFREMINDER_PRODUCTS"
"""what computes products of float32 matrices on a CPU: torch's own choice where it is not set, or `onednn`"""


def by_onednn() -> bool:
    """Tell whether products are asked of oneDNN; refuse to where this torch has none."""
    asked = os.environ.get(PRODUCTS, "")
    if asked not in ("", "onednn"):
        raise SelfReminderError(f"{PRODUCTS}={asked}: it is onednn, or is not set")
    if asked and not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        raise SelfReminderError(f"{PRODUCTS}={asked}: this torch has no oneDNN; unset it")
    return bool(asked)


@contextmanager
def onednn_products() -> Iterator[None]:
    """Have oneDNN compute the products of float32 matrices on the CPU, in this process, where that is asked for.

    Kernels are exchanged below autograd, so that derivatives of any order and `torch.func` are as ever. Numbers are
    rounded otherwise: runs that are compared should all have it, or none, and their records say so.
    """
    if not by_onednn():
        yield
        return
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        library.impl("mm", _multiply, "CPU")
        library.impl("addmm", _multiply_and_add, "CPU")
    try:
        yield
    finally:
        library._destroy()


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    if _can_multiply(a, b):
        return torch.ops.mkldnn._linear_pointwise.default(a, b.t(), None, "none", [], "")
    return torch.mm(a, b, out=a.new_empty(a.shape[0], b.shape[1]))


def _multiply_and_add(added: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    is_bias = added.shape == b.shape[1:] and added.dtype == torch.float32 and beta == alpha == 1
    if is_bias and _can_multiply(a, b):
        return torch.ops.mkldnn._linear_pointwise.default(a, b.t(), added, "none", [], "")
    return torch.addmm(added, a, b, beta=beta, alpha=alpha, out=a.new_empty(a.shape[0], b.shape[1]))


def _can_multiply(a: Tensor, b: Tensor) -> bool:
    """Tell whether oneDNN is asked for this product; torch's own says what is wrong with one."""
    is_sound = a.shape[1] == b.shape[0] and a.numel() > 0 and b.numel() > 0
    return is_sound and a.dtype == b.dtype == torch.float32
