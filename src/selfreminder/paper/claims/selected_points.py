"""Claims of the paper's section "How to Select Points?": C14, of fsr-logit on non-linear MNIST.

They compare selections of one method, so that nobody is asked to have learned as fine-tuning has.
"""

from selfreminder.paper.claims.checks import above, at_least, equal
from selfreminder.paper.claims.lines import Runs, Series
from selfreminder.paper.claims.verdict import Finding, claim


@claim("C14a", "selection", "herding is the best selection at one point per class")
def c14a(runs: Runs) -> Finding:
    """With 1 point per class, the task average with herding at the end is above those with random, gradient and
    influence, with intervals above 0.
    """
    herding = _average(runs, "herding", 1)
    return Finding([above(herding, _average(runs, other, 1)) for other in ("random", "gradient", "influence")])


@claim("C14b", "selection", "herding is below random as points grow")
def c14b(runs: Runs) -> Finding:
    """At every size of the figure above 1 per class, the task average with random at the end is above that with
    herding, with an interval above 0.
    """
    sizes = [size for size in _sizes(runs) if size > 1]
    return Finding([above(_average(runs, "random", size), _average(runs, "herding", size)) for size in sizes])


@claim("C14c", "selection", "gradient is not below random when the memory is small, and equals it when it is large")
def c14c(runs: Runs) -> Finding:
    """At the figure's smallest size, the task average with gradient at the end is not below that with random (mean: the
    paper has it above, "but not always with a significant margin"). At its largest size they are within 1 point of each
    other (mean), with an interval within ±3 points.
    """
    smallest, *_, largest = _sizes(runs)
    pairs = {size: (_average(runs, "gradient", size), _average(runs, "random", size)) for size in (smallest, largest)}
    return Finding([at_least(0, *pairs[smallest]), equal(*pairs[largest])])


@claim("C14d", "selection", "influence is the last selection")
def c14d(runs: Runs) -> Finding:
    """At every size of the figure, the task average with influence at the end is below those with random, herding and
    gradient, with intervals above 0.
    """
    return Finding(
        [
            above(_average(runs, other, size), _average(runs, "influence", size))
            for size in _sizes(runs)
            for other in ("random", "herding", "gradient")
        ]
    )


def _sizes(runs: Runs) -> list[int]:
    return runs.values("selection", "fsr-logit", "per_class")


def _average(runs: Runs, selection: str, size: int) -> Series:
    return runs.of("selection", "fsr-logit", select=selection, per_class=size).average()
