"""Many runs at once: worker processes of one thread each, and what they say of themselves."""

from selfreminder.experiment.pool.grid import Grid, Job
from selfreminder.experiment.pool.process import Done, Failed, Progress

__all__ = ["Done", "Failed", "Grid", "Job", "Progress"]
