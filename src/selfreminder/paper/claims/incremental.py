"""Claims of the paper's section "Incremental Learning": C13, C15 and C16, by the forgetting ratio ρ."""

from selfreminder.paper.claims.checks import above, above_by, noticeably_above
from selfreminder.paper.claims.lines import Line, Runs, Series, learned
from selfreminder.paper.claims.verdict import Finding, claim

_NEAR_ZERO = 0.05


@claim("C13a", "rho", "split CIFAR100: Logit is above HAT and EWC by ρ")
def c13a(runs: Runs) -> Finding:
    """At the end ρ of fsr-logit is above that of hat and that of ewc, with intervals above 0; ρ with joint training of
    the same seed. hat and ewc must have learned their newest tasks.
    """
    joint, logit, sgd = (_own_width(runs, name) for name in ("joint", "fsr-logit", "sgd"))
    others = [_own_width(runs, name) for name in ("hat", "ewc")]
    for line in others:
        learned(line, than=sgd)
    return Finding([above(logit.rho(joint), line.rho(joint)) for line in others])


@claim("C13b", "rho", "LogitLab is above Logit by ρ")
def c13b(runs: Runs) -> Finding:
    """At the end ρ of fsr-logitlab is at least .03 above that of fsr-logit ("noticeably"), with an interval above 0.
    fsr-logit must have learned its newest tasks.
    """
    joint, logit, with_labels, sgd = (_own_width(runs, name) for name in ("joint", "fsr-logit", "fsr-logitlab", "sgd"))
    learned(logit, than=sgd)
    return Finding([noticeably_above(with_labels.rho(joint), logit.rho(joint))])


@claim("C13c", "rho", "on the small model HAT falls behind further")
def c13c(runs: Runs) -> Finding:
    """At the end and at the figure's smallest width, ρ of fsr-logit is above that of hat, with an interval above 0; and
    this difference is larger than that at the figure's own width, with an interval of the difference of differences
    above 0. Joint training has the same width and seed. hat must have learned its newest tasks at the figure's own
    width; that it does not on the small model is what is claimed.
    """
    learned(_own_width(runs, "hat"), than=_own_width(runs, "sgd"))
    ahead: list[Series] = []
    for width in runs.values("rho", "hat", "width"):
        joint, logit, hat = (runs.of("rho", name, width=width) for name in ("joint", "fsr-logit", "hat"))
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
    ratio = _own_width(runs, "hat").rho(_own_width(runs, "joint"), after=1)
    return Finding([above_by(_NEAR_ZERO, ratio.constant("as joint training", 0.0), ratio)])


@claim("C16", "mixture", "on very dissimilar data sets HAT is above FSR")
def c16(runs: Runs) -> Finding:
    """On the mixture, at the end, ρ of hat is above that of fsr-logit, with an interval above 0. fsr-logit must have
    learned its newest tasks.
    """
    joint, hat, logit, sgd = (runs.of("mixture", name) for name in ("joint", "hat", "fsr-logit", "sgd"))
    learned(logit, than=sgd)
    return Finding([above(hat.rho(joint), logit.rho(joint))])


def _own_width(runs: Runs, method: str) -> Line:
    """Of the figure's widths the largest: others are small models."""
    return runs.of("rho", method, width=runs.values("rho", method, "width")[-1])
