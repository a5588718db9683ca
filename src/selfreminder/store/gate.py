"""The gate: may a candidate replace the current version? Both answered the same held-out items.

A slice is judged by what changed between the two, paired by item: `worse` items were right and are wrong, `better`
ones the other way round. The drop in accuracy has an estimate, with a bound on either side. With a limit L, a slice

- has **passed** if the drop is at most L as estimated, and surely at most 2L;
- has **failed** if it is more than L as estimated, and surely more than nothing;
- has **too few to tell** otherwise, and it says how many it would take.

So whatever the slice, at the default confidence: of candidates that lose twice what is allowed, no more than 5 % pass;
of those that lose nothing, no more than 5 % fail. With enough items it is the estimate that decides. Flips are judged
in the same way; as no update is without any, they fail where they are surely more than half of what is allowed.

Classes, and parts by a column's value, are many. They refuse only if they surely lose more than L, at a confidence that
is corrected for their number.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from selfreminder._base.errors import SelfReminderError
from selfreminder.samples import UNKNOWN
from selfreminder.store.intervals import beta_cdf, clopper_pearson, paired
from selfreminder.store.judgement import FAILED, PASSED, TOO_FEW, Check, Judgement, Rule, Scope, Verdict, round_up


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What a candidate must hold to. Limits are shares: 0.01 is a point of accuracy; 1 turns a limit off."""

    old_drop_max: float = 0.01
    """largest drop in accuracy on any earlier slice"""
    per_class_drop_max: float = 0.03
    """largest drop in accuracy on any class, or part, of an earlier slice"""
    new_gain_min: float = 0.0
    """least gain in accuracy on the new slice"""
    flips_max: float = 0.02
    """largest share of an earlier slice's items that were right and are wrong"""
    confidence: float = 0.95
    """of every bound"""
    unsure: Literal["refuse", "pass"] = "refuse"
    """what follows where an earlier slice has too few items to tell"""

    def __post_init__(self) -> None:
        for name in ("old_drop_max", "per_class_drop_max", "flips_max"):
            value = getattr(self, name)
            if not 0 < value <= 1:
                raise SelfReminderError(
                    f"gate: {name} = {value}: it must be above 0 and at most 1; no number of items can show that "
                    "nothing at all is lost, so give the least that matters, as 0.005"
                )
        if not -1 <= self.new_gain_min <= 1:
            raise SelfReminderError(f"gate: new_gain_min = {self.new_gain_min}: it must be from -1 to 1, as 0.0")
        if not 0.5 < self.confidence < 1:
            raise SelfReminderError(f"gate: confidence = {self.confidence}: it must be above 0.5 and below 1, as 0.95")
        if self.unsure not in ("refuse", "pass"):
            raise SelfReminderError(f"gate: unsure = {self.unsure!r}: it must be 'refuse' or 'pass'")


@dataclass(frozen=True, eq=False)
class Slice:
    """Held-out items, with what both models answer: all (n,) int64.

    Where an item has no label (−1), what the current version answers is taken for it: any other answer is a loss.
    """

    name: str
    is_new: bool
    labels: Tensor
    before: Tensor
    """classes that the current version predicts"""
    after: Tensor
    """classes that the candidate predicts"""
    ids: Tensor
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    """(n,) bool by name, as "site=B": items that are judged by themselves too"""

    def __post_init__(self) -> None:
        n = len(self.labels)
        if not n:
            raise SelfReminderError(f"slice '{self.name}' has no items: leave it out")
        for name, column in {"before": self.before, "after": self.after, "ids": self.ids, **self.parts}.items():
            if column.shape != (n,):
                raise SelfReminderError(
                    f"slice '{self.name}' has {n} labels and '{name}' of shape {tuple(column.shape)}: give one an item"
                )

    @property
    def truth(self) -> Tensor:
        """(n,) labels, and what the current version answers where there is none."""
        return torch.where(self.labels == UNKNOWN, self.before, self.labels)

    @property
    def worse(self) -> Tensor:
        """(n,) bool: items that were right and are wrong."""
        return (self.before == self.truth) & (self.after != self.truth)

    @property
    def better(self) -> Tensor:
        """(n,) bool: items that were wrong and are right."""
        return (self.before != self.truth) & (self.after == self.truth)


@dataclass(frozen=True)
class _Counts:
    """Of some items: how many, how many were right, got worse, got better."""

    n: int
    right: int
    worse: int
    better: int

    def measure(self, rule: Rule, confidence: float, times: float = 1.0) -> tuple[float, float, float]:
        """Estimate what a rule limits, with its bounds; if asked, those of so many times these items."""
        n, worse, better = self.n * times, self.worse * times, self.better * times
        if rule == "flips":
            return worse / n, *clopper_pearson(worse, n, confidence)
        if rule == "gain":
            worse, better = better, worse
        return (worse - better) / n, *paired(worse, better, n, confidence)


def judge(slices: Sequence[Slice], gate: Gate, classes: Sequence[str] = ()) -> Judgement:
    """Judge a candidate by all that is held out.

    Args:
        slices: earlier ones, and the new one.
        gate: what to hold to.
        classes: names of the classes in order; those without one go by their number.

    >>> same = torch.arange(500) % 2
    >>> print(judge([Slice("v1", False, same, same, same, ids=torch.arange(500))], Gate(), ["ham", "spam"]))
    slice  of   items  before  after  rule   measured                 limit          verdict
    v1     all    500   1.000  1.000  drop   0.000 (−0.006 to 0.006)  at most 0.010  passed
    v1     all    500   1.000  1.000  flips  0.000 (0.000 to 0.006)   at most 0.020  passed
    classes and parts: 2 passed
    passed
    """
    if not slices:
        raise SelfReminderError("there is nothing to judge by: hold out a slice of the data")
    parts = [[] if each.is_new else _count_parts(each, classes) for each in slices]
    many = sum(map(len, parts))
    checks: list[Check] = []
    for each, of_slice in zip(slices, parts):
        rules: tuple[Rule, ...] = ("gain",) if each.is_new else ("drop", "flips")
        checks += [_check(each.name, _count(each), rule, gate) for rule in rules]
        checks += [_check(each.name, counts, "drop", gate, of, scope, many) for scope, of, counts in of_slice]
    return Judgement(tuple(checks), gate.confidence, gate.unsure)


