"""Claims of the paper's sections "Little Forgetting" (C1 to C6, C17) and "Incremental Learning" (C13, C15, C16)."""

from selfreminder.paper.claims.checks import (
    FAR,
    Check,
    above,
    above_by,
    at_least,
    at_least_equal,
    at_most,
    far_above,
    noticeably_above,
)
from selfreminder.paper.claims.runs import Line, Measurement, NotEnoughDataError, Runs, check_learned
from selfreminder.paper.claims.verdict import Finding, claim

_COMPARABLE = 1.5
_LITERATURE = 0.95
"""generative replay after five permuted tasks, by Shin et al. (2017)"""
_NEAR_ZERO = 0.05


@claim("C1", "permuted", "permuted MNIST: every method but LwF is far above SGD")
def c1(runs: Runs) -> Finding:
    """At the end the task averages of icarl, ewc, fsr-distill and fsr-logit are each at least 10 points above that of
    sgd, with an interval above 0. sgd must have learned its newest tasks.
    """
    sgd, adam = runs.lines("sgd", "adam")
    check_learned(sgd, than=adam)
    others = runs.lines("icarl", "ewc", "fsr-distill", "fsr-logit")
    return Finding([far_above(line.average(), sgd.average()) for line in others])


@claim("C2", "permuted", "Logit, Distill and iCaRL are significantly above EWC at comparable memory")
def c2(runs: Runs) -> Finding:
    """At the end the task averages of fsr-logit, fsr-distill and icarl are each above that of ewc, with an interval
    above 0. Comparable memory: each keeps at most 1.5 times the bytes of ewc, else there is not enough data. ewc must
    have learned its newest tasks.
    """
    ewc, adam = runs.lines("ewc", "adam")
    check_learned(ewc, than=adam)
    others = runs.lines("fsr-logit", "fsr-distill", "icarl")
    for line in others:
        if line.bytes() > _COMPARABLE * ewc.bytes():
            ratio = line.bytes() / ewc.bytes()
            raise NotEnoughDataError(f"the memory of {line.name} is {ratio:.2f} times that of ewc, not comparable")
    kept = _count_bytes(*others, ewc)
    return Finding([above(line.average(), ewc.average()) for line in others], kept)


@claim("C3", "permuted", "EWC holds for about five tasks, then degrades severely")
def c3(runs: Runs) -> Finding:
    """The task average of ewc falls by at most 10 points (mean) from after task 1 to after task 5, and by at least 10
    points, with an interval above 0, from after task 5 to the end. ewc must have learned its newest tasks.
    """
    ewc, adam = runs.lines("ewc", "adam")
    check_learned(ewc, than=adam)
    return Finding(
        [at_most(FAR, ewc.average(after=1), ewc.average(after=5)), far_above(ewc.average(after=5), ewc.average())]
    )


@claim("C4", "generative-replay", "after five permuted tasks FSR is above generative replay")
def c4(runs: Runs) -> Finding:
    """After 5 tasks the task average of fsr-logit is above that of generative-replay at the same scale, with an
    interval above 0. At scale paper, it is also above the 95 % of the literature, with an interval above that.
    generative-replay must have learned its newest tasks, of the first five.
    """
    replay, adam = runs.lines("generative-replay", "adam")
    check_learned(replay, than=adam, after=5)
    ours = runs.line("fsr-logit").average(after=5)
    checks = [above(ours, replay.average(after=5))]
    if runs.scale == "paper":
        checks.append(above(ours, ours.constant("the literature's generative replay", _LITERATURE)))
    return Finding(checks)


@claim("C5", "nonlinear", "non-linear MNIST: EWC fails when tasks are dissimilar; FSR holds")
def c5(runs: Runs) -> Finding:
    """EWC fails: its task average falls by at least 20 points (mean) from after task 1 to the end. FSR holds: that of
    fsr-logit falls by at most 10 points (mean). And at the end fsr-logit is at least 10 points above ewc, with an
    interval above 0. ewc must have learned its newest tasks.
    """
    ewc, adam = runs.lines("ewc", "adam")
    check_learned(ewc, than=adam)
    logit = own_size(runs, "fsr-logit")
    return Finding(
        [
            at_least(2 * FAR, ewc.average(after=1), ewc.average()),
            at_most(FAR, logit.average(after=1), logit.average()),
            far_above(logit.average(), ewc.average()),
        ],
        _count_bytes(logit, ewc),
    )


@claim(
    "C6", "color", "colour CIFAR10: SGD forgets; EWC holds on linear spaces, drops on HSV, HED; FSR keeps its average"
)
def c6(runs: Runs) -> Finding:
    """SGD forgets: its accuracy on the first task falls by at least 10 points from after task 1 to the end, with an
    interval above 0. EWC: its task average falls by at most 10 points (mean) from after task 1 to after task 3 (RGB,
    YIQ, YUV), and falls from after task 3 to the end (HSV, HED), with an interval above 0. FSR: the task average of
    fsr-logit at the end is no more than 1 point (mean) below that after task 1, with an interval above −3 points. sgd
    and ewc must have learned their newest tasks.
    """
    sgd, ewc, adam = runs.lines("sgd", "ewc", "adam")
    check_learned(sgd, ewc, than=adam)
    return Finding(check_colours(sgd, ewc, own_size(runs, "fsr-logit")))


