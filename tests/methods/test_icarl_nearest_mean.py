from dataclasses import replace
from pathlib import Path

import pytest

from selfreminder._base.errors import SelfReminderError
from selfreminder.experiment.run import run
from selfreminder.experiment.spec import Experiment

SPLIT = Experiment(
    benchmark="split-mnist",
    method="icarl-nearest-mean",
    data="embedded-mnist",
    images=600,
    tasks=5,
    scenario="class",
    epochs=2,
    width=0.05,
    lr=1e-3,
    per_class=5,
)


@pytest.mark.parametrize("select", ["gradient", "influence:samples=20,iterations=5"])
def test_selections_get_what_they_look_at(select: str, tmp_path: Path) -> None:
    found = run(replace(SPLIT, select=select), tmp_path)
    assert len(found.tasks) == 5


def test_a_network_that_was_not_trained_answers_for_itself(tmp_path: Path) -> None:
    ours = run(SPLIT, tmp_path / "ours")
    adam = run(replace(SPLIT, method="adam"), tmp_path / "adam")
    assert [task.get("next_untrained") for task in ours.tasks] == [task.get("next_untrained") for task in adam.tasks]


def test_a_memory_that_cannot_be_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(SelfReminderError, match="fewer than one for each of the 5 tasks"):
        run(replace(SPLIT, per_class=None, items=2), tmp_path)