def provable_drop(n: int, *, discordance: float = 0.02, confidence: float = 0.95) -> float:
    """Give the least `old_drop_max` that n held-out items can show, to the next thousandth.

    A candidate that is as good as the current version then passes with that confidence, or more.

    Args:
        n: held-out items.
        discordance: share of items on which it is expected that only one of the two is right.
        confidence: of every bound.

    >>> [provable_drop(n) for n in (100, 300, 1000, 10_000)]
    [0.039, 0.021, 0.009, 0.003]
    """
    changed = _most(n, discordance, confidence)
    worse = _most(changed, 0.5, confidence)
    _, high = paired(worse, changed - worse, n, confidence)
    return round_up(max((2 * worse - changed) / n, high / 2))


def provable_flips(n: int, *, discordance: float = 0.02, confidence: float = 0.95) -> float:
    """Give the least `flips_max` that n held-out items can show, to the next thousandth; see `provable_drop`.

    No update is without flips: four slices of them are to pass with that confidence.

    >>> [provable_flips(n) for n in (100, 300, 1000, 10_000)]
    [0.045, 0.024, 0.018, 0.013]
    """
    worse = _most(n, discordance / 2, 1 - (1 - confidence) / 4)
    _, high = clopper_pearson(worse, n, confidence)
    return round_up(max(worse / n, high / 2))


def _check(
    name: str, counts: _Counts, rule: Rule, gate: Gate, of: str = "all", scope: Scope = "all", many: int = 1
) -> Check:
    """Hold some items to one rule; it is one of so many that would each refuse (Bonferroni)."""
    confidence = 1 - (1 - gate.confidence) / many

    def find(times: float = 1.0) -> Verdict:
        """The verdict, if there were so many times these items."""
        return _decide(rule, scope, *counts.measure(rule, confidence, times), gate)

    estimate, low, high = counts.measure(rule, confidence)
    verdict = find()
    return Check(
        slice=name,
        of=of,
        scope=scope,
        rule=rule,
        n=counts.n,
        before=counts.right / counts.n,
        after=(counts.right - counts.worse + counts.better) / counts.n,
        worse=counts.worse,
        better=counts.better,
        estimate=estimate,
        low=low,
        high=high,
        limit=getattr(gate, _option(rule, scope)),
        option=_option(rule, scope),
        verdict=verdict,
        needed=_count_needed(counts.n, find) if verdict == TOO_FEW else None,
    )


def _decide(rule: Rule, scope: Scope, estimate: float, low: float, high: float, gate: Gate) -> Verdict:
    """Find the verdict of an estimate and its bounds."""
    if rule == "gain":
        # By chance, half of the candidates that gain just the least are below it: they fail on evidence alone.
        least = gate.new_gain_min
        close = estimate >= least or low >= least - 2 * gate.old_drop_max
        return FAILED if high < least else PASSED if close else TOO_FEW
    limit: float = getattr(gate, _option(rule, scope))
    if estimate <= limit and high <= 2 * limit:
        return PASSED
    surely = limit if scope != "all" else limit / 2 if rule == "flips" else 0.0
    return FAILED if estimate > limit and low > surely else TOO_FEW


def _option(rule: Rule, scope: Scope) -> str:
    """Name the setting that has the limit."""
    if scope != "all":
        return "per_class_drop_max"
    return {"drop": "old_drop_max", "flips": "flips_max", "gain": "new_gain_min"}[rule]


def _count_needed(n: int, find: Callable[[float], Verdict]) -> int | None:
    """About how many items would do, if the same share of them changes: to a hundredth. None: no number of them."""
    enough = 2.0
    while find(enough) == TOO_FEW:
        enough *= 2
        if enough > 1e6:
            return None
    few = enough / 2
    while enough > 1.01 * few:
        middle = (few + enough) / 2
        few, enough = (middle, enough) if find(middle) == TOO_FEW else (few, middle)
    return math.ceil(enough * n)


def _count(each: Slice, among: Tensor | None = None) -> _Counts:
    """Count over a slice, or over the items for which `among` (n,) is true."""
    columns = (torch.ones_like(each.worse), each.before == each.truth, each.worse, each.better)
    return _Counts(*(int((column if among is None else column & among).sum()) for column in columns))


def _count_parts(each: Slice, classes: Sequence[str]) -> list[tuple[Scope, str, _Counts]]:
    """Count over every class that the slice has, and over its parts."""
    truth = each.truth
    columns = (torch.ones_like(each.worse), each.before == truth, each.worse, each.better)
    by_class = zip(*(truth.bincount(column.double()).long().tolist() for column in columns))
    names = (classes[k] if k < len(classes) else str(k) for k in itertools.count())
    found: list[tuple[Scope, str, _Counts]]
    found = [("class", name, _Counts(*counts)) for name, counts in zip(names, by_class) if counts[0]]
    found.extend(("part", name, _count(each, among)) for name, among in each.parts.items() if bool(among.any()))
    return found


def _most(n: int, probability: float, confidence: float) -> int:
    """How often something of that probability is seen among n, at most, with that confidence."""
    count = int(n * probability)
    while count < n and beta_cdf(1 - probability, n - count, count + 1) < confidence:
        count += 1
    return count
