"""Claims by rules of a reader who had the paper's text and the first rules alone, and had seen no number of ours.

Each asks for what a sentence says, no more: nobody is asked to have learned as fine-tuning has, and where the text has
no number for "severely" or "quickly", it is compared with what the text itself sets beside it. Of the reader's rules
those are left out that another rule here has already, and two that the records cannot judge: of C12, which takes mean
probabilities where the records have predictions, and of C5 the comparison with permuted MNIST, another figure's.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from selfreminder.metrics import first_task, task_average
from selfreminder.paper.claims.checks import (
    EQUAL,
    FAR,
    above,
    above_by_standard_errors,
    at_least,
    at_most,
    equal,
)
from selfreminder.paper.claims.forgetting import compare_small_models, own_size, own_width
from selfreminder.paper.claims.memory import average_with, list_sizes
from selfreminder.paper.claims.read_again import count_numbers_of, largest_within
from selfreminder.paper.claims.runs import Line, Measurement, Runs
from selfreminder.paper.claims.verdict import Claim, Finding, ReadAgain, claim

_DATE = "2026-11-18"
_COMPARABLE = 1.05
"""times EWC's numbers: the paper's own memories have .91 to 1.003 of them"""


def _from_the_text(id: str, figure_name: str, text: str, why: str) -> Callable[[Callable[[Runs], Finding]], Claim]:
    """Make a function the judge of a claim, whose id is what comes before the point."""
    return claim(id, figure_name, text, ReadAgain(id.partition(".")[0], why, _DATE, knew_verdicts=False))


@_from_the_text(
    "C1.2",
    "permuted",
    "permuted MNIST: all methods except LwF are above SGD, and LwF is not far above it",
    '"Except LwF" and the panel of the first task were not asked for; that SGD has learned is not said.',
)
def c1_except_lwf(runs: Runs) -> Finding:
    """At the end the task averages of icarl, ewc, fsr-distill and fsr-logit, and their accuracies on the first task,
    are each above those of sgd and of lwf, with intervals above 0; and the task average of lwf is at most 10 points
    (mean) above that of sgd.
    """
    sgd, lwf = runs.lines("sgd", "lwf")
    others = runs.lines("icarl", "ewc", "fsr-distill", "fsr-logit")
    checks = [at_most(FAR, lwf.average(), sgd.average())]
    for line in others:
        checks += [above(line.average(), low.average()) for low in (sgd, lwf)]
        checks += [above(line.first(), low.first()) for low in (sgd, lwf)]
    return Finding(checks)


@_from_the_text(
    "C2.3",
    "memory-sizes",
    "Logit, Distill and iCaRL are above EWC on all tasks and on the first, with about as many numbers",
    "The first rule allows half as much memory again, counts bytes, and leaves out the panel of the first task.",
)
def c2_both_panels(runs: Runs) -> Finding:
    """With the largest of the figure's memories that at the end keeps at most 1.05 times the numbers of ewc, the task
    averages of fsr-logit, fsr-distill and icarl at the end, and their accuracies on the first task, are each above
    those of ewc, with intervals above 0.
    """
    ewc = runs.line("ewc")
    size = largest_within(runs, "icarl", ewc, _COMPARABLE)
    others = runs.lines("fsr-logit", "fsr-distill", "icarl", per_class=size)
    checks = [above(line.average(), ewc.average()) for line in others]
    checks += [above(line.first(), ewc.first()) for line in others]
    return Finding(checks, count_numbers_of(*others, ewc))


@_from_the_text(
    "C3.2",
    "permuted",
    "EWC is above SGD after five tasks, and falls further afterwards than until then",
    "The text has no number for a severe fall; that EWC learns later tasks less well is a way to degrade.",
)
def c3_falls_further(runs: Runs) -> Finding:
    """After 5 tasks the task average of ewc is above that of sgd. From after task 5 to the end it falls, and by more
    than from after task 1 to after task 5. All with intervals above 0.
    """
    ewc, sgd = runs.lines("ewc", "sgd")
    until, later = (
        _fall(ewc.name, *ends) for ends in ((ewc.average(1), ewc.average(5)), (ewc.average(5), ewc.average()))
    )
    return Finding(
        [above(ewc.average(5), sgd.average(5)), above(ewc.average(5), ewc.average()), above(later, until)],
    )


@_from_the_text(
    "C5.3",
    "nonlinear",
    "non-linear MNIST: FSR is above EWC with about as many numbers, and EWC is nearer to SGD than to FSR",
    'That FSR falls by little is not said; "miserably" has no number: what is set beside it is FSR and SGD.',
)
def c5_nearer_to_sgd(runs: Runs) -> Finding:
    """With the largest of the figure's memories of fsr-logit that at the end keeps at most 1.05 times the numbers of
    ewc: its task average at the end, and its accuracy on the first task, are above those of ewc; and its lead over ewc
    is larger than that of ewc over sgd. All with intervals above 0.
    """
    ewc, sgd = runs.lines("ewc", "sgd")
    logit = runs.line("fsr-logit", per_class=largest_within(runs, "fsr-logit", ewc, _COMPARABLE))
    leads = [a.average().minus(b.average()) for a, b in ((logit, ewc), (ewc, sgd))]
    checks = [above(logit.average(), ewc.average()), above(logit.first(), ewc.first()), above(*leads)]
    return Finding(checks, count_numbers_of(logit, ewc))


@_from_the_text(
    "C6.3",
    "color",
    "colour CIFAR10: SGD forgets with the next space, EWC falls more on HSV, HED than before, FSR keeps its average",
    '"Quickly" is of the next space; that EWC falls by little before, and SGD by much, has no number in the text.',
)
def c6_next_space(runs: Runs) -> Finding:
    """SGD: its accuracy on the first task falls from after task 1 to after task 2, and by the end by more than that of
    fsr-logit. EWC: its task average falls from after task 3 to the end, and by more than from after task 1 to after
    task 3. These with intervals above 0. FSR: the task average of fsr-logit at the end is no more than 1 point (mean)
    below that after task 1, and is above that of ewc, with an interval above 0. The numbers say what both keep.
    """
    sgd, ewc = runs.lines("sgd", "ewc")
    logit = own_size(runs, "fsr-logit")
    lost = [_fall(f"the first task of {line.name}", line.first(1), line.first()) for line in (sgd, logit)]
    linear = _fall(f"{ewc.name} over the linear spaces", ewc.average(1), ewc.average(3))
    others = _fall(f"{ewc.name} over HSV and HED", ewc.average(3), ewc.average())
    return Finding(
        [
            above(sgd.first(1), sgd.first(2)),
            above(*lost),
            above(ewc.average(3), ewc.average()),
            above(others, linear),
            at_least(-EQUAL, logit.average(), logit.average(1)),
            above(logit.average(), ewc.average()),
        ],
        count_numbers_of(logit, ewc),
    )


@_from_the_text(
    "C7.2",
    "memory-sizes",
    "Adam's average over the tasks so far is below that of SGD",
    "The figure has task averages, and the text asks neither to have learned: an SGD that has not makes it harder.",
)
def c7_averages(runs: Runs) -> Finding:
    """The task average of sgd is above that of adam, in the mean over all tasks from the second on, and at the end,
    with intervals above 0.
    """
    sgd, adam = runs.lines("sgd", "adam")
    return Finding([above(_mean_average(sgd), _mean_average(adam)), above(sgd.average(), adam.average())])


@_from_the_text(
    "C8.2",
    "memory-sizes",
    "one image per class is above SGD, so that bars do not overlap, and above Adam",
    '"Noticeable" has no number in the text, and Adam, which it names too, was not compared.',
)
def c8_beats_adam(runs: Runs) -> Finding:
    """At the end the task average of fsr-logit with 1 image per class is above that of sgd, with an interval above 0
    and bars of one standard error that do not overlap, and above that of adam, with an interval above 0.
    """
    sgd, adam = runs.lines("sgd", "adam")
    logit = runs.line("fsr-logit", per_class=1).average()
    bars = above_by_standard_errors(logit, sgd.average())
    return Finding([above(logit, sgd.average()), bars, above(logit, adam.average())])


@_from_the_text(
    "C8.3",
    "memory-sizes",
    "one image per class makes forgetting slow and gradual",
    "A key finding of the introduction that no rule asked for.",
)
def c8_gradual(runs: Runs) -> Finding:
    """With 1 image per class, the largest fall of fsr-logit's accuracy on the first task from one task to the next is
    smaller than that of adam; and its forgetting is below those of adam and of sgd. All with intervals above 0.
    """
    sgd, adam = runs.lines("sgd", "adam")
    logit = runs.line("fsr-logit", per_class=1)
    checks = [above(_largest_fall(adam), _largest_fall(logit))]
    return Finding([*checks, *(above(line.forgetting(), logit.forgetting()) for line in (adam, sgd))])


@_from_the_text(
    "C10.4",
    "memory-sizes",
    "Logit is above Distill and iCaRL at every memory size in the mean, and significantly at the smallest",
    "The text itself says that differences are less significant with larger memories.",
)
def c10_in_the_mean(runs: Runs) -> Finding:
    """At every size of the figure that all three have, the task average of fsr-logit at the end is not below those of
    fsr-distill and of icarl (mean); at the smallest size it is above them, with intervals above 0.
    """
    checks = []
    for name in ("fsr-distill", "icarl"):
        for number, size in enumerate(runs.values(name, "per_class")):
            ours, other = (line.average() for line in runs.lines("fsr-logit", name, per_class=size))
            checks.append(at_least(0, ours, other) if number else above(ours, other))
    return Finding(checks)


@_from_the_text(
    "C11.2",
    "logit-bars",
    "the first task's own logits are apart from the others by more than their deviations, and move by less",
    '"Much higher" was only "higher", and a correlation does not see shifts, which logit matching does.',
)
def c11_in_deviations(runs: Runs) -> Finding:
    """On the first task's validation part, by true class, after task 1 and after task 2 with 10 images per class: a
    class's own mean logit is above the next largest by more than the mean of their two deviations, in the class where
    it is least so. And the K × K mean logits move from after task 1 to after task 2 by less, root mean square, than
    their mean deviation. All with intervals.
    """
    logit = runs.line("fsr-logit", per_class=10)
    means, deviations = ([logit.probes(task, name) for task in (0, 1)] for name in ("logit_mean", "logit_deviation"))
    checks = []
    for task in (0, 1):
        least = tuple(map(_least_gap, means[task], deviations[task]))
        gap = Measurement("the least gap of a class in deviations", least, task + 1, points=False)
        checks.append(above(gap, gap.constant("one deviation", 1.0)))
    moved = Measurement(
        "the move of mean logits in deviations", tuple(map(_move, *means, deviations[0])), 2, points=False
    )
    return Finding([*checks, above(moved.constant("one deviation", 1.0), moved)])


@_from_the_text(
    "C13a.3",
    "rho",
    "HAT keeps less than FSR and EWC",
    "A sentence beside the claim that no rule asked for.",
)
def c13a_keeps_less(runs: Runs) -> Finding:
    """At the end hat keeps fewer bytes than fsr-logit and than ewc, with intervals of the shares below 1."""
    hat, *others = own_width(runs, "hat", "fsr-logit", "ewc")
    shares = [hat.share_of_bytes(line) for line in others]
    return Finding([above(share.constant("as many", 1.0), share) for share in shares])


@_from_the_text(
    "C13c.3",
    "rho",
    "on the small model HAT falls behind further, and is worse itself",
    "That HAT itself is hampered was not asked: a lead may also grow as Logit gains.",
)
def c13c_hampered(runs: Runs) -> Finding:
    """As C13c.2, and ρ of hat at the end is lower at the figure's smallest width than at its own, with an interval
    above 0.
    """
    found = compare_small_models(runs)
    smallest, *_, own = (runs.lines("hat", "joint", width=width) for width in runs.values("hat", "width"))
    small, wide = (replace(hat.rho(joint), who=f"ρ of {hat.name}") for hat, joint in (smallest, own))
    return Finding([*found.checks, above(wide, small)], found.numbers)


@_from_the_text(
    "C14c.2",
    "selection",
    "gradient is above random with a small memory, so that bars do not overlap, and equals it with a large one",
    '"Outperforms" is more than not below; "can" is of one size.',
)
def c14c_outperforms(runs: Runs) -> Finding:
    """With 1 or with 3 points per class, whichever is better for it, the task average with gradient at the end is above
    that with random by more than the standard errors of both together. At the figure's largest size they are within 1
    point of each other (mean), with an interval within ±3 points.
    """
    *small, largest = [[average_with(runs, name, size) for name in ("gradient", "random")] for size in list_sizes(runs)]
    best = max((above_by_standard_errors(*pair) for pair in small), key=lambda check: check.slack)
    return Finding([best, equal(*largest)])


@_from_the_text(
    "C15.2",
    "rho",
    "HAT is below ρ = 0 on the first task, and below Logit there",
    "Where joint training is better on the first task than any, no method has ρ ≈ 0: what HAT lacks is beside Logit.",
)
def c15_beside_logit(runs: Runs) -> Finding:
    """After task 1, where fsr-logit is plain training, ρ of hat is below 0 and below that of fsr-logit, with intervals
    above 0.
    """
    hat, logit, joint = own_width(runs, "hat", "fsr-logit", "joint")
    ratio = hat.rho(joint, after=1)
    return Finding([above(ratio.constant("as joint training", 0.0), ratio), above(logit.rho(joint, after=1), ratio)])


@_from_the_text(
    "C17.2",
    "bytes",
    "LwF keeps a whole model, and FSR is above it with fewer numbers",
    '"Unsatisfactory in both memory cost and performance": the first rule does not set its memory against FSR\'s.',
)
def c17_fewer_numbers(runs: Runs) -> Finding:
    """At the end lwf keeps at least half the bytes of ewc, which keeps the model and its Fisher information. With the
    largest of the figure's memories that keeps no more numbers than lwf, and with the figure's largest, the task
    average of fsr-logit is above that of lwf, with intervals above 0.
    """
    lwf, ewc = runs.lines("lwf", "ewc")
    usual = {"codec": "auto", "logit_codec": runs.wanted("fsr-logit")[0].logit_codec}
    fewer = largest_within(runs, "fsr-logit", lwf, 1.0)
    memories = [runs.line("fsr-logit", per_class=size, **usual) for size in (fewer, list_sizes(runs)[-1])]
    share = lwf.share_of_bytes(ewc)
    whole = at_least(0, share, share.constant("a whole model", 0.5))
    leads = [above(line.average(), lwf.average()) for line in memories]
    return Finding([whole, *leads], count_numbers_of(*memories, lwf))


def _fall(who: str, before: Measurement, after: Measurement) -> Measurement:
    """Measure by how much something falls."""
    return replace(before.minus(after), who=f"the fall of {who}", after=after.after)


def _mean_average(line: Line) -> Measurement:
    values = tuple(fmean(task_average(run.test)[1:]) for run in line.runs)
    return Measurement(f"the mean over tasks of {line.name}", values)


def _largest_fall(line: Line) -> Measurement:
    firsts = [first_task(run.test) for run in line.runs]
    values = tuple(max(a - b for a, b in pairwise(first)) for first in firsts)
    return Measurement(f"the largest fall of the first task of {line.name}", values)


def _least_gap(means: list[list[float]], deviations: list[list[float]]) -> float:
    """Find the class whose own mean logit is least above the next largest, in the mean of both deviations."""
    gaps = []
    for own, (row, spread) in enumerate(zip(means, deviations)):
        other = max((k for k in range(len(row)) if k != own), key=row.__getitem__)
        gaps.append((row[own] - row[other]) / fmean((spread[own], spread[other])))
    return min(gaps)


def _move(before: list[list[float]], after: list[list[float]], deviations: list[list[float]]) -> float:
    """Measure by how much mean logits have moved, root mean square, in their mean deviation."""
    squares = [(a - b) ** 2 for old, new in zip(before, after) for a, b in zip(old, new)]
    return math.sqrt(fmean(squares)) / fmean(value for row in deviations for value in row)
