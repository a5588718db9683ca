"""Verdicts, and the list of claims that they are on."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import getdoc
from typing import Any, Literal, get_args

from selfreminder import methods
from selfreminder.experiment.processors import count_processors, describe_mixed
from selfreminder.experiment.records import Records
from selfreminder.paper.claims.checks import Check
from selfreminder.paper.claims.runs import LacksRunsError, NotEnoughDataError, Runs
from selfreminder.paper.likely_reasons import find_reasons
from selfreminder.paper.specs import figure

Judgement = Literal["held", "contradicted", "too few to tell", "not enough data"]
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
    """all differences that the rule is about: the claim holds where all of them do, and is contradicted by one"""
    seeds_to_tell: int | None = None
    """where there are too few to tell: how many would, if means and spread stay as they are; None: more than 1,000"""
    read_again: "ReadAgain | None" = None
    """of a rule that was written later than those of the other claims: of which claim, why and when"""
    processors: Mapping[str, int] = field(default_factory=dict)
    """how many of the runs that it is judged by were made on which kind"""
    runs: int = 0
    """that it is judged by"""
    timed: int = 0
    """of those: whose seconds are recorded"""
    hours: float = 0.0
    """core-hours that those took, evaluation apart"""
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
            **({} if self.read_again is None else {"read_again": vars(self.read_again)}),
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
            "seeds_to_tell": self.seeds_to_tell,
            "processors": dict(self.processors),
            "mixed": describe_mixed(self.processors),
            "runs": self.runs,
            "timed": self.timed,
            "hours": round(self.hours, 2),
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
                    "outcome": check.outcome,
                    "seeds_to_tell": check.seeds_to_tell,
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
class ReadAgain:
    """Why and when a claim got another rule: the first stays, both are judged."""

    claim: str
    """the id of the claim whose text was read again"""
    why: str
    """what the first rule asks for that the text does not, or the other way round"""
    date: str
    knew_verdicts: bool = True
    """whoever wrote it knew the verdicts of the first rules at scale small; else no number of ours"""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the figure it is read from, and the rule by which it is judged."""

    id: str
    text: str
    figure: str
    finding: Callable[[Runs], Finding]
    read_again: ReadAgain | None = None

    @property
    def rule(self) -> str:
        """The rule in words: its function's docstring."""
        return getdoc(self.finding) or ""

    def __call__(self, runs: Runs) -> Verdict:
        """Judge it in these runs."""
        untuned = tuple(figure(self.figure).untuned(runs.scale))
        own = runs.of_figure(self.figure)
        try:
            found = self.finding(own)
        except NotEnoughDataError as reason:
            said, lacks_runs = f"Not enough data: {reason}.", isinstance(reason, LacksRunsError)
            without = Verdict(self.id, self.text, "not enough data", said, self.figure, read_again=self.read_again)
            return replace(without, untuned=untuned, lacks_runs=lacks_runs)
        closest = min(found.checks, key=_order)
        spent = [sum(task.get("seconds", 0.0) for task in record.timings) for record in own.used.values()]
        compared = {s.label: s.mean for check in found.checks for s in (check.above, check.below)}
        return Verdict(
            id=self.id,
            claim=self.text,
            verdict=closest.outcome,
            sentence=_sentence(closest, found.checks, needed := _count_seeds(found.checks)),
            figure=self.figure,
            numbers={**compared, **found.numbers},
            margin=closest.margin,
            interval=closest.interval,
            seeds=closest.seeds,
            checks=tuple(found.checks),
            seeds_to_tell=needed,
            processors=count_processors(record.versions for record in own.used.values()),
            runs=len(spent),
            timed=sum(map(bool, spent)),
            hours=sum(spent) / 3600,
            read_again=self.read_again,
            untuned=untuned,
        )


def _order(check: Check) -> tuple[int, bool, float]:
    """Order checks by what they mean for their claim, that which decides it first."""
    # One that holds just so, such as all of all classes, could not hold better: it says less than the others.
    kind = ("contradicted", "too few to tell", "held").index(check.outcome)
    return kind, check.holds and not check.slack, check.slack


