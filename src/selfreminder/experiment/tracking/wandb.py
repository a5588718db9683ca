"""Weights & Biases: offline in the folder `wandb` of a grid, for `wandb sync`; to its server with WANDB_MODE=online."""
# a package that need not be installed here
# pyright: reportAttributeAccessIssue=false, reportMissingImports=false

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

import wandb

from selfreminder.experiment.tracking.base import TrackedRun


class OwnTracker:
    """Logs to the project that is named like the grid's folder. Steps are a metric: wandb's own may not go back."""

    def start(self, run: TrackedRun, known: str | None) -> str:
        self._run = wandb.init(
            project=run.folder.resolve().name,
            name=run.name,
            id=known or secrets.token_hex(8),
            resume="allow",
            reinit="create_new",
            dir=str(run.folder),
            mode="online" if os.environ.get("WANDB_MODE") == "online" else "offline",
            config={**run.settings, **{f"version.{name}": value for name, value in run.versions.items()}},
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True),
        )
        self._run.define_metric("*", step_metric="epochs")
        return self._run.id

    def epoch(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, "epochs": step})

    def task(self, step: int, values: Mapping[str, float]) -> None:
        self.epoch(step, values)

    def end(self, files: Sequence[Path]) -> None:
        if images := [path for path in files if path.suffix == ".png"]:
            self._run.log({path.stem: wandb.Image(str(path)) for path in images})
        if others := [path for path in files if path not in images]:
            artifact = wandb.Artifact(f"memory-{self._run.id}", type="memory")
            for path in others:
                artifact.add_file(str(path))
            self._run.log_artifact(artifact)
        self._run.finish()
