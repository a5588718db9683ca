"""Claims of the paper's section "Little Forgetting": C1 to C6, and C17."""

from selfreminder.paper.claims.checks import FAR, above, at_least, at_least_equal, at_most, far_above
from selfreminder.paper.claims.lines import NotEnoughDataError, Runs, learned
from selfreminder.paper.claims.verdict import Finding, claim

_COMPARABLE = 1.5
_LITERATURE = 0.95
"""generative replay after five permuted tasks, by Shin et al. (2017)"""


@claim("C1", "permuted", "permuted MNIST: every method but LwF is far above SGD")
def c1(runs: Runs) -> Finding:
    """At the end the task averages of icarl, ewc, fsr-distill and fsr-logit are each at least 10 points above that of
    sgd, with an interval above 0. sgd must have learned its newest tasks.
    """
    sgd, adam = runs.of("permuted", "sgd"), runs.of("permuted", "adam")
    learned(sgd, than=adam)
    others = [runs.of("permuted", name) for name in ("icarl", "ewc", "fsr-distill", "fsr-logit")]
    return Finding([far_above(line.average(), sgd.average()) for line in others])


@claim("C2", "permuted", "Logit, Distill and iCaRL are significantly above EWC at comparable memory")
def c2(runs: Runs) -> Finding:
    """At the end the task averages of fsr-logit, fsr-distill and icarl are each above that of ewc, with an interval
    above 0. Comparable memory: each keeps at most 1.5 times the bytes of ewc, else there is not enough data. ewc must
    have learned its newest tasks.
    """
    ewc, adam = runs.of("permuted", "ewc"), runs.of("permuted", "adam")
    learned(ewc, than=adam)
    others = [runs.of("permuted", name) for name in ("fsr-logit", "fsr-distill", "icarl")]
    for line in others:
        if line.bytes() > _COMPARABLE * ewc.bytes():
            ratio = line.bytes() / ewc.bytes()
            raise NotEnoughDataError(f"the memory of {line.name} is {ratio:.2f} times that of ewc, not comparable")
    kept = {f"bytes of {line.name}": line.bytes() for line in (*others, ewc)}
    return Finding([above(line.average(), ewc.average()) for line in others], kept)


@claim("C3", "permuted", "EWC holds for about five tasks, then degrades severely")
def c3(runs: Runs) -> Finding:
    """The task average of ewc falls by at most 10 points (mean) from after task 1 to after task 5, and by at least 10
    points, with an interval above 0, from after task 5 to the end. ewc must have learned its newest tasks.
    """
    ewc, adam = runs.of("permuted", "ewc"), runs.of("permuted", "adam")
    learned(ewc, than=adam)
    return Finding(
        [at_most(FAR, ewc.average(after=1), ewc.average(after=5)), far_above(ewc.average(after=5), ewc.average())]
    )


@claim("C4", "generative-replay", "after five permuted tasks FSR is above generative replay")
def c4(runs: Runs) -> Finding:
    """After 5 tasks the task average of fsr-logit is above that of generative-replay at the same scale, with an
    interval above 0. At scale paper, it is also above the 95 % of the literature, with an interval above that.
    generative-replay must have learned its newest tasks, of the first five.
    """
    replay, adam = runs.of("generative-replay", "generative-replay"), runs.of("generative-replay", "adam")
    learned(replay, than=adam, after=5)
    ours = runs.of("generative-replay", "fsr-logit").average(after=5)
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
    ewc, adam = runs.of("nonlinear", "ewc"), runs.of("nonlinear", "adam")
    learned(ewc, than=adam)
    logit = runs.of("nonlinear", "fsr-logit")
    return Finding(
        [
            at_least(2 * FAR, ewc.average(after=1), ewc.average()),
            at_most(FAR, logit.average(after=1), logit.average()),
            far_above(logit.average(), ewc.average()),
        ],
        {f"bytes of {line.name}": line.bytes() for line in (logit, ewc)},
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
    sgd, ewc, adam = (runs.of("color", name) for name in ("sgd", "ewc", "adam"))
    learned(sgd, than=adam)
    learned(ewc, than=adam)
    logit = runs.of("color", "fsr-logit")
    return Finding(
        [
            far_above(sgd.first(after=1), sgd.first()),
            at_most(FAR, ewc.average(after=1), ewc.average(after=3)),
            above(ewc.average(after=3), ewc.average()),
            at_least_equal(logit.average(), logit.average(after=1)),
        ]
    )


@claim("C17", "permuted", "LwF costs a whole model and is weak when inputs change")
def c17(runs: Runs) -> Finding:
    """At the end lwf keeps at least half the bytes of ewc, which keeps the model and its Fisher information. Its task
    average is at most 10 points (mean) above that of adam, by which it is trained, and at least 10 points below that of
    fsr-logit, with an interval above 0. lwf must have learned its newest tasks.
    """
    lwf, adam, ewc, logit = (runs.of("permuted", name) for name in ("lwf", "adam", "ewc", "fsr-logit"))
    learned(lwf, than=adam)
    share = lwf.share_of_bytes(ewc)
    return Finding(
        [
            at_least(0, share, share.constant("a whole model", 0.5)),
            at_most(FAR, lwf.average(), adam.average()),
            far_above(logit.average(), lwf.average()),
        ],
        {f"bytes of {line.name}": line.bytes() for line in (lwf, ewc, logit)},
    )
