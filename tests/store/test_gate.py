import json
import math
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from selfreminder._base.errors import SelfReminderError
from selfreminder.store.gate import Gate, Judgement, Slice, judge, provable_drop, provable_flips
from selfreminder.store.intervals import beta_cdf, clopper_pearson, normal_quantile, tango
from selfreminder.store.judgement import FAILED, PASSED, TOO_FEW, Check

LOOSE = Gate(flips_max=1.0, per_class_drop_max=1.0)
"""by the drop of whole slices alone"""


def make_slice(n: int, worse: int, better: int, *, right: int | None = None, classes: int = 1, **more) -> Slice:
    """A slice of n items of which the first so many get worse, and the last so many get better."""
    labels = torch.arange(n) % classes
    before, after = labels.clone(), labels.clone()
    after[:worse] += 1
    before[n - better :] += 1
    return Slice(
        **{"name": "v1", "is_new": False, "ids": torch.arange(n)} | more, labels=labels, before=before, after=after
    )


def draw_slice(n: int, worse: float, better: float, generator: torch.Generator, classes: int = 10) -> Slice:
    """A slice of which each item gets worse, or better, with that probability."""
    labels = torch.randint(classes, (n,), generator=generator)
    place = torch.rand(n, generator=generator)
    before = torch.where(place < better, labels + 1, labels)
    after = torch.where(place > 1 - worse, labels + 1, labels)
    return Slice("v1", False, labels, before, after, ids=torch.arange(n))


def only(judgement: Judgement) -> Check:
    """The one check of a drop of a whole slice."""
    (found,) = [check for check in judgement.checks if check.scope == "all" and check.rule == "drop"]
    return found


def chances(n: int, gate: Gate, worse: float, better: float) -> dict[str, float]:
    """The probabilities of the verdicts on a drop, summed over all that can happen to n items."""
    found = {PASSED: 0.0, FAILED: 0.0, TOO_FEW: 0.0}
    for w in range(n + 1):
        for b in range(n + 1 - w):
            same = 1 - worse - better
            logs = [(w, worse), (b, better), (n - w - b, same)]
            if any(count and not p for count, p in logs):
                continue
            log = math.lgamma(n + 1) + sum(k * math.log(p or 1) - math.lgamma(k + 1) for k, p in logs)
            if log > -16:
                found[only(judge([make_slice(n, w, b)], gate)).verdict] += math.exp(log)
    return found


@pytest.mark.parametrize(("worse", "better", "n"), [(3, 1, 40), (1, 4, 100), (40, 10, 300), (2, 2, 1000)])
def test_tango_is_where_the_score_test_turns(worse: int, better: int, n: int) -> None:
    for side, drop in zip((1, -1), tango(worse, better, n, 0.95)):
        # The likeliest q if the drop is Δ: where the derivative of the likelihood is 0.
        low, high = max(0.0, -drop), (1 - drop) / 2
        for _ in range(200):
            q = (low + high) / 2
            slope = worse / (q + drop) + better / q - 2 * (n - worse - better) / (1 - 2 * q - drop)
            low, high = (q, high) if slope > 0 else (low, q)
        z = (worse - better - n * drop) / math.sqrt(n * (2 * q + drop - drop**2))
        assert z == pytest.approx(side * normal_quantile(0.95), abs=1e-5)


def test_tango_of_no_flips_has_a_width() -> None:
    z = normal_quantile(0.95)
    assert tango(0, 0, 300, 0.95) == pytest.approx((-(z**2) / (300 + z**2), z**2 / (300 + z**2)))


@given(st.integers(0, 60), st.integers(1, 60), st.floats(0.6, 0.999))
def test_clopper_pearson_is_exact(count: int, more: int, confidence: float) -> None:
    n = count + more
    low, high = clopper_pearson(count, n, confidence)

    def at_most(k: int, p: float) -> float:
        return math.fsum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))

    assert at_most(count, high) == pytest.approx(1 - confidence, abs=1e-6)
    assert low == 0 if count == 0 else 1 - at_most(count - 1, low) == pytest.approx(1 - confidence, abs=1e-6)


def test_beta_of_whole_numbers_is_a_binomial_sum() -> None:
    tail = math.fsum(math.comb(500, k) * 0.03**k * 0.97 ** (500 - k) for k in range(20, 501))
    assert beta_cdf(0.03, 20, 481) == pytest.approx(tail, rel=1e-10)


