"""What a new version is made of, and how it joins a store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from selfreminder._base.atomic import write_text
from selfreminder._base.tensor_file import canonical_json, write_plain
from selfreminder.memory import Memory, save_memory
from selfreminder.store.card import write_card
from selfreminder.store.gate import Slice
from selfreminder.store.heldout import HELDOUT, HeldOut
from selfreminder.store.incoming import TableForm
from selfreminder.store.items import ITEMS, Metadata, write_items
from selfreminder.store.judgement import Judgement
from selfreminder.store.manifest import Manifest
from selfreminder.store.page import Shown, write_report
from selfreminder.store.version import ENCODING, MEMORY, MODEL, Version
from selfreminder.store.versions import Versions


@dataclass(frozen=True, eq=False)
class Contents:
    """Weights and data of a version that is to be."""

    weights: Mapping[str, Tensor]
    memory: Memory
    heldout: HeldOut
    items: Metadata
    """of remembered items, and maybe of others"""
    form: TableForm | None = None
    """how tables become inputs"""

    def write(self, folder: Path) -> None:
        """Write all files that hold data into a folder; what a kill has left in it is removed."""
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        write_plain(folder / MODEL, dict(self.weights), {"format": "pt"})
        save_memory(self.memory, folder / MEMORY)
        self.heldout.write(folder / HELDOUT)
        write_items(folder / ITEMS, self.memory, self.items)
        if self.form is not None:
            write_text(folder / ENCODING, canonical_json(self.form.to_json()) + "\n")

    def add_to(
        self,
        store: Versions,
        work: Path,
        manifest: Manifest,
        judgement: Judgement | None = None,
        slices: Sequence[Slice] = (),
    ) -> Version:
        """Let it become a version, which is not current by that; until then it is in a work folder of the store."""
        folder = work / "version"
        self.write(folder)
        write_report(folder, Shown(manifest, judgement, slices, self.heldout, self.memory))
        write_card(folder, manifest)
        return store.add_version(folder, manifest)
