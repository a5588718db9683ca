"""MLflow (3 or newer): a server if MLFLOW_TRACKING_URI names one, else the file `mlflow.db` in a grid's folder."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunStatus, RunTag

from selfreminder.experiment.tracking.base import TrackedRun

_DATABASE, _FILES = "mlflow.db", "mlartifacts"
_LONGEST = 500
"""letters of a parameter"""


class OwnTracker:
    """Logs to the MLflow experiment that is named like the grid's folder."""

    def start(self, run: TrackedRun, known: str | None) -> str:
        folder = run.folder.resolve()
        # A server that is away is given up within seconds, not minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        server = os.environ.get("MLFLOW_TRACKING_URI")
        self._client = MlflowClient(tracking_uri=server or f"sqlite:///{folder / _DATABASE}")
        self._heard: set[tuple[str, int]] = set()
        if known is not None:
            self._client.update_run(known, status=RunStatus.to_string(RunStatus.RUNNING))
            self._run = known
            for name in self._client.get_run(known).data.metrics:
                self._heard |= {(name, point.step) for point in self._client.get_metric_history(known, name)}
            return known
        experiment = self._client.get_experiment_by_name(folder.name)
        if experiment is None:
            place = None if server else (folder / _FILES).as_uri()
            number = self._client.create_experiment(folder.name, artifact_location=place)
        else:
            number = experiment.experiment_id
        self._run = self._client.create_run(number, run_name=run.name).info.run_id
        settings = [Param(name, str(value)[:_LONGEST]) for name, value in run.settings.items()]
        versions = [RunTag(f"version.{name}", value) for name, value in run.versions.items()]
        self._client.log_batch(self._run, params=settings, tags=versions)
        return self._run

    def epoch(self, step: int, values: Mapping[str, float]) -> None:
        now, new = int(time.time() * 1000), [name for name in values if (name, step) not in self._heard]
        self._client.log_batch(self._run, [Metric(name, values[name], now, step) for name in new])

    def task(self, step: int, values: Mapping[str, float]) -> None:
        self.epoch(step, values)

    def end(self, files: Sequence[Path]) -> None:
        for path in files:
            self._client.log_artifact(self._run, str(path))
        self._client.set_terminated(self._run)
