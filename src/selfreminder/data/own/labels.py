"""Labels as numbers: whole numbers as they are, names by the order of the known classes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from selfreminder._base.errors import DataError
from selfreminder.data.own.own_data import Found, check_bad

_SHOWN = 10
_MOST_CLASSES = 1_000_000
"""that have numbers and no names: a model has an output for each number up to the largest"""


class UnknownClassError(DataError):
    """The data has labels that are not among the known classes."""

    def __init__(self, message: str, unknown: tuple[str, ...]) -> None:
        super().__init__(message)
        self.unknown = unknown
        """their names"""


def check_classes(classes: Sequence[str]) -> tuple[str, ...]:
    """Names of classes as a tuple; raise unless they are different names."""
    if isinstance(classes, str) or not all(isinstance(name, str) and name for name in classes) or not classes:
        raise DataError("classes are a list of names, one for each of the model's outputs, in order")
    twice = [name for name in dict.fromkeys(classes) if list(classes).count(name) > 1]
    if twice:
        raise DataError(f"classes have the name '{twice[0]}' twice: one name for each of the model's outputs, in order")
    return tuple(classes)


def drop_gaps(found: Found, skip_bad: bool) -> Found:
    """Leave out the items without a label, or raise."""
    if found.labels is None:
        return found
    gaps = _find_gaps(found.labels)
    if not gaps.any():
        return found
    if gaps.all():
        raise DataError(f"{found.label_name}: not one item has a label: fill them in, or take another column")
    bad = [f"{found.place(row)} (no label)" for row in np.flatnonzero(gaps)]
    check_bad(bad, len(gaps), f"items have a gap in {found.label_name}", skip_bad)
    found = found.keep(~gaps, bad)
    if found.labels is not None and found.labels.dtype.kind == "f" and not (found.labels % 1).any():
        return replace(found, labels=found.labels.astype(np.int64))  # it was the gaps that made them have a point
    return found


def number_labels(
    found: Found, classes: Sequence[str] | None, grow: bool
) -> tuple[Tensor | None, tuple[str, ...] | None]:
    """Give labels their numbers.

    Args:
        found: with labels without gaps, or None.
        classes: known ones, in the order of their numbers. Without them, whole numbers are taken as they are, and names
            are numbered in their sorted order, as torchvision's and Hugging Face's folders of images are.
        grow: add what is not known after what is.

    Returns: (n,) int64 and the names by number.
    """
    known = None if classes is None else check_classes(classes)
    if found.labels is None:
        return None, known
    raw, what = found.labels, found.label_name
    kind = raw.dtype.kind
    if kind == "M":
        raise DataError(f"{what}: it holds dates such as {raw[0]}: a label is a whole number or a name")
    if kind in "fc":
        raise DataError(
            f"{what}: it holds numbers with a point such as {raw[0]}: a label is a whole number or a name; "
            "write classes without a point"
        )
    if kind in "biu":
        if kind != "b" and raw.min() < 0:
            row = int((raw < 0).argmax())
            raise DataError(f"{what}: {raw[row]} ({found.place(row)}) is negative: classes are numbered from 0")
        if found.names is None:
            return _number_numbers(found, raw.astype(np.int64), known, grow)
        if raw.max() >= len(found.names):
            raise DataError(f"{what}: there is a label {raw.max()}, but only {len(found.names)} names of classes")
        values = np.array(found.names, object)[raw]
    else:
        values = raw
    if known is None:
        known = found.names or tuple(sorted(set(values)))
    return _number_names(found, values, known, grow)


def name_labels(labels: Tensor, classes: tuple[str, ...] | None) -> np.ndarray:
    """The name of each item's class; its number, where classes have no names."""
    names = classes or tuple(map(str, range(int(labels.max()) + 1)))
    return np.array([names[label] for label in labels.tolist()], object)


def _number_numbers(
    found: Found, labels: np.ndarray, known: tuple[str, ...] | None, grow: bool
) -> tuple[Tensor, tuple[str, ...] | None]:
    if known is None:
        if (most := labels.max()) >= _MOST_CLASSES:
            place = found.place(int(labels.argmax()))
            raise DataError(
                f"{found.label_name}: {most} ({place}) is too large for the number of a class, of which there are at "
                f"most {_MOST_CLASSES:,}, from 0: number them anew, or write names"
            )
        return torch.from_numpy(labels), None
    if all(name.isdecimal() for name in known):
        return _number_names(found, labels.astype(str).astype(object), known, grow)
    if labels.max() >= len(known):
        row = int(labels.argmax())
        raise UnknownClassError(
            f"{found.label_name}: {labels[row]} ({found.place(row)}) is more than the {len(known)} known classes allow "
            f"(0 to {len(known) - 1}: {_show(known)}): name the new ones after them, and let the model grow (--grow)",
            (str(labels[row]),),
        )
    return torch.from_numpy(labels), known


def _number_names(
    found: Found, values: np.ndarray, known: tuple[str, ...], grow: bool
) -> tuple[Tensor, tuple[str, ...]]:
    there, codes, counts = np.unique(values.astype(str), return_inverse=True, return_counts=True)
    count = dict(zip(there.tolist(), counts.tolist()))
    new = tuple(name for name in there.tolist() if name not in set(known))
    if new and not grow:
        shown = _show([f"'{name}' ({count[name]} items)" for name in new])
        raise UnknownClassError(
            f"{found.label_name}: {shown} not among the {len(known)} known classes ({_show(known)}): if new, add them "
            "after the known ones and let the model grow (--grow); if not, mend the labels",
            new,
        )
    known = known + new
    place = {name: number for number, name in enumerate(known)}
    numbers = torch.tensor([place[name] for name in there.tolist()], dtype=torch.int64)
    return numbers[torch.from_numpy(codes.reshape(-1))], known


def _find_gaps(labels: np.ndarray) -> np.ndarray:
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    if labels.dtype.kind == "M":
        return np.isnat(labels)
    if labels.dtype.kind == "O":
        return np.array([value == "" for value in labels], bool)
    return np.zeros(len(labels), bool)


def _show(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