@pytest.mark.parametrize("n", [60, 150])
@pytest.mark.parametrize("differ", [0.0, 0.01, 0.04])
def test_a_drop_of_twice_the_limit_hardly_passes_and_none_hardly_fails(n: int, differ: float) -> None:
    limit = provable_drop(n)
    gate = replace(LOOSE, old_drop_max=limit)
    assert chances(n, gate, 2 * limit + differ / 2, differ / 2)[PASSED] < 0.053
    assert chances(n, gate, differ / 2, differ / 2)[FAILED] < 0.053
    if differ <= 0.02:  # what `provable_drop` expects
        assert chances(n, gate, differ / 2, differ / 2)[PASSED] > 0.95


@pytest.mark.parametrize("n", [100, 300, 1000])
def test_how_often_a_gate_refuses(n: int) -> None:
    generator = torch.Generator().manual_seed(n)
    limit, flips = max(0.01, provable_drop(n)), max(0.02, provable_flips(n))
    gate = Gate(old_drop_max=limit, flips_max=flips)

    def refused(gate: Gate, worse: float, better: float) -> float:
        return sum(not judge([draw_slice(n, worse, better, generator)], gate).passes for _ in range(200)) / 200

    assert refused(gate, 0.0, 0.0) == 0
    assert refused(gate, 0.005, 0.005) <= 0.05
    assert refused(replace(LOOSE, old_drop_max=limit), 2 * limit + 0.005, 0.005) >= 0.95


def test_the_same_model_passes_and_gains_what_is_asked_for() -> None:
    old = make_slice(1000, 0, 0, classes=4)
    new = make_slice(40, 0, 0, classes=4, name="new", is_new=True)
    judgement = judge([old, new], Gate())
    assert judgement.passes
    assert judgement.verdict == PASSED
    assert [(check.rule, check.estimate, check.verdict) for check in judgement.checks if check.slice == "new"] == [
        ("gain", 0.0, PASSED)
    ]


def test_a_slice_that_is_too_small_refuses_and_says_how_many_it_takes() -> None:
    small = judge([make_slice(50, 0, 0)], Gate())
    check = only(small)
    assert (small.verdict, small.passes, small.outcome) == (TOO_FEW, False, "refused, too few to tell")
    assert check.needed is not None
    assert str(check) == (
        "v1: drop in accuracy 0.000 (−0.058 to 0.058), at most 0.010: "
        f"too few to tell with 50 items: about {check.needed} would do, or old_drop_max = 0.03"
    )
    assert judge([make_slice(check.needed, 0, 0)], Gate()).passes
    assert not judge([make_slice(round(0.97 * check.needed), 0, 0)], Gate()).passes
    assert only(judge([make_slice(50, 0, 0)], Gate(old_drop_max=0.03))).verdict == PASSED
    assert judge([make_slice(50, 0, 0)], Gate(unsure="pass", flips_max=0.1)).passes


