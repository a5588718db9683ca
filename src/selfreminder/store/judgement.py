"""What a gate found: checks with their verdicts, as words, lines, JSON, Markdown and JUnit XML."""

import dataclasses
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal
from xml.etree import ElementTree

from selfreminder._base.checked import DAMAGE, fits
from selfreminder._base.errors import SelfReminderError

Verdict = Literal["passed", "failed", "too few to tell"]
Rule = Literal["drop", "flips", "gain"]
Scope = Literal["all", "class", "part"]

PASSED: Verdict = "passed"
FAILED: Verdict = "failed"
TOO_FEW: Verdict = "too few to tell"
LIMITS = {"drop": "at most", "flips": "at most", "gain": "at least"}
_SIGNS = {PASSED: "✓", FAILED: "✗", TOO_FEW: "?"}
_MOST_REASONS = 6
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, kw_only=True)
class Check:
    """One rule of a gate on one slice, or on a part of it: a class, or the items with one value of a column."""

    slice: str
    of: str
    """"all", the name of a class, or a column's value as "site=B\""""
    scope: Scope
    rule: Rule
    """drop: accuracy before − after; flips: share of items that were right and are wrong; gain: after − before"""
    n: int
    before: float
    """accuracy of the current version"""
    after: float
    """accuracy of the candidate"""
    worse: int
    """items that were right and are wrong"""
    better: int
    """items that were wrong and are right"""
    estimate: float
    low: float
    high: float
    """bounds, each with the gate's confidence; of parts, corrected for how many there are"""
    limit: float
    option: str
    """the gate's setting that has the limit"""
    verdict: Verdict
    needed: int | None
    """about how many items it would take to tell, where they are too few"""

    @property
    def decides(self) -> bool:
        """Whether it counts: parts that are too few to tell inform and nothing else."""
        return self.scope == "all" or self.verdict == FAILED

    @property
    def shows(self) -> float:
        """The least limit that these items can show: with it, a drop or flips would pass."""
        return round_up(max(self.estimate, self.high / 2))

    def __str__(self) -> str:
        where = self.slice if self.scope == "all" else f"{self.slice}, {self.of}"
        return f"{where}: {self.finding}: {self.verdict}{self.remedy}"

    @property
    def finding(self) -> str:
        """What was measured, beside its limit."""
        what = {"drop": "drop in accuracy", "flips": "negative flips", "gain": "gain in accuracy"}[self.rule]
        measured = f"{what} {share(self.estimate)} ({share(self.low)} to {share(self.high)})"
        return f"{measured}, {LIMITS[self.rule]} {share(self.limit)}"

    @property
    def remedy(self) -> str:
        """How many items it would take, or which limit these can show; empty where that is no question."""
        if self.verdict != TOO_FEW:
            return ""
        said = f" with {self.n:,} items"
        if self.needed is not None:
            said += f": about {self.needed:,} would do"
            if self.rule != "gain":
                said += f", or {self.option} = {self.shows}"
        return said


