"""The claims on the page of the paper's figures: at a glance, as a list, and each beside its figure."""

from collections.abc import Sequence
from operator import itemgetter
from xml.etree.ElementTree import Element

from selfreminder.benchmarks import SCALES
from selfreminder.experiment.processors import describe_mixed
from selfreminder.paper.claim_chart import claim_chart
from selfreminder.paper.claims import Tested, Verdict, list_claims, summarize_read_again
from selfreminder.paper.claims.checks import Check
from selfreminder.paper.claims.verdict import ReadAgain
from selfreminder.paper.scales import JUDGED, OtherScale, count_held
from selfreminder.report.html import Child, decimal, element, note, section, table, warning

_GROUPS = {
    "held": ("✓", "Held"),
    "contradicted": ("✗", "Contradicted"),
    "too few to tell": ("?", "Too few seeds to tell"),
    "not enough data": ("○", "Not enough data"),
}
"""a sign, and the name of a group: never told by colour alone"""
_READ_AGAIN = (
    "Rules of the same claims, written later, where the first rule asks for more or less than the paper's text says; "
    "beside its figure each says why and when, and whether whoever wrote it knew the verdicts of the first rules at "
    "scale small or had the text and the rules alone."
)
_LARGE = 100
"""numbers from here on count something"""


def at_a_glance(verdicts: Sequence[Verdict]) -> Element:
    """Show a sign for each claim, in the order of their numbers: to be seen before anything is read."""
    signs = []
    for verdict in verdicts:
        title = f"{_capital(verdict.claim)}: {verdict.verdict}"
        link = element("a", _GROUPS[verdict.verdict][0], f" {verdict.id}", href=f"#claim-{verdict.id}", title=title)
        signs.append(element("li", link, class_=_kind(verdict)))
    return element("ul", *signs, class_="glance")


def read_again_at_a_glance(verdicts: Sequence[Verdict]) -> list[Element]:
    """Show the same of claims that were read again, with a sentence."""
    again = [verdict for verdict in verdicts if verdict.read_again is not None]
    return [element("p", summarize_read_again(again)), at_a_glance(again)] if again else []


def scales_block(verdicts: Sequence[Verdict], scale: str, others: Sequence[OtherScale]) -> Element | None:
    """Show at which scales there are pages, how many claims hold at each, and a way there; None if this is the only."""
    if not others:
        return None
    own = count_held([verdict.verdict for verdict in verdicts if verdict.read_again is None])
    order = list(SCALES).index
    listed = [(order(scale), element("span", scale, aria_current="page"), own)]
    listed += [(order(other.scale), element("a", other.name, href=other.link), other.answer) for other in others]
    items = [element("li", name, element("small", f" {said}")) for _, name, said in sorted(listed, key=itemgetter(0))]
    return element("nav", element("ul", element("li", "Scale"), *items), class_="scales", aria_label="Scale")


def verdicts_block(verdicts: Sequence[Verdict], scale: str = "", others: Sequence[OtherScale] = ()) -> Element:
    """List all claims by what became of them, each with its figure; then those read again from the text.

    Where there are other scales, the claims that were judged at one come before that, the scales side by side.
    """
    first, again = ([v for v in verdicts if (v.read_again is not None) == later] for later in (False, True))
    listed = _list_by_verdict(first)
    if again:
        listed += [element("h3", "Read again"), note(_READ_AGAIN), *_list_by_verdict(again, "h4")]
    words = element("details", element("summary", "Every claim in words"), *listed, class_="more")
    said = note("Each has a small chart beside its figure, below.")
    return section("Claims", said, *_side_by_side(verdicts, scale, others), words)


def _side_by_side(verdicts: Sequence[Verdict], scale: str, others: Sequence[OtherScale]) -> list[Element]:
    rows: list[list[Child]] = []
    for verdict in verdicts:
        elsewhere = [other.verdicts.get(verdict.id, "not enough data") for other in others]
        if JUDGED & set(elsewhere):
            name = element("span", f"{verdict.id} ", element("small", _capital(verdict.claim)))
            at = f"#claim-{verdict.id}"
            cells = [_cell(each, other.link + at) for each, other in zip(elsewhere, others)]
            rows.append([name, _cell(verdict.verdict, at), *cells])
    names = [other.name for other in others]
    caption = f"Claims that were judged at {' or '.join(names)}, and what became of them here"
    headings = [f"{scale} (this page)", *names]
    return [table(["Claim", *headings], rows, caption, words=headings)] if rows else []


