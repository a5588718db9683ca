"""Why a claim of the paper may fail at our scale, as something to test: the same runs with a few settings changed.

A claim that is not held, or whose runs are there and cannot be judged, is judged again, by the same rule, on the runs
of each of its reasons. A reason is written down after a claim has failed, its test can only explain the failure: the
verdict stays. Nothing here needs torch.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from selfreminder.experiment.catalogue import benchmark
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.tuning.tuned import find_tuned
from selfreminder.paper.specs import figure

Change = Callable[[Experiment], Sequence[Experiment]]
"""the runs that are made instead of one: none, one or several"""


@dataclass(frozen=True)
class Reason:
    """A likely reason why a claim fails at a scale."""

    claim: str
    figure: str
    """that the claim is read from"""
    text: str
    """what is changed, as the end of a sentence that begins with "with" """
    change: Change
    """what is tested in place of a run of the figure"""
    scale: str = "small"

    def experiments(self) -> list[Experiment]:
        """List the figure's runs as they are tested."""
        return change_runs(figure(self.figure).experiments(self.scale), self.change)


_REASONS: list[Reason] = []


def change_runs(experiments: Iterable[Experiment], change: Change) -> list[Experiment]:
    """Change runs; each that comes of it is there once, in order."""
    return list({e.key: e for experiment in experiments for e in change(experiment)}.values())


def find_reasons(scale: str, figures: Collection[str] | None = None, claim: str | None = None) -> list[Reason]:
    """List the reasons at a scale, of some figures or of one claim."""
    return [
        reason
        for reason in _REASONS
        if reason.scale == scale
        and (figures is None or reason.figure in figures)
        and (claim is None or reason.claim == claim)
    ]


def _reason(claim: str, figure_name: str, text: str) -> Callable[[Change], Change]:
    """Make a change of runs the test of a likely reason; `text` ends a sentence that begins with "with"."""

    def register(change: Change) -> Change:
        _REASONS.append(Reason(claim, figure_name, text, change))
        return change

    return register


@_reason("C3", "permuted", "the paper's step size for EWC, 1e-4, and the best λ at that")
def _papers_step_size(experiment: Experiment) -> Sequence[Experiment]:
    # 30 is the best of the candidates of tuned.toml at that step size.
    return [replace(experiment, lr=None, strength=30.0) if experiment.method == "ewc" else experiment]


@_reason("C3", "permuted", "20 tasks, as in the paper, instead of 10")
def _twenty_tasks(experiment: Experiment) -> Sequence[Experiment]:
    return [replace(experiment, tasks=20)] if experiment.method in ("adam", "ewc") else []


@_reason("C3", "permuted", "plain SGD for EWC instead of Adam, with a step size of .1 and λ = 10")
def _plain_sgd(experiment: Experiment) -> Sequence[Experiment]:
    # In trials on validation data it was the best of 3 and 10, with step sizes of .03 and .1.
    return [replace(experiment, optimizer="sgd", lr=0.1, strength=10.0) if experiment.method == "ewc" else experiment]


@_reason(
    "C3",
    "permuted",
    "all as in the paper but 5 epochs instead of 20: the full width, all images, 20 tasks, its step size and λ for EWC",
)
def _papers_own(experiment: Experiment) -> Sequence[Experiment]:
    return [
        replace(run, width=1.0, images=None, lr=None, strength=400.0 if run.method == "ewc" else None)
        for run in _twenty_tasks(experiment)
    ]


@_reason("C6", "color", "λ = 100 for EWC instead of 1")
def _stronger_ewc(experiment: Experiment) -> Sequence[Experiment]:
    # On validation data 1 is better over all five spaces, and 100 over the first three.
    return [replace(experiment, strength=100.0) if experiment.method == "ewc" else experiment]


@_reason("C6", "color", "6 seeds instead of 3")
def _six_seeds(experiment: Experiment) -> Sequence[Experiment]:
    return _add_seeds(experiment, 3) if _judges_c6(experiment) else []


@_reason("C6", "color", "20,000 images instead of 5,000")
def _more_images(experiment: Experiment) -> Sequence[Experiment]:
    return [replace(experiment, images=20_000)] if _judges_c6(experiment) else []


@_reason("C10", "memory-sizes", "one λ for all sizes, as in the paper, chosen at 50 per class; sizes 1 and 50 alone")
def _one_strength(experiment: Experiment) -> Sequence[Experiment]:
    if experiment.method not in ("fsr-logit", "fsr-distill", "icarl"):
        return [experiment]
    own = find_tuned(experiment.benchmark, "small", experiment.method)
    return [replace(experiment, strength=own["strength"])] if experiment.per_class in (1, 50) else []


@_reason("C12", "heatmaps", "the step size of Logit for Adam too, eight times its own")
def _adam_like_the_others(experiment: Experiment) -> Sequence[Experiment]:
    own = find_tuned(experiment.benchmark, "small", "fsr-logit")
    return [replace(experiment, lr=own["lr"]) if experiment.method == "adam" else experiment]


