"""An experiment that takes a second: a few hundred embedded digits, two tasks, a twentieth of the width."""

from selfreminder.experiment.spec import Experiment

TINY = Experiment(
    benchmark="permuted-mnist",
    method="adam",
    data="embedded-mnist",
    images=300,
    tasks=2,
    epochs=2,
    width=0.05,
    per_class=2,
)
