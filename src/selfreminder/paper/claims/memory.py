"""Claims of the paper's sections "Little Memory" (C7 to C12) and "How to Select Points?" (C14).

Those of C14 compare selections of fsr-logit on non-linear MNIST: nobody is asked to have learned as fine-tuning has.
"""

from statistics import correlation, fmean

from selfreminder.metrics import diagonal
from selfreminder.paper.claims.checks import Check, above, at_least, at_least_equal, equal, noticeably_above
from selfreminder.paper.claims.runs import Line, Measurement, NotEnoughDataError, Runs, check_learned
from selfreminder.paper.claims.verdict import Finding, claim

_SIZES = "memory-sizes"
_FEW_BYTES = 0.05
_ALIKE = 0.9
_LOST, _SURVIVES = 0.5, 0.75


@claim("C7", _SIZES, "Adam forgets faster than SGD, both having learned their newest task")
def c7(runs: Runs) -> Finding:
    """The forgetting of adam (mean over old tasks of the best accuracy before the last task minus that at the end) is
    above that of sgd, with an interval above 0. Neither may be more than 5 points below the other on its newest tasks.
    """
    sgd, adam = runs.lines("sgd", "adam")
    check_learned(sgd, than=adam)
    check_learned(adam, than=sgd)
    return Finding([above(adam.forgetting(), sgd.forgetting())])


@claim("C8", _SIZES, "one image per class already beats SGD")
def c8(runs: Runs) -> Finding:
    """At the end the task average of fsr-logit with 1 image per class is at least 3 points above that of sgd ("by a
    noticeable margin"), with an interval above 0. sgd must have learned its newest tasks.
    """
    sgd, adam = runs.lines("sgd", "adam")
    check_learned(sgd, than=adam)
    return Finding([noticeably_above(runs.line("fsr-logit", per_class=1).average(), sgd.average())])


@claim("C9a", _SIZES, "ten images per class, a fifth of EWC's memory in the paper, beat EWC")
def c9a(runs: Runs) -> Finding:
    """At the end the task average of fsr-logit with 10 images per class is above that of ewc, with an interval above 0.
    The numbers say what share of ewc's bytes it keeps. ewc must have learned its newest tasks.
    """
    ewc, adam = runs.lines("ewc", "adam")
    check_learned(ewc, than=adam)
    logit = runs.line("fsr-logit", per_class=10)
    share = logit.share_of_bytes(ewc)
    return Finding([above(logit.average(), ewc.average())], {share.label: share.mean})


@claim("C9b", _SIZES, "over the first five tasks, 5 % of EWC's memory equals it")
def c9b(runs: Runs) -> Finding:
    """Of the figure's memories of fsr-logit, the largest that after 5 tasks keeps at most 5 % of ewc's bytes: its task
    average after 5 tasks is no more than 1 point (mean) below that of ewc, with an interval above −3 points. If none is
    as small, there is not enough data. The numbers have all memories. ewc must have learned its newest tasks, of the
    first five.
    """
    ewc, adam = runs.lines("ewc", "adam")
    check_learned(ewc, than=adam, after=5)
    sizes = [runs.line("fsr-logit", per_class=size) for size in runs.values("fsr-logit", "per_class")]
    shares = [logit.share_of_bytes(ewc, after=5) for logit in sizes]
    small = [logit for logit, share in zip(sizes, shares) if share.mean <= _FEW_BYTES]
    if not small:
        raise NotEnoughDataError(f"no memory of fsr-logit has at most {100 * _FEW_BYTES:g} % of the bytes of ewc")
    averages = [logit.average(after=5) for logit in sizes]
    return Finding(
        [at_least_equal(small[-1].average(after=5), ewc.average(after=5))],
        {series.label: series.mean for series in (*shares, *averages)},
    )


@claim("C10", _SIZES, "Logit is above Distill and iCaRL at every memory size, the more so the smaller it is")
def c10(runs: Runs) -> Finding:
    """At every size of the figure that all three have, the task average of fsr-logit at the end is above those of
    fsr-distill and of icarl, with intervals above 0; and both differences are larger at the smallest size than at the
    largest, with an interval of the difference of differences above 0. fsr-distill and icarl must have learned their
    newest tasks at every size.
    """
    return Finding([*check_every_size(runs), *check_trend(runs)])


def check_every_size(runs: Runs) -> list[Check]:
    """Check that fsr-logit is above fsr-distill and icarl with every memory."""
    return [above(ours, other) for pairs in _pair_by_size(runs) for ours, other in pairs]


def check_trend(runs: Runs) -> list[Check]:
    """Check that it is so by more with the smallest memory than with the largest."""
    leads = [[ours.minus(other) for ours, other in pairs] for pairs in _pair_by_size(runs)]
    return [above(smallest, largest) for smallest, *_, largest in leads]


def _pair_by_size(runs: Runs) -> list[list[tuple[Measurement, Measurement]]]:
    """Give fsr-logit beside fsr-distill, and beside icarl, with each memory from the smallest."""
    adam, found = runs.line("adam"), []
    for name in ("fsr-distill", "icarl"):
        pairs = [runs.lines("fsr-logit", name, per_class=size) for size in runs.values(name, "per_class")]
        check_learned(*(other for _, other in pairs), than=adam)
        found.append([(logit.average(), other.average()) for logit, other in pairs])
    return found


