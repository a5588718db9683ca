"""trackio: a project on this machine that is named like the folder of the grid; `trackio show` shows it."""
# a package that need not be installed here
# pyright: reportAttributeAccessIssue=false, reportMissingImports=false

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import trackio

from selfreminder.experiment.tracking.base import TrackedRun


class OwnTracker:
    """Logs to a run of trackio's, which goes by the run's own name."""

    def start(self, run: TrackedRun, known: str | None) -> str:
        project = re.sub(r"[^\w-]+", "-", run.folder.resolve().name)
        config = {**run.settings, **{f"version.{name}": value for name, value in run.versions.items()}}
        self._run = trackio.init(project, run.name, config=config, resume="allow", embed=False)
        return run.name

    def epoch(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def task(self, step: int, values: Mapping[str, float]) -> None:
        self.epoch(step, values)

    def end(self, files: Sequence[Path]) -> None:
        if images := [path for path in files if path.suffix == ".png"]:
            self._run.log({path.stem: trackio.Image(str(path)) for path in images}, step=0)
        for path in files:
            if path not in images:
                self._run.log_artifact(str(path), name=f"{self._run.name}-{path.stem}", type="memory")
        self._run.finish()
