"""Experiments: what is run, how it is run, what is recorded, and how it stands. Importing this needs no torch."""

from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.records import Records, read_records
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.status import Status, read_status
from selfreminder.experiment.sweep import Sweep, read_sweep

__all__ = ["Comparison", "Experiment", "Records", "Status", "Sweep", "read_records", "read_status", "read_sweep"]
