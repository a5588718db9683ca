"""Claims read again: other rules, where the first asks for more or less than the paper's text says.

They were written from the text, sentence by sentence, before any of them was computed, but by somebody who knew the
verdicts of the first rules at scale `small`. Each says why and when; the first rules stay, and all are judged.

Numbers are counted as the paper counts: EWC keeps each parameter and its Fisher information, a memory the pixels and
the logits of its items, whatever bytes these take. Shares are rounded to whole percents, as the paper keeps 500 images
where 498.6 would be as many numbers.
"""

from collections.abc import Callable
from statistics import fmean

from selfreminder.metrics import diagonal
from selfreminder.paper.claims.checks import (
    FAR,
    above,
    above_by_standard_errors,
    at_least,
    at_least_equal,
    at_most,
    far_above,
)
from selfreminder.paper.claims.forgetting import check_colours, compare_by_rho, compare_small_models
from selfreminder.paper.claims.memory import average_with, check_every_size, check_trend, list_sizes
from selfreminder.paper.claims.runs import Line, Measurement, NotEnoughDataError, Runs, check_learned, count_numbers
from selfreminder.paper.claims.verdict import Claim, Finding, ReadAgain, claim

_DATE = "2026-11-18"
_UNIT = "The paper counts numbers, not bytes. "
_GATE = (
    "The first rule asks that HAT has learned its newest tasks. But that it learns less, as it cannot share what it "
    "has learned, is how the text explains the claim."
)


def _again(id: str, figure_name: str, text: str, why: str) -> Callable[[Callable[[Runs], Finding]], Claim]:
    """Make a function the second judge of a claim, whose id is what comes before the point."""
    return claim(id, figure_name, text, ReadAgain(id.partition(".")[0], why, _DATE))


@_again(
    "C2.2",
    "memory-sizes",
    "Logit, Distill and iCaRL are significantly above EWC with no more numbers than it keeps",
    _UNIT + "The first rule compares bytes: of 8-bit pixels there are more.",
)
def c2_again(runs: Runs) -> Finding:
    """Of the figure's memories that all three have, the largest that at the end keeps no more numbers than ewc: with it
    the task averages of fsr-logit, fsr-distill and icarl are each above that of ewc, with an interval above 0. ewc must
    have learned its newest tasks.
    """
    ewc = _find_ewc(runs)
    size = largest_within(runs, "icarl", ewc, 1.0)
    others = runs.lines("fsr-logit", "fsr-distill", "icarl", per_class=size)
    return Finding([above(line.average(), ewc.average()) for line in others], count_numbers_of(*others, ewc))


@_again(
    "C5.2",
    "nonlinear",
    "non-linear MNIST: EWC fails, FSR is remarkably better with no more numbers than it keeps",
    _UNIT + "And that FSR falls by little, which the first rule asks for, is not said: only that it is far above EWC.",
)
def c5_again(runs: Runs) -> Finding:
    """EWC fails: its task average falls by at least 20 points (mean) from after task 1 to the end. FSR: with the
    largest of the figure's memories that at the end keeps no more numbers than ewc, fsr-logit is at least 10 points
    above ewc at the end, with an interval above 0. ewc must have learned its newest tasks.
    """
    ewc = _find_ewc(runs)
    logit = runs.line("fsr-logit", per_class=largest_within(runs, "fsr-logit", ewc, 1.0))
    checks = [at_least(2 * FAR, ewc.average(after=1), ewc.average()), far_above(logit.average(), ewc.average())]
    return Finding(checks, count_numbers_of(logit, ewc))


@_again(
    "C6.2",
    "color",
    "colour CIFAR10: SGD forgets; EWC holds on linear spaces, drops on HSV, HED; FSR keeps its average with no more "
    "numbers than EWC keeps",
    _UNIT + "The first rule does not ask how much FSR keeps, and at the smaller scales it keeps several times as much.",
)
def c6_again(runs: Runs) -> Finding:
    """As C6, with the largest of the figure's memories of fsr-logit that at the end keeps no more numbers than ewc."""
    ewc = _find_ewc(runs)
    sgd, adam = runs.lines("sgd", "adam")
    check_learned(sgd, than=adam)
    logit = runs.line("fsr-logit", per_class=largest_within(runs, "fsr-logit", ewc, 1.0))
    return Finding(check_colours(sgd, ewc, logit), count_numbers_of(logit, ewc))


