"""Runs on other machines than this one: Ray, Slurm. An extra each, imported only where asked for."""

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from selfreminder._base.errors import MissingExtraError, SelfReminderError, unknown
from selfreminder.experiment.pool.grid import Grid
from selfreminder.experiment.pool.process import Place

PLACES = ("local", "ray", "auto", "slurm")


def open_place(on: str, cpus: float = 1.0, gpus: float = 0.0, data_dir: str | None = None) -> Place | None:
    """Open the place that --on names: None for this machine, and for Slurm. Raises if it cannot be reached.

    Args:
        on: local; ray, for a Ray of its own on this machine; auto, for the cluster that this machine is part of; or
            ray://HOST:PORT.
        cpus: of each run, on Ray.
        gpus: of each run, on Ray.
        data_dir: a folder with data files of the user's.
    """
    if on == "local":
        if gpus or cpus != 1:
            raise SelfReminderError("--cpus-per-run and --gpus-per-run are for --on ray: here a run has one core")
        return None
    if on == "slurm":
        return None
    if on not in PLACES and not on.startswith("ray://"):
        raise unknown("place", on, (*PLACES, "ray://HOST:PORT"))
    if not cpus > 0 or gpus < 0:
        raise SelfReminderError(f"--cpus-per-run {cpus:g} --gpus-per-run {gpus:g}: a run needs some CPU")
    try:
        from selfreminder.experiment.cluster.ray_place import RayPlace  # noqa: PLC0415 - of the extra `ray`
        from selfreminder.experiment.cluster.ray_worker import Needs  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError(f"--on {on} needs {error.name}: pip install 'selfreminder[ray]'") from None
    return RayPlace(None if on == "ray" else on, Needs(cpus, gpus), data_dir)


def find_slurm(settings: Iterable[str]) -> Callable[..., Grid]:
    """Give what makes grids that Slurm runs; settings are words such as timeout_min=240 or slurm_partition=long."""
    try:
        from selfreminder.experiment.cluster.slurm import SlurmGrid  # noqa: PLC0415 - of the extra `slurm`
    except ImportError as error:
        raise MissingExtraError(f"--on slurm needs {error.name}: pip install 'selfreminder[slurm]'") from None
    found: dict[str, Any] = {}
    for word in settings:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise SelfReminderError(f"--slurm {word}: write a setting of submitit, such as timeout_min=240")
        found[name] = int(value) if re.fullmatch(r"\d{1,9}", value) else value
    return partial(SlurmGrid, settings=found)
