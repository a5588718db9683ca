"""Labels, wherever they are and in whatever form: as classes, or as strata of the choice where they are none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder.samples.columns import UNKNOWN, LabelColumn, from_numpy, innermost, is_text

_STRATA = 5
"""of numbers"""


@dataclass(frozen=True)
class LabelPlace:
    """Where the labels are: under a key, beside the data, or where they are by custom."""

    key: str | None
    beside: LabelColumn | None

    def split(self, given: Any) -> tuple[dict[str, Any], Any]:
        """Split an item or a batch into its inputs by name and its label or labels, None if it has none."""
        label = None
        if isinstance(given, tuple | list):
            if len(given) > 1 and self.beside is None:
                *given, label = given
            given = given[0] if len(given) == 1 else tuple(given)
        if isinstance(given, Mapping):
            inputs = dict(given)
            if self.key is not None and self.key not in inputs:
                raise unknown("key of labels", self.key, map(str, inputs))
            for name in ("labels", "label") if self.key is None else (self.key,):
                inside = inputs.pop(name, None)
                label = inside if label is None else label
            return inputs, label
        if self.key is not None:
            raise SelfReminderError(f"labels='{self.key}' is the name of a key, but the data has no keys")
        if isinstance(given, tuple) or (isinstance(given, list) and not isinstance(innermost(given), int | float)):
            return {str(i): value for i, value in enumerate(given)}, label
        return {"x": given}, label


class LabelReader:
    """Reads labels batch by batch.

    Whole numbers are classes, of shape (n,) or (n, 1); names are, where `classes` has them in order; rows (n, K) of
    zeros and a one are. Rows with several ones are not, nor are fractions: these only spread the choice, over the rows
    that there are, or over fifths of the range, of which the first batch says where they are.

    >>> LabelReader(["cat", "dog"]).read(["dog", "cat", "dog"]).classes
    tensor([1, 0, 1])
    >>> reader = LabelReader()
    >>> reader.read(torch.tensor([[1, 0], [0, 1]])).classes, reader.are_classes
    (tensor([0, 1]), True)
    >>> reader.read(torch.tensor([[1, 1], [0, 1]])).classes, reader.are_classes
    (tensor([-1,  1]), False)
    """

    def __init__(self, classes: Sequence[str] | None = None) -> None:
        self.are_classes = True
        """whether all labels were, so far"""
        self._form: str | None = None
        self._edges: Tensor | None = None
        self._places: dict[str, int] | None = None
        if classes is not None:
            if isinstance(classes, str) or not all(isinstance(name, str) for name in classes):
                raise SelfReminderError("classes are a list of names, one for each of the model's outputs, in order")
            self._places = {name: place for place, name in enumerate(classes)}
            if len(self._places) < len(classes):
                raise SelfReminderError("classes have a name twice: one name for each of the model's outputs, in order")

    def read(self, labels: Any) -> LabelColumn:
        """Read the labels of a batch."""
        given = _as_tensor(labels)
        if not isinstance(given, Tensor):
            self._expect("names")
            return LabelColumn(self._find_places(given))
        if self._places is not None and given.numel():
            raise SelfReminderError(f"classes=… is for labels that are names, these are {_show(given)}: leave it out")
        given = given.detach().cpu()
        x = given[:, 0] if given.ndim == 2 and given.shape[1] == 1 else given
        if x.ndim == 1 and self._edges is None and not x.is_floating_point() and not x.is_complex():
            self._expect("whole numbers")
            return LabelColumn(x.to(torch.long))
        if x.ndim == 1 and not x.is_complex():
            return self._read_numbers(x, given)
        if x.ndim == 2 and bool(((x == 0) | (x == 1)).all()):
            return self._read_rows(x.to(torch.long))
        remedy = "labels.argmax(1), if these are scores" if x.ndim == 2 and x.is_floating_point() else ""
        raise no_labels(_show(given), remedy)

    def _find_places(self, names: list[str]) -> Tensor:
        if self._places is None:
            raise SelfReminderError(
                "the labels are text: number the classes (a Hugging Face dataset: class_encode_column), or name them "
                "in the order of the model's outputs, remember(…, classes=[…])"
            )
        for name in names:
            if name not in self._places:
                raise unknown("class", name, self._places)
        return torch.tensor([self._places[name] for name in names])

    def _read_numbers(self, x: Tensor, given: Tensor) -> LabelColumn:
        if not bool(x.isfinite().all()):
            raise SelfReminderError("the labels hold values that are not finite")
        if self._edges is None:
            if torch.equal(x, x.round()):
                squeezed = "" if given.ndim == 1 else ".squeeze(1)"
                raise no_labels(_show(given), f"labels{squeezed}.long(), if these are classes")
            ordered = x.sort().values
            self._edges = ordered[[len(x) * k // _STRATA for k in range(1, _STRATA)]]
        self._expect("numbers")
        self.are_classes = False
        return LabelColumn(torch.full((len(x),), UNKNOWN), torch.bucketize(x.to(self._edges), self._edges, right=True))

    def _read_rows(self, rows: Tensor) -> LabelColumn:
        self._expect(f"rows of {rows.shape[1]}")
        single = rows.sum(1) == 1
        self.are_classes = self.are_classes and bool(single.all())
        # A number for each pattern, the same in every batch and process; int64 wraps around.
        weights = torch.randint(2**62, (rows.shape[1],), generator=torch.Generator().manual_seed(0))
        return LabelColumn(torch.where(single, rows.argmax(1), UNKNOWN), (rows * weights).sum(1))

    def _expect(self, form: str) -> None:
        if self._form not in (None, form):
            raise SelfReminderError(f"all labels must have one form: some are {self._form}, some {form}")
        self._form = form


def no_labels(what: str, remedy: str = "") -> SelfReminderError:
    """The error for labels that nothing can be made of."""
    return SelfReminderError(
        f"the labels are {what}: a reminder works for classifiers with one label an item, whole numbers of shape (n,): "
        f"{remedy and f'pass {remedy}; '}without labels, the model's predictions spread the choice over classes"
    )


def _as_tensor(labels: Any) -> Tensor | list[str]:
    """Labels as a tensor, or as names."""
    labels = labels.to_numpy() if hasattr(labels, "to_numpy") else labels  # a column of pandas or polars
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "OUS":
        labels = labels.tolist()
    if not isinstance(labels, Tensor | np.ndarray):
        kind = type(labels).__name__
        try:
            labels = list(labels)
            if is_text(labels) and not isinstance(labels[0], list | tuple):
                return [name.decode() if isinstance(name, bytes) else str(name) for name in labels]
            if labels:
                nested = isinstance(labels[0], list | tuple)
                labels = torch.tensor(labels) if nested else default_collate(labels)
        except (TypeError, ValueError, RuntimeError) as error:
            raise no_labels(f"a {kind}") from error
    if isinstance(labels, list):
        return torch.zeros(0, dtype=torch.long)
    if isinstance(labels, np.ndarray):
        return from_numpy("labels", labels)
    if not isinstance(labels, Tensor):
        raise no_labels("several an item")
    return labels


def _show(labels: Tensor) -> str:
    return f"{str(labels.dtype).removeprefix('torch.')} of shape {tuple(labels.shape)}"
