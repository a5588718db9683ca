"""Has the data moved away from what is held out? It takes no labels: what the model makes of the inputs is compared.

Two samples are compared by the maximum mean discrepancy with a Gaussian kernel (Gretton et al., 2012), as wide as the
median distance of two items. The p-value is that of a permutation test: under no drift it is exact, whatever the
features are. New data has drifted if it differs from every slice that is held out, and from all of them together: what
a model has learned once is no reason for an update when it comes back.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError

ALL = "all"
_LEAST = 20
"""items that a sample must have to be compared by itself"""
_LEAST_IN_CLASS = 10
_MOST_IN_CLASS = 100
"""items of a class on either side that are compared"""


@dataclass(frozen=True, eq=False)
class Seen:
    """What a model makes of some items."""

    features: Tensor
    """(n, d)"""
    classes: Tensor
    """(n,) that it predicts"""

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or self.classes.shape != (len(self.features),):
            shapes = f"{tuple(self.features.shape)} and {tuple(self.classes.shape)}"
            raise SelfReminderError(f"features and classes have shapes {shapes}: they are (n, d) and (n,)")
        if not bool(self.features.isfinite().all()):
            raise SelfReminderError("the model gives features that are not finite: mend the data or the model")

    def __len__(self) -> int:
        return len(self.features)

    @classmethod
    def of(cls, heard: Sequence[Tensor], logits: Tensor) -> "Seen":
        """What `listen` heard while a model gave these logits (n, K); if that is nothing, the logits."""
        features = torch.cat(list(heard)) if heard else logits
        return cls((features if len(features) == len(logits) else logits).float().cpu(), logits.argmax(1).cpu())

    def take(self, rows: Tensor) -> "Seen":
        """Some of the items."""
        return Seen(self.features[rows], self.classes[rows])


@dataclass(frozen=True)
class ClassDrift:
    """How much one predicted class has moved."""

    name: str
    share_then: float
    share_now: float
    p_share: float
    """that it is predicted as often as then, corrected for the number of classes"""
    p_within: float | None
    """that its items look as they did, corrected for the number of classes; None where they are too few"""
    moved: bool
    """whether either is too small for chance"""


@dataclass(frozen=True)
class Drift:
    """What a comparison found. Print it."""

    p: float
    """of no drift: the largest over all that new data was compared with"""
    alpha: float
    p_by_slice: dict[str, float]
    """of every slice that has items enough, and of all together"""
    items: int
    """of the new data"""
    classes: tuple[ClassDrift, ...]
    """compared with the nearest slice"""

    @property
    def drifted(self) -> bool:
        """Whether an update is due."""
        return self.p <= self.alpha

    @property
    def nearest(self) -> str:
        """The slice that new data differs from least."""
        return max(self.p_by_slice, key=self.p_by_slice.__getitem__)

    @property
    def moved(self) -> tuple[str, ...]:
        """Names of the classes that moved."""
        return tuple(each.name for each in self.classes if each.moved)

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        return asdict(self) | {"drifted": self.drifted, "nearest": self.nearest, "moved": list(self.moved)}

    def __str__(self) -> str:
        what = "all slices together" if self.nearest == ALL else f"slice {self.nearest}"
        verdict = "drifted: an update is due" if self.drifted else "no drift"
        lines = [f"{verdict} (p = {self.p:.3f}; {self.items:,} new items, nearest to {what})"]
        rows = [("class", "share then", "now", "p of share", "p within")] if self.moved else []
        for each in self.classes:
            if each.moved:
                within = "–" if each.p_within is None else f"{each.p_within:.3f}"
                rows.append(
                    (each.name, f"{each.share_then:.3f}", f"{each.share_now:.3f}", f"{each.p_share:.3f}", within)
                )
        wide = max((len(row[0]) for row in rows), default=0)
        return "\n".join([*lines, *(f"{row[0]:{wide}}" + "".join(f"{cell:>12}" for cell in row[1:]) for row in rows)])


def find_drift(
    old: Mapping[str, Seen],
    new: Seen,
    *,
    generator: torch.Generator,
    names: Sequence[str] = (),
    alpha: float = 0.01,
    permutations: int = 500,
    most: int = 1000,
) -> Drift:
    """Compare new data with what is held out.

    Args:
        old: slices by name.
        new: the new data.
        generator: draws the items and the permutations; on the CPU.
        names: of the classes in order; those without one go by their number.
        alpha: the chance of calling drift what is none.
        permutations: of one comparison.
        most: items on either side that are compared, a random choice: the cost is bounded by it.

    >>> generator = torch.Generator().manual_seed(0)
    >>> then, now = (Seen(torch.randn(300, 4, generator=generator) + x, torch.arange(300) % 2) for x in (0, 1))
    >>> print(find_drift({"v1": then}, now, generator=generator, names=["ham", "spam"]))
    drifted: an update is due (p = 0.002; 300 new items, nearest to slice v1)
    class  share then         now  p of share    p within
    ham         0.500       0.500       1.000       0.002
    spam        0.500       0.500       1.000       0.002
    """
    if not 0 < alpha < 1 or permutations < 2 / alpha:
        raise SelfReminderError(
            f"alpha {alpha} with {permutations} permutations: alpha is between 0 and 1, and takes 2 / alpha of them"
        )
    if len(new) < _LEAST:
        raise SelfReminderError(f"{len(new)} new items are too few to tell drift: give {_LEAST} at least")
    pool = _join(list(old.values()))
    if len(pool) < _LEAST:
        raise SelfReminderError(f"{len(pool)} held-out items are too few to tell drift: it takes {_LEAST} at least")
    compared = {name: each for name, each in old.items() if len(each) >= _LEAST}
    if len(old) > 1:
        compared[ALL] = pool
    fewer = _choose(new, most, generator)
    found = {
        name: mmd_test(_choose(each, most, generator).features, fewer.features, permutations, generator)
        for name, each in compared.items()
    }
    nearest = max(found, key=found.__getitem__)
    classes = _compare_classes(compared[nearest], new, names, alpha, permutations, generator)
    return Drift(found[nearest], alpha, found, len(new), classes)


def mmd_test(old: Tensor, new: Tensor, permutations: int, generator: torch.Generator) -> float:
    """The p-value of a permutation test that two samples (n, d) and (m, d) are of one distribution."""
    found = compute_mmd(old, new, permutations, generator)
    return _rank(found[0], found[1:])


def compute_mmd(old: Tensor, new: Tensor, permutations: int, generator: torch.Generator) -> Tensor:
    """(1 + permutations,) MMD² of two samples (n, d) and (m, d), and of so many random divisions of both together.

    MMD² = wᵀKw, with K the kernel between all items and w = 1/n for the old, −1/m for the new. Columns are brought to
    one scale, and K to its width, by both samples together, so that the divisions are alike under no drift.
    """
    both = torch.cat([old, new]).flatten(1).double()
    spread = both.std(0, correction=0)
    both = (both - both.mean(0)) / torch.where(spread > 0, spread, 1.0)
    squares = torch.cdist(both, both).square()
    n, total = len(old), len(both)
    away = squares[*torch.triu_indices(total, total, 1)]
    width = away.median()
    # Where more than half of all pairs are equal, the mean tells what is near.
    kernel = torch.exp(-squares / (width if width > 0 else away.mean().clamp_min(1e-300))).float()
    side = torch.full((total,), -1 / (total - n))
    side[:n] = 1 / n
    order = torch.rand(permutations, total, generator=generator).argsort(1)
    weights = torch.cat([side[None], side[order]]).to(kernel.device)
    return (weights * (weights @ kernel)).sum(1)


def share_test(then: int, n: int, now: int, m: int) -> float:
    """The p-value that what is `now` of m items is as frequent as when it was `then` of n: Fisher's, exact.

    >>> round(share_test(3, 10, 9, 10), 4)
    0.0198
    """
    total, size = then + now, n + m

    def log_chance(k: int) -> float:
        """Of k among the m, if all are of one kind."""
        return _log_choose(m, k) + _log_choose(n, total - k) - _log_choose(size, total)

    places = range(max(0, total - n), min(m, total) + 1)
    tails = [math.fsum(math.exp(log_chance(k)) for k in places if (k - now) * side >= 0) for side in (-1, 1)]
    return min(1.0, 2 * min(tails))


@contextmanager
def listen(model: nn.Module) -> Iterator[list[Tensor]]:
    """Hear what goes into the linear layer that a model calls last: its features, (batch, d) for each forward pass.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> with listen(model) as heard:
    ...     logits = torch.cat([model(x) for x in torch.rand(10, 4).split(5)])
    >>> Seen.of(heard, logits).features.shape
    torch.Size([10, 8])
    """
    heard: list[Tensor] = []
    last: list[Tensor] = []

    def note(_: nn.Module, given: tuple[Any, ...]) -> None:
        last[:] = [x.detach() for x in given[:1] if isinstance(x, Tensor)]

    def keep(*_: Any) -> None:
        # A layer that is called for every token, or place of an image, gives the mean over them.
        heard.extend(x.reshape(len(x), -1, x.shape[-1]).float().mean(1).cpu() for x in last)
        last.clear()

    handles = [layer.register_forward_pre_hook(note) for layer in model.modules() if isinstance(layer, nn.Linear)]
    handles.append(model.register_forward_hook(keep))
    try:
        yield heard
    finally:
        for handle in handles:
            handle.remove()


def _compare_classes(
    old: Seen, new: Seen, names: Sequence[str], alpha: float, permutations: int, generator: torch.Generator
) -> tuple[ClassDrift, ...]:
    """Compare what is predicted of each class: how often, and what it looks like."""
    known: list[int] = torch.cat([old.classes, new.classes]).unique().tolist()
    rows = {label: [(each.classes == label).nonzero().flatten() for each in (old, new)] for label in known}
    within: dict[int, Tensor] = {}
    for label, (then, now) in rows.items():
        if min(len(then), len(now)) >= _LEAST_IN_CLASS:
            ours = [_choose(each.take(which), _MOST_IN_CLASS, generator) for each, which in ((old, then), (new, now))]
            found = compute_mmd(ours[0].features, ours[1].features, permutations, generator)
            within[label] = (found - found.mean()) / found.std().clamp_min(1e-30)
    # Westfall and Young: a class is compared with the largest over all classes in each division.
    largest = torch.stack(list(within.values())).amax(0)[1:] if within else torch.zeros(0)
    compared = []
    for label, (then, now) in rows.items():
        p_share = min(1.0, len(known) * share_test(len(then), len(old), len(now), len(new)))
        p_within = _rank(within[label][0], largest) if label in within else None
        moved = min(p_share, 1.0 if p_within is None else p_within) <= alpha / 2
        name = names[label] if label < len(names) else str(label)
        compared.append(ClassDrift(name, len(then) / len(old), len(now) / len(new), p_share, p_within, moved))
    return tuple(compared)


def _rank(found: Tensor, others: Tensor) -> float:
    """The share of all that is as large; equal but for rounding is equal, which is on the safe side."""
    return float((others >= found - 1e-5 * found.abs()).sum() + 1) / (len(others) + 1)


def _choose(seen: Seen, most: int, generator: torch.Generator) -> Seen:
    return seen if len(seen) <= most else seen.take(torch.randperm(len(seen), generator=generator)[:most])


def _join(parts: Sequence[Seen]) -> Seen:
    if not parts:
        raise SelfReminderError("nothing is held out that new data could be compared with")
    return Seen(torch.cat([each.features for each in parts]), torch.cat([each.classes for each in parts]))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