def check_colours(sgd: Line, ewc: Line, logit: Line) -> list[Check]:
    """Check what is said of each method on colour CIFAR10."""
    return [
        far_above(sgd.first(after=1), sgd.first()),
        at_most(FAR, ewc.average(after=1), ewc.average(after=3)),
        above(ewc.average(after=3), ewc.average()),
        at_least_equal(logit.average(), logit.average(after=1)),
    ]


@claim("C17", "permuted", "LwF costs a whole model and is weak when inputs change")
def c17(runs: Runs) -> Finding:
    """At the end lwf keeps at least half the bytes of ewc, which keeps the model and its Fisher information. Its task
    average is at most 10 points (mean) above that of adam, by which it is trained, and at least 10 points below that of
    fsr-logit, with an interval above 0. lwf must have learned its newest tasks.
    """
    lwf, adam, ewc, logit = runs.lines("lwf", "adam", "ewc", "fsr-logit")
    check_learned(lwf, than=adam)
    share = lwf.share_of_bytes(ewc)
    return Finding(
        [
            at_least(0, share, share.constant("a whole model", 0.5)),
            at_most(FAR, lwf.average(), adam.average()),
            far_above(logit.average(), lwf.average()),
        ],
        _count_bytes(lwf, ewc, logit),
    )


@claim("C13a", "rho", "split CIFAR100: Logit is above HAT and EWC by ρ")
def c13a(runs: Runs) -> Finding:
    """At the end ρ of fsr-logit is above that of hat and that of ewc, with intervals above 0; ρ with joint training of
    the same seed. hat and ewc must have learned their newest tasks.
    """
    sgd, *others = own_width(runs, "sgd", "hat", "ewc")
    check_learned(*others, than=sgd)
    return compare_by_rho(runs)


def compare_by_rho(runs: Runs) -> Finding:
    """Compare fsr-logit with hat and ewc by ρ, at the figure's own width."""
    joint, logit, *others = own_width(runs, "joint", "fsr-logit", "hat", "ewc")
    return Finding([above(logit.rho(joint), line.rho(joint)) for line in others])


@claim("C13b", "rho", "LogitLab is above Logit by ρ")
def c13b(runs: Runs) -> Finding:
    """At the end ρ of fsr-logitlab is at least .03 above that of fsr-logit ("noticeably"), with an interval above 0.
    fsr-logit must have learned its newest tasks.
    """
    joint, logit, with_labels, sgd = own_width(runs, "joint", "fsr-logit", "fsr-logitlab", "sgd")
    check_learned(logit, than=sgd)
    return Finding([noticeably_above(with_labels.rho(joint), logit.rho(joint))])


@claim("C13c", "rho", "on the small model HAT falls behind further")
def c13c(runs: Runs) -> Finding:
    """At the end and at the figure's smallest width, ρ of fsr-logit is above that of hat, with an interval above 0; and
    this difference is larger than that at the figure's own width, with an interval of the difference of differences
    above 0. Joint training has the same width and seed. hat must have learned its newest tasks at the figure's own
    width; that it does not on the small model is what is claimed.
    """
    hat, sgd = own_width(runs, "hat", "sgd")
    check_learned(hat, than=sgd)
    return compare_small_models(runs)


def compare_small_models(runs: Runs) -> Finding:
    """Compare the lead of fsr-logit over hat on the smallest network with that on the figure's own."""
    ahead: list[Measurement] = []
    for width in runs.values("hat", "width"):
        joint, logit, hat = runs.lines("joint", "fsr-logit", "hat", width=width)
        ahead.append(logit.rho(joint).minus(hat.rho(joint)))
    smallest, own = ahead[0], ahead[-1]
    return Finding(
        [above(smallest, smallest.constant("no difference", 0.0)), above(smallest, own)],
        {series.label: series.mean for series in ahead},
    )


@claim("C15", "rho", "HAT does not reach ρ ≈ 0 on the first task")
def c15(runs: Runs) -> Finding:
    """ρ of hat after task 1 is at least .05 (mean) below 0, with an interval below 0. That hat has not learned as
    fine-tuning has is what is claimed, so that it is not asked.
    """
    hat, joint = own_width(runs, "hat", "joint")
    ratio = hat.rho(joint, after=1)
    return Finding([above_by(_NEAR_ZERO, ratio.constant("as joint training", 0.0), ratio)])


@claim("C16", "mixture", "on very dissimilar data sets HAT is above FSR")
def c16(runs: Runs) -> Finding:
    """On the mixture, at the end, ρ of hat is above that of fsr-logit, with an interval above 0. fsr-logit must have
    learned its newest tasks.
    """
    joint, hat, logit, sgd = runs.lines("joint", "hat", "fsr-logit", "sgd")
    check_learned(logit, than=sgd)
    return Finding([above(hat.rho(joint), logit.rho(joint))])


def own_width(runs: Runs, *methods: str) -> list[Line]:
    """Find methods at the largest of the figure's widths: others are small models."""
    return [runs.line(method, width=runs.values(method, "width")[-1]) for method in methods]


def own_size(runs: Runs, method: str) -> Line:
    """Find a method with the largest of the figure's memories, the scale's own: others are within EWC's numbers."""
    sizes = runs.values(method, "per_class")
    return runs.line(method, **({"per_class": sizes[-1]} if len(sizes) > 1 else {}))


def _count_bytes(*lines: Line) -> dict[str, float]:
    return {f"bytes of {line.name}": line.bytes() for line in lines}