@_again(
    "C9a.2",
    "memory-sizes",
    "a fifth of EWC's numbers beats EWC",
    _UNIT + "Ten images per class are a fifth of them at the paper's width and with its 20 tasks, elsewhere not.",
)
def c9a_again(runs: Runs) -> Finding:
    """With the largest of the figure's memories of fsr-logit that at the end keeps at most 20 % of ewc's numbers, its
    task average at the end is above that of ewc, with an interval above 0. ewc must have learned its newest tasks.
    """
    ewc = _find_ewc(runs)
    logit = runs.line("fsr-logit", per_class=largest_within(runs, "fsr-logit", ewc, 0.2))
    return Finding([above(logit.average(), ewc.average())], count_numbers_of(logit, ewc))


@_again(
    "C9b.2",
    "memory-sizes",
    "over the first five tasks, 5 % of EWC's numbers equal it",
    _UNIT + "The first rule takes 5 % of the bytes: of 8-bit pixels there are more.",
)
def c9b_again(runs: Runs) -> Finding:
    """With the largest of the figure's memories of fsr-logit that after 5 tasks keeps at most 5 % of ewc's numbers, its
    task average after 5 tasks is no more than 1 point (mean) below that of ewc, with an interval above −3 points. ewc
    must have learned its newest tasks, of the first five.
    """
    ewc = _find_ewc(runs, after=5)
    logit = runs.line("fsr-logit", per_class=largest_within(runs, "fsr-logit", ewc, 0.05, after=5))
    return Finding(
        [at_least_equal(logit.average(after=5), ewc.average(after=5))], count_numbers_of(logit, ewc, after=5)
    )


@_again(
    "C10.2",
    "memory-sizes",
    "Logit is above Distill and iCaRL at every memory size",
    "The text has two sentences, of which the first rule is one: this is the first.",
)
def c10_every_size(runs: Runs) -> Finding:
    """At every size of the figure that all three have, the task average of fsr-logit at the end is above those of
    fsr-distill and of icarl, with intervals above 0. Both must have learned their newest tasks at every size.
    """
    return Finding(check_every_size(runs))


@_again(
    "C10.3",
    "memory-sizes",
    "Logit is above Distill and iCaRL the more so, the smaller the memory is",
    "The text has two sentences, of which the first rule is one: this is the second.",
)
def c10_trend(runs: Runs) -> Finding:
    """The task average of fsr-logit at the end is above that of fsr-distill, and above that of icarl, by more at the
    figure's smallest size than at its largest, with an interval of the difference of differences above 0. Both must
    have learned their newest tasks at every size.
    """
    return Finding(check_trend(runs))


@_again(
    "C12.2",
    "heatmaps",
    "Adam forgets its predictions on the first task, Logit keeps them, Distill less",
    'The text says "forgets", and "less effective"; the first rule asks Adam to lose half, which is more.',
)
def c12_again(runs: Runs) -> Finding:
    """The diagonal is the share of the first task's validation part that is predicted right. From after task 1 to after
    task 2 that of adam falls by at least 10 points, with an interval above 0; that of fsr-logit with 1 image per class
    falls by at most 10 points (mean), and after task 2 is above that of fsr-distill with 1 image per class, with an
    interval above 0. fsr-distill must have learned its newest tasks.
    """
    adam = runs.line("adam")
    logit, distill = runs.lines("fsr-logit", "fsr-distill", per_class=1)
    check_learned(distill, than=adam)
    return Finding(
        [
            far_above(_diagonal(adam, 1), _diagonal(adam, 2)),
            at_most(FAR, _diagonal(logit, 1), _diagonal(logit, 2)),
            above(_diagonal(logit, 2), _diagonal(distill, 2)),
        ]
    )