@given(st.integers(1, 400), st.integers(0, 40), st.integers(0, 40), st.sampled_from([0.005, 0.01, 0.03, 0.1]))
def test_a_wider_limit_never_judges_worse(n: int, worse: int, better: int, limit: float) -> None:
    worse, better = min(worse, n // 2), min(better, n // 2)
    one = make_slice(n, worse, better)
    order = [PASSED, TOO_FEW, FAILED]
    tight, wide = (judge([one], Gate(old_drop_max=x, flips_max=x)) for x in (limit, 2 * limit))
    assert all(order.index(a.verdict) >= order.index(b.verdict) for a, b in zip(tight.checks, wide.checks))
    check = only(tight)
    assert check.low <= check.estimate + 1e-9
    assert check.high >= check.estimate - 1e-9
    if check.verdict == TOO_FEW:
        assert only(judge([one], Gate(old_drop_max=check.shows))).verdict == PASSED


def test_a_drop_and_flips_fail_on_their_own() -> None:
    dropped = judge([make_slice(2000, 50, 0)], Gate(old_drop_max=0.01, flips_max=0.1))
    assert [(check.rule, check.verdict) for check in dropped.refusing] == [("drop", FAILED)]
    flipped = judge([make_slice(2000, 80, 80)], Gate())
    assert [(check.rule, check.verdict, check.worse) for check in flipped.refusing] == [("flips", FAILED, 80)]


def test_one_bad_class_refuses_and_many_small_ones_do_not() -> None:
    one = make_slice(3000, 0, 0, classes=3)
    after = one.after.clone()
    after[torch.arange(0, 300, 3)] = 1  # a tenth of the first class
    bad = judge([replace(one, after=after)], replace(Gate(), old_drop_max=0.1, flips_max=0.1), ["cat", "dog"])
    assert [(check.of, check.scope, check.verdict) for check in bad.refusing] == [("cat", "class", FAILED)]
    assert {check.of for check in bad.checks} == {"all", "cat", "dog", "2"}

    # A hundred classes of ten items each: by chance some lose three of ten, though the candidate is as good.
    generator = torch.Generator().manual_seed(0)
    gate = replace(LOOSE, per_class_drop_max=0.03, old_drop_max=0.1)
    found = [judge([draw_slice(1000, 0.05, 0.05, generator, classes=100)], gate) for _ in range(100)]
    assert sum(not each.passes for each in found) <= 5
    assert max(check.estimate for each in found for check in each.checks) > 0.3


def test_parts_by_a_column_are_judged() -> None:
    at_b = torch.arange(2000) < 400
    one = make_slice(2000, 60, 60, parts={"site=B": at_b, "site=C": torch.zeros(2000, dtype=torch.bool)})
    judgement = judge([one], Gate(flips_max=0.1))
    (part,) = [check for check in judgement.checks if check.scope == "part"]
    assert (part.of, part.n, part.worse, part.verdict) == ("site=B", 400, 60, FAILED)
    assert part.option == "per_class_drop_max"
    assert not judgement.passes


@pytest.mark.parametrize(
    ("n", "worse", "better", "least", "verdict"),
    [
        (1000, 10, 60, 0.0, PASSED),
        (1000, 10, 60, 0.2, FAILED),
        (1000, 60, 10, 0.0, FAILED),
        (50, 3, 2, 0.0, TOO_FEW),
        (20_000, 110, 100, 0.0, PASSED),
        (50, 2, 3, 0.1, TOO_FEW),
    ],
)
def test_the_gain_on_the_new(n: int, worse: int, better: int, least: float, verdict: str) -> None:
    (check,) = judge([make_slice(n, worse, better, is_new=True)], Gate(new_gain_min=least)).checks
    assert check.verdict == verdict
    assert check.estimate == pytest.approx((better - worse) / n)
    assert check.low < check.estimate < check.high


def test_without_labels_any_other_answer_is_a_loss() -> None:
    answers = torch.arange(1000) % 3
    after = answers.clone()
    after[:100] = (after[:100] + 1) % 3
    unlabelled = Slice("v1", False, torch.full((1000,), -1), answers, after, ids=torch.arange(1000))
    check = only(judge([unlabelled], Gate()))
    assert (check.worse, check.better, check.before, check.verdict) == (100, 0, 1.0, FAILED)


def test_a_judgement_as_json_markdown_and_junit() -> None:
    name = 'v1 | <b>&"\x00\n*'
    slices = [make_slice(1000, 50, 0, name=name, classes=2), make_slice(30, 0, 1, name="new", is_new=True)]
    judgement = judge(slices, Gate(per_class_drop_max=0.05), ["]]>", "\ud800x"])
    assert Judgement.from_dict(json.loads(json.dumps(judgement.to_dict()))) == judgement

    suites = ElementTree.fromstring(judgement.to_junit().encode())
    assert [suite.get("tests") for suite in suites] == ["4", "1"]
    assert (
        sum(int(suite.attrib["failures"]) for suite in suites)
        == len(judgement.refusing)
        == len(suites.findall(".//failure"))
    )
    assert sum(int(suite.attrib["skipped"]) for suite in suites) == len(suites.findall(".//skipped"))

    lines = judgement.to_markdown().splitlines()
    assert lines[0] == "### Gate: refused"
    rows = [line for line in lines if line.startswith("| v1")]
    assert len(rows) == 2
    assert all(row.replace("\\|", "").count("|") == 10 for row in rows)
    assert "<b>" not in "".join(lines).replace("\\<b\\>", "")
    assert "refused" in str(judgement)


def test_mistakes_are_named() -> None:
    for wrong in (
        {"old_drop_max": 0.0},
        {"flips_max": 1.5},
        {"confidence": 95},
        {"unsure": "maybe"},
        {"new_gain_min": 2},
    ):
        with pytest.raises(SelfReminderError, match=next(iter(wrong))):
            Gate(**wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SelfReminderError, match="nothing to judge by"):
        judge([], Gate())
    with pytest.raises(SelfReminderError, match="has no items"):
        make_slice(0, 0, 0)
    with pytest.raises(SelfReminderError, match=r"3 labels and 'after' of shape \(2,\)"):
        Slice("v1", False, torch.zeros(3), torch.zeros(3), torch.zeros(2), ids=torch.zeros(3))
