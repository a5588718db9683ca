"""Verdicts on the paper's claims, as blocks of a page."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from selfreminder.paper.claims import Tested, Verdict, claims
from selfreminder.paper.claims.checks import Check
from selfreminder.report.html import decimal, element, section, table

_GROUPS = {"held": ("✓", "Held"), "not held": ("✗", "Not held"), "not enough data": ("○", "Not enough data")}
"""a sign, and the name of a group: never told by colour alone"""
_LARGE = 100
"""numbers from here on count something"""


def answer(verdicts: Sequence[Verdict], scale: str) -> str:
    """What came out, in one sentence.

    >>> answer([], "demo")
    '0 of 0 claims of the paper hold at scale demo.'
    """
    held, others, lacking = (sum(verdict.verdict == group for verdict in verdicts) for group in _GROUPS)
    said = [f"{held} of {len(verdicts)} claims of the paper {'holds' if held == 1 else 'hold'} at scale {scale}"]
    said += [f"{others} {'does' if others == 1 else 'do'} not"] if others else []
    said += [f"{lacking} cannot be judged"] if lacking else []
    return "; ".join(said) + "."


def at_a_glance(verdicts: Sequence[Verdict]) -> Element:
    """A sign for each claim, in the order of their numbers: to be seen before anything is read."""
    signs = []
    for verdict in verdicts:
        title = f"{_capital(verdict.claim)}: {verdict.verdict}"
        link = element("a", _GROUPS[verdict.verdict][0], f" {verdict.id}", href=f"#claim-{verdict.id}", title=title)
        signs.append(element("li", link, class_=_kind(verdict)))
    return element("ul", *signs, class_="glance")


def verdicts_block(verdicts: Sequence[Verdict]) -> Element:
    """All claims by what became of them, each with its figure."""
    groups: list[Element] = []
    for group, (_, name) in _GROUPS.items():
        own = [verdict for verdict in verdicts if verdict.verdict == group]
        if own:
            groups += [element("h3", f"{name}: {len(own)}"), element("ul", *map(_item, own), class_="verdicts")]
    return section("Claims", *groups)


def claim_block(verdict: Verdict) -> Element:
    """A claim beside its figure: what became of it, the rule, and the numbers."""
    rule = next(claim.rule for claim in claims() if claim.id == verdict.id)
    tested: list[Element] = []
    for each in verdict.tested:
        tested.append(element("p", _whole(f"{_tested(each, verdict)} {each.verdict.sentence}"), class_="note"))
        if each.verdict.checks:
            tested.append(element("details", element("summary", "Its numbers"), *_numbers(each.verdict)))
    return element(
        "div",
        element("h3", _sign(verdict), f"{verdict.id} {verdict.verdict}"),
        element("p", f"{_capital(verdict.claim)}."),
        element("p", _whole(verdict.sentence), class_="note"),
        element("details", element("summary", "Rule and numbers"), element("p", rule), *_numbers(verdict)),
        *tested,
        class_=f"claim {_kind(verdict)}",
        id=f"claim-{verdict.id}",
    )


def _numbers(verdict: Verdict) -> list[Element]:
    if not verdict.checks:
        return []
    pairs = [[name, _number(value)] for name, value in verdict.numbers.items()]
    checks = element("ul", *map(_check, verdict.checks), class_="checks")
    return [checks, table(["What", "Mean over seeds"], pairs, "Numbers")]


def _item(verdict: Verdict) -> Element:
    link = element("a", verdict.id, href=f"#figure-{verdict.figure}")
    said = (verdict.sentence, *(_tested(each, verdict) for each in verdict.tested))
    text = element("span", _capital(verdict.claim), *(element("small", _whole(each)) for each in said))
    return element("li", _sign(verdict), link, text, class_=_kind(verdict))


def _tested(reason: Tested, of: Verdict) -> str:
    """What came of it in short; beside the figure there are the numbers too."""
    found = reason.verdict
    if found.lacks_runs:
        return f"A likely reason to be tested, with {reason.text}."
    if found.verdict == "not enough data":
        return f"A likely reason tested, with {reason.text}: no verdict."
    either = " either" if found.verdict == of.verdict else ""
    return f"A likely reason tested, with {reason.text}: {found.verdict}{either}."


def _sign(verdict: Verdict) -> Element:
    return element("span", _GROUPS[verdict.verdict][0], class_="sign", title=verdict.verdict)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _whole(text: str) -> str:
    """Numbers that are not parted from their sign."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def _kind(verdict: Verdict) -> str:
    return verdict.verdict.replace(" ", "-")


def _check(check: Check) -> Element:
    """A difference, paired by seed, and whether it is as the rule asks."""
    low, high = map(check.end, check.interval)
    said = f"{check.above.label} − {check.below.label}: {check.difference(check.margin)}, "
    said += _whole(f"95 % interval {low} to {high}")
    sign, word = ("✓", "holds") if check.holds else ("✗", "does not hold")
    asked = element("small", f"asked for: {check.rule}; {word}")
    kind = "held" if check.holds else "not-held"
    return element("li", element("span", sign, class_="sign"), element("span", said, asked), class_=kind)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= _LARGE else decimal(value)