@_again("C13a.2", "rho", "split CIFAR100: Logit is above HAT and EWC by ρ, whatever they have learned", _GATE)
def c13a_again(runs: Runs) -> Finding:
    """As C13a: at the end ρ of fsr-logit is above that of hat and that of ewc, with intervals above 0. Nobody is asked
    to have learned as fine-tuning has.
    """
    return compare_by_rho(runs)


@_again("C13c.2", "rho", "on the small model HAT falls behind further, whatever it has learned", _GATE)
def c13c_again(runs: Runs) -> Finding:
    """As C13c: at the figure's smallest width ρ of fsr-logit is above that of hat, and by more than at the figure's
    own, with intervals above 0. hat is not asked to have learned as fine-tuning has.
    """
    return compare_small_models(runs)


@_again(
    "C14a.2",
    "selection",
    "herding is the best selection at one point per class, as a figure shows it",
    "The text reads a figure of means and standard errors; the first rule asks for significance, which is more.",
)
def c14a_again(runs: Runs) -> Finding:
    """With 1 point per class, the task average with herding at the end is above those with random, gradient and
    influence by more than the standard errors of both together: bars of one standard error do not overlap.
    """
    herding, others = average_with(runs, "herding", 1), ("random", "gradient", "influence")
    return Finding([above_by_standard_errors(herding, average_with(runs, other, 1)) for other in others])


@_again(
    "C14d.2",
    "selection",
    "influence, by the better of its signs, is the last selection",
    "The paper tries both signs and reports the better one; the first rule takes the sign that was better there.",
)
def c14d_again(runs: Runs) -> Finding:
    """Of influence and influence+, that with the higher task average at the end, mean over the figure's sizes: it is
    below random, herding and gradient at every size, with intervals above 0.
    """
    sizes = list_sizes(runs)
    signs = [[average_with(runs, sign, size) for size in sizes] for sign in ("influence", "influence+")]
    better = max(signs, key=lambda averages: fmean(average.mean for average in averages))
    return Finding(
        [
            above(average_with(runs, other, size), average)
            for size, average in zip(sizes, better)
            for other in ("random", "herding", "gradient")
        ]
    )


@_again(
    "C14d.3",
    "selection",
    "points of negative influence, which lower the validation loss, are better to keep than those of positive one",
    "The text says it where it says which sign is reported; no rule asked for it.",
)
def c14d_signs(runs: Runs) -> Finding:
    """At every size of the figure, the task average with influence (the most negative) at the end is above that with
    influence+ (the most positive), with an interval above 0.
    """
    sizes = list_sizes(runs)
    return Finding([above(*(average_with(runs, sign, size) for sign in ("influence", "influence+"))) for size in sizes])


def _find_ewc(runs: Runs, after: int | None = None) -> Line:
    """Find ewc, which must have learned its newest tasks."""
    ewc, adam = runs.lines("ewc", "adam")
    check_learned(ewc, than=adam, after=after)
    return ewc


def largest_within(runs: Runs, method: str, ewc: Line, share: float, after: int | None = None) -> int:
    """Find the largest memory of a method, in images per class, that keeps at most a share of ewc's numbers."""
    whole = ewc.numbers(after)
    kept = {e.per_class or 0: count_numbers(e, after) or 0 for e in runs.wanted(method)}
    within = [size for size, numbers in kept.items() if round(numbers / whole, 2) <= share]
    if not within:
        raise NotEnoughDataError(f"no memory of {method} has at most {100 * share:g} % of the numbers of ewc")
    return max(within)


def count_numbers_of(*lines: Line, after: int | None = None) -> dict[str, float]:
    return {f"numbers of {line.name}": line.numbers(after) for line in lines}


def _diagonal(line: Line, after: int) -> Measurement:
    values = tuple(diagonal(confusion) for confusion in line.probes(after - 1, "confusion"))
    return Measurement(f"the diagonal of {line.name}", values, after)