def _cell(verdict: str, link: str) -> Element:
    said = element("a", verdict, href=link) if verdict in JUDGED else verdict
    sign = element("span", _GROUPS[verdict][0], class_="sign")
    return element("span", sign, " ", said, class_=verdict.replace(" ", "-"))


def _list_by_verdict(verdicts: Sequence[Verdict], heading: str = "h3") -> list[Element]:
    listed: list[Element] = []
    for group, (_, name) in _GROUPS.items():
        own = [verdict for verdict in verdicts if verdict.verdict == group]
        if own:
            listed += [element(heading, f"{name}: {len(own)}"), element("ul", *map(_item, own), class_="verdicts")]
    return listed


def claim_block(verdict: Verdict) -> Element:
    """Show a claim beside its figure: what became of it, the rule, and the numbers."""
    rule = next(claim.rule for claim in list_claims() if claim.id == verdict.id)
    again = verdict.read_again
    read = [] if again is None else [element("p", _describe_reading(again))]
    mixed = describe_mixed(verdict.processors)
    tested: list[Element] = [] if mixed is None else [warning(mixed)]
    for each in verdict.tested:
        tested.append(element("p", _whole(f"{_tested(each, verdict)} {each.verdict.sentence}"), class_="note"))
        if each.verdict.checks:
            tested.append(element("details", element("summary", "Its numbers"), *_numbers(each.verdict)))
    return element(
        "div",
        element("h3", _sign(verdict), f"{verdict.id} {verdict.verdict}"),
        element("p", f"{_capital(verdict.claim)}."),
        claim_chart(verdict.checks, f"What {verdict.id} is judged by: {verdict.sentence}"),
        element("p", _whole(verdict.sentence), class_="note"),
        element(
            "details", element("summary", "Rule and numbers"), *read, element("p", rule), *_numbers(verdict), *tested
        ),
        class_=f"claim {_kind(verdict)}",
        id=f"claim-{verdict.id}",
    )


def _describe_reading(again: ReadAgain) -> str:
    knew = "who knew the first verdicts" if again.knew_verdicts else "who had the text and the first rules alone"
    return f"{again.claim} read again on {again.date} by somebody {knew}. {again.why}"


def _numbers(verdict: Verdict) -> list[Element]:
    if not verdict.checks:
        return []
    numbers = verdict.numbers.items()
    pairs = [[name, f"{value:,.0f}" if abs(value) >= _LARGE else decimal(value)] for name, value in numbers]
    checks = element("ul", *map(_check, verdict.checks), class_="checks")
    return [checks, table(["What", "Mean over seeds"], pairs, "Numbers")]


def _item(verdict: Verdict) -> Element:
    link = element("a", verdict.id, href=f"#figure-{verdict.figure}")
    said = (verdict.sentence, *(_tested(each, verdict) for each in verdict.tested))
    text = element("span", _capital(verdict.claim), *(element("small", _whole(each)) for each in said))
    return element("li", _sign(verdict), link, text, class_=_kind(verdict))


def _tested(reason: Tested, of: Verdict) -> str:
    """Say in short what came of a reason; beside the figure there are the numbers too."""
    found = reason.verdict
    if found.lacks_runs:
        return f"A likely reason to be tested, with {reason.text}."
    if found.verdict == "not enough data":
        return f"A likely reason tested, with {reason.text}: no verdict."
    too = (" too" if found.verdict == "contradicted" else " either") if found.verdict == of.verdict else ""
    return f"A likely reason tested, with {reason.text}: {found.verdict}{too}."


def _sign(verdict: Verdict) -> Element:
    return element("span", _GROUPS[verdict.verdict][0], class_="sign", title=verdict.verdict)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _whole(text: str) -> str:
    """Keep numbers from being parted from their sign."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def _kind(verdict: Verdict) -> str:
    return verdict.verdict.replace(" ", "-")


def _check(check: Check) -> Element:
    """Show a difference, paired by seed, and whether it is as the rule asks."""
    low, high = map(check.end, check.interval)
    said = f"{check.above.label} − {check.below.label}: {check.difference(check.margin)}, "
    said += _whole(f"{check.measure} {low} to {high}")
    told = check.outcome
    if told == "too few to tell":
        told += (
            f", {'more than 1,000' if check.seeds_to_tell is None else f'about {check.seeds_to_tell:,}'} seeds would"
        )
    asked = element("small", f"asked for: {check.rule}; {told}")
    sign = element("span", _GROUPS[check.outcome][0], class_="sign")
    return element("li", sign, element("span", said, asked), class_=check.outcome.replace(" ", "-"))