@dataclass(frozen=True)
class Judgement:
    """All checks of a candidate, and what follows. Print it."""

    checks: tuple[Check, ...]
    confidence: float = 0.95
    unsure: str = "refuse"

    @property
    def verdict(self) -> Verdict:
        """failed if any check failed, of a part too; too few to tell if a whole slice was too few; else passed."""
        found = {check.verdict for check in self.checks if check.decides}
        return FAILED if FAILED in found else TOO_FEW if TOO_FEW in found else PASSED

    @property
    def passes(self) -> bool:
        """Whether the candidate is to be promoted."""
        return not self.refusing

    @property
    def refusing(self) -> tuple[Check, ...]:
        """The checks for which the candidate is refused."""
        bad = (FAILED, TOO_FEW) if self.unsure == "refuse" else (FAILED,)
        return tuple(check for check in self.checks if check.decides and check.verdict in bad)

    @property
    def reasons(self) -> list[str]:
        """Why it is refused, or not sure, a line for each check; of many checks, whole slices come first."""
        unsure = [check for check in self.checks if check.decides and check.verdict == TOO_FEW]
        checks = sorted(self.refusing or unsure, key=lambda check: check.scope != "all")
        more = [f"and {len(checks) - _MOST_REASONS} more"] if len(checks) > _MOST_REASONS else []
        return [*map(str, checks[:_MOST_REASONS]), *more]

    @property
    def reason(self) -> str:
        """Why it is refused, in one line; if it passes, how sure that is."""
        return "; ".join(self.reasons) or "every check passed"

    @property
    def shown(self) -> list[Check]:
        """The checks that a short table has: whole slices, and what failed."""
        return [check for check in self.checks if check.decides]

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        checks = [dataclasses.asdict(check) | {"decides": check.decides} for check in self.checks]
        head = {"verdict": self.verdict, "passes": self.passes, "reason": self.reason}
        return head | {"confidence": self.confidence, "unsure": self.unsure, "checks": checks}

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> "Judgement":
        """Read what `to_dict` wrote."""
        names = [field.name for field in dataclasses.fields(Check)]
        try:
            checks = (Check(**{name: check[name] for name in names}) for check in given["checks"])
            found = cls(tuple(checks), given["confidence"], given["unsure"])
        except DAMAGE as error:
            raise SelfReminderError(f"this is no judgement of a gate: {type(error).__name__}: {error}") from None
        if not fits(found, cls):
            raise SelfReminderError("this is no judgement of a gate: a value is of another type")
        return found

    def to_junit(self, name: str = "selfreminder gate") -> str:
        """Write a JUnit report: a suite a slice, a case a check. What refuses is a failure, what is unsure skipped."""
        refusing = set(self.refusing)
        root = ElementTree.Element("testsuites", name=_for_xml(name))
        for of_slice in dict.fromkeys(check.slice for check in self.checks):
            checks = [check for check in self.checks if check.slice == of_slice]
            failures = sum(check in refusing for check in checks)
            skipped = sum(check.verdict == TOO_FEW and check not in refusing for check in checks)
            counts = {"tests": len(checks), "failures": failures, "errors": 0, "skipped": skipped}
            about = {"name": _for_xml(of_slice)} | {key: str(count) for key, count in counts.items()}
            suite = ElementTree.SubElement(root, "testsuite", about)
            for check in checks:
                about = {"classname": _for_xml(of_slice), "name": _for_xml(f"{check.rule} of {check.of}")}
                case = ElementTree.SubElement(suite, "testcase", about)
                if check in refusing:
                    said = {"type": check.verdict, "message": _for_xml(check.finding)}
                    ElementTree.SubElement(case, "failure", said).text = _for_xml(str(check))
                elif check.verdict == TOO_FEW:
                    ElementTree.SubElement(case, "skipped", message=_for_xml(str(check)))
        ElementTree.indent(root)
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'

    def to_markdown(self, title: str = "Gate") -> str:
        """Write a short summary for a pull request."""
        head = ["Slice", "Of", "Items", "Before", "After", "Rule", "Measured", "Limit", "Verdict"]
        rows = [[*row[:8], f"{_SIGNS[check.verdict]} {row[8]}"] for check, row in zip(self.shown, self._rows())]
        lines = [f"### {_for_markdown(title)}: {self.outcome}", ""]
        lines += [*(f"- {_for_markdown(reason)}" for reason in self.reasons), ""] if self.refusing else []
        lines += [f"| {' | '.join(head)} |", "|---|---|--:|--:|--:|---|---|---|---|"]
        lines += [f"| {' | '.join(map(_for_markdown, row))} |" for row in rows]
        return "\n".join([*lines, *(["", self._parts()] if self._parts() else [])]) + "\n"

    @property
    def outcome(self) -> str:
        """The whole in three words at most: passed, refused, or too few to tell."""
        if self.verdict == FAILED:
            return "refused"
        return self.verdict if self.passes or self.verdict == PASSED else "refused, too few to tell"

    def __str__(self) -> str:
        head = ["slice", "of", "items", "before", "after", "rule", "measured", "limit", "verdict"]
        rows = [head, *self._rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        right = (2, 3, 4)
        lines = [
            "  ".join(f"{cell:{'>' if i in right else '<'}{widths[i]}}" for i, cell in enumerate(row)).rstrip()
            for row in rows
        ]
        said = self.reasons if self.refusing else []
        return "\n".join([*lines, *([self._parts()] if self._parts() else []), f"{self.outcome}", *said])

    def _rows(self) -> list[list[str]]:
        return [
            [
                check.slice,
                check.of,
                f"{check.n:,}",
                share(check.before),
                share(check.after),
                check.rule,
                f"{share(check.estimate)} ({share(check.low)} to {share(check.high)})",
                f"{LIMITS[check.rule]} {share(check.limit)}",
                check.verdict,
            ]
            for check in self.shown
        ]

    def _parts(self) -> str:
        """Count what the table leaves out."""
        found = Counter(check.verdict for check in self.checks if check.scope != "all")
        if not found:
            return ""
        counts = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(found.items()))
        return f"classes and parts: {counts}"


def share(value: float) -> str:
    """Write a share with three digits and a true minus.

    >>> share(0.0124), share(-0.0004), share(-0.012)
    ('0.012', '0.000', '−0.012')
    """
    return f"{value if abs(value) >= 0.0005 else 0.0:.3f}".replace("-", "−")


def round_up(value: float) -> float:
    """The next thousandth above a limit."""
    return -(-value * 1000 // 1) / 1000


def _for_xml(text: str) -> str:
    """Text that XML can hold."""
    return _NOT_XML.sub("\ufffd", text)


def _for_markdown(text: str) -> str:
    """Text that is no markup, in one line, in a cell of a table."""
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", " ".join(text.split()))