def _count_seeds(checks: Sequence[Check]) -> int | None:
    """Count the seeds that would decide a claim: one check contradicts it, or all have to hold."""
    open_ones = [check for check in checks if check.outcome == "too few to tell"]
    if not open_ones or any(check.outcome == "contradicted" for check in checks):
        return None
    against = [check for check in open_ones if not check.is_on_its_side]
    counts = [math.inf if check.seeds_to_tell is None else check.seeds_to_tell for check in against or open_ones]
    needed = min(counts) if against else max(counts)
    return None if needed == math.inf else int(needed)


_CLAIMS: dict[str, Claim] = {}


def claim(
    id: str, figure_name: str, text: str, read_again: ReadAgain | None = None
) -> Callable[[Callable[[Runs], Finding]], Claim]:
    """Make a function, whose docstring is the rule, the judge of a claim."""

    def register(finding: Callable[[Runs], Finding]) -> Claim:
        _CLAIMS[id] = Claim(id, text, figure(figure_name).name, finding, read_again)
        return _CLAIMS[id]

    return register


def list_claims() -> list[Claim]:
    """List all claims, in the order of their numbers; a rule that was written later follows the first of its claim."""
    return sorted(_CLAIMS.values(), key=lambda claim: (int(re.findall(r"\d+", claim.id)[0]), claim.id))


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
    """Say in one sentence what came out by the first rules.

    >>> summarize([], "demo")
    '0 of 0 claims of the paper hold at scale demo.'
    """
    first = [verdict for verdict in verdicts if verdict.read_again is None]
    return _tally(first, f"of {len(first)} claims of the paper {{}} at scale {scale}")


def summarize_read_again(verdicts: Sequence[Verdict]) -> str:
    """Say in one sentence what came out by the rules that were written later; nothing if there are none."""
    again = [verdict for verdict in verdicts if verdict.read_again is not None]
    return f"Of the text read again: {_tally(again, f'of {len(again)} rules {{}}')}" if again else ""


def _tally(verdicts: Sequence[Verdict], whole: str) -> str:
    held, against, few, lacking = (sum(v.verdict == group for v in verdicts) for group in get_args(Judgement))
    said = [f"{held} {whole.format('holds' if held == 1 else 'hold')}"]
    said += [f"{against} {'is' if against == 1 else 'are'} contradicted"] if against else []
    said += [f"{few} {'has' if few == 1 else 'have'} too few seeds to tell"] if few else []
    said += [f"{lacking} cannot be judged"] if lacking else []
    return "; ".join(said) + "."


def _sentence(closest: Check, checks: Sequence[Check], needed: int | None) -> str:
    failing = sum(not check.holds for check in checks)
    if len(checks) <= _FEW:
        said = [_with_rule(check) for check in checks]
    elif not failing:
        said = [f"the closest of {len(checks)} comparisons: {_with_rule(closest)}"]
    else:
        most = f"{failing} of {len(checks)} comparisons do not hold, this one least" if failing > 1 else ""
        said = [f"{most or f'one of {len(checks)} comparisons does not hold'}: {_with_rule(closest)}"]
    seeds = f"{closest.seeds} seeds"
    if closest.outcome == "too few to tell":
        seeds += (
            f"; {'more than 1,000' if needed is None else f'about {needed:,}'} would tell, if means and spread stay"
        )
    return " ".join(f"{_capital(each)}." for each in (*said, seeds))


def _with_rule(check: Check) -> str:
    beside_a_bound = check.above.is_bound or check.below.is_bound
    if check.holds and not check.is_limit and not beside_a_bound:
        return check.sentence
    return f"{check.sentence} (asked for: {check.asked}{'' if check.holds else f'; {check.outcome}'})"


def _capital(text: str) -> str:
    """Names of methods stay as they are."""
    return text if text.partition(" ")[0] in methods.names() else text[0].upper() + text[1:]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value if value is None else round(value, _DIGITS) + 0.0  # no negative zero
