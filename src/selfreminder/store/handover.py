"""`export`: a version as others read it, checked to give the same outputs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from selfreminder._base.errors import SelfReminderError, StoreError
from selfreminder.samples import restore_structure
from selfreminder.store import mlflow
from selfreminder.store.answers import Asking
from selfreminder.store.export import export_hf, export_onnx, export_pt2
from selfreminder.store.progress import Watch, ignore
from selfreminder.store.version import Version
from selfreminder.store.versions import Versions

_EXAMPLES = 8


@dataclass(frozen=True)
class HandedOver:
    """What was written of a version. Print it."""

    version: int
    written: tuple[str, ...]
    """one line for each"""

    def __str__(self) -> str:
        return "\n".join(f"version {self.version}: {line}" for line in self.written)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can say it."""
        return {"version": self.version, "written": list(self.written)}


def hand_over(
    store: Versions,
    number: int | None = None,
    *,
    onnx: Path | None = None,
    pt2: Path | None = None,
    hf: Path | None = None,
    mlflow_uri: str | None = None,
    name: str | None = None,
    watch: Watch = ignore,
) -> HandedOver:
    """Write a version in other formats; see `Store.export`."""
    if onnx is None and pt2 is None and hf is None and mlflow_uri is None:
        raise SelfReminderError("export to what? Say --onnx FILE, --pt2 FILE, --hf DIR or --mlflow URI")
    version = store.current if number is None else store.version(number)
    if problems := version.verify():
        raise StoreError(f"version {version.number} is not whole: {problems[0]}")
    config, classes, written = store.config, version.manifest.classes, []
    for path, export in ((onnx, export_onnx), (pt2, export_pt2)):
        if path is not None:
            asking = Asking(config, watch)
            example = _take_examples(version)
            done = export(asking.load(version), example, path, classes=classes, preprocess=asking.transform)
            written.append(f"{path}, whose logits differ by {done.difference:.1e} at most")
    if hf is not None:
        source = None if config.model.hf is None else config.locate(config.model.hf)
        outputs = version.manifest.outputs
        made = export_hf(version.folder, hf, classes=classes, outputs=outputs, source=source, timm=config.model.timm)
        written.append(str(made))
    if mlflow_uri is not None:
        written.append(_register(store, version, mlflow_uri, name or config.mlflow.name))
    return HandedOver(version.number, tuple(written))


def tell_registry(store: Versions, version: Version) -> tuple[str, ...]:
    """Register a version where [mlflow] says, and move the alias; what went wrong is a note: the store has moved on."""
    if not store.config_path.exists():
        return ()
    try:
        table = store.config.mlflow
        if table.uri is not None:
            _register(store, version, table.uri, table.name)
    except (SelfReminderError, OSError) as error:
        return (f"no registry was told: {error}; later: selfreminder export --version {version.number} --mlflow …",)
    return ()


def _register(store: Versions, version: Version, uri: str, name: str) -> str:
    """Let a version be champion if it is current, else candidate; says so."""
    metrics = {slice_name: each["right"] for slice_name, each in version.manifest.metrics.items()}
    current = version.number == store.current.number
    made = mlflow.register(uri, name, version.folder, metrics=metrics, alias=None if current else mlflow.CANDIDATE)
    if current:
        made = mlflow.promote(uri, name, version.number)
    return f"{name} version {made.version} in {uri}, alias {mlflow.CHAMPION if current else mlflow.CANDIDATE}"


def _take_examples(version: Version) -> Any:
    heldout = version.read_heldout()
    if not len(heldout):
        raise StoreError("nothing is held out to compare the outputs on: an export is checked, or not made")
    few = torch.arange(min(_EXAMPLES, len(heldout)))
    return restore_structure({name: x.decode(few) for name, x in heldout.inputs.items()})