@_reason(
    "C12",
    "heatmaps",
    "Logit's step size for Adam, and 40 epochs instead of 5 for all methods, so that there is more to forget",
)
def _many_steps(experiment: Experiment) -> Sequence[Experiment]:
    return [replace(e, epochs=40) for e in _adam_like_the_others(experiment)]


@_reason(
    "C13a",
    "rho",
    "40 epochs instead of 10 for HAT, and λ = 30 instead of 300 for EWC, so that they learn their newest tasks",
)
def _what_they_need_to_learn(experiment: Experiment) -> Sequence[Experiment]:
    # On validation data HAT learned its first two tasks with 40 epochs, and EWC its newest ones with 30 instead of 300.
    return [replace(e, strength=30.0) if e.method == "ewc" else e for e in _more_epochs_for_hat(experiment)]


@_reason(
    "C13a",
    "rho",
    "40 epochs and a weight of sparsity of .75 instead of .1 for HAT, so that units are left for its later tasks, "
    "and λ = 30 for EWC",
)
def _sparser_hat(experiment: Experiment) -> Sequence[Experiment]:
    # Its authors' c. On validation data it learned two tasks as well as .1 did, with half of the units; 2 learned less.
    if experiment.width != 1 / 2:
        return []
    return [replace(e, strength=0.75) if e.method == "hat" else e for e in _what_they_need_to_learn(experiment)]


@_reason("C13c", "rho", "40 epochs instead of 10 for HAT, so that it learns its newest tasks")
def _more_epochs_for_hat(experiment: Experiment) -> Sequence[Experiment]:
    return [replace(experiment, epochs=40) if experiment.method == "hat" else experiment]


@_reason("C14a", "selection", "10 seeds instead of 5")
def _ten_seeds(experiment: Experiment) -> Sequence[Experiment]:
    if experiment.per_class != 1 or experiment.select.startswith("influence+"):
        return []
    return _add_seeds(experiment, 5)


@_reason("C14b", "selection", "50 images per class instead of 3 and 5: more points")
def _many_points(experiment: Experiment) -> Sequence[Experiment]:
    if experiment.per_class != 5 or experiment.select not in ("random", "herding"):
        return []
    own = find_tuned(experiment.benchmark, "small", "fsr-logit")
    return [replace(experiment, per_class=50, strength=own["strength"])]


@_reason("C14b", "selection", "10 tasks and the full width, as in the paper, instead of 6 tasks and a quarter")
def _wider_and_longer(experiment: Experiment) -> Sequence[Experiment]:
    if experiment.per_class == 1 or experiment.select not in ("random", "herding"):
        return []
    return [replace(experiment, tasks=10, width=1.0)]


@_reason("C15", "rho", "12 seeds instead of 3, of the first task alone")
def _many_first_tasks(experiment: Experiment) -> Sequence[Experiment]:
    return _learn_first_task(experiment) if experiment.method in ("hat", "joint") else []


_FIRST_TASKS_ALIKE = (
    "12 seeds instead of 3, of the first task alone, and 40 epochs instead of 10 for HAT, Logit and joint training"
)


@_reason("C15.2", "rho", _FIRST_TASKS_ALIKE)
@_reason("C15", "rho", _FIRST_TASKS_ALIKE)
def _many_first_tasks_of_more_epochs(experiment: Experiment) -> Sequence[Experiment]:
    if experiment.method not in ("hat", "fsr-logit", "joint"):
        return []
    return [replace(run, epochs=40) for run in _learn_first_task(experiment)]


_reason("C16", "mixture", "40 epochs instead of 10 for HAT, so that it learns its tasks")(_more_epochs_for_hat)


@_reason("C16", "mixture", "40 epochs instead of 10 for HAT, and 5 seeds instead of 3")
def _five_seeds_and_more_epochs_for_hat(experiment: Experiment) -> Sequence[Experiment]:
    if experiment.method == "ewc":  # which the claim is not about
        return []
    (run,) = _more_epochs_for_hat(experiment)
    return [replace(run, seed=seed) for seed in range(run.seed, 5, 3)]


@_reason("C16", "mixture", "40 epochs instead of 10 for all methods alike, and 5 seeds instead of 3")
def _five_seeds_and_more_epochs_for_all(experiment: Experiment) -> Sequence[Experiment]:
    return [replace(run, epochs=40) for run in _five_seeds_and_more_epochs_for_hat(experiment)]


def _judges_c6(experiment: Experiment) -> bool:
    """Tell whether C6 is judged by a run: of its methods, with the memory that the scale has."""
    own_size = benchmark(experiment.benchmark).scales["small"].per_class
    return experiment.method in ("sgd", "adam", "ewc", "fsr-logit") and experiment.per_class == own_size


def _learn_first_task(experiment: Experiment) -> list[Experiment]:
    """Learn the first task alone with 12 seeds, on the network's own width."""
    if experiment.width != 1 / 2:
        return []
    return _add_seeds(replace(experiment, tasks=1, split_into=experiment.tasks), 3, 6, 9)


def _add_seeds(experiment: Experiment, *more: int) -> list[Experiment]:
    """Run an experiment with its own seed, and with seeds that are so much larger."""
    return [experiment, *(replace(experiment, seed=experiment.seed + by) for by in more)]
