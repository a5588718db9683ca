"""Trackers: TensorBoard, MLflow, trackio, Weights & Biases. One file each, an extra each, off unless asked for.

A tracker is told what a run's records say, after they were written: training does not know of it, whatever it does.
"""

from selfreminder.experiment.tracking.base import TRACKERS, TrackedRun, Tracker
from selfreminder.experiment.tracking.follow import Tracking

__all__ = ["TRACKERS", "TrackedRun", "Tracker", "Tracking"]