@claim(
    "C11", "logit-bars", "with ten images per class, the pattern of the first task's logits survives the second task"
)
def c11(runs: Runs) -> Finding:
    """On the first task's validation part, by true class: after task 2 with 10 images per class, in every seed the
    largest mean logit of every class is that of the class itself; and the K × K mean logits after task 1 and after
    task 2 correlate (Pearson) by more than .9, the interval over seeds being above .9. The numbers have the mean
    deviation of logits before and after.
    """
    logit = runs.line("fsr-logit", per_class=10)
    before, after = (logit.probes(task, "logit_mean") for task in (0, 1))
    own = [fmean([row[k] >= max(row) for k, row in enumerate(means)]) for means in after]
    alike = [correlation(_flat(a), _flat(b)) for a, b in zip(before, after)]
    shares = Measurement("the share of classes with the largest mean logit", tuple(own), 2, points=False)
    alikes = Measurement("the correlation of mean logits", tuple(alike), 2, points=False)
    deviations = {
        f"deviation of logits after task {task + 1}": fmean(
            fmean(_flat(m)) for m in logit.probes(task, "logit_deviation")
        )
        for task in (0, 1)
    }
    return Finding(
        [at_least(0, shares, shares.constant("all", 1.0)), above(alikes, alikes.constant("a like pattern", _ALIKE))],
        deviations,
    )


@claim("C12", "heatmaps", "the diagonal of predictions is lost with Adam, survives with Logit, less with Distill")
def c12(runs: Runs) -> Finding:
    """The diagonal is the share of the first task's validation part that is predicted right; what is kept of it is its
    value after task 2 as a share of that after task 1. Adam keeps less than half, with an interval below ½; fsr-logit
    with 1 image per class keeps more than three quarters, with an interval above ¾; fsr-distill with 1 image per class
    keeps less than fsr-logit, with an interval above 0. fsr-distill must have learned its newest tasks.
    """
    adam = runs.line("adam")
    logit, distill = runs.lines("fsr-logit", "fsr-distill", per_class=1)
    check_learned(distill, than=adam)
    forgotten, survived, less = (_kept_diagonal(line) for line in (adam, logit, distill))
    return Finding(
        [
            above(forgotten.constant("half of it", _LOST), forgotten),
            above(survived, survived.constant("three quarters of it", _SURVIVES)),
            above(survived, less),
        ]
    )


def _kept_diagonal(line: Line) -> Measurement:
    before, after = ([diagonal(m) for m in line.probes(task, "confusion")] for task in (0, 1))
    if min(before) <= 0:
        raise NotEnoughDataError(f"{line.name} predicts nothing right after the first task")
    kept = tuple(new / old for old, new in zip(before, after))
    return Measurement(f"the diagonal kept by {line.name}", kept, 2)


def _flat(matrix: list[list[float]]) -> list[float]:
    return [value for row in matrix for value in row]


@claim("C14a", "selection", "herding is the best selection at one point per class")
def c14a(runs: Runs) -> Finding:
    """With 1 point per class, the task average with herding at the end is above those with random, gradient and
    influence, with intervals above 0.
    """
    herding = average_with(runs, "herding", 1)
    return Finding([above(herding, average_with(runs, other, 1)) for other in ("random", "gradient", "influence")])


@claim("C14b", "selection", "herding is below random as points grow")
def c14b(runs: Runs) -> Finding:
    """At every size of the figure above 1 per class, the task average with random at the end is above that with
    herding, with an interval above 0.
    """
    sizes = [size for size in list_sizes(runs) if size > 1]
    return Finding([above(average_with(runs, "random", size), average_with(runs, "herding", size)) for size in sizes])


@claim("C14c", "selection", "gradient is not below random when the memory is small, and equals it when it is large")
def c14c(runs: Runs) -> Finding:
    """At the figure's smallest size, the task average with gradient at the end is not below that with random (mean: the
    paper has it above, "but not always with a significant margin"). At its largest size they are within 1 point of each
    other (mean), with an interval within ±3 points.
    """
    smallest, *_, largest = list_sizes(runs)
    pairs = {
        size: (average_with(runs, "gradient", size), average_with(runs, "random", size)) for size in (smallest, largest)
    }
    return Finding([at_least(0, *pairs[smallest]), equal(*pairs[largest])])


@claim("C14d", "selection", "influence is the last selection")
def c14d(runs: Runs) -> Finding:
    """At every size of the figure, the task average with influence at the end is below those with random, herding and
    gradient, with intervals above 0.
    """
    return Finding(
        [
            above(average_with(runs, other, size), average_with(runs, "influence", size))
            for size in list_sizes(runs)
            for other in ("random", "herding", "gradient")
        ]
    )


def list_sizes(runs: Runs) -> list[int]:
    """List the sizes of memories in the figure."""
    return runs.values("fsr-logit", "per_class")


def average_with(runs: Runs, selection: str, size: int) -> Measurement:
    """Measure the task average of fsr-logit with a selection, at the end."""
    return runs.line("fsr-logit", select=selection, per_class=size).average()
