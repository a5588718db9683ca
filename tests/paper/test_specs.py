"""The paper's figures as experiments: valid, shared where they are the same, and no more of them than was meant."""

import subprocess
import sys
from dataclasses import replace

import pytest

from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks import SCALES, build_model
from selfreminder.experiment.catalogue import benchmark, uses
from selfreminder.experiment.tuning.tuned import find_tuned
from selfreminder.paper.claims.runs import count_numbers
from selfreminder.paper.specs import FIGURES, experiments, figure

MOST_RUNS = {"demo": 67, "small": 339, "medium": 243, "paper": 288}
"""of all figures together: a change here is a change of hours"""


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_at_every_scale_has_runs_that_apply(name: str, scale: str) -> None:
    runs = figure(name).experiments(scale)  # making an experiment checks its fields
    assert runs and figure(name).summary
    assert len({run.key for run in runs}) == len(runs)
    for run in runs:
        several_heads = benchmark(run.benchmark).head_per_task
        assert run.method != "hat" or several_heads
        assert run.method != "generative-replay" or run.benchmark == "permuted-mnist"
        assert run.probe == (2 if name in ("logit-bars", "heatmaps") else 0)


@pytest.mark.parametrize("scale", SCALES)
def test_the_number_of_runs(scale: str) -> None:
    count = {name: len(figure(name).experiments(scale)) for name in FIGURES}
    total = len(experiments(FIGURES.values(), scale))
    print(scale, total, count)
    assert total <= MOST_RUNS[scale]
    assert total < sum(count.values()), "nothing is shared"


@pytest.mark.parametrize("scale", SCALES)
def test_a_run_that_cannot_depend_on_a_setting_is_there_once(scale: str) -> None:
    """Fine-tuning is the same whatever the memory's size: it should not be run again for each."""
    seen: dict[tuple[object, ...], str] = {}
    for run in experiments(FIGURES.values(), scale):
        used = {name: value for name, value in run.as_dict().items() if uses(run.method, name)}
        assert seen.setdefault(tuple(map(repr, used.items())), run.key) == run.key


def test_runs_of_several_figures_are_equal() -> None:
    def keys(name: str, **settings: object) -> set[str]:
        found = figure(name).experiments("small")
        return {e.key for e in found if all(getattr(e, k) == v for k, v in settings.items())}

    for method in ("sgd", "adam", "ewc"):
        assert keys("memory-sizes", method=method) == keys("permuted", method=method)
    for method in ("fsr-logit", "fsr-distill", "icarl"):
        assert keys("memory-sizes", method=method, per_class=50) == keys("permuted", method=method)
    assert keys("bytes", codec="auto", logit_codec="float32", method="fsr-logit") < keys("memory-sizes")
    assert keys("bytes", method="generative-replay") == keys("generative-replay", method="generative-replay")
    assert keys("generative-replay", method="fsr-logit") == keys("permuted", method="fsr-logit")


def test_seeds() -> None:
    def seeds(name: str, scale: str) -> set[int]:
        return {e.seed for e in figure(name).experiments(scale)}

    assert all(seeds(name, "small") == set(range(5)) for name in ("permuted", "nonlinear", "memory-sizes", "selection"))
    assert all(seeds(name, "small") == set(range(3)) for name in ("color", "rho", "mixture"))
    assert all(seeds(name, "paper") == set(range(3)) for name in ("permuted", "nonlinear", "heatmaps", "selection"))
    assert all(seeds(name, "paper") == set(range(5)) for name in ("color", "rho", "mixture"))


@pytest.mark.parametrize("name", FIGURES)
def test_more_seeds_are_the_same_runs_with_others(name: str) -> None:
    """Lines that need fewer seeds than the others, such as codecs, get none."""
    usual, more = figure(name).experiments("small"), figure(name).experiments("small", 9)
    count = figure(name).count_seeds("small")
    assert [e.key for e in more if e.seed < count] == [e.key for e in usual]
    assert {e.seed for e in more} == set(range(9))
    last = {e.key for e in usual if e.seed == count - 1}
    for seed in range(count, 9):
        assert {replace(e, seed=count - 1).key for e in more if e.seed == seed} == last
    assert figure(name).experiments("small", 2) == usual


def test_strengths_are_those_of_the_table_for_each_size() -> None:
    for scale in SCALES:
        for run in experiments(FIGURES.values(), scale):
            if scale != "paper" or run.probe == 0:
                table = find_tuned(run.benchmark, scale, run.method, run.size)
                assert run.strength == table.get("strength")
    one, own = (
        {e.strength for e in figure("memory-sizes").experiments("small") if (e.method, e.per_class) == ("fsr-logit", k)}
        for k in (1, 50)
    )
    assert len(one) == len(own) == 1 and one != own


@pytest.mark.parametrize("name", ["logit-bars", "heatmaps"])
def test_two_tasks_at_scale_paper_have_the_papers_strengths_whatever_is_tuned(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = [run.key for run in figure(name).experiments("paper")]
    monkeypatch.setattr("selfreminder.experiment.comparison.find_tuned", lambda *_: {"strength": 7.0, "lr": 0.5})
    runs = [run for comparison in figure(name).comparisons("paper") for run in replace(comparison).experiments]
    assert {run.key for run in runs} == set(usual)
    papers = {"adam": None, "fsr-logit": 5, "fsr-distill": 10}
    assert all((run.strength, run.lr) == (papers[run.method], None) for run in runs)


@pytest.mark.parametrize(
    ("name", "scale"),
    [("nonlinear", "small"), ("nonlinear", "medium"), ("nonlinear", "paper"), ("color", "medium"), ("color", "paper")],
)
def test_a_memory_of_fsr_has_no_more_numbers_than_ewc(name: str, scale: str) -> None:
    """As many images per class as there can be, or the scale's own size where that is within them."""
    own = {e.method: e for e in sorted(figure(name).experiments(scale), key=lambda e: -(e.per_class or 0))}
    ewc, logit = own["ewc"], own["fsr-logit"]
    of_benchmark = benchmark(ewc.benchmark)
    model = build_model(of_benchmark.model, width=ewc.width, seed=0)
    numbers = 2 * sum(parameter.numel() for parameter in model.parameters())

    def share(per_class: int) -> float:
        return round((count_numbers(replace(logit, per_class=per_class)) or 0) / numbers, 2)

    assert logit.per_class is not None and share(logit.per_class) <= 1
    assert share(logit.per_class + 1) > 1 or logit.per_class == of_benchmark.scales[scale].per_class


def test_small_models_have_joint_training_of_their_own() -> None:
    found = figure("rho").experiments("small")
    assert {e.width for e in found if e.method == "joint"} == {e.width for e in found if e.method == "hat"}
    assert {e.width for e in found} == {1 / 2, 1 / 4, 1 / 8}


def test_names_that_nobody_knows() -> None:
    with pytest.raises(SelfReminderError, match="did you mean 'heatmaps'"):
        figure("heatmap")
    with pytest.raises(SelfReminderError, match="unknown scale 'tiny'"):
        figure("rho").experiments("tiny")


def test_figures_and_claims_are_known_without_torch() -> None:
    code = "import sys, selfreminder.paper.specs, selfreminder.paper.claims; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
