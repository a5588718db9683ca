"""TensorBoard: event files in the folder `tensorboard` of a grid, one folder for each run. Torch has no part in it."""
# of protocol buffers, whose names are made at run time
# pyright: reportAttributeAccessIssue=false

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from selfreminder.experiment.tracking.base import TrackedRun


class OwnTracker:
    """Writes event files; a run that goes on adds one to its folder."""

    def start(self, run: TrackedRun, known: str | None) -> str:
        folder = run.folder / "tensorboard" / run.name
        self._heard: set[tuple[str, int]] = set()
        if known is not None:
            before = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
            self._heard = {(tag, each.step) for tag in before.Tags()["scalars"] for each in before.Scalars(tag)}
        self._writer = EventFileWriter(str(folder))
        if known is None and run.settings:
            said = "\n".join(f"    {name}: {value}" for name, value in {**run.settings, **run.versions}.items())
            self._write(0, Summary.Value(tag="settings", tensor=_text(said), metadata=_AS_TEXT))
        return str(folder.relative_to(run.folder))

    def epoch(self, step: int, values: Mapping[str, float]) -> None:
        new = {name: value for name, value in values.items() if (name, step) not in self._heard}
        self._write(step, *(Summary.Value(tag=name, simple_value=value) for name, value in new.items()))

    def task(self, step: int, values: Mapping[str, float]) -> None:
        self.epoch(step, values)

    def end(self, files: Sequence[Path]) -> None:
        for path in files:
            if path.suffix == ".png":
                image = Summary.Image(encoded_image_string=path.read_bytes(), colorspace=4)
                self._write(0, Summary.Value(tag=path.stem, image=image))
        self._writer.close()

    def _write(self, step: int, *values: Summary.Value) -> None:
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
        self._writer.flush()  # what was told is told, whatever becomes of this process


_AS_TEXT = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))


def _text(said: str) -> TensorProto:
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    return TensorProto(dtype=DT_STRING, string_val=[said.encode()], tensor_shape=shape)
