from dataclasses import replace
from pathlib import Path

from selfreminder import methods
from selfreminder._base.sizes import Size
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.tuning.candidates import STEP_SIZES, STRENGTHS, Tuning
from tunings import tuning


def test_usual_candidates() -> None:
    found = tuning("fsr-logit", "sgd", "adam", "ewc")
    assert {c.method: dict(c.values) for c in found.candidates} == {
        "fsr-logit": {"strength": STRENGTHS["fsr-logit"]},
        "sgd": {"lr": (0.001, 0.003, 0.01, 0.03, 0.1)},
        "ewc": {"strength": STRENGTHS["ewc"]},
    }
    assert found.skipped == ["adam"]
    both = tuning("ewc", "adam", "sgd", fields=("strength", "lr"))
    assert {c.method: list(c.values) for c in both.candidates} == {
        "ewc": ["strength", "lr"],
        "adam": ["lr"],
        "sgd": ["lr"],
    }
    assert both.candidates[1].values["lr"] == (0.0001, 0.0004, 0.0008, 0.0016)
    assert len(both.candidates[0].combine()) == len(STRENGTHS["ewc"]) * 4
    hats = Comparison(benchmark="split-cifar100", methods=("hat", "sgd", "ewc"))
    assert Tuning(comparison=hats).skipped == ["sgd"]  # its step size is that of the protocol
    assert {c.values["lr"] for c in Tuning(comparison=hats, fields=("lr",)).candidates} == {STEP_SIZES["plateau"]}
    with_strength = [name for name in methods.names() if "strength" in methods.method_class(name).__dataclass_fields__]
    assert sorted(with_strength) == sorted(STRENGTHS)


def test_by_default_the_methods_of_a_comparison() -> None:
    found = tuning()
    compared = dict.fromkeys(e.method for e in Comparison(benchmark="permuted-mnist").experiments)
    assert [c.method for c in found.candidates] + found.skipped == [m for m in compared if m != "adam"] + ["adam"]


def test_runs_are_those_of_a_comparison_but_for_what_is_tuned() -> None:
    """So that they are found again, whatever was tuned before."""
    (strength,) = tuning("fsr-logit").candidates
    (both,) = tuning("fsr-logit", fields=("strength", "lr")).candidates
    own = Comparison(benchmark="permuted-mnist", methods=("fsr-logit",)).experiments[0]
    (one, _) = strength.runs({"strength": 0.3})
    assert one == replace(own, seed=100, strength=0.3)
    assert one in both.runs({"strength": 0.3, "lr": 0.0001})  # adam's own step size
    assert one not in both.runs({"strength": 0.3, "lr": 0.0004})
    assert (own.seed, own.lr) == (0, None)


def test_the_study_does_not_depend_on_what_the_table_has_by_now(tmp_path: Path) -> None:
    table = tmp_path / "x.toml"
    table.write_text("[permuted-mnist.demo.ewc]\nstrength = 77\n")
    (one,), (other,) = (tuning("ewc", at={"tuned": path}).candidates for path in (None, table))
    assert one.digest() == other.digest()
    (more_seeds,) = tuning("ewc", seeds=3).candidates
    assert more_seeds.digest() != one.digest()


def test_other_sizes_have_sections_of_their_own() -> None:
    def section(method: str, size: Size) -> tuple[str, ...]:
        (candidates,) = tuning(method, at={"size": size}).candidates
        return candidates.section[2:]

    assert section("fsr-logit", Size(1)) == ("fsr-logit", "at_per_class", "1")
    assert section("fsr-logit", Size(budget="64KB")) == ("fsr-logit", "at_budget", "64000")
    assert section("fsr-logit", Size(10)) == ("fsr-logit",)  # the scale's own
    assert section("ewc", Size(1)) == ("ewc",)  # it keeps no items
    (own,), (other,) = (tuning("ewc", at={"size": size}).candidates for size in (None, Size(1)))
    assert own == other
