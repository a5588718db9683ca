"""Verdicts, and the list of claims that they are on."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import getdoc
from typing import Any, Literal, get_args

from selfreminder import methods
from selfreminder.experiment.records import Records
from selfreminder.paper.claims.checks import Check
from selfreminder.paper.claims.runs import LacksRunsError, NotEnoughDataError, Runs
from selfreminder.paper.likely_reasons import find_reasons
from selfreminder.paper.specs import figure

Judgement = Literal["held", "not held", "not enough data"]
_DIGITS = 6
_FEW = 4
"""comparisons that a sentence can have; of more it has the closest"""


@dataclass(frozen=True)
class Verdict:
    """Whether a claim of the paper holds in some records. Margin and interval are those of the closest check."""

    id: str
    claim: str
    verdict: Judgement
    sentence: str
    figure: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    """what was compared, means over seeds"""
    margin: float | None = None
    """the mean difference, in the unit of the numbers"""
    interval: tuple[float, float] | None = None
    """its 95 % t interval, of differences paired by seed"""
    seeds: int = 0
    checks: tuple[Check, ...] = ()
    """all differences that the rule is about: the claim holds where all of them do"""
    untuned: tuple[str, ...] = ()
    """methods of the figure whose strength or step size nobody chose at this scale"""
    lacks_runs: bool = False
    """there is not enough data because runs are missing"""
    tested: tuple["Tested", ...] = ()
    """where it is not held, or its runs cannot be judged: likely reasons, and what the rule says without them"""

    def as_dict(self) -> dict[str, Any]:
        """Say it as JSON can."""
        return {
            "claim": self.claim,
            "figure": self.figure,
            **self.found(),
            "untuned": list(self.untuned),
            "tested": [{"with": each.text, **each.verdict.found()} for each in self.tested],
        }

    def found(self) -> dict[str, Any]:
        """Say the verdict and what it rests on as JSON can."""
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "seeds": self.seeds,
            "margin": _plain(self.margin),
            "interval": _plain(self.interval),
            "numbers": {name: _plain(self.numbers[name]) for name in sorted(self.numbers)},
            "checks": [
                {
                    "above": check.above.label,
                    "below": check.below.label,
                    "margin": _plain(check.margin),
                    "interval": _plain(check.interval),
                    "rule": check.rule,
                    "holds": check.holds,
                }
                for check in self.checks
            ],
        }


@dataclass(frozen=True)
class Tested:
    """A claim that is not held, or not judged, judged again with something changed that may be the reason."""

    text: str
    """what is changed, see `paper.likely_reasons`"""
    verdict: Verdict


@dataclass(frozen=True)
class Finding:
    """What a rule found: checks that must all hold, and other numbers to know."""

    checks: Sequence[Check]
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the figure it is read from, and the rule by which it is judged."""

    id: str
    text: str
    figure: str
    finding: Callable[[Runs], Finding]

    @property
    def rule(self) -> str:
        """The rule in words: its function's docstring."""
        return getdoc(self.finding) or ""

    def __call__(self, runs: Runs) -> Verdict:
        """Judge it in these runs."""
        untuned = tuple(figure(self.figure).untuned(runs.scale))
        try:
            found = self.finding(runs.of_figure(self.figure))
        except NotEnoughDataError as reason:
            said, lacks_runs = f"Not enough data: {reason}.", isinstance(reason, LacksRunsError)
            return Verdict(
                self.id, self.text, "not enough data", said, self.figure, untuned=untuned, lacks_runs=lacks_runs
            )
        # One that holds just so, such as all of all classes, could not hold better: it says less than the others.
        closest = min(found.checks, key=lambda check: (check.holds, check.holds and not check.slack, check.slack))
        compared = {s.label: s.mean for check in found.checks for s in (check.above, check.below)}
        return Verdict(
            id=self.id,
            claim=self.text,
            verdict="held" if closest.holds else "not held",
            sentence=_sentence(closest, found.checks),
            figure=self.figure,
            numbers={**compared, **found.numbers},
            margin=closest.margin,
            interval=closest.interval,
            seeds=closest.seeds,
            checks=tuple(found.checks),
            untuned=untuned,
        )


_CLAIMS: dict[str, Claim] = {}


def claim(id: str, figure_name: str, text: str) -> Callable[[Callable[[Runs], Finding]], Claim]:
    """Make a function, whose docstring is the rule, the judge of a claim."""

    def register(finding: Callable[[Runs], Finding]) -> Claim:
        _CLAIMS[id] = Claim(id, text, figure(figure_name).name, finding)
        return _CLAIMS[id]

    return register


def list_claims() -> list[Claim]:
    """List all claims, in the order of their numbers."""
    return sorted(_CLAIMS.values(), key=lambda claim: (int(re.sub(r"\D", "", claim.id)), claim.id))


def judge(records: Iterable[Records], scale: str) -> list[Verdict]:
    """Judge every claim, from the records of figures at a scale, in whatever order."""
    runs = Runs(records, scale)
    verdicts: list[Verdict] = []
    for claim in list_claims():
        verdict = claim(runs)
        if verdict.verdict != "held" and not verdict.lacks_runs:
            reasons = find_reasons(scale, claim=claim.id)
            tested = tuple(Tested(each.text, claim(runs.changed(each.change))) for each in reasons)
            verdict = replace(verdict, tested=tested)
        verdicts.append(verdict)
    return verdicts


def as_json(verdicts: Iterable[Verdict]) -> dict[str, dict[str, Any]]:
    """Say verdicts by claim as JSON can; the same for the same records."""
    return {verdict.id: verdict.as_dict() for verdict in verdicts}


def summarize(verdicts: Sequence[Verdict], scale: str) -> str:
    """Say in one sentence what came out.

    >>> summarize([], "demo")
    '0 of 0 claims of the paper hold at scale demo.'
    """
    held, others, lacking = (sum(verdict.verdict == group for verdict in verdicts) for group in get_args(Judgement))
    said = [f"{held} of {len(verdicts)} claims of the paper {'holds' if held == 1 else 'hold'} at scale {scale}"]
    said += [f"{others} {'does' if others == 1 else 'do'} not"] if others else []
    said += [f"{lacking} cannot be judged"] if lacking else []
    return "; ".join(said) + "."


def _sentence(closest: Check, checks: Sequence[Check]) -> str:
    failing = sum(not check.holds for check in checks)
    if len(checks) <= _FEW:
        said = [_with_rule(check) for check in checks]
    elif not failing:
        said = [f"the closest of {len(checks)} comparisons: {_with_rule(closest)}"]
    else:
        most = f"{failing} of {len(checks)} comparisons fail, this one most" if failing > 1 else ""
        said = [f"{most or f'one of {len(checks)} comparisons fails'}: {_with_rule(closest)}"]
    return " ".join(f"{_capital(each)}." for each in (*said, f"{closest.seeds} seeds"))


def _with_rule(check: Check) -> str:
    beside_a_bound = check.above.is_bound or check.below.is_bound
    if check.holds and not check.is_limit and not beside_a_bound:
        return check.sentence
    return f"{check.sentence} (asked for: {check.asked}{'' if check.holds else '; fails'})"


def _capital(text: str) -> str:
    """Names of methods stay as they are."""
    return text if text.partition(" ")[0] in methods.names() else text[0].upper() + text[1:]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value if value is None else round(value, _DIGITS) + 0.0  # no negative zero
